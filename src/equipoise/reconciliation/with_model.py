"""Readings reconciled with a trained model: what the network, the balances and the instruments say together."""

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
from equipoise.reconciliation import drawing
from equipoise.reconciliation.alarms import BALANCE, SENSOR, Candidate, GlobalTest, GrossErrorTest
from equipoise.reconciliation.classical import BeforeAfter
from equipoise.reconciliation.gross_errors import Part, Terms, gross_error_test
from equipoise.reconciliation.hindsight import Hindsight
from equipoise.reconciliation.logbook import Logbook, logbook_with_model
from equipoise.reconciliation.measurements import ReconciliationError
from equipoise.reconciliation.moves import Moves, gains
from equipoise.reconciliation.readings import Readings, check_against, readings
from equipoise.reconciliation.rivals import distinct
from equipoise.reconciliation.significance import checked_correction, checked_level, half_width

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
LEAST_DRAWS = 20  # effective draws, below which the mixture is replaced by the Gaussian with its moments


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
    """What a prediction becomes when some of it is measured; see `ConstrainedBNNRegressor.reconcile`.

    Args:
        predictive: Of the true values, for the rows that were measured.
        measured, std: Readings of any of the outputs and standard deviations of their errors, as in `readings`.
        level: Probability of intervals, and confidence level of tests.
        least_draws: How many effective draws there must be; 0 never replaces the mixture by a Gaussian.
        inputs: Names that the tables may have besides those of outputs.
        labels: Names of the rows.
        tolerance, sensor_std: What the model learned of its balances and sensors, to be told of in a logbook.
    Raises: ReconciliationError, with the name of what is wrong.
    """
    if isinstance(least_draws, bool) or not isinstance(least_draws, int | float) or not least_draws >= 0:
        raise ReconciliationError(f"least_draws must be a number ≥ 0, but got {least_draws!r}. Leave it out for 20.")
    given = readings(measured, std, predictive.outputs, len(predictive.X), others=inputs, labels=labels)
    wrap = frames.frame_builder(measured, predictive.outputs) if frames.is_frame(measured) else predictive.wrap
    predictive = replace(predictive, sensor_var="model", wrap=wrap)
    check_against(given, predictive)
    hindsight = _in_hindsight(given, predictive, float(least_draws))
    return ModelReconciliation(given, hindsight, checked_level(level), tuple(map(float, tolerance)), sensor_std)


def _in_hindsight(given: Readings, predictive: Predictive, least_draws: float) -> Hindsight:
    s = predictive.standardizer
    hindsight = Hindsight(predictive, s.outputs(given.values), np.square(given.std / s.y_std), least_draws)
    _ = hindsight.outcome  # the network runs now, not when somebody looks
    return hindsight


