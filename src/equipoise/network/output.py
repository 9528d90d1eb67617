"""The output of a network for rows and weight draws."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from equipoise.gaussian import DiagonalGaussian


@dataclass(frozen=True)
class NetworkGaussian(DiagonalGaussian):
    """The network's output for rows: `y ~ N(μ, diag(v))`, and the factor of the sensor variances there.

    Args:
        mean, var: `μ` and `v`, shape `(..., n_y)`.
        sensor_factor: `κ` (V4), by which learned sensor variances are multiplied; None without a sensor head.
    """

    sensor_factor: Float[Tensor, "... n_y"] | None = None
