"""ConstrainedBNN: network + balances + tolerances + likelihood, in standardized units; its ELBO and its draws."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from equipoise.data import Rows
from equipoise.gaussian import ConditionedGaussian, ConditioningLayer, DiagonalGaussian, LogNormalVariance
from equipoise.network.likelihood import Likelihood, joint
from equipoise.network.mlp import BayesianMLP, NetworkGaussian
from equipoise.network.posterior import DRAW_BLOCK


@dataclass(frozen=True)
class NegativeElbo:
    """The parts of the negative ELBO: the likelihood's per row, the divergences of the whole data set, in nats."""

    nll: Float[Tensor, ""]
    kl_weights: Float[Tensor, ""]
    kl_tolerance: Float[Tensor, " m"]
    kl_offset: Float[Tensor, " m_offset"]  # empty where offsets are not learned
    kl_sensor: Float[Tensor, " n_sensors"]
    n_rows: int

    def per_row(self, kl_weight: float = 1.0, temperature: float = 1.0) -> Float[Tensor, ""]:
        """`−ELBO / N = E_q[−log p(y)] + (T KL(q(θ)‖p(θ)) + KL(q(ρ)‖p(ρ)) + …) / N` (E1, E2)."""
        kl = temperature * self.kl_weights + self.kl_tolerance.sum() + self.kl_offset.sum() + self.kl_sensor.sum()
        return self.nll + kl_weight * kl / self.n_rows


@dataclass(frozen=True)
class PosteriorDraws:
    """Joint draws of everything uncertain; draw axis first, then an axis for rows."""

    weights: Float[Tensor, "n_draws P"]
    tol_var: Float[Tensor, "n_draws 1 m"] | None = None
    tol_var_again: Float[Tensor, "n_draws 1 m"] | None = None  # a second ρ for the same θ: E_θ[Var_r μ_C]
    offset: Float[Tensor, "n_draws 1 m"] | None = None
    sensor_var: Float[Tensor, "n_draws 1 n_y"] | None = None


