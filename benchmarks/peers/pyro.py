"""Pyro: the model as a probabilistic program in torch, with a mean-field guide."""

from collections.abc import Callable

import pyro
import torch
from pyro import distributions as dist
from pyro.infer import SVI, Predictive, TraceMeanField_ELBO
from pyro.infer.autoguide import AutoNormal, init_to_value
from torch import Tensor

from benchmarks.bayes import Task, conditioned, nll, units


def step(task: Task) -> tuple[Callable[[], object], int]:
    """A training step without balances, and how many that are."""
    pyro.clear_param_store()
    batch = task.first()

    def model(x: Tensor, target: Tensor, y: Tensor) -> None:
        weights = _weights(task)
        pyro.factor("likelihood", -task.n_rows * nll(units(weights, x, task.sizes), y))

    svi = SVI(model, _guide(model, task), pyro.optim.Adam({"lr": 1e-5}), TraceMeanField_ELBO())
    return lambda: svi.step(*batch), 1


def predictors(task: Task, n_draws: int) -> dict[str, Callable[[], tuple[Tensor, Tensor]]]:
    """Mean and variance of the mixture over draws from the guide, by `Predictive`."""
    pyro.clear_param_store()

    def model() -> None:
        weights = _weights(task)
        prior = dist.Normal(torch.full((len(task.B),), task.prior[0]), task.prior[1])
        rho = pyro.sample("rho", prior.to_event(1))
        mean, var = conditioned(task, units(weights, task.x, task.sizes), rho.exp())
        pyro.deterministic("mean", mean, event_dim=2)
        pyro.deterministic("var", var, event_dim=2)

    guide = _guide(model, task, rho=torch.full((len(task.B),), task.prior[0]))
    guide()
    with torch.no_grad():
        guide.scales.rho.fill_(task.prior[1])
    draw = Predictive(model, guide=guide, num_samples=n_draws, return_sites=("mean", "var"))

    @torch.no_grad()
    def call():
        found = draw()
        return found["mean"].mean(0), found["var"].mean(0) + found["mean"].var(0, correction=0)

    return {"Pyro": call}


def _weights(task: Task) -> Tensor:
    return pyro.sample("weights", dist.Normal(torch.zeros_like(task.weights), 1.0).to_event(1))


def _guide(model: Callable, task: Task, **start: Tensor) -> AutoNormal:
    values = {"weights": task.weights} | start
    return AutoNormal(model, init_loc_fn=init_to_value(values=values), init_scale=task.init_std)
