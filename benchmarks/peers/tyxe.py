"""TyXe: a Bayesian network from a plain torch one, on top of Pyro."""

import warnings
from collections.abc import Callable
from functools import partial

import pyro
import torch
from pyro import distributions as dist
from pyro.infer.autoguide import AutoNormal

from benchmarks.bayes import Task, plain

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tyxe


def step(task: Task) -> tuple[Callable[[], object], int]:
    """A training step, and how many that are: the variance is a head of the network, as everywhere."""
    pyro.clear_param_store()
    x, _, y = task.first()
    prior = tyxe.priors.IIDPrior(dist.Normal(0.0, 1.0))
    network = plain(task)
    start = tyxe.guides.PretrainedInitializer.from_net(network)
    guide = partial(AutoNormal, init_loc_fn=start, init_scale=task.init_std)  # its own needs an older Pyro
    bnn = tyxe.VariationalBNN(network, prior, _Likelihood(task.n_rows), guide)
    optimizer = pyro.optim.Adam({"lr": 1e-5})
    return lambda: bnn.fit([(x, y)], optimizer, 1), 1


class _Likelihood(tyxe.likelihoods.HeteroskedasticGaussian):
    """Its network gives log variances, as everyone's here, where TyXe's own head gives standard deviations."""

    def predictive_distribution(self, predictions: torch.Tensor):
        mean, log_var = predictions.chunk(2, dim=-1)
        return dist.Normal(mean, (0.5 * log_var).exp()).to_event(1)