class ConstrainedBNN(nn.Module):
    """A Bayesian network whose every Gaussian is conditioned on the balances.

    Args:
        network: Gives one diagonal Gaussian per row and weight draw.
        conditioning: The balances in standardized units with their tolerances; None for a plain BNN.
        likelihood: `joint` (L2) or `marginal` (L1).
        sensor: Sensor variances `ω` in standardized units, of which the network's sensor head makes `w(x)` where they
            are learned (V4); None for `w = 0`.
        rounding: Largest residual of `B' y' = t'` that is rounding alone, shape `(m,)`.
    """

    rounding: Tensor | None

    def __init__(
        self,
        network: BayesianMLP,
        conditioning: ConditioningLayer | None = None,
        likelihood: Likelihood = joint,
        sensor: LogNormalVariance | None = None,
        rounding: Tensor | None = None,
    ):
        super().__init__()
        self.network = network
        self.conditioning = conditioning
        self.likelihood = likelihood
        self.sensor = sensor
        self.register_buffer("rounding", rounding)

    @property
    def conditions_by_definition(self) -> bool:
        """Whether `condition` is that of this class, so that what follows from C1–C4 in closed form holds."""
        return type(self).condition is ConstrainedBNN.condition

    def condition(
        self, gaussian: DiagonalGaussian, target: Tensor | None, tol_var: Tensor | None, offset: Tensor | None = None
    ) -> DiagonalGaussian | ConditionedGaussian:
        """The network's Gaussian, in float64, conditioned on the balances if there are any (C1–C4)."""
        work = torch.float32 if gaussian.mean.device.type == "mps" else torch.float64
        gaussian = DiagonalGaussian(gaussian.mean.to(work), gaussian.var.to(work))
        if self.conditioning is None or target is None or tol_var is None:
            return gaussian
        target = target if offset is None else target + offset
        return self.conditioning.condition(gaussian, target, tol_var, self.rounding)

    def forward(self, rows: Rows, generator: torch.Generator | None = None) -> DiagonalGaussian | ConditionedGaussian:
        """One conditioned Gaussian per row, each row with its own draw of weights, tolerances and offsets."""
        return self._conditioned(self.network(rows.x, generator), rows, generator)

    def log_likelihood(
        self, said: NetworkGaussian, rows: Rows, generator: torch.Generator | None = None
    ) -> Float[Tensor, " n"]:
        """Of each row, for what the network said of it; tolerances, offsets and sensors are drawn row by row."""
        gaussian = self._conditioned(said, rows, generator)
        return self.likelihood(gaussian, rows.y, self._sensor_var(rows, said, generator))

    def negative_elbo(self, rows: Rows, n_rows: int, generator: torch.Generator | None = None) -> NegativeElbo:
        """A one-draw estimate of the negative ELBO from a batch of `rows` out of `n_rows` in the data set (E1).

        ::

            −ELBO = Σ_i E_q[−log p(y_i | θ, ρ)] + KL(q(θ) ‖ p(θ)) + KL(q(ρ) ‖ p(ρ))          (E1)
        """
        nll = -self.log_likelihood(self.network(rows.x, generator), rows, generator).mean()
        none = torch.zeros(0, dtype=nll.dtype, device=nll.device)
        layer = self.conditioning
        return NegativeElbo(
            nll=nll,
            kl_weights=self.network.posterior.kl(),
            kl_tolerance=none if layer is None else layer.tolerance.kl_terms(),
            kl_offset=none if layer is None or layer.offset is None else layer.offset.kl_terms(),
            kl_sensor=none if self.sensor is None else self.sensor.kl_terms(),
            n_rows=n_rows,
        )

    def draw(self, seed: int, block: int) -> PosteriorDraws:
        """Draws number `32 · block … 32 · block + 31`, the same ones for given (seed, block) always."""
        generator = torch.Generator().manual_seed(derived_seed(seed, block))
        posterior, layer, n = self.network.posterior, self.conditioning, DRAW_BLOCK
        normal = partial(_normal, generator, posterior.loc.device)
        weights = posterior.draw(normal(n, len(posterior.loc), dtype=posterior.loc.dtype))
        sensor = None
        if self.sensor is not None:
            sensor = self.sensor.at(self.sensor.loc + self.sensor.std * normal(n, 1, len(self.sensor.loc)))
        if layer is None:
            return PosteriorDraws(weights, sensor_var=sensor)
        q, m = layer.tolerance, len(layer.tolerance.loc)
        tol_var, again = (q.at(q.loc + q.std * normal(n, 1, m)) for _ in range(2))
        offset = None if layer.offset is None else layer.offset.at(normal(n, 1, m))
        return PosteriorDraws(weights, tol_var, again, offset, sensor)

    def at(self, draws: PosteriorDraws, x: Tensor, target: Tensor | None) -> DiagonalGaussian | ConditionedGaussian:
        """Conditioned Gaussians of shape `(n_draws, n, n_y)`: one (θ, ρ) per draw for *all* rows."""
        return self.measured_at(draws, x, target)[0]

    def measured_at(
        self, draws: PosteriorDraws, x: Tensor, target: Tensor | None
    ) -> tuple[DiagonalGaussian | ConditionedGaussian, Float[Tensor, "n_draws n n_y"] | float]:
        """The same, and the sensor variances `w` with which they are measured."""
        said = self.network.at(draws.weights, x)
        gaussian = self.condition(said, target, draws.tol_var, draws.offset)
        return gaussian, 0.0 if draws.sensor_var is None else self.sensor_var(draws.sensor_var, said)

    def sensor_var(self, omega: Tensor, said: NetworkGaussian) -> Tensor:
        """`w(x) = ω κ(x)` where sensors are learned, `ω` where they are given (V4); shape of `said.mean`."""
        if self.sensor is None or said.sensor_factor is None:
            return omega.expand_as(said.mean)
        return torch.where(self.sensor.learned, omega * said.sensor_factor.to(omega.dtype), omega)

    def _conditioned(
        self, said: NetworkGaussian, rows: Rows, generator: torch.Generator | None
    ) -> DiagonalGaussian | ConditionedGaussian:
        layer, n = self.conditioning, len(rows)
        tol_var = None if layer is None else layer.tolerance.draw_rows(n, generator)
        offset = None if layer is None or layer.offset is None else layer.offset.draw_rows(n, generator)
        return self.condition(said, rows.target, tol_var, offset)

    def _sensor_var(self, rows: Rows, said: NetworkGaussian, generator: torch.Generator | None) -> Tensor | float:
        if rows.sensor_var is not None:
            return rows.sensor_var
        return 0.0 if self.sensor is None else self.sensor_var(self.sensor.draw_rows(len(rows), generator), said)


def _normal(generator: torch.Generator, device: torch.device, *shape: int, dtype=torch.float64) -> Tensor:
    """Standard normals, drawn on the CPU so that every device gets the same ones."""
    return torch.randn(shape, generator=generator, dtype=dtype).to(device)


def derived_seed(*key: int) -> int:
    """One 63-bit seed from several integers, well mixed."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))


def parameters_of(modules: Sequence[nn.Module | None]) -> list[nn.Parameter]:
    """All parameters of those modules that are there."""
    return [parameter for module in modules if module is not None for parameter in module.parameters()]
