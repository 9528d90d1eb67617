"""One training step of the constrained Bayesian network, beside plain torch and beside other Bayesian libraries."""

import warnings
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from benchmarks import bayes, cell, peers, training
from benchmarks.bayes import Task
from benchmarks.results import Result
from benchmarks.targets import Outcome
from benchmarks.timing import Laps, laps, repeated
from equipoise.data.rows import Rows
from equipoise.data.scaling import Standardizer
from equipoise.gaussian.conditioning import condition
from equipoise.gaussian.distributions import DiagonalGaussian
from equipoise.network.likelihood import Likelihood, joint, marginal
from equipoise.network.model import ConstrainedBNN

STEPS = 50  # in a call: process time has a resolution, and NumPyro compiles a loop
METHODS: dict[str, tuple[Likelihood, bool]] = {"L1": (marginal, False), "L2": (joint, True)}
LIKELIHOODS = {"L1": "marginal", "L2": "joint"}
UNCONSTRAINED = ("numpyro", "bayesian_torch", "torchbnn", "blitz", "torch_uncertainty", "posteriors", "pyro", "tyxe")


def run(quick: bool) -> Iterator[Outcome | Result]:
    """Forward, negative ELBO, backward and Adam, batch 512, network 3-64-64-16."""
    X, Y = cell.data(training.BATCH)
    standardizer = Standardizer.fit(X, Y, cell.BALANCES)
    rows = cell.rows(X, Y, standardizer)
    models = {name: cell.model(standardizer, *method[:1], sensor=method[1]) for name, method in METHODS.items()}
    steps = 2 if quick else STEPS
    calls = {name: repeated(training.step(model, rows), steps) for name, model in models.items()}
    calls["plain torch"] = repeated(training.plain_step(rows), steps)
    yield _beside_plain(laps(calls, 0.1 if quick else 20.0), steps)
    yield _beside_numpyro(models, rows, 0.1 if quick else 20.0)
    yield from _unconstrained(models["L1"], rows, 0.1 if quick else 5.0, UNCONSTRAINED[1:3] if quick else UNCONSTRAINED)


def slower(run: Laps) -> str:
    """Which of our methods takes longer."""
    return max(METHODS, key=run.best)


def _beside_plain(run: Laps, steps: int) -> Outcome:
    ours = slower(run)
    note = ", ".join(f"{name} {run.best(name) / steps:.2f} ms" for name in METHODS)
    return Outcome.of("train_step_vs_plain_torch", run, ours, "plain torch", per=steps, note=note)


def _beside_numpyro(models: dict[str, ConstrainedBNN], rows: Rows, seconds: float) -> Outcome:
    """The slower of ours against its own counterpart; both likelihoods are raced, answers checked."""
    name = "train_step_vs_numpyro"
    if (problem := peers.problem("numpyro")) is not None:
        return Outcome(name, beside="NumPyro", note=problem)
    peer, calls = peers.load("numpyro"), {}
    for method, model in models.items():
        task = Task.of(model, rows, LIKELIHOODS[method], training.BATCH, training.N_ROWS)
        _check_agreement(peer, task, model, rows)
        calls[f"NumPyro {method}"], steps = peer.step(task)
        calls[method] = repeated(training.step(model, rows), steps)
    run = laps(calls, seconds)
    worst = max(METHODS, key=lambda method: run.ratio(method, f"NumPyro {method}"))
    note = "; ".join(f"{each} {run.best(each) / steps:.2f} ms" for each in calls) + "; without compilation"
    return Outcome.of(name, run, worst, f"NumPyro {worst}", per=steps, note=note)


def _check_agreement(peer, task: Task, model: ConstrainedBNN, rows: Rows) -> None:
    """The peer's density of every row, at given weights, tolerances and sensors, is ours to single precision."""
    generator = torch.Generator().manual_seed(0)
    tol_var = torch.randn(2, generator=generator, dtype=torch.float64).sub(3.0).exp()
    sensor_var = torch.randn(8, generator=generator, dtype=torch.float64).sub(3.0).exp()
    output = model.network.at_means(rows.x)
    prior = DiagonalGaussian(output.mean.double(), output.var.double())
    assert model.conditioning is not None
    assert rows.target is not None
    conditioned = condition(prior, model.conditioning.B, rows.target, tol_var)
    noise = sensor_var.expand_as(prior.mean) if task.likelihood == "joint" else 0.0
    ours = model.likelihood(conditioned, rows.y, noise).detach().numpy()
    theirs = peer.log_prob(task, task.weights, tol_var, sensor_var)
    np.testing.assert_allclose(theirs, ours, rtol=2e-3, atol=2e-3)


def _unconstrained(model: ConstrainedBNN, rows: Rows, seconds: float, names: tuple[str, ...]) -> Iterator[Result]:
    """Our slower constrained step beside others' steps *without* balances: what their users pay for Bayes alone."""
    task = Task.of(model, rows, "none", training.BATCH, training.N_ROWS)
    sizes = {"batch": training.BATCH, "n_x": 3, "n_y": 8, "m": 2, "hidden_layers": 2, "width": 64}
    for name in (each for each in names if peers.problem(each) is None):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            peer = peers.load(name)
            _check_network(peer, task)
            theirs, steps = peer.step(task)
            calls = {"ours": repeated(training.step(model, rows), steps), "theirs": theirs}
            run = laps(calls, seconds, min_rounds=3)
        other = f"{peers.TITLES[name]}, without balances"
        yield Result("training step, L1", other, run.best("ours") / steps, run.best("theirs") / steps, sizes)


def _check_network(peer, task: Task) -> None:
    """Layers of other libraries, with next to no spread, say what plain torch says."""
    if not hasattr(peer, "network") or not hasattr(peer, "layered"):
        return
    network = peer.network(replace(task, init_std=1e-6))
    torch.testing.assert_close(network(task.x), bayes.plain(task)(task.x), rtol=1e-3, atol=1e-3)
