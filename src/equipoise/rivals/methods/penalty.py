"""Soft penalty (physics-informed networks): the loss grows with how far the mean misses the balances.

::

    loss = −log p(y) + λ ‖B μ − t‖²

in units of the balances' scales. It acts in training alone: nothing makes a prediction obey. λ is a number that has to
be tuned, and one for all balances.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from equipoise.gaussian import ConditionedGaussian, DiagonalGaussian
from equipoise.network import marginal


@dataclass(frozen=True)
class MissingGaussian(DiagonalGaussian):
    """A diagonal Gaussian that knows by how much its mean misses the balances.

    Args:
        mean, var: Shape `(..., n_y)`.
        miss: `t − B μ`, shape `(..., m)`.
    """

    miss: Float[Tensor, "... m"]

    @classmethod
    def of(cls, conditioned: ConditionedGaussian) -> "MissingGaussian":
        """The Gaussian before conditioning."""
        return cls(conditioned.prior.mean, conditioned.prior.var, conditioned.innovation)


@dataclass(frozen=True)
class Penalised:
    """A likelihood: that of independent outputs, less `strength ‖t − B μ‖²` where the Gaussian knows it."""

    strength: float

    def __call__(
        self, gaussian: DiagonalGaussian | ConditionedGaussian, y: Tensor, sensor_var: Tensor | float = 0.0
    ) -> Tensor:
        density = marginal(gaussian, y, sensor_var)
        if not isinstance(gaussian, MissingGaussian):
            return density
        return density - self.strength * gaussian.miss.square().sum(-1)
