"""The predictive distribution: moments, intervals, joint samples, densities and ledger of the mixture over draws.

Everything is computed for one chunk of rows and one block of draws at a time: memory does not grow with rows × draws.
"""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.balances import Equality
from equipoise.data import frames, parse_sensor_std
from equipoise.errors import InputError
from equipoise.gaussian import DiagonalGaussian
from equipoise.network import DRAW_BLOCK
from equipoise.prediction import sampling
from equipoise.prediction.components import Components, log_mean_density
from equipoise.prediction.density_units import log_density_units
from equipoise.prediction.ledger import Ledger, LedgerAccumulator
from equipoise.prediction.mixture import Mixture, Places
from equipoise.prediction.per_draw_moments import MOMENT_PAIRS, moment_fields_of
from equipoise.prediction.quantile import mixture_quantile
from equipoise.prediction.running_moments import MixtureMoments, MomentTable, RunningMoments
from equipoise.prediction.sampling import ROW_BLOCK

Array = NDArray[np.float64]
CACHE_BYTES = 2**23  # of what a pass needs for a chunk of rows, so that it stays in cache
UNITS_BYTES = 2**21  # of a layer's units for a block of draws; with fewer rows, matrices would be too small
COMPONENTS_BYTES = 2**26  # of the means and standard deviations of all draws from which quantiles are computed


def _identity(values: Array) -> Any:
    return values


def _draw_blocks(n: int) -> Iterator[range]:
    """Yield the numbers of the first n draws, block by block."""
    for start in range(0, n, DRAW_BLOCK):
        yield range(start, min(start + DRAW_BLOCK, n))


