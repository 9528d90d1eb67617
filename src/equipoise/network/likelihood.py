"""The two likelihoods of measured outputs: the paper's diagonal one (L1) and the joint one (L2)."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.gaussian import ConditionedGaussian, DiagonalGaussian, normal_log_prob


@runtime_checkable
class Likelihood(Protocol):
    """`(gaussian, y, sensor_var) -> log p(y)` per row; NaN in y means "not measured"."""

    def __call__(
        self, gaussian: DiagonalGaussian | ConditionedGaussian, y: Tensor, sensor_var: Tensor | float = 0.0
    ) -> Tensor: ...


def marginal(
    gaussian: DiagonalGaussian | ConditionedGaussian,
    y: Float[Tensor, "... n_y"],
    sensor_var: Tensor | float = 0.0,
) -> Float[Tensor, "..."]:
    """The paper's likelihood: the diagonal of `Σ_C` alone.

    ::

        log p(y | t) = Σ_j log N(y_j; μ_C,j , v_C,j + w_j)                         (L1)

    The paper has `w = 0`. The term of an output that was not measured is dropped. `v_C` is kept above the rounding of
    `v`, so that an output that its balance determines completely has a finite density.
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
    """The joint likelihood with sensor noise, by L2's identity; unmeasured outputs are marginalised (L2)."""
    if isinstance(gaussian, DiagonalGaussian):
        return marginal(gaussian, y, sensor_var)  # nothing couples the outputs: the two are the same
    return gaussian.log_prob(y, sensor_var)