@dataclass(frozen=True, eq=False, repr=False)
class ModelReconciliation:
    """True values given a model and readings, and what follows from them; made by `model.reconcile`.

    Frames come back as frames, everything is in the user's units.

    Args:
        readings: What was measured.
        hindsight: The prediction and the readings together.
        level: Probability of intervals, and confidence level of tests.
        tolerance: Standard deviations of the balances, in their units.
        sensor_std: Those of the model's own sensors.
    """

    readings: Readings
    hindsight: Hindsight
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
        """Of the global test, shape `(rows,)` (R15)."""
        statistic = np.empty(len(self.readings.values))
        for rows, whitened, _ in self._directed(leaks=False):
            statistic[rows] = np.square(whitened).sum(axis=1)  # R15
        return statistic

    @property
    def threshold(self) -> Array:
        """What `statistic` stays below with probability `level`; NaN where nothing was measured."""
        return self.global_test().threshold

    @property
    def std(self) -> Any:
        """Standard deviations of the true values given the readings (R12, R13)."""
        return self._wrap(np.sqrt(self._of.var) * self._y_std)

    @property
    def predicted(self) -> Any:
        """Mean of the true values without the readings: the model's prediction."""
        return self._wrap(self._standardizer.outputs_to_user(self._of.prior_mean))

    @property
    def adjustments(self) -> Any:
        """Reconciled minus measured values; NaN for what was not measured."""
        return self._wrap(self._mean - self.readings.values)

    @property
    def half_widths(self) -> BeforeAfter:
        """Half of the intervals that hold the true values with probability `level`, as predicted and with readings."""
        before, after = (half_width(self.level) * np.sqrt(var) for var in (self._of.prior_var, self._of.var))
        return BeforeAfter(self._wrap(before * self._y_std), self._wrap(after * self._y_std))

    @property
    def residuals(self) -> BeforeAfter:
        """What each balance misses, `A x + B y − b`, shape `(rows, m)`: by the readings, NaN where one is missing, and
        by the reconciled values."""
        constraint, X = self.hindsight.predictive._constraint, self.hindsight.predictive.X
        return BeforeAfter(*(constraint.residual(X, values) for values in (self.readings.values, self._mean)))

    @property
    def effective_draws(self) -> Array:
        """How many of the model's draws still count, given the readings, shape `(rows,)` (R11)."""
        return self._of.effective

    @property
    def gaussian(self) -> NDArray[np.bool_]:
        """Whether those were too few, so that the Gaussian with the prediction's moments was used, shape `(rows,)`."""
        return self._of.gaussian

    def covariance(self, rows: Any = None) -> Array:
        """Covariance of the true values of some rows, given the readings, shape `(rows, n_y, n_y)`.

        Args:
            rows: Their positions; all if left out.
        """
        return self._some(rows).covariance() * np.outer(self._y_std, self._y_std)

    def sample(self, n: int, seed: int = 0) -> Array:
        """Joint draws of the true values given the readings, shape `(n, rows, n_y)`, which obey the balances."""
        return self._standardizer.outputs_to_user(self.hindsight.sample(n, seed))

    def moved(self, rows: Any = None) -> Moves:
        """How much each reading and each balance moved the reconciled values away from the network's own (R14).

        Args:
            rows: Positions of rows; all if left out.
        """
        network, *added = self._some(rows).moves()
        sensors, balances, draws = (term * self._y_std for term in added)
        network = self._standardizer.outputs_to_user(network)
        return Moves(network, sensors, balances, draws, self.variables, self._balances)

    def global_test(self, level: Any = None) -> GlobalTest:
        """Do the readings of a row fit the model at all? χ² with as many degrees of freedom as it has readings (R15).

        Args:
            level: Confidence level; that of the reconciliation if left out.
        """
        level = self.level if level is None else checked_level(level)
        return GlobalTest(self.statistic, self.readings.seen.sum(axis=1), level, self.readings.labels)

    def measurement_test(self, level: Any = None, correction: Any = "sidak") -> GrossErrorTest:
        """Which sensor lies? One test for each reading, with the estimated bias (R15).

        Args:
            level: Confidence level; that of the reconciliation if left out.
            correction: For many tests at once: "sidak", "bonferroni" or None. So it is for the other test.
        """
        return self._tested("Measurement test", level, correction, leaks=False)

    def likelihood_ratio_test(self, level: Any = None, correction: Any = "sidak") -> GrossErrorTest:
        """Which sensor lies, or which balance leaks? One likelihood ratio for each, with the estimated size (R15)."""
        return self._tested("Likelihood ratio test", level, correction, leaks=True)

    @cached_property
    def suspects(self) -> NDArray[np.object_]:
        """The sensor of each row that lies by the measurement test, or None, shape `(rows,)`."""
        return self.measurement_test().suspect

    def without(self, names: str | Sequence[str]) -> ModelReconciliation:
        """Reconcile again without the readings of some sensors."""
        given = self.readings.without([names] if isinstance(names, str) else list(names))
        return replace(
            self,
            readings=given,
            hindsight=_in_hindsight(given, self.hindsight.predictive, self.hindsight.least_draws),
        )

    def logbook(self, time: Any = None, test: GrossErrorTest | None = None) -> Logbook:
        """Alarms and suspects, one line for each output and each balance; logbooks of pieces can be added.

        Args:
            time: When each row was measured: numbers or dates; its number, from 1, if left out.
            test: The likelihood ratio test, where it is there already.
        """
        test = test or self.likelihood_ratio_test()
        return logbook_with_model(self, test, self.tolerance, self.sensor_std, time)

    def plot(self, time: Any = None, sensors: int = 3) -> Figure:
        """Draw the global test over time, and the adjustments of the sensors that are most suspect.

        Args:
            time: As for `logbook`.
            sensors: How many.
        Returns: A figure of matplotlib, to be saved or shown.
        """
        return drawing.figure(self.logbook(time), sensors)

    def to_frame(self) -> pd.DataFrame:
        """One line for each output: measured, predicted and reconciled with half-widths; means over the rows."""
        import pandas as pd

        seen, s = self.readings.seen, half_width(self.level) * self._y_std
        count = seen.sum(axis=0)
        data = {
            "unit": [column_unit(name) or "" for name in self.variables],
            "readings": count,
            "measured": np.where(seen, self.readings.values, 0.0).sum(axis=0) / np.where(count > 0, count, np.nan),
            "predicted": self._standardizer.outputs_to_user(self._of.prior_mean).mean(axis=0),
            "± before": s * np.sqrt(self._of.prior_var.mean(axis=0)),
            "reconciled": self._mean.mean(axis=0),
            "± after": s * np.sqrt(self._of.var.mean(axis=0)),
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
    def _of(self):
        return self.hindsight.outcome

    @property
    def _standardizer(self):
        return self.hindsight.predictive.standardizer

    @property
    def _y_std(self) -> Array:
        return self._standardizer.y_std

    @property
    def _mean(self) -> Array:
        return self._standardizer.outputs_to_user(self._of.mean)

    @property
    def _wrap(self) -> Callable[[Array], Any]:
        return self.hindsight.predictive.wrap

    @property
    def _balances(self) -> tuple[str, ...]:
        constraint = self._standardizer.constraint
        return () if constraint is None else constraint.names

    def _some(self, rows: Any) -> Hindsight:
        if rows is None:
            return self.hindsight
        count = len(self.gaussian)
        try:
            return self.hindsight.take(np.atleast_1d(np.arange(count)[rows]))
        except IndexError:
            raise ReconciliationError(f"rows must be positions of {count} rows, but got {rows!r}.") from None

    def _tested(self, title: str, level: Any, correction: Any, *, leaks: bool) -> GrossErrorTest:
        level = self.level if level is None else checked_level(level)
        terms = Terms(self._candidates(leaks), level, checked_correction(correction), self.readings.labels)
        directed = self._directed(leaks=leaks)
        return gross_error_test(title, (Part(*of_rows, distinct(of_rows[-1])) for of_rows in directed), terms)

    def _candidates(self, leaks: bool) -> tuple[Candidate, ...]:
        sensors = [Candidate(name, SENSOR, column_unit(name)) for name in self.variables]
        constraint = self._standardizer.constraint
        if constraint is None or not leaks:
            return tuple(sensors)
        named = zip(constraint.names, constraint.units, strict=True)
        return (*sensors, *(Candidate(name, BALANCE, unit) for name, unit in named))

    def _directed(self, *, leaks: bool) -> Iterator[tuple[slice, Array, Array]]:
        """Rows, the whitened innovations of their readings, and the directions of candidates in the user's units::

        e = T (y − E[y]),    f_j = −T 1_j for a bias,    f_k = −T E[K 1_k] for a leak        (R15)
        """
        hindsight = self.hindsight
        for rows in hindsight.predictive._chunks(hindsight._dense_bytes_per_row):
            matched, averages = hindsight.matched(rows, *([gains] if leaks else []))
            directions = -matched.whitener / self._y_std  # R15
            if leaks and self._balances:
                leaking = -matched.whitener @ averages[0].mT / self._standardizer.row_scale  # R15
                directions = np.concatenate([directions, leaking], axis=-1)
            yield rows, matched.whitened, directions
