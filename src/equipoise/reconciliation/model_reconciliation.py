"""Reconciliation with a trained model: measured values are combined with the model's prediction, its balances included.

The prediction takes the place of redundancy: every reading can be tested against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise.balances import column_unit
from equipoise.data import frames
from equipoise.prediction import Predictive
from equipoise.reconciliation import trends
from equipoise.reconciliation.classical_reconciliation import BeforeAfter
from equipoise.reconciliation.contributions import Contributions
from equipoise.reconciliation.gross_error_results import BALANCE, SENSOR, Candidate, GlobalTest, GrossErrorTest
from equipoise.reconciliation.gross_errors import GrossErrorSettings, ResidualBlock, count_distinct, gross_error_test
from equipoise.reconciliation.logbook import Logbook, logbook_with_model
from equipoise.reconciliation.measurements import ReconciliationError
from equipoise.reconciliation.readings import Readings, check_against, readings
from equipoise.reconciliation.significance import checked_correction, checked_level, half_width
from equipoise.reconciliation.updated_prediction import UpdatedPrediction

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
LEAST_DRAWS = 20  # effective draws below which a Gaussian with the same moments replaces the mixture


def reconcile_with_model(
    predictive: Predictive,
    measured: Any,
    std: Any = None,
    *,
    level: Any = 0.95,
    least_draws: Any = LEAST_DRAWS,
    inputs: Sequence[str] = (),
    labels: Any = None,
    tolerance: Sequence[float] = (),
    sensor_std: Any = np.nan,
) -> ModelReconciliation:
    """Update a prediction by measured values of its outputs; see `ConstrainedBNNRegressor.reconcile`.

    Args:
        predictive: Prediction of the true values, for the rows that were measured.
        measured, std: Readings of any of the outputs and standard deviations of their errors, as in `readings`.
        level: Probability of intervals, and confidence level of tests.
        least_draws: Smallest number of effective draws; with fewer, the Gaussian with the mixture's moments is used. 0
            keeps the mixture always.
        inputs: Names of further columns that the tables may have.
        labels: Names of the rows.
        tolerance: Standard deviations of the model's balances, reported in logbooks.
        sensor_std: Standard deviations of the model's own sensors, reported in logbooks.
    Returns: True values given the readings, their uncertainty, and tests for gross errors.
    Raises: ReconciliationError, with the name of what is wrong.
    """
    if isinstance(least_draws, bool) or not isinstance(least_draws, int | float) or not least_draws >= 0:
        raise ReconciliationError(f"least_draws must be a number ≥ 0, but got {least_draws!r}. Leave it out for 20.")
    table = readings(measured, std, predictive.outputs, len(predictive.X), others=inputs, labels=labels)
    in_kind = frames.frame_builder(measured, predictive.outputs) if frames.is_frame(measured) else predictive.wrap
    predictive = replace(predictive, sensor_var="model", wrap=in_kind)
    check_against(table, predictive)
    updated = _updated(table, predictive, float(least_draws))
    return ModelReconciliation(table, updated, checked_level(level), tuple(map(float, tolerance)), sensor_std)


def _updated(table: Readings, predictive: Predictive, least_draws: float) -> UpdatedPrediction:
    """Standardize readings and their variances, and condition the prediction on them."""
    s = predictive.standardizer
    prediction = UpdatedPrediction(predictive, s.outputs(table.values), np.square(table.std / s.y_std), least_draws)
    _ = prediction.moments  # evaluates the network now, not when a result is first used
    return prediction


@dataclass(frozen=True, eq=False, repr=False)
class ModelReconciliation:
    """True values given a model and readings, their uncertainty, and tests for gross errors; made by `model.reconcile`.

    All results are in the user's units; data frames give data frames.

    Args:
        readings: The measured values.
        updated: The prediction updated by the readings.
        level: Probability of intervals, and confidence level of tests.
        tolerance: Standard deviations of the balances, in their units.
        sensor_std: Standard deviations of the model's own sensors.
    """

    readings: Readings
    updated: UpdatedPrediction
    level: float
    tolerance: tuple[float, ...] = ()
    sensor_std: Any = np.nan

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self.readings.outputs

    @property
    def mean(self) -> Any:
        """Mean of the true values given the readings, shape `(rows, n_y)` (R12, R13)."""
        return self._wrap(self._mean)

    @property
    def values(self) -> Any:
        """The reconciled values: another name of `mean`."""
        return self.mean

    @cached_property
    def statistic(self) -> Array:
        """Statistic of the global test, shape `(rows,)` (R15)."""
        statistic = np.empty(len(self.readings.values))
        for rows, whitened, _ in self._residual_parts(leaks=False):
            statistic[rows] = np.square(whitened).sum(axis=1)  # R15
        return statistic

    @property
    def threshold(self) -> Array:
        """The value below which `statistic` stays with probability `level`; NaN in rows without readings."""
        return self.global_test().threshold

    @property
    def std(self) -> Any:
        """Standard deviations of the true values given the readings, shape `(rows, n_y)` (R12, R13)."""
        return self._wrap(np.sqrt(self._moments.var) * self._y_std)

    @property
    def predicted(self) -> Any:
        """Mean of the true values without the readings: the model's prediction, shape `(rows, n_y)`."""
        return self._wrap(self._standardizer.outputs_to_user(self._moments.prior_mean))

    @property
    def adjustments(self) -> Any:
        """Reconciled minus measured values, shape `(rows, n_y)`; NaN for what was not measured."""
        return self._wrap(self._mean - self.readings.values)

    @property
    def half_widths(self) -> BeforeAfter:
        """Half-widths of the intervals of the true values with probability `level`, before and after the readings."""
        before, after = (half_width(self.level) * np.sqrt(var) for var in (self._moments.prior_var, self._moments.var))
        return BeforeAfter(self._wrap(before * self._y_std), self._wrap(after * self._y_std))

    @property
    def residuals(self) -> BeforeAfter:
        """Residuals `A x + B y − b` of the balances, shape `(rows, m)`, of the readings and of the reconciled values.

        Those of the readings are NaN where one is missing.

        Raises: InputError, if the model has no balances.
        """
        constraint, X = self.updated.predictive.constraint, self.updated.predictive.X
        return BeforeAfter(*(constraint.residual(X, values) for values in (self.readings.values, self._mean)))

    @property
    def effective_draws(self) -> Array:
        """Effective number of the model's draws given the readings, shape `(rows,)` (R11)."""
        return self._moments.effective

    @property
    def gaussian(self) -> NDArray[np.bool_]:
        """Whether these were too few, so that the Gaussian with the mixture's moments was used, shape `(rows,)`."""
        return self._moments.gaussian

    def covariance(self, rows: Any = None) -> Array:
        """Return the covariance of the true values given the readings, shape `(rows, n_y, n_y)` (R12, R13).

        Args:
            rows: Positions of the rows; all if left out.
        """
        return self._updated_rows(rows).covariance() * np.outer(self._y_std, self._y_std)

    def sample(self, n: int, seed: int = 0) -> Array:
        """Draw jointly from the true values given the readings; draws obey exact balances.

        Args:
            n: Number of draws.
            seed: Seed of the random numbers.
        Returns: Draws in the outputs' units, shape `(n, rows, n_y)`.
        """
        return self._standardizer.outputs_to_user(self.updated.sample(n, seed))

    def moved(self, rows: Any = None) -> Contributions:
        """Return the contribution of each reading and each balance to the reconciled values (R14).

        Args:
            rows: Positions of the rows; all if left out.
        """
        network, *added = self._updated_rows(rows).contributions()
        sensors, balances, draws = (term * self._y_std for term in added)
        network = self._standardizer.outputs_to_user(network)
        return Contributions(network, sensors, balances, draws, self.variables, self._balances)

    def global_test(self, level: Any = None) -> GlobalTest:
        """Test by χ² whether the readings of each row agree with the model (R15).

        There are as many degrees of freedom as readings.

        Args:
            level: Confidence level; that of the reconciliation if left out.
        Returns: Statistics, thresholds and alarms.
        """
        level = self.level if level is None else checked_level(level)
        return GlobalTest(self.statistic, self.readings.measured.sum(axis=1), level, self.readings.labels)

    def measurement_test(self, level: Any = None, correction: Any = "sidak") -> GrossErrorTest:
        """Test each reading for a bias of its sensor, and estimate the bias (R15).

        Args:
            level: Confidence level; that of the reconciliation if left out.
            correction: Correction for many tests at once: "sidak", "bonferroni" or None.
        Returns: Statistics, critical values and estimated biases of the outputs' sensors.
        """
        return self._directional_test("Measurement test", level, correction, leaks=False)

    def likelihood_ratio_test(self, level: Any = None, correction: Any = "sidak") -> GrossErrorTest:
        """Test each sensor for a bias and each balance for a leak by the likelihood ratio (R15).

        Args:
            level: Confidence level; that of the reconciliation if left out.
            correction: Correction for many tests at once: "sidak", "bonferroni" or None.
        Returns: Statistics, critical values and estimated sizes: the outputs' sensors, then the balances.
        """
        return self._directional_test("Likelihood ratio test", level, correction, leaks=True)

    @cached_property
    def suspects(self) -> NDArray[np.object_]:
        """The suspect of the measurement test in each row, or None, shape `(rows,)`."""
        return self.measurement_test().suspect

    def without(self, names: str | Sequence[str]) -> ModelReconciliation:
        """Reconcile again without the readings of the given sensors.

        Args:
            names: Names of outputs.
        """
        table = self.readings.without([names] if isinstance(names, str) else list(names))
        return replace(
            self,
            readings=table,
            updated=_updated(table, self.updated.predictive, self.updated.least_draws),
        )

    def logbook(self, time: Any = None, test: GrossErrorTest | None = None) -> Logbook:
        """Return alarms and suspects by output and by balance; logbooks of consecutive pieces of a table can be added.

        Args:
            time: When each row was measured: numbers or dates; the row's number, from 1, if left out.
            test: The likelihood ratio test, if it was already calculated.
        """
        test = test or self.likelihood_ratio_test()
        return logbook_with_model(self, test, self.tolerance, self.sensor_std, time)

    def plot(self, time: Any = None, sensors: int = 3) -> Figure:
        """Plot the global test over time, and the adjustments of the most suspect sensors.

        Args:
            time: When each row was measured: numbers or dates; the row's number, from 1, if left out.
            sensors: Number of sensors.
        Returns: A matplotlib figure, to be saved or shown.
        """
        return trends.figure(self.logbook(time), sensors)

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one line for each output: measured, predicted and reconciled means with half-widths."""
        import pandas as pd

        measured, factor = self.readings.measured, half_width(self.level) * self._y_std
        count = measured.sum(axis=0)
        data = {
            "unit": [column_unit(name) or "" for name in self.variables],
            "readings": count,
            "measured": np.where(measured, self.readings.values, 0.0).sum(axis=0) / np.where(count > 0, count, np.nan),
            "predicted": self._standardizer.outputs_to_user(self._moments.prior_mean).mean(axis=0),
            "± before": factor * np.sqrt(self._moments.prior_var.mean(axis=0)),
            "reconciled": self._mean.mean(axis=0),
            "± after": factor * np.sqrt(self._moments.var.mean(axis=0)),
        }
        return pd.DataFrame(data, index=pd.Index(self.variables, name="variable"))

    def __repr__(self) -> str:
        rows, few = len(self.gaussian), int(self.gaussian.sum())
        least = f"{self.effective_draws.min():.0f}" if rows else "no"
        head = f"ModelReconciliation({rows} rows of {', '.join(self.variables)})"
        draws = f"at least {least} effective draws; the matched Gaussian in {few} rows"
        lines = [
            f"{name!r}: {predicted:.6g} ± {before:.4g} → {reconciled:.6g} ± {after:.4g}{f' {unit}' if unit else ''}"
            for name, unit, _, _, predicted, before, reconciled, after in self.to_frame().itertuples()
        ]
        return "\n  ".join([head, draws, *lines])

    @property
    def _moments(self):
        return self.updated.moments

    @property
    def _standardizer(self):
        return self.updated.predictive.standardizer

    @property
    def _y_std(self) -> Array:
        return self._standardizer.y_std

    @property
    def _mean(self) -> Array:
        return self._standardizer.outputs_to_user(self._moments.mean)

    @property
    def _wrap(self) -> Callable[[Array], Any]:
        return self.updated.predictive.wrap

    @property
    def _balances(self) -> tuple[str, ...]:
        constraint = self._standardizer.constraint
        return () if constraint is None else constraint.names

    def _updated_rows(self, rows: Any) -> UpdatedPrediction:
        """Select rows of the updated prediction; all if None."""
        if rows is None:
            return self.updated
        count = len(self.gaussian)
        try:
            return self.updated.take(np.atleast_1d(np.arange(count)[rows]))
        except IndexError:
            raise ReconciliationError(f"rows must be positions of {count} rows, but got {rows!r}.") from None

    def _directional_test(self, title: str, level: Any, correction: Any, *, leaks: bool) -> GrossErrorTest:
        level = self.level if level is None else checked_level(level)
        settings = GrossErrorSettings(
            self._candidates(leaks), level, checked_correction(correction), self.readings.labels
        )
        parts = self._residual_parts(leaks=leaks)
        return gross_error_test(title, (ResidualBlock(*part, count_distinct(part[-1])) for part in parts), settings)

    def _candidates(self, leaks: bool) -> tuple[Candidate, ...]:
        sensors = [Candidate(name, SENSOR, column_unit(name)) for name in self.variables]
        constraint = self._standardizer.constraint
        if constraint is None or not leaks:
            return tuple(sensors)
        named = zip(constraint.names, constraint.units, strict=True)
        return (*sensors, *(Candidate(name, BALANCE, unit) for name, unit in named))

    def _residual_parts(self, *, leaks: bool) -> Iterator[tuple[slice, Array, Array]]:
        """Iterate over rows, their whitened innovations, and the directions of candidates in the user's units::

        e = T (y − E[y]),    f_j = −T 1_j for a bias,    f_k = −T E[K 1_k] for a leak        (R15)
        """
        updated = self.updated
        for rows in updated.predictive.chunks(updated._dense_bytes_per_row):
            matched, averages = updated.matched(rows, *([lambda gaussian: gaussian.gain_rows()] if leaks else []))
            directions = -matched.whitener / self._y_std  # R15
            if leaks and self._balances:
                leaking = -matched.whitener @ averages[0].mT / self._standardizer.row_scale  # R15
                directions = np.concatenate([directions, leaking], axis=-1)
            yield rows, matched.whitened, directions
