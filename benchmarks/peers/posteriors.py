"""posteriors: a functional diagonal Gaussian over the parameters of a plain torch module."""

import warnings
from collections.abc import Callable

import torch
import torchopt
from torch.func import functional_call

from benchmarks.bayes import Task, nll, plain

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its state classes warn of the next release of TensorDict
    import posteriors


def step(task: Task) -> tuple[Callable[[], object], int]:
    """A training step, and how many that are."""
    network, batch = plain(task), task.first()
    params = dict(network.named_parameters())

    def log_posterior(params, batch):
        x, _, y = batch
        prior = posteriors.diag_normal_log_prob(params) / task.n_rows
        return prior - nll(functional_call(network, params, x), y), torch.zeros(())

    log_std = float(torch.tensor(task.init_std).log())
    optimizer = torchopt.adam(lr=1e-5)
    vi = posteriors.vi.diag.build(log_posterior, optimizer, temperature=1.0 / task.n_rows, init_log_sds=log_std)
    kept = [vi.init(params)]

    def call():
        kept[0], _ = vi.update(kept[0], batch)

    return call, 1
