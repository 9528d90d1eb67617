"""The model: network, balances, tolerances and likelihood in standardized units; its evidence lower bound and draws."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from equipoise.data import Rows
from equipoise.gaussian import ConditioningLayer, DiagonalGaussian, Gaussian, VariancePosterior
from equipoise.network.imposition import Imposition
from equipoise.network.likelihood import Likelihood, joint
from equipoise.network.mlp import BayesianMLP, NetworkGaussian
from equipoise.network.posterior import DRAW_BLOCK
from equipoise.network.seeds import derived_seed

PARTS = ("network", "conditioning", "likelihood", "sensor", "rounding", "imposition")


@dataclass(frozen=True)
class NegativeElbo:
    """The parts of the negative evidence lower bound, in nats (E1).

    Args:
        nll: Negative log likelihood per row.
        kl_weights: Divergence of the network's weights from their prior.
        kl_tolerance, kl_offset, kl_sensor: Divergence of each tolerance, offset and sensor variance; empty without any.
        n_rows: Number of rows in the data set, which the divergences belong to as a whole.
    """

    nll: Float[Tensor, ""]
    kl_weights: Float[Tensor, ""]
    kl_tolerance: Float[Tensor, " m"]
    kl_offset: Float[Tensor, " m_offset"]
    kl_sensor: Float[Tensor, " n_sensors"]
    n_rows: int

    def per_row(self, kl_weight: float = 1.0, temperature: float = 1.0) -> Float[Tensor, ""]:
        """Compute the loss per row (E1, E2).

        ::

            −ELBO / N = E_q[−log p(y)] + (T KL(q(θ)‖p(θ)) + KL(q(ρ)‖p(ρ)) + …) / N

        Args:
            kl_weight: Weight of all divergences; during training it grows from 0 to 1.
            temperature: `T`, a further weight of the divergence of the network's weights alone (E2); 1 is the ELBO.
        Returns: The loss in nats, a scalar.
        """
        kl = temperature * self.kl_weights + self.kl_tolerance.sum() + self.kl_offset.sum() + self.kl_sensor.sum()
        return self.nll + kl_weight * kl / self.n_rows


@dataclass(frozen=True)
class PosteriorDraws:
    """Joint draws of everything uncertain; draws on axis 0, then an axis for rows.

    Args:
        weights: The network's weights `θ`.
        tol_var: Tolerances `r = exp(ρ)`; None without balances.
        tol_var_again: Second draws of the tolerances for the same weights, for `E_θ[Var_r μ_C]` (D2).
        offset: Offsets of the balances; None where they are not learned.
        sensor_var: Sensor variances `ω`; None without sensors.
        log_weight: Logarithms of the draws' weights in the mixture, up to a constant; None for equal weights.
    """

    weights: Float[Tensor, "n_draws P"]
    tol_var: Float[Tensor, "n_draws 1 m"] | None = None
    tol_var_again: Float[Tensor, "n_draws 1 m"] | None = None
    offset: Float[Tensor, "n_draws 1 m"] | None = None
    sensor_var: Float[Tensor, "n_draws 1 n_y"] | None = None
    log_weight: Float[Tensor, "n_draws 1"] | None = None


class ConstrainedBNN(nn.Module):
    """A Bayesian network whose every Gaussian is conditioned on the balances.

    Args:
        network: Maps inputs to one diagonal Gaussian per row and weight draw.
        conditioning: The balances in standardized units with their tolerances; None for a plain BNN.
        likelihood: `joint` (L2) or `marginal` (L1).
        sensor: Sensor variances `ω` in standardized units; where they are learned, the network's sensor head makes
            them depend on the inputs (V4). None for `w = 0`.
        rounding: Largest residual of the standardized balances `B y = t` that is rounding alone, shape `(m,)`.
        imposition: Another way to impose the balances; None for conditioning (C1–C4), for which closed forms and
            compiled code may be used.

    Example:
        >>> network = BayesianMLP(3, 2, hidden=(8,), generator=torch.Generator().manual_seed(0))
        >>> model = ConstrainedBNN(network)
        >>> draws = model.draw(seed=0, block=0)
        >>> model.at(draws, torch.zeros(5, 3), target=None).mean.shape
        torch.Size([32, 5, 2])
    """

    rounding: Tensor | None

    def __init__(
        self,
        network: BayesianMLP,
        conditioning: ConditioningLayer | None = None,
        likelihood: Likelihood = joint,
        sensor: VariancePosterior | None = None,
        rounding: Tensor | None = None,
        imposition: Imposition | None = None,
    ):
        super().__init__()
        self.network = network
        self.conditioning = conditioning
        self.likelihood = likelihood
        self.sensor = sensor
        self.imposition = imposition
        self.register_buffer("rounding", rounding)

    def variant(self, **parts: Any) -> "ConstrainedBNN":
        """Return a model of which some parts are others; all other modules are shared, so that they train together.

        Args:
            parts: Arguments of the class by name.
        """
        own = {name: getattr(self, name) for name in PARTS}
        return ConstrainedBNN(**own | parts)

    @property
    def n_distinct(self) -> int | None:
        """Number of different posterior draws where they differ in finitely many weight vectors alone; else None."""
        layer = self.conditioning
        others = [] if layer is None else [layer.tolerance, layer.offset]
        certain = not any(part is not None and bool(part.learned.any()) for part in (*others, self.sensor))
        return self.network.posterior.n_distinct if certain else None

    @property
    def conditions_by_definition(self) -> bool:
        """Whether the balances act by conditioning or not at all, so that closed forms that follow from C1–C4 hold."""
        return self.imposition is None or self.conditioning is None

    def condition(
        self,
        gaussian: DiagonalGaussian,
        target: Tensor | None,
        tol_var: Tensor | None,
        offset: Tensor | None = None,
        B: Tensor | None = None,
    ) -> Gaussian:
        """Condition the network's Gaussian on the balances, if there are any, in float64 (C1–C4), or impose them.

        Args:
            gaussian: Distribution before conditioning, shape `(..., n_y)`.
            target: `t = b − A x`, shape `(..., m)`.
            tol_var: Tolerances `r`, shape `(..., m)`.
            offset: Added to `target`, shape `(..., m)`.
            B: Coefficients that differ from row to row, shape `(..., m, n_y)`; None for those of the layer.
        Returns: The Gaussian after conditioning, shape `(..., n_y)`; the one before where balances, targets or
            tolerances are None.
        """
        work = torch.float32 if gaussian.mean.device.type == "mps" else torch.float64
        gaussian = DiagonalGaussian(gaussian.mean.to(work), gaussian.var.to(work))
        if self.conditioning is None or target is None or tol_var is None:
            return gaussian
        target = target if offset is None else target + offset
        conditioned = self.conditioning.condition(gaussian, target, tol_var, self.rounding, B)
        return conditioned if self.imposition is None else self.imposition.impose(conditioned)

    def forward(self, rows: Rows, generator: torch.Generator | None = None) -> Gaussian:
        """Compute one conditioned Gaussian per row, each with its own draw of weights, tolerances and offsets.

        Args:
            rows: Inputs and targets of n rows, in standardized units.
            generator: Randomness of the draws; torch's default by default.
        Returns: Gaussians of the true outputs, shape `(n, n_y)`; not conditioned without balances.
        """
        return self._conditioned(self.network(rows.x, generator), rows, generator)

    def log_likelihood(
        self, prior: NetworkGaussian, rows: Rows, generator: torch.Generator | None = None
    ) -> Float[Tensor, " n"]:
        """Compute the log likelihood of each row, with its own draw of tolerances, offsets and sensor variances.

        Args:
            prior: The network's Gaussians for these rows, before conditioning.
            rows: Targets, measured outputs, and sensor variances where they are known per row.
            generator: Randomness of the draws; torch's default by default.
        Returns: Log densities in nats, shape `(n,)`.
        """
        gaussian = self._conditioned(prior, rows, generator)
        return self.likelihood(gaussian, rows.y, self._sensor_var(rows, prior, generator))

    def negative_elbo(self, rows: Rows, n_rows: int, generator: torch.Generator | None = None) -> NegativeElbo:
        """Estimate the negative evidence lower bound from a batch, with one draw per row (E1).

        ::

            −ELBO = Σ_i E_q[−log p(y_i | θ, ρ)] + KL(q(θ) ‖ p(θ)) + KL(q(ρ) ‖ p(ρ))          (E1)

        Args:
            rows: The batch.
            n_rows: Number of rows in the data set.
            generator: Randomness of the draws; torch's default by default.
        Returns: The parts of the bound; `per_row` adds them up.
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

    def kl_shared(self) -> Float[Tensor, ""]:
        """Compute the divergence of tolerances, offsets and sensors from their priors in nats, without the weights."""
        parts = [] if self.conditioning is None else [self.conditioning.kl()]
        parts += [] if self.sensor is None else [self.sensor.kl_terms().sum()]
        return sum(parts, torch.zeros((), dtype=torch.float64))

    def draw(self, seed: int, block: int) -> PosteriorDraws:
        """Draw a block of `DRAW_BLOCK` joint posterior draws of weights, tolerances, offsets and sensor variances.

        Draws depend on (seed, block) alone.

        Args:
            seed: Seed of all blocks.
            block: Number of the block: 0 has the first `DRAW_BLOCK` draws.
        Returns: The draws, on axis 0.
        """
        generator = torch.Generator().manual_seed(derived_seed(seed, block))
        layer, n = self.conditioning, DRAW_BLOCK
        weights = self.network.posterior.draw_block(seed, block, generator)
        normal, number = partial(_normal, generator, weights.device), torch.arange(n * block, n * (block + 1))
        sensor = None
        if self.sensor is not None:
            sensor = self.sensor.numbered(number, normal(n, 1, self.sensor.n_entries))
        if layer is None:
            return PosteriorDraws(weights, sensor_var=sensor)
        q, m = layer.tolerance, layer.tolerance.n_entries
        tol_var, again = (q.numbered(number, normal(n, 1, m), again) for again in (False, True))
        offset = None if layer.offset is None else layer.offset.at(normal(n, 1, m))
        return PosteriorDraws(weights, tol_var, again, offset, sensor)

    def at(self, draws: PosteriorDraws, x: Tensor, target: Tensor | None, B: Tensor | None = None) -> Gaussian:
        """Compute conditioned Gaussians of shape `(n_draws, n, n_y)`, one (θ, ρ) per draw for *all* rows.

        Args:
            draws: Posterior draws.
            x: Standardized inputs, shape `(n, n_x)`.
            target: `t = b − A x`, shape `(n, m)`; None without balances.
            B: Coefficients that differ from row to row, shape `(n, m, n_y)`; None for those of the layer.
        Returns: Gaussians of the true outputs; not conditioned without balances.
        """
        return self.measured_at(draws, x, target, B)[0]

    def measured_at(
        self, draws: PosteriorDraws, x: Tensor, target: Tensor | None, B: Tensor | None = None
    ) -> tuple[Gaussian, Float[Tensor, "n_draws n n_y"] | float]:
        """Compute the Gaussians of the true outputs, and the variances of the sensors that measure them.

        Arguments are those of `at`.

        Returns: The Gaussians of `at`, and sensor variances `w` of the same shape; 0 without sensors.
        """
        prior = self.network.at_draws(draws.weights, x)
        gaussian = self.condition(prior, target, draws.tol_var, draws.offset, B)
        return gaussian, 0.0 if draws.sensor_var is None else self.sensor_var(draws.sensor_var, prior)

    def sensor_var(self, omega: Tensor, prior: NetworkGaussian) -> Tensor:
        """Compute sensor variances: `w(x) = ω κ(x)` where sensors are learned, `ω` where they are known (V4).

        Args:
            omega: `ω`, broadcast against `prior.mean`.
            prior: The network's Gaussians, which bring `κ`.
        Returns:
            `w`, of the shape of `prior.mean`.
        """
        if self.sensor is None or prior.sensor_factor is None:
            return omega.expand_as(prior.mean)
        return torch.where(self.sensor.learned, omega * prior.sensor_factor.to(omega.dtype), omega)

    def _conditioned(self, prior: NetworkGaussian, rows: Rows, generator: torch.Generator | None) -> Gaussian:
        layer, n = self.conditioning, len(rows)
        tol_var = None if layer is None else layer.tolerance.draw_rows(n, generator)
        offset = None if layer is None or layer.offset is None else layer.offset.draw_rows(n, generator)
        return self.condition(prior, rows.target, tol_var, offset, rows.B)

    def _sensor_var(self, rows: Rows, prior: NetworkGaussian, generator: torch.Generator | None) -> Tensor | float:
        if rows.sensor_var is not None:
            return rows.sensor_var
        return 0.0 if self.sensor is None else self.sensor_var(self.sensor.draw_rows(len(rows), generator), prior)


def _normal(generator: torch.Generator, device: torch.device, *shape: int, dtype=torch.float64) -> Tensor:
    """Draw standard normal numbers on the CPU, so that every device gets the same ones."""
    return torch.randn(shape, generator=generator, dtype=dtype).to(device)


def parameters_of(modules: Sequence[nn.Module | None]) -> list[nn.Parameter]:
    """Return the parameters of all modules that are not None."""
    return [parameter for module in modules if module is not None for parameter in module.parameters()]
