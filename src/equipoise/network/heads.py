"""Heads: from the units of a network's last layer to means, variances and sensor factors.

The twins of this file are in `fast/heads.py`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.gaussian import DiagonalGaussian

LOG_VAR_BOUND = 20.0  # of the logarithm of a variance, either way
LOG_FACTOR_BOUND = 4.0  # of the logarithm of a sensor factor


@dataclass(frozen=True)
class NetworkGaussian(DiagonalGaussian):
    """The network's output for rows: `y ~ N(μ, diag(v))`, and the factor of the sensor variances there.

    Args:
        mean, var: `μ` and `v`, shape `(..., n_y)`.
        sensor_factor: `κ` (V4), by which learned sensor variances are multiplied; None without a sensor head.
    """

    sensor_factor: Float[Tensor, "... n_y"] | None = None


def heads_of(units: Float[Tensor, "... n_out"], n_outputs: int) -> NetworkGaussian:
    """Compute means, variances (V3) and, with a sensor head, sensor factors (V4).

    Args:
        units: Units of the last layer: `n_outputs` means, as many raw log-variances, and perhaps as many raw factors.
        n_outputs: Number of outputs.
    """
    mean, raw, *rest = units.split(n_outputs, dim=-1)
    factor = bounded(rest[0], LOG_FACTOR_BOUND).exp() if rest else None  # V4
    return NetworkGaussian(mean, bounded(raw, LOG_VAR_BOUND).exp(), factor)  # V3


def bounded(raw: Tensor, bound: float) -> Tensor:
    """Compute `bound · tanh(raw / bound)`.

    Args:
        raw: Any numbers.
        bound: Largest absolute value of the result.
    """
    return bound * torch.tanh(raw / bound)
