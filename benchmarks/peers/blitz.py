"""blitz: layers that draw their weights, with a KL estimated from the draw."""

import warnings
from collections.abc import Callable

from benchmarks.bayes import Task, softplus_inverse
from benchmarks.peers import layered

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from blitz.modules import BayesianLinear


def network(task: Task) -> layered.Layers:
    def make(fan_in: int, fan_out: int) -> BayesianLinear:
        return BayesianLinear(fan_in, fan_out, prior_sigma_1=1.0, prior_pi=1.0)

    return layered.Layers(task, make, lambda x: (x.weight_mu, x.bias_mu, x.weight_rho, x.bias_rho), softplus_inverse)


def step(task: Task) -> tuple[Callable[[], object], int]:
    """A training step, and how many that are."""
    net = network(task)
    return layered.step(task, net, lambda: sum(x.log_variational_posterior - x.log_prior for x in net.layers)), 1