@dataclass(frozen=True, repr=False)
class Predictive(Mixture):
    """Predictive distribution of the *true* outputs at given inputs; `measured()` adds sensor noise.

    Args:
        model: The fitted model, in standardized units.
        standardizer: Translates to and from the user's units.
        X: Inputs (then known columns) in the user's units, shape `(n, n_columns)`.
        outputs: Names of the outputs.
        n_draws: Number of posterior draws to average over.
        seed: Seed of the posterior draws.
        sensor_var: None for true values; for measured ones "model" or variances in squared user units.
        sensors_per_row: Whether the fit's sensor noise was given per training row, so that new rows need their own.
        first_row: Position of the first of these rows in a longer table, a multiple of 64: samples then have the noise
            that they would have if all of the table were predicted at once.
        wrap: Converts an `(n, n_y)` result to the kind of table that the user's inputs came in.

    Example:
        >>> import equipoise as eq
        >>> X, y = np.linspace(0.0, 1.0, 40)[:, None], np.linspace(0.0, 2.0, 40)
        >>> plan = eq.TrainingPlan(max_epochs=2)
        >>> model = eq.ConstrainedBNNRegressor(hidden=(4,), training=plan, random_state=0).fit(X, y)
        >>> p = model.predict_distribution(X[:3])
        >>> p
        Predictive(3 rows of y0; true values, 256 draws)
        >>> p.quantile([0.05, 0.95]).shape, p.sample(10).shape
        ((2, 3, 1), (10, 3, 1))
    """

    sensors_per_row: bool = False
    first_row: int = 0
    wrap: Callable[[Array], Any] = field(default=_identity, repr=False)

    def __repr__(self) -> str:
        what = "true" if self.sensor_var is None else "measured"
        return f"Predictive({len(self.X)} rows of {', '.join(self.outputs)}; {what} values, {self.n_draws} draws)"

    def measured(self, sensor_std: Any = None) -> "Predictive":
        """Return the predictive distribution of measured values: true value plus sensor noise.

        Args:
            sensor_std: Sensor standard deviations in the user's units: a number, a mapping from every output, `(n_y,)`
                or `(n, n_y)`; those of the fit if None.
        Raises:
            InputError: If the standard deviation of a sensor is missing.
        """
        if sensor_std is None:
            if self.sensors_per_row:
                raise InputError(
                    "The fit's sensor_std was given per training row, so measured() needs the new rows' own, but got "
                    f"None. Pass sensor_std of shape ({len(self.outputs)},) or ({len(self.X)}, {len(self.outputs)})."
                )
            return dataclasses.replace(self, sensor_var="model")
        std = parse_sensor_std(sensor_std, self.outputs, len(self.X))
        if np.isnan(std).any():
            missing = ", ".join(repr(name) for name, value in zip(self.outputs, std, strict=True) if np.isnan(value))
            raise InputError(f"sensor_std must give a number for every output, but it is missing for {missing}.")
        return dataclasses.replace(self, sensor_var=std**2)

    @property
    def mean(self) -> Any:
        """Mean of the mixture in the user's units, shape `(n, n_y)` (P2)."""
        return self.wrap(self.standardizer.outputs_to_user(self._all_moments.mean))

    @property
    def var(self) -> Any:
        """Variance of the mixture in squared user units, `E[v_C] + Var[μ_C] (+ E[w])`, shape `(n, n_y)` (P2)."""
        return self.wrap(self._total_var)

    @property
    def std(self) -> Any:
        """Standard deviation of the mixture in the user's units, shape `(n, n_y)`."""
        return self.wrap(np.sqrt(self._total_var))

    def ledger(self, baseline: "Predictive | None" = None) -> Ledger:
        """Decompose `var` exactly into its parts (D1).

        Args:
            baseline: Prediction by a separately trained model, whose variance is included for comparison.
        Raises:
            InputError: If `baseline` predicts other rows or outputs.
        """
        if baseline is not None and (baseline.outputs, len(baseline.X)) != (self.outputs, len(self.X)):
            raise InputError(
                f"baseline must predict the same rows and outputs ({len(self.X)} rows of {self.outputs}), "
                f"but got {len(baseline.X)} rows of {baseline.outputs}."
            )
        constraint = None if self.model.conditioning is None else self.standardizer.constraint
        balances = () if constraint is None else constraint.names
        bytes_per_row, parts = 8 * DRAW_BLOCK * len(self.outputs) * (len(balances) + 8), []
        for rows in self.chunks(bytes_per_row):
            terms, moments = LedgerAccumulator(), RunningMoments(MOMENT_PAIRS)
            for part in self.components(rows, again=True):
                terms.add(part)
                if self._moments.lack(rows):
                    moments.add(moment_fields_of(part.gaussian, part.sensor_var), part.log_weight)
            parts.append(terms.terms())
            self._moments.put(rows, moments)
        terms = {name: torch.cat([part[name] for part in parts], -2).cpu().numpy() for name in parts[0]}
        scale2 = self.standardizer.y_std**2
        terms = {name: values * scale2 for name, values in terms.items()}
        ledger = Ledger(**terms, outputs=self.outputs, balances=balances)
        return ledger if baseline is None else dataclasses.replace(ledger, baseline=baseline._total_var)

    def interval(self, level: float | int = 0.95) -> tuple[Any, Any]:
        """Compute the central interval of each output from the quantiles of the mixture itself.

        Args:
            level: Probability inside, strictly between 0 and 1.
        Returns:
            Lower and upper bounds in the user's units, each `(n, n_y)`.
        Raises:
            InputError: If `level` is not strictly between 0 and 1.
        """
        if not 0 < level < 1:
            raise InputError(f"level must lie strictly between 0 and 1, but got {level}. Use 0.95 for 95 %.")
        lower, upper = self.quantile([(1 - level) / 2, (1 + level) / 2])
        return self.wrap(lower), self.wrap(upper)

    def quantile(self, probabilities: Any) -> Array:
        """Compute quantiles of each output's mixture (P3).

        Args:
            probabilities: One number or k of them, strictly between 0 and 1.
        Returns:
            Quantiles in the user's units, shape `(k, n, n_y)`.
        Raises:
            InputError: If a probability is not strictly between 0 and 1.
        """
        p = np.atleast_1d(np.asarray(probabilities, dtype=float))
        if p.ndim != 1 or not np.all((p > 0) & (p < 1)):
            raise InputError(f"probabilities must lie strictly between 0 and 1, but got {probabilities!r}.")
        result = np.empty((len(p), len(self.X), len(self.outputs)))
        for rows in self.chunks(bytes_per_row=16 * self.n_draws * len(self.outputs), most=COMPONENTS_BYTES):
            if self.sensor_var is not None and not self.model.likelihood.normal_noise:
                result[:, rows] = self._quantiles_by_cdf(rows, p)
                continue
            total, means, stds, log_weights = RunningMoments(MOMENT_PAIRS), [], [], []
            for block in self.components(rows):
                means.append(block.gaussian.mean)
                stds.append(block.std)
                log_weights += [] if block.log_weight is None else [block.log_weight]
                total.add(moment_fields_of(block.gaussian, block.sensor_var), block.log_weight)
            self._moments.put(rows, total)
            mean, std = torch.cat(means), torch.cat(stds)
            weight = torch.softmax(torch.cat(log_weights), 0).unsqueeze(-1).expand_as(mean) if log_weights else None
            for part in self.chunks(bytes_per_row=24 * self.n_draws * len(self.outputs), within=rows):
                here = slice(part.start - rows.start, part.stop - rows.start)
                of_part = mean[:, here], std[:, here]
                weight_here = None if weight is None else weight[:, here]
                quantiles = [mixture_quantile(*of_part, float(q), weight_here) for q in p]
                result[:, part] = torch.stack(quantiles).cpu().numpy()
        return self.standardizer.outputs_to_user(result)

    def _quantiles_by_cdf(self, rows: slice, probabilities: Array) -> Array:
        """Invert the distribution function of measured values whose noise is not normal by bisection."""
        parts, likelihood = list(self.components(rows)), self.model.likelihood
        weight = torch.softmax(torch.cat([part.log_weights for part in parts]), 0).unsqueeze(-1)
        mean, var = (torch.cat(part) for part in zip(*((p.gaussian.mean, p.gaussian.var) for p in parts), strict=True))
        w = torch.cat([torch.as_tensor(p.sensor_var).to(mean).expand_as(p.gaussian.mean) for p in parts])
        reach = (var + w).sqrt().amax(0) / float(np.sqrt(min(probabilities.min(), 1 - probabilities.max())))
        low, high = mean.amin(0) - 2 * reach, mean.amax(0) + 2 * reach  # by Chebyshev's inequality
        quantiles = []
        for probability in probabilities:
            a, b = low, high
            for _ in range(60):
                middle = 0.5 * (a + b)
                below = (weight * likelihood.measured_cdf(middle.expand_as(mean), mean, var, w)).sum(0) < probability
                a, b = torch.where(below, middle, a), torch.where(below, b, middle)
            quantiles.append(0.5 * (a + b))
        return torch.stack(quantiles).cpu().numpy()

    def sample(self, n: int, joint: bool | None = None) -> Array:
        """Draw whole output vectors; draw d uses posterior draw number d.

        The noise of a row depends on its position among the rows; what is shared by all rows, (θ, ρ), does not.

        Args:
            n: Number of draws; not limited by `n_draws`.
            joint: Joint draws by M1 that obey the balances within their tolerances, or independent ones from the
                diagonal of `Σ_C`, as in the paper. By default as the model was trained.
        Returns:
            Draws in the user's units, shape `(n, rows, n_y)`.
        """
        joint = self._is_joint if joint is None else joint

        @lru_cache(maxsize=1)  # of the parts of one block
        def row_noise(block: int, first: int, last: int, width: int) -> Tensor:
            return sampling.row_noise(self.seed, block, slice(self.first_row + first, self.first_row + last), width)

        def values(part: Components, places: Places, block: int) -> Tensor:
            noise = row_noise(block, part.rows.start, part.rows.stop, sampling.noise_width(part.gaussian))[places]
            return sampling.sample(part.gaussian, part.sensor_var, noise.to(self.device), joint, self.model.likelihood)

        return self._values_of_draws(n, values)

    def _values_of_draws(self, n: int, values: Callable[[Components, Places, int], Tensor]) -> Array:
        """Compute outputs of draws of components, which all count the same, in the user's units `(n, rows, n_y)`.

        Args:
            n: Number of draws.
            values: Function of components, their places among the draws of a block, and the number of the block.
        """
        result = torch.empty(n, len(self.X), len(self.outputs), dtype=torch.float64)
        for rows in self.chunks():
            for draws in _draw_blocks(n):
                here = result[draws.start : draws.stop, rows]
                for places, part in self.equal_draws(rows, draws):
                    here[places] = values(part, places, draws.start // DRAW_BLOCK).cpu().double()
        return self.standardizer.outputs_to_user(result.numpy())

    def covariance(self, joint: bool | None = None) -> Array:
        """Compute the covariance of the outputs of each row, `E[Σ_C] + Cov[μ_C] (+ E[w])` (P2).

        Args:
            joint: Whether to use the whole `Σ_C` or its diagonal alone; by default as the model was trained.
        Returns:
            Covariances in the user's units, shape `(n, n_y, n_y)`.
        """
        joint = self._is_joint if joint is None else joint
        result = np.empty((len(self.X), len(self.outputs), len(self.outputs)))
        for rows in self.chunks(bytes_per_row=24 * DRAW_BLOCK * len(self.outputs) ** 2):
            total = MixtureMoments(dense=True)
            for part in self.components(rows):
                gaussian = part.gaussian if joint else DiagonalGaussian(part.gaussian.mean, part.gaussian.var)
                total.add(part.log_weight, gaussian, part.sensor_var)
            result[rows] = total.second.cpu().numpy()  # P2
        return result * np.outer(self.standardizer.y_std, self.standardizer.y_std)

    def log_prob(self, Y: Any) -> Array:
        """Compute the log density of the mixture at rows of outputs (P1).

        Under the joint likelihood this is the joint density (L2); under the paper's it is that of independent outputs
        given the draw (L1). Where balances are exact for the measured outputs, the density is on their subspace (L3).

        Args:
            Y: Outputs in the user's units, shape `(n, n_y)`; outputs that are NaN are marginalised.
        Returns:
            Log densities per unit of the user's outputs (L4), in nats, shape `(n,)`.
        Raises:
            InputError: If Y has another shape.
        """
        Y = self.output_values(Y)
        y, result = torch.as_tensor(self.standardizer.outputs(Y)), np.empty(len(self.X))
        for rows in self.chunks():
            here = y[rows].to(self.device)
            densities, log_weights = [], []
            for part in self.components(rows):
                densities.append(part.log_prob(self.model.likelihood, here))
                log_weights += [] if part.log_weight is None else [part.log_weight]
            weight = torch.cat(log_weights) if log_weights else None
            result[rows] = log_mean_density(torch.cat(densities), weight).cpu().numpy()
        sensor = self.model.sensor
        typical = self._noise_var(0.0 if sensor is None else sensor.median().detach(), slice(0, len(self.X)))
        return result + log_density_units(self.model, self.standardizer, Y, typical, self.X)

    def residual_of_means(self, n: int | None = None, constraint: Equality | None = None) -> Array:
        """Compute the balances' residuals `A x + B μ_C − b` of the conditioned mean of each draw (Z1).

        Args:
            n: Number of draws; `n_draws` by default.
            constraint: Balances between the same inputs and outputs, in their order; by default those of the fit.
        Returns:
            Residuals in the balances' units, shape `(n, rows, m)`.
        Raises:
            InputError: If there are no balances.
        """
        n = self.n_draws if n is None else n
        constraint = self.constraint if constraint is None else constraint
        means = self._values_of_draws(n, lambda part, *_: part.gaussian.mean)
        return constraint.residual(self.X, means)

    def residual_of_samples(self, n: int, joint: bool | None = None, constraint: Equality | None = None) -> Array:
        """Compute the balances' residuals `A x + B y − b` of draws of the outputs themselves (Z1).

        Args:
            n: Number of draws.
            joint: Whether draws are joint, as in `sample`.
            constraint: Balances between the same inputs and outputs, in their order; by default those of the fit.
        Returns:
            Residuals in the balances' units, shape `(n, rows, m)`.
        Raises:
            InputError: If there are no balances.
        """
        constraint = self.constraint if constraint is None else constraint
        return constraint.residual(self.X, self.sample(n, joint))

    # ------------------------------------------------------------------ streaming

    @cached_property
    def _moments(self) -> MomentTable:
        """Mean and variance in standardized units of those chunks of rows for which all draws were evaluated (P2)."""
        return MomentTable(self.chunks(), (len(self.X), len(self.outputs)))

    @property
    def _all_moments(self) -> MomentTable:
        """Mean and variance of all rows; what is missing is computed in a pass over all draws."""
        if lacking := [rows for rows in self.chunks() if self._moments.lack(rows)]:
            for rows in lacking:
                total = RunningMoments(MOMENT_PAIRS)
                for part in self.components(rows):
                    total.add(moment_fields_of(part.gaussian, part.sensor_var), part.log_weight)
                self._moments.put(rows, total)
        return self._moments

    @property
    def _total_var(self) -> Array:
        return self._all_moments.var * self.standardizer.y_std**2

    def chunks(self, bytes_per_row: int = 0, most: int | None = None, within: slice | None = None) -> Iterator[slice]:
        """Cut the rows into slices that are small enough to be evaluated at once.

        Each but the last is a multiple of `ROW_BLOCK` rows long.

        Args:
            bytes_per_row: Memory that a row needs besides a layer's units.
            most: How much memory of this kind there may be; by default what stays in cache.
            within: The rows to be cut into slices; all by default.
        """
        start, stop = (0, len(self.X)) if within is None else (within.start, within.stop)
        units = UNITS_BYTES // (4 * DRAW_BLOCK * max(self.model.network.sizes))
        size = max(1, min(units, (most or CACHE_BYTES) // max(bytes_per_row, 1)) // ROW_BLOCK) * ROW_BLOCK
        for first in range(start, stop, size):
            yield slice(first, min(first + size, stop))

    def output_values(self, Y: Any) -> Array:
        """Return a table of outputs in the user's units as an array `(n, n_y)`, in the order of this distribution.

        Args:
            Y: A frame or an array with a row for each row of inputs.
        Raises:
            InputError: If Y has another shape.
        """
        values = np.asarray(frames.select(Y, self.outputs, "Y"), dtype=float)
        values = values.reshape(-1, 1) if values.ndim == 1 and len(self.outputs) == 1 else values
        if values.shape != (expected := (len(self.X), len(self.outputs))):
            message = f"Y must have shape {expected}, a row of outputs per row of inputs, but got {values.shape}."
            raise InputError(message)
        return values

    @property
    def _is_joint(self) -> bool:
        return self.model.likelihood.is_joint

    @property
    def constraint(self) -> Equality:
        """The balances, in the user's units; raises an InputError if the model has none."""
        if self.standardizer.constraint is None:
            raise InputError("Residuals need balances, but this model was fitted without a constraint.")
        return self.standardizer.constraint
