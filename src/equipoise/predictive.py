"""Predictive: the mixture over posterior draws for given inputs; moments, intervals, joint samples, ledger.

::

    p(y | x) = 1/n Σ_d N(y; μ_C(θ_d, ρ_d), Σ_C(θ_d, ρ_d))                           (P1)

Draw number d is the same (θ, ρ) for all rows and every chunk: it depends on (seed, d) alone. Everything is streamed
over chunks of rows and blocks of draws, so memory does not grow with rows × draws.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise import frames
from equipoise.constraints import LinearConstraint
from equipoise.gaussian import ConditionedGaussian, DiagonalGaussian
from equipoise.ledger import Ledger, LedgerAccumulator, RunningMoments
from equipoise.likelihood import joint
from equipoise.model import ConstrainedBNN, PosteriorDraws, derived_seed
from equipoise.quantile import mixture_quantile
from equipoise.scaling import Standardizer
from equipoise.sensors import sensor_std_of
from equipoise.subspace import exact_directions, log_volume
from equipoise.variational import DRAW_BLOCK

Array = NDArray[np.float64]
AnyGaussian = DiagonalGaussian | ConditionedGaussian
ROW_BLOCK = 64  # rows that share one seeded stream of sampling noise
CACHE_BYTES = 2**23  # one chunk's activations stay about this small
DRAWS_BYTES = 2**28  # posterior draws are kept in memory up to here, and made anew beyond


def _identity(values: Array) -> Any:
    return values


@dataclass(frozen=True, repr=False)
class Predictive:
    """Predictive distribution of the *true* outputs at given inputs; `measured()` adds sensor noise.

    Args:
        model: Fitted, in standardized units.
        standardizer: Translates to and from the user's units.
        X: Inputs (then known columns) in the user's units, shape `(n, n_columns)`.
        outputs: Names of the outputs.
        n_draws: Posterior draws that moments and intervals are averaged over.
        seed: Which draws.
        sensor_var: None for true values; for measured ones "model", or given variances in squared user units.
        sensors_per_row: Whether the fit's sensor noise was given per training row, so that new rows need their own.
        first_row: Position of the first of these rows in a longer table, a multiple of 64: draws then have the noise
            that they would have if all of the table were predicted at once.
        wrap: Puts an `(n, n_y)` result into the form the user's inputs came in.
    """

    model: ConstrainedBNN
    standardizer: Standardizer
    X: Array
    outputs: tuple[str, ...]
    n_draws: int = 256
    seed: int = 0
    sensor_var: str | Array | None = None
    sensors_per_row: bool = False
    first_row: int = 0
    wrap: Callable[[Array], Any] = field(default=_identity, repr=False)

    def __repr__(self) -> str:
        what = "true" if self.sensor_var is None else "measured"
        return f"Predictive({len(self.X)} rows of {', '.join(self.outputs)}; {what} values, {self.n_draws} draws)"

    def measured(self, sensor_std: Any = None) -> "Predictive":
        """The distribution of what the sensors will show.

        Args:
            sensor_std: Sensor standard deviations in the user's units: a number, a mapping from every output, `(n_y,)`
                or `(n, n_y)`; those of the fit if None.
        """
        if sensor_std is None:
            if self.sensors_per_row:
                raise ValueError(
                    "The fit's sensor_std was given per training row, so measured() needs the new rows' own, but got "
                    f"None. Pass sensor_std of shape ({len(self.outputs)},) or ({len(self.X)}, {len(self.outputs)})."
                )
            return dataclasses.replace(self, sensor_var="model")
        std = sensor_std_of(sensor_std, self.outputs, len(self.X))
        if np.isnan(std).any():
            missing = ", ".join(repr(name) for name, value in zip(self.outputs, std, strict=True) if np.isnan(value))
            raise ValueError(f"sensor_std must give a number for every output, but it is missing for {missing}.")
        return dataclasses.replace(self, sensor_var=std**2)

    @property
    def mean(self) -> Any:
        """Mean of the mixture, shape `(n, n_y)` (P2)."""
        return self.wrap(self.standardizer.outputs_to_user(self._moments[0]))

    @property
    def var(self) -> Any:
        """Variance of the mixture, `E[v_C] + Var[μ_C] (+ E[w])` (P2)."""
        return self.wrap(self._total_var)

    @property
    def std(self) -> Any:
        """Standard deviation of the mixture."""
        return self.wrap(np.sqrt(self._total_var))

    def ledger(self, baseline: "Predictive | None" = None) -> Ledger:
        """The exact decomposition of `var` (D1).

        Args:
            baseline: Predictive of a separately trained model, whose variance is put beside.
        """
        parts: list[dict[str, Array]] = []
        m = 0 if self.model.conditioning is None else self._constraint.n_balances
        for rows in self._chunks(bytes_per_row=8 * DRAW_BLOCK * len(self.outputs) * (m + 8)):
            total = LedgerAccumulator()
            for gaussian, w, again in self._components(rows, again=True):
                total.add(gaussian, again, w)
            parts.append({name: value.cpu().numpy() for name, value in total.terms().items()})
        scale2, axis = self.standardizer.y_std**2, {"lost_without": 1}
        terms = {name: np.concatenate([part[name] for part in parts], axis.get(name, 0)) * scale2 for name in parts[0]}
        if baseline is not None and (baseline.outputs, len(baseline.X)) != (self.outputs, len(self.X)):
            raise ValueError(
                f"baseline must predict the same rows and outputs ({len(self.X)} rows of {self.outputs}), "
                f"but got {len(baseline.X)} rows of {baseline.outputs}."
            )
        balances = () if self.standardizer.constraint is None else self.standardizer.constraint.names
        return Ledger(**terms, outputs=self.outputs, balances=balances, baseline=baseline and baseline._total_var)

    def interval(self, level: float | int = 0.95) -> tuple[Any, Any]:
        """Central interval of each output, from the quantiles of the mixture itself.

        Args:
            level: Probability inside, strictly between 0 and 1.
        Returns: Lower and upper bounds, each `(n, n_y)`.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, but got {level}. Use 0.95 for 95 %.")
        lower, upper = self.quantile([(1 - level) / 2, (1 + level) / 2])
        return self.wrap(lower), self.wrap(upper)

    def quantile(self, probabilities: Any) -> Array:
        """Quantiles of each output's mixture, shape `(k, n, n_y)`."""
        p = np.atleast_1d(np.asarray(probabilities, dtype=float))
        if p.ndim != 1 or not np.all((p > 0) & (p < 1)):
            raise ValueError(f"probabilities must lie strictly between 0 and 1, but got {probabilities!r}.")
        result, moments = np.empty((len(p), len(self.X), len(self.outputs))), self._empty_moments()
        for rows in self._chunks(bytes_per_row=24 * self.n_draws * len(self.outputs)):
            parts = [(g.mean, g.var + w) for g, w, _ in self._components(rows)]
            self._add_moments(parts, moments, rows)
            mean, var = (torch.cat(part) for part in zip(*parts, strict=True))
            std = var.sqrt_()
            result[:, rows] = torch.stack([mixture_quantile(mean, std, float(q)) for q in p]).cpu().numpy()
        self.__dict__.setdefault("_moments", moments)  # the same pass over all draws has them, too
        return self.standardizer.outputs_to_user(result)

    def sample(self, n: int, joint: bool | None = None) -> Array:
        """Draws of whole output vectors, shape `(n, rows, n_y)`: draw d uses posterior draw number d.

        The noise of a row depends on its position among the rows; what is shared by all rows, (θ, ρ), does not.

        Args:
            n: How many; not limited by `n_draws`.
            joint: Joint draws by M1 that obey the balances within their tolerances, or independent ones from the
                diagonal of `Σ_C`, as in the paper. By default what the model was trained with.
        """
        joint = self._is_joint if joint is None else joint
        result = np.empty((n, len(self.X), len(self.outputs)))
        for rows in self._chunks():
            for start, draws in self._draws(n):
                gaussian, learned = self.model.measured_at(draws, *self._inputs(rows))
                w = self._sensor(learned, rows)
                y = self._sample_block(gaussian, w, rows, start // DRAW_BLOCK, joint)
                result[start : start + DRAW_BLOCK, rows] = y[: n - start].cpu().numpy()
        return self.standardizer.outputs_to_user(result)

    def covariance(self, joint: bool | None = None) -> Array:
        """Covariance of the outputs of each row, `E[Σ_C] + Cov[μ_C] (+ E[w])`, shape `(n, n_y, n_y)` (P2)."""
        joint = self._is_joint if joint is None else joint
        result = np.empty((len(self.X), len(self.outputs), len(self.outputs)))
        for rows in self._chunks(bytes_per_row=24 * DRAW_BLOCK * len(self.outputs) ** 2):
            means, total, count = [], 0.0, 0
            for gaussian, w, _ in self._components(rows):
                inner = torch.diag_embed(gaussian.var)
                if joint and isinstance(gaussian, ConditionedGaussian):
                    inner = gaussian.covariance()
                total = total + (inner + torch.diag_embed(torch.as_tensor(w).expand_as(gaussian.var))).sum(0)
                means.append(gaussian.mean)
                count += len(gaussian.mean)
            centred = (stacked := torch.cat(means)) - stacked.mean(0)
            spread = torch.einsum("snj,snk->njk", centred, centred)
            result[rows] = ((total + spread) / count).cpu().numpy()
        return result * np.outer(self.standardizer.y_std, self.standardizer.y_std)

    def log_prob(self, Y: Any) -> Array:
        """Log density of the mixture at rows of outputs in the user's units, shape `(n,)`; NaN is marginalised (P1).

        Under the joint likelihood this is the joint density (L2); under the paper's it is that of independent outputs
        given the draw (L1). Where balances hold exactly for what is measured, the density is on their subspace (L3).
        """
        Y = np.asarray(frames.select(Y, self.outputs, "Y"), dtype=float)
        Y = Y.reshape(-1, 1) if Y.ndim == 1 and len(self.outputs) == 1 else Y
        if Y.shape != (expected := (len(self.X), len(self.outputs))):
            raise ValueError(f"Y must have shape {expected}, a row of outputs per row of inputs, but got {Y.shape}.")
        y = torch.as_tensor(self.standardizer.outputs(Y))
        result = torch.empty(len(self.X), dtype=torch.float64)
        for rows in self._chunks():
            y_chunk = y[rows].to(self._device)
            parts = [self._density(g, y_chunk, w) for g, w, _ in self._components(rows)]
            stacked = torch.cat(parts)
            result[rows] = (torch.logsumexp(stacked, 0) - math.log(len(stacked))).cpu()
        return result.numpy() + self._log_density_units(Y)

    def residual_of_means(self, n: int | None = None, constraint: LinearConstraint | None = None) -> Array:
        """Residuals `A x + B μ_C − b` of the conditioned mean of each draw, shape `(n, rows, m)` (Z1).

        Args:
            n: How many draws; `n_draws` by default.
            constraint: Balances between the same inputs and outputs, in their order; by default those of the fit.
        """
        n = self.n_draws if n is None else n
        constraint = self._constraint if constraint is None else constraint
        result = np.empty((n, len(self.X), constraint.n_balances))
        for rows in self._chunks():
            for start, draws in self._draws(n):
                mean = self.model.at(draws, *self._inputs(rows)).mean[: n - start].cpu().numpy()
                y = self.standardizer.outputs_to_user(mean)
                result[start : start + DRAW_BLOCK, rows] = constraint.residual(self.X[rows], y)
        return result

    def residual_of_samples(
        self, n: int, joint: bool | None = None, constraint: LinearConstraint | None = None
    ) -> Array:
        """Residuals `A x + B y − b` of draws of the outputs themselves, shape `(n, rows, m)` (Z1).

        Args:
            n: How many draws.
            joint: As in `sample`.
            constraint: Balances between the same inputs and outputs, in their order; by default those of the fit.
        """
        constraint = self._constraint if constraint is None else constraint
        return constraint.residual(self.X, self.sample(n, joint))

    # ------------------------------------------------------------------ streaming

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        """Mean and variance of the mixture in standardized units, in one pass over all rows and draws (P2)."""
        moments = self._empty_moments()
        for rows in self._chunks():
            self._add_moments(((g.mean, g.var + w) for g, w, _ in self._components(rows)), moments, rows)
        return moments

    def _empty_moments(self) -> tuple[Array, Array]:
        return np.empty((len(self.X), len(self.outputs))), np.empty((len(self.X), len(self.outputs)))

    def _add_moments(self, parts: Iterable[tuple[Tensor, Tensor]], into: tuple[Array, Array], rows: slice) -> None:
        """Mean and variance of a chunk of rows from means and variances of its components, block by block."""
        total = RunningMoments(("mean", "mean"))
        for mean, var in parts:
            total.add(mean=mean, var=var)
        into[0][rows] = total.mean("mean").cpu().numpy()
        into[1][rows] = (total.mean("var") + total.cov("mean", "mean")).cpu().numpy()

    @property
    def _total_var(self) -> Array:
        return self._moments[1] * self.standardizer.y_std**2

    def _components(
        self, rows: slice, again: bool = False
    ) -> Iterator[tuple[AnyGaussian, Tensor | float, AnyGaussian | None]]:
        """Conditioned Gaussians `(draws, rows, n_y)`, sensor variances, and the same with a second tolerance draw."""
        x, target = self._inputs(rows)
        for start, draws in self._draws(self.n_draws):
            draws = _first(draws, self.n_draws - start)
            gaussian, learned = self.model.measured_at(draws, x, target)
            second = None
            if again and isinstance(gaussian, ConditionedGaussian):
                second = self.model.condition(gaussian.prior, target, draws.tol_var_again, draws.offset)
            yield gaussian, self._sensor(learned, rows), second

    def _draws(self, n: int) -> Iterator[tuple[int, PosteriorDraws]]:
        for block in range(math.ceil(n / DRAW_BLOCK)):
            yield block * DRAW_BLOCK, self._draw_block(block)

    def _draw_block(self, block: int) -> PosteriorDraws:
        kept: dict[int, PosteriorDraws] = self._kept_draws
        if block in kept:
            return kept[block]
        with torch.no_grad():
            draws = self.model.draw(self.seed, block)
        if (len(kept) + 1) * draws.weights.nbytes <= DRAWS_BYTES:
            kept[block] = draws
        return draws

    @cached_property
    def _kept_draws(self) -> dict[int, PosteriorDraws]:
        return {}

    def _chunks(self, bytes_per_row: int = 0) -> Iterator[slice]:
        """Row slices, in multiples of ROW_BLOCK, small enough that a chunk's activations stay in cache."""
        widest = max(self.model.network.sizes)
        per_row = max(bytes_per_row, 4 * DRAW_BLOCK * widest)
        size = max(1, CACHE_BYTES // (per_row * ROW_BLOCK)) * ROW_BLOCK
        for start in range(0, len(self.X), size):
            yield slice(start, min(start + size, len(self.X)))

    def _inputs(self, rows: slice) -> tuple[Tensor, Tensor | None]:
        X, dtype = self.X[rows], self.model.network.posterior.loc.dtype
        x = torch.as_tensor(self.standardizer.inputs(X), dtype=dtype, device=self._device)
        if self.standardizer.constraint is None:
            return x, None
        return x, torch.as_tensor(self.standardizer.target(X), device=self._device)

    def _sensor(self, of_model: Tensor | float, rows: slice) -> Tensor | float:
        """Sensor variances in standardized units, broadcastable to `(draws, rows, n_y)`; 0 for true values."""
        if self.sensor_var is None:
            return 0.0
        if isinstance(self.sensor_var, str):
            return of_model
        var = self.sensor_var if self.sensor_var.ndim == 1 else self.sensor_var[rows]
        return torch.as_tensor(var / self.standardizer.y_std**2, device=self._device)

    @torch.no_grad()
    def _sample_block(self, gaussian, w: Tensor | float, rows: slice, block: int, joint: bool) -> Tensor:
        n_y = len(self.outputs)
        m = gaussian.target.shape[-1] if isinstance(gaussian, ConditionedGaussian) else 0
        noise = self._row_noise(rows, block, 2 * n_y + m).to(self._device)
        y_noise, sensor_noise, tolerance_noise = noise.split([n_y, n_y, m], dim=-1)
        if joint and isinstance(gaussian, ConditionedGaussian):
            y = gaussian.update(gaussian.prior.mean + gaussian.prior.var.sqrt() * y_noise, tolerance_noise)
        else:
            y = gaussian.mean + gaussian.var.sqrt() * y_noise
        return y + torch.as_tensor(w).sqrt() * sensor_noise

    def _row_noise(self, rows: slice, block: int, width: int) -> Tensor:
        """Standard normals `(32, rows, width)` that depend on (seed, draw block, row block) alone."""
        parts = []
        for start in range(rows.start, rows.stop, ROW_BLOCK):
            row_block = (self.first_row + start) // ROW_BLOCK
            generator = torch.Generator().manual_seed(derived_seed(self.seed, block, row_block, 1))
            parts.append(torch.randn(DRAW_BLOCK, ROW_BLOCK, width, generator=generator, dtype=torch.float64))
        return torch.cat(parts, 1)[:, : rows.stop - rows.start]

    # ------------------------------------------------------------------ densities

    def _density(self, gaussian, y: Tensor, w: Tensor | float) -> Tensor:
        return self.model.likelihood(gaussian, y, w)

    def _log_density_units(self, Y: Array) -> Array:
        """What turns a log density in standardized units into one in the user's (L4).

        Each measured output contributes `−log s_j`. Exact balances add the ratio of their subspace volumes (L3).
        """
        measured = ~np.isnan(Y)
        correction = -(measured * np.log(self.standardizer.y_std)).sum(-1)
        layer = self.model.conditioning
        if layer is None or not self._is_joint or bool((layer.tolerance.median() > 0).all()):
            return correction
        sensor = self.model.sensor
        typical = self._sensor(0.0 if sensor is None else sensor.median().detach(), slice(0, len(self.X)))
        noisy = np.broadcast_to(torch.as_tensor(typical).cpu().numpy() > 0, measured.shape)
        patterns, which = np.unique(noisy | ~measured, axis=0, return_inverse=True)
        return correction + self._volume_ratio(torch.as_tensor(patterns))[which.reshape(-1)]

    def _volume_ratio(self, uncertain: Tensor) -> Array:
        """`log vol(B') − log vol(B' diag(1/s))` of exact balances over outputs that are known exactly."""
        B, std = torch.as_tensor(self.standardizer.B), torch.as_tensor(self.standardizer.y_std)
        hard = self.model.conditioning.tolerance.median().cpu() == 0  # type: ignore[union-attr]
        V = exact_directions(B, hard, uncertain)
        known = B * (~uncertain).to(B.dtype).unsqueeze(-2)
        return (log_volume(V, known) - log_volume(V, known / std)).numpy()

    @property
    def _is_joint(self) -> bool:
        return self.model.likelihood is joint

    @property
    def _constraint(self):
        if self.standardizer.constraint is None:
            raise ValueError("Residuals need balances, but this model was fitted without a constraint.")
        return self.standardizer.constraint

    @property
    def _device(self) -> torch.device:
        return self.model.network.posterior.loc.device


def _first(draws: PosteriorDraws, n: int) -> PosteriorDraws:
    """The first n draws of a block."""
    if n >= len(draws.weights):
        return draws
    parts = (getattr(draws, field.name) for field in dataclasses.fields(draws))
    return PosteriorDraws(*(None if part is None else part[:n] for part in parts))  # type: ignore[arg-type]
