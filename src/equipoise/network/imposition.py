"""Impositions: other ways to make a network's Gaussian obey the balances than to condition it on them (C1–C4)."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from equipoise.gaussian import ConditionedGaussian, DiagonalGaussian


class Imposition(ABC):
    """A map from a conditioned Gaussian, which has its prior, balances, targets and tolerances, to another one.

    Attributes:
        name: Name in model files.
    """

    name: ClassVar[str]

    @abstractmethod
    def impose(self, conditioned: ConditionedGaussian) -> DiagonalGaussian | ConditionedGaussian:
        """Return the Gaussian that takes the place of a conditioned one.

        Args:
            conditioned: `N(μ, diag(v))` with its balances; its moments after conditioning are computed only if they are
                asked for.
        Returns: A Gaussian of the same shape, differentiable with respect to all that `conditioned` is made of.
        """

    def settings(self) -> dict[str, Any]:
        """Return the arguments with which the class makes this imposition again, as JSON can hold them."""
        return {}
