"""Mean, variance and ledger of 1,000 posterior draws at 4,200 rows, beside bare products and other libraries.

Others give mean and variance of the conditioned mixture, less than the ledger that ours give in the same time.
"""

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import torch

from benchmarks import cell, peers, prediction
from benchmarks.bayes import Task
from benchmarks.targets import Outcome
from benchmarks.timing import laps
from equipoise.data.scaling import Standardizer
from equipoise.network.likelihood import marginal
from equipoise.prediction.predictive import Predictive

PEERS = ("numpyro", "pyro", "bayesian_torch")


def run(quick: bool) -> Iterator[Outcome]:
    """Everything in turn, in one run."""
    n_draws, n_rows = (64, 64) if quick else (1000, 4200)
    X, Y = cell.data(n_rows)
    standardizer = Standardizer.fit(X, Y, cell.BALANCES)
    model = cell.model(standardizer, marginal)
    p = Predictive(model, standardizer, X, cell.BALANCES.outputs, n_draws)
    prediction.check_agreement(p)
    rows = cell.rows(X, Y, standardizer)
    others = _peers(Task.of(model, rows, "marginal", n_rows, n_rows), p)
    seconds, ours, note = 0.1 if quick else 60.0, partial(_ledger_and_mean, p), f"{n_draws:,} draws × {n_rows:,} rows"
    bare = prediction.bare(p)
    run = laps({"ours": ours, **bare}, seconds)
    yield Outcome.of("predict_vs_bare_gemm", run, "ours", min(bare, key=run.best), note=note)
    missing = [peers.PACKAGES[name] for name in PEERS if peers.problem(name)]
    absent = f"not there: {', '.join(missing)}" if missing else ""
    if not others:
        yield Outcome("predict_vs_best_peer", note=absent)
        return
    run = laps({"ours": ours, **others}, seconds)
    times = "; ".join(f"{name} {run.best(name):,.0f} ms" for name in others)
    note = "; ".join(filter(None, [times, absent]))
    yield Outcome.of("predict_vs_best_peer", run, "ours", min(others, key=run.best), note=note)


def _ledger_and_mean(p: Predictive) -> object:
    """By a copy, which remembers nothing of earlier calls."""
    fresh = dataclasses.replace(p)
    return fresh.ledger(), fresh.mean


def _peers(task: Task, p: Predictive) -> Mapping[str, Callable]:
    """What the installed peers offer, each checked."""
    found: dict[str, Callable] = {}
    for name in (each for each in PEERS if peers.problem(each) is None):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found |= peers.load(name).predictors(task, p.n_draws)
    for name, call in found.items():
        _check_agreement(name, call, p)
    return found


def _check_agreement(name: str, call: Callable, p: Predictive) -> None:
    """Mean and variance of the same mixture, but for the draws: within six standard errors of the mean."""
    torch.manual_seed(0)
    mean, var = (np.asarray(part) for part in call())
    y_std = p.standardizer.y_std
    error = math.sqrt(2.0 / p.n_draws)  # of a difference between two averages, in standard deviations
    gap = np.abs(p.standardizer.outputs_to_user(mean) - p.mean) / np.sqrt(p.var)
    np.testing.assert_array_less(gap, 6.0 * error, err_msg=name)
    np.testing.assert_allclose(np.log(var * y_std**2), np.log(p.var), atol=6.0 * error, err_msg=name)
