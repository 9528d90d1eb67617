"""ImposedBNN: the library's network with another source of weights, or another way to impose its balances."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.data import Rows
from equipoise.gaussian import ConditionedGaussian, DiagonalGaussian, Gaussian
from equipoise.network import ConstrainedBNN, PosteriorDraws

Impose = Callable[[ConditionedGaussian], Gaussian]


@runtime_checkable
class WeightSource(Protocol):
    """A source of draws of the network's flat weight vector."""

    def draw(self, seed: int, block: int) -> Float[Tensor, "n_draws P"]:
        """Return draws number `32 · block … 32 · block + 31`; the same (seed, block) always gives the same draws.

        Args:
            seed: Seed of the prediction.
            block: Number of the block of draws.
        """
        ...


class ImposedBNN(ConstrainedBNN):
    """A network whose weights come from `source`, and whose balances are imposed by `impose`.

    Args:
        built: The model that the estimator builds: network, conditioning, likelihood and sensors.
        impose: Replaces the conditioned Gaussian, for instance by one with another gain; None keeps it. All tolerances
            must be 0 if it is given.

    Attributes:
        source: Draws of the weights; None draws them from the network's variational posterior.
    """

    def __init__(self, built: ConstrainedBNN, impose: Impose | None = None):
        super().__init__(built.network, built.conditioning, built.likelihood, built.sensor, built.rounding)
        self.impose = impose
        self.source: WeightSource | None = None

    @property
    def conditions_by_definition(self) -> bool:
        """Whether the balances are imposed by conditioning (C1–C4), for which closed forms may be used."""
        return self.impose is None or self.conditioning is None

    def condition(
        self,
        gaussian: DiagonalGaussian,
        target: Tensor | None,
        tol_var: Tensor | None,
        offset: Tensor | None = None,
        B: Tensor | None = None,
    ) -> Gaussian:
        """Impose the balances on the network's Gaussian; without balances it stays as it is.

        Args:
            gaussian: The network's Gaussian.
            target: Targets `t`, shape `(..., m)`.
            tol_var: Tolerance variances, shape `(..., m)`.
            offset: Offsets of the balances, shape `(..., m)`.
            B: Coefficients that differ from row to row, shape `(..., m, n_y)`; None for those of the layer.
        """
        conditioned = super().condition(gaussian, target, tol_var, offset, B)
        if self.impose is None or conditioned.n_balances == 0:
            return conditioned
        return self.impose(conditioned)  # type: ignore[arg-type]

    def draw(self, seed: int, block: int) -> PosteriorDraws:
        """Draw tolerances and sensors from their posteriors, and weights from `source`.

        Args:
            seed: Seed of the prediction.
            block: Number of the block of draws.
        """
        draws = super().draw(seed, block)
        return draws if self.source is None else replace(draws, weights=self.source.draw(seed, block))

    def kl_shared(self) -> Float[Tensor, ""]:
        """Compute the KL divergence of tolerances and sensors from their priors, in nats, without that of weights."""
        parts = [] if self.conditioning is None else [self.conditioning.kl()]
        parts += [] if self.sensor is None else [self.sensor.kl_terms().sum()]
        return sum(parts, torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def mixture_log_prob(self, rows: Rows, seed: int) -> Float[Tensor, " n"]:
        """Compute the log density of whole rows under the mixture of the first block of draws (P1).

        Args:
            rows: In standardized units.
            seed: Seed of the draws.
        """
        gaussian, w = self.measured_at(self.draw(seed, 0), rows.x, rows.target)
        densities = self.likelihood(gaussian, rows.y, w)
        return densities.logsumexp(0) - math.log(len(densities))
