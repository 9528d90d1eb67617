"""ImposedBNN: the core's model with another source of weights, or another way to meet its balances."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.data import Rows
from equipoise.gaussian import ConditionedGaussian, DiagonalGaussian
from equipoise.network import ConstrainedBNN, PosteriorDraws

Gaussian = DiagonalGaussian | ConditionedGaussian
Meeting = Callable[[ConditionedGaussian], Gaussian]


@runtime_checkable
class WeightSource(Protocol):
    """Where draws of the network's flat weight vector come from."""

    def draw(self, seed: int, block: int) -> Float[Tensor, "n_draws P"]:
        """Draws number `32 · block … 32 · block + 31`, the same ones for given (seed, block) always."""
        ...


class ImposedBNN(ConstrainedBNN):
    """A network whose weights come from `source`, and whose Gaussian meets the balances by `meet`.

    Args:
        built: What the estimator builds: network, conditioning, likelihood, sensors.
        meet: What becomes of a conditioned Gaussian, for instance the same with another gain; None leaves it. Balances
            that are met in another way must have the tolerance 0.
    """

    def __init__(self, built: ConstrainedBNN, meet: Meeting | None = None):
        super().__init__(built.network, built.conditioning, built.likelihood, built.sensor, built.rounding)
        self.meet = meet
        self.source: WeightSource | None = None

    @property
    def conditions_by_definition(self) -> bool:
        """Unless the balances are met in a way of their own."""
        return self.meet is None or self.conditioning is None

    def condition(
        self, gaussian: DiagonalGaussian, target: Tensor | None, tol_var: Tensor | None, offset: Tensor | None = None
    ) -> Gaussian:
        """The network's Gaussian as it meets the balances, if there are any."""
        conditioned = super().condition(gaussian, target, tol_var, offset)
        if self.meet is None or not isinstance(conditioned, ConditionedGaussian):
            return conditioned
        return self.meet(conditioned)

    def draw(self, seed: int, block: int) -> PosteriorDraws:
        """The core's draws of tolerances and sensors, beside those that `source` gives of the weights."""
        drawn = super().draw(seed, block)
        return drawn if self.source is None else replace(drawn, weights=self.source.draw(seed, block))

    def kl_shared(self) -> Float[Tensor, ""]:
        """Divergences of tolerances and sensors, which are properties of the data and not of the weights."""
        parts = [] if self.conditioning is None else [self.conditioning.kl()]
        parts += [] if self.sensor is None else [self.sensor.kl_terms().sum()]
        return sum(parts, torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def mixture_log_prob(self, rows: Rows, seed: int) -> Float[Tensor, " n"]:
        """Log density of whole rows under the mixture of the first block of draws (P1), in standardized units."""
        gaussian, w = self.measured_at(self.draw(seed, 0), rows.x, rows.target)
        densities = self.likelihood(gaussian, rows.y, w)
        return densities.logsumexp(0) - math.log(len(densities))
