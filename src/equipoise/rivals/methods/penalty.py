"""Soft penalty (physics-informed networks): the loss grows with the residual of the mean in the balances.

::

    loss = −log p(y) + λ ‖B μ − t‖²

in units of the balances' scales. The penalty acts in training alone: predictions are not made to obey. There is one λ
for all balances, and it has to be tuned.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from equipoise.gaussian import ConditionedGaussian, DiagonalGaussian, Gaussian
from equipoise.network import Imposition, Likelihood, marginal


@dataclass(frozen=True)
class ResidualGaussian(DiagonalGaussian):
    """A diagonal Gaussian with the residual of its mean in the balances.

    Args:
        mean, var: Mean and variances, shape `(..., n_y)`.
        residual: `t − B μ`, shape `(..., m)`.
    """

    residual: Float[Tensor, "... m"]

    @classmethod
    def before(cls, conditioned: ConditionedGaussian) -> "ResidualGaussian":
        """Return the Gaussian as it was before conditioning, with its residual."""
        return cls(conditioned.prior.mean, conditioned.prior.var, conditioned.innovation)

    @property
    def innovation(self) -> Float[Tensor, "... m"]:  # type: ignore[override]
        """The residual, although the balances condition nothing."""
        return self.residual


class KeepResidual(Imposition):
    """Leave the network's Gaussian as it is, with its residual, for `Penalised`."""

    name = "penalty"

    def impose(self, conditioned: ConditionedGaussian) -> ResidualGaussian:
        """Return the Gaussian as it was before conditioning, with its residual."""
        return ResidualGaussian.before(conditioned)


@dataclass(frozen=True)
class Penalised(Likelihood):
    """The likelihood of independent outputs (L1), less `strength · ‖t − B μ‖²` of a `ResidualGaussian`.

    Args:
        strength: λ, at least 0.
    """

    name, is_joint, has_sensor_noise = "penalised", False, False

    strength: float

    def log_prob(self, gaussian: Gaussian, y: Tensor, sensor_var: Tensor | float = 0.0) -> Tensor:
        """Compute the log density less the penalty; arguments are those of `Likelihood.log_prob`."""
        return marginal(gaussian, y, sensor_var) - self.strength * gaussian.innovation.square().sum(-1)
