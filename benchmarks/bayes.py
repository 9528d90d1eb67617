"""The same Bayesian regression for every library: data, sizes, priors, and what a trained posterior must show.

The functions of torch tensors are what a user of another torch library would write: few operations, single precision,
and a division per balance, since these balances share no output.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from equipoise.data.rows import Rows
from equipoise.gaussian.conditioning import condition
from equipoise.gaussian.distributions import DiagonalGaussian
from equipoise.network.layers import layer_views
from equipoise.network.likelihood import joint
from equipoise.network.model import ConstrainedBNN

LOG_2PI = math.log(2.0 * math.pi)
PRIOR = (-6.0, 3.0)  # of the logarithms of relative tolerances and sensor variances


@dataclass(frozen=True)
class Task:
    """Rows in standardized units and a network with its starting weights; nothing in it belongs to one library.

    Args:
        x, target, y: Inputs, targets of the balances, outputs; float32.
        B: Coefficients of the balances.
        sizes: Widths of the layers, inputs and outputs included.
        weights: Starting weights, flat: `W` of shape `(fan_in, fan_out)`, then bias, layer by layer.
        init_std: Starting standard deviation of every weight.
        likelihood: "joint" (L2, sensors learned), "marginal" (L1) or "none", without balances.
        batch: Rows per step.
        n_rows: Rows of the data set that a batch stands for.
        prior: Mean and standard deviation of log tolerances and log sensor variances.
    """

    x: Tensor
    target: Tensor
    y: Tensor
    B: Tensor
    sizes: tuple[int, ...]
    weights: Tensor
    init_std: float
    likelihood: str
    batch: int
    n_rows: int
    prior: tuple[float, float] = PRIOR

    @classmethod
    def of(cls, model: ConstrainedBNN, rows: Rows, likelihood: str, batch: int, n_rows: int) -> "Task":
        """The task of one of our models before it is trained."""
        assert model.conditioning is not None
        assert rows.target is not None
        q = model.network.posterior
        flat, std = q.loc.detach().clone(), float(q.log_std.detach()[0].exp())
        data = rows.x, rows.target.float(), rows.y.float(), model.conditioning.B
        return cls(*data, model.network.sizes, flat, std, likelihood, batch, n_rows)

    def first(self) -> tuple[Tensor, Tensor, Tensor]:
        """The first batch."""
        return self.x[: self.batch], self.target[: self.batch], self.y[: self.batch]

    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Starting `(W, bias)` of each layer."""
        return layer_views(self.weights, self.sizes)


@dataclass(frozen=True)
class Draws:
    """Posterior draws of weights `(n, P)`, tolerances `(n, m)` and sensor variances `(n, n_y)`."""

    weights: Tensor
    tol_var: Tensor
    sensor_var: Tensor


@torch.no_grad()
def mixture_nll(model: ConstrainedBNN, rows: Rows, draws: Draws) -> float:
    """Negative log density per row of the mixture over draws, in standardized units: one judge for all libraries."""
    assert model.conditioning is not None
    assert rows.target is not None
    output = model.network.at(draws.weights, rows.x)
    tol_var, sensor_var = draws.tol_var.unsqueeze(1), draws.sensor_var.unsqueeze(1)
    prior = DiagonalGaussian(output.mean.double(), output.var.double())
    conditioned = condition(prior, model.conditioning.B, rows.target, tol_var)
    density = joint(conditioned, rows.y, sensor_var.expand_as(prior.mean))
    return -float((torch.logsumexp(density, 0) - math.log(len(density))).mean())


def plain(task: Task) -> nn.Sequential:
    """The same network in plain torch, at the starting weights."""
    modules: list[nn.Module] = []
    for W, bias in task.layers():
        linear = nn.Linear(*W.shape)
        linear.load_state_dict({"weight": W.mT, "bias": bias})
        modules += [linear, nn.SiLU()]
    return nn.Sequential(*modules[:-1])


def units(weights: Tensor, x: Tensor, sizes: Sequence[int]) -> Tensor:
    """The last layer of the network for one draw of all weights."""
    for i, (W, bias) in enumerate(parts := layer_views(weights, sizes)):
        x = torch.addmm(bias, x, W)
        x = nn.functional.silu(x) if i < len(parts) - 1 else x
    return x


def nll(units: Tensor, y: Tensor) -> Tensor:
    """Heteroscedastic Gaussian negative log likelihood per row, without balances."""
    mean, log_var = units.chunk(2, dim=-1)
    return 0.5 * ((y - mean).square() * (-log_var).exp() + log_var + LOG_2PI).sum(-1).mean()


def conditioned(task: Task, units: Tensor, tol_var: Tensor) -> tuple[Tensor, Tensor]:
    """Conditioned mean and variance of all rows for one draw."""
    (mean, log_var), B = units.chunk(2, dim=-1), task.B.float()
    var = log_var.exp()
    S = var @ B.square().mT + tol_var
    gain = ((task.target - mean @ B.mT) / S) @ B
    return mean + var * gain, var - var.square() * ((1.0 / S) @ B.square())


def softplus_inverse(value: Tensor) -> Tensor:
    """`log(exp(value) − 1)`: what layers keep that make a standard deviation by `softplus`."""
    return value.expm1().log()
