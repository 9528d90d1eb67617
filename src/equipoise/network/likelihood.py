"""Likelihoods of measured outputs: the paper's, which keeps the diagonal of `Σ_C` (L1), and the joint one (L2)."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.gaussian import ConditionedGaussian, DiagonalGaussian, normal_log_prob


@runtime_checkable
class Likelihood(Protocol):
    """A function of a Gaussian of the true outputs and of measured ones that returns the log density of each row.

    Arguments and result are those of `marginal` and `joint`.
    """

    def __call__(
        self, gaussian: DiagonalGaussian | ConditionedGaussian, y: Tensor, sensor_var: Tensor | float = 0.0
    ) -> Tensor: ...


def marginal(
    gaussian: DiagonalGaussian | ConditionedGaussian,
    y: Float[Tensor, "... n_y"],
    sensor_var: Tensor | float = 0.0,
) -> Float[Tensor, "..."]:
    """Compute the paper's log likelihood, which treats outputs as independent given the network's weights.

    ::

        log p(y | t) = Σ_j log N(y_j; μ_C,j , v_C,j + w_j)                         (L1)

    The paper has `w = 0`. `v_C` is kept above the rounding of `v`, so that an output that its balance determines
    completely has a finite density.

    Args:
        gaussian: Distribution of the true outputs, conditioned on the balances if there are any, shape `(..., n_y)`.
        y: Measured outputs, NaN where not measured, shape `(..., n_y)`; the terms of those are dropped.
        sensor_var: Sensor variances `w`, broadcast against `y`.
    Returns:
        Log density of each row, in nats, shape `(...)`.

    Example:
        >>> marginal(DiagonalGaussian(torch.zeros(2), torch.ones(2)), torch.tensor([0.0, torch.nan]))
        tensor(-0.9189)
    """
    mean, measured = gaussian.mean, ~y.isnan()
    var = gaussian.var
    if isinstance(gaussian, ConditionedGaussian):
        var = torch.maximum(var, torch.finfo(mean.dtype).eps * gaussian.prior.var[..., : mean.shape[-1]].to(mean.dtype))
    var = var + sensor_var
    return torch.where(measured, normal_log_prob(torch.where(measured, y, mean), mean, var), 0.0).sum(-1)


def joint(
    gaussian: DiagonalGaussian | ConditionedGaussian,
    y: Float[Tensor, "... n_y"],
    sensor_var: Tensor | float = 0.0,
) -> Float[Tensor, "..."]:
    """Compute the log density of all measured outputs together; outputs not measured are marginalised (L2).

    Args:
        gaussian: Distribution of the true outputs, conditioned on the balances if there are any, shape `(..., n_y)`.
        y: Measured outputs, NaN where not measured, shape `(..., n_y)`.
        sensor_var: Sensor variances `w`, broadcast against `y`.
    Returns:
        Log density of each row, in nats, shape `(...)`.

    Example:
        >>> joint(DiagonalGaussian(torch.zeros(2), torch.ones(2)), torch.zeros(2), sensor_var=1.0)
        tensor(-2.5310)
    """
    if isinstance(gaussian, DiagonalGaussian):
        return marginal(gaussian, y, sensor_var)  # without balances, outputs are independent
    return gaussian.log_prob(y, sensor_var)
