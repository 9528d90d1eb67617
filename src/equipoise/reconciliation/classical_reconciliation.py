"""Classical data reconciliation, without a model: `reconcile` and its result.

Measured values are adjusted until they obey their balances, and tests tell whether the adjustments are too large to be
random errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.balances import did_you_mean
from equipoise.reconciliation import gross_errors, trends
from equipoise.reconciliation.gross_error_results import BALANCE, SENSOR, GlobalTest, GrossErrorTest
from equipoise.reconciliation.logbook import Logbook, logbook
from equipoise.reconciliation.measurements import Measurements, ReconciliationError, measurements
from equipoise.reconciliation.serial_elimination import Elimination, serial_elimination
from equipoise.reconciliation.significance import checked_correction, checked_level, half_width
from equipoise.reconciliation.solution import Solution

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
LISTED = 30  # variables that are printed

# Users' arguments are `Any` on purpose: unsuitable ones are refused with a message that names suitable ones.


class BeforeAfter(NamedTuple):
    """A quantity before and after reconciliation."""

    before: Any
    after: Any


def reconcile(
    values: Any,
    std: Any,
    constraint: Any,
    inputs: Any = None,
    inputs_std: Any = None,
    *,
    covariance: Any = None,
    tolerance: Any = None,
    level: Any = 0.95,
) -> Reconciliation:
    """Adjust measured values as little as their errors allow, so that they obey their balances.

    Of all values that obey the balances, the reconciled ones have the least sum of squared adjustments, each in units
    of its standard deviation: conditioning (C3) with the measured values as prior mean. What was not measured is
    calculated from the measured values where the balances determine it.

    Args:
        values: Measured outputs: one row `(n_y,)`, a mapping by name, or a table `(rows, n_y)`, array or data frame.
            NaN marks what was not measured, which may differ from row to row.
        std: Standard deviations of their errors: one for all, one each, by order or by name, or a table `(rows, n_y)`.
            0 is exact.
        constraint: The balances, a `LinearConstraint`.
        inputs: Inputs and known columns of the balances, one row for each row of values.
        inputs_std: Standard deviations of the inputs, which are then reconciled too; without it they are exact.
        covariance: Covariance of the outputs' errors, `(n_y, n_y)`, in place of std where they are correlated.
        tolerance: Standard deviations of the balances, in their units: one for all, one each, or by name. 0, the
            default, is a balance that holds exactly.
        level: Probability of intervals, and confidence level of tests.
    Returns: Reconciled values, their standard deviations, and tests for gross errors. Columns are the outputs, and with
        `inputs_std` the inputs after them.
    Raises: ReconciliationError, with the name of what is wrong.
    Example:
        >>> from equipoise.balances.linear import LinearConstraint
        >>> flows = LinearConstraint.from_equations("feed = top + bottom", outputs=["feed", "top", "bottom"])
        >>> result = reconcile([101.0, 60.0, 38.0], [2.0, 1.0, 1.0], flows)
        >>> result.values
        array([99. , 60.5, 38.5])
        >>> result.global_test()
        Global test at 0.95: 1.5000 ≤ 3.8415 (χ², 1 degree of freedom): no alarm
    """
    level = checked_level(level)
    table = measurements(values, std, constraint, inputs, inputs_std, covariance, tolerance)
    return _solved(Solution(table), level)


@dataclass(frozen=True, eq=False, repr=False)
class Reconciliation:
    """Reconciled values, their uncertainty, and tests for gross errors; made by `reconcile`.

    Every result is calculated when it is first used, piece by piece for long tables. For one row that was given on its
    own, results lack the first axis; data frames give data frames.

    Args:
        solution: The measurements and their least-squares solution.
        level: Probability of intervals, and confidence level of tests.
    """

    solution: Solution
    level: float

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the columns: outputs, then inputs if they were reconciled."""
        return self._measurements.names[: self._measurements.reported]

    @property
    def values(self) -> Any:
        """Reconciled values, shape `(rows, n)`; NaN for unobservable variables."""
        return self._in_kind(self.solution.estimates.values[:, : self._measurements.reported])

    @property
    def adjustments(self) -> Any:
        """Reconciled minus measured values; NaN for what was not measured."""
        n = self._measurements.reported
        return self._in_kind(self.solution.estimates.values[:, :n] - self._measurements.values[:, :n])

    @property
    def std(self) -> Any:
        """Standard deviations of the reconciled values, shape `(rows, n)`."""
        return self._in_kind(self.solution.std[:, : self._measurements.reported])

    @property
    def half_widths(self) -> BeforeAfter:
        """Half-widths of the intervals of the true values with probability `level`, before and after, `(rows, n)`."""
        before, after = (half_width(self.level) * std for std in (self.solution.std_before, self.solution.std))
        return BeforeAfter(*(self._in_kind(part[:, : self._measurements.reported]) for part in (before, after)))

    @property
    def residuals(self) -> BeforeAfter:
        """Residuals `A x + B y − b` of the balances, before and after, `(rows, m)`; NaN where a value is missing."""
        before, after = (
            self._residuals_of(values) for values in (self._measurements.values, self.solution.estimates.values)
        )
        return BeforeAfter(self._without_row_axis(before), self._without_row_axis(after))

    @property
    def statistic(self) -> Any:
        """Statistic of the global test, `(rows,)`: sum of squared adjustments, each in standard deviations (R5)."""
        return self._without_row_axis(self.solution.estimates.statistic)

    @property
    def degrees_of_freedom(self) -> Any:
        """Number of independent balances between measured variables, shape `(rows,)`."""
        return self._without_row_axis(self.solution.estimates.degrees_of_freedom)

    @property
    def threshold(self) -> Any:
        """The value below which `statistic` stays with probability `level` without gross errors, shape `(rows,)`."""
        return self.global_test().threshold

    @property
    def classes(self) -> Any:
        """Class of each variable, an array of words, shape `(rows, n)`.

        One of "measured redundant", "measured non-redundant", "unmeasured observable" and "unmeasured unobservable".
        """
        return self._without_row_axis(self.solution.classes[:, : self._measurements.reported])

    def covariance(self, row: int | None = None) -> Array:
        """Return the covariance of the reconciled values of one row, shape `(n, n)` (R4).

        Args:
            row: Its position in the table; may be left out if there is only one row.
        Raises: ReconciliationError, if there is no such row.
        """
        rows = len(self._measurements)
        if (rows != 1) if row is None else not -rows <= row < rows:
            rule = f"row must be the position of one of {rows} rows"
            raise ReconciliationError(f"{rule}, but got {row}. Covariances are given for one row at a time.")
        position = 0 if row is None else row % rows
        adjuster, n = self.solution.adjuster_of(position), self._measurements.reported
        return adjuster.covariance_after(self.solution.factor_of(position))[:n, :n]

    def global_test(self, level: Any = None) -> GlobalTest:
        """Test each row for gross errors as a whole, by χ² (R5).

        Args:
            level: Confidence level; that of the reconciliation if left out.
        Returns: Statistics, thresholds and alarms.
        """
        level = self.level if level is None else checked_level(level)
        return GlobalTest(self.statistic, self.degrees_of_freedom, level, self._measurements.labels)

    def nodal_test(self, level: Any = None, correction: Any = "sidak") -> GrossErrorTest:
        """Test each balance for a leak, by its own residual alone (R6).

        Args:
            level: Confidence level; that of the reconciliation if left out.
            correction: Correction for many tests at once, so that the level holds for all of a row together (R8):
                "sidak", "bonferroni", or None for a level that holds for each test by itself.
        Returns: One standard normal number for each balance, critical values and alarms.
        """
        return gross_errors.nodal_test(self.solution, *self._level_and_correction(level, correction))

    def measurement_test(self, level: Any = None, correction: Any = "sidak") -> GrossErrorTest:
        """Test each sensor for a bias, with maximum power, and estimate the bias (R7).

        Args:
            level: Confidence level; that of the reconciliation if left out.
            correction: Correction for many tests at once: "sidak", "bonferroni" or None.
        Returns: One standard normal number for each sensor, estimated biases, critical values and alarms.
        Example:
            >>> from equipoise.balances.linear import LinearConstraint
            >>> names = ["a [kg/s]", "b [kg/s]", "c [kg/s]"]
            >>> meters = LinearConstraint.from_equations(["a = b", "b = c"], outputs=names)
            >>> reconcile([10.0, 10.2, 14.2], 1.0, meters).measurement_test()
            Measurement test at 0.95 together, by Šidák: |z| ≤ 2.388; ± half of the 95 % interval
              sensor 'a [kg/s]': z = -1.796, bias -2.2 ± 2.4 kg/s
              sensor 'b [kg/s]': z = -1.551, bias -1.9 ± 2.4 kg/s
              sensor 'c [kg/s]': z = 3.348, bias 4.1 ± 2.4 kg/s, ALARM
        """
        return gross_errors.measurement_test(self.solution, *self._level_and_correction(level, correction))

    def likelihood_ratio_test(self, level: Any = None, correction: Any = "sidak") -> GrossErrorTest:
        """Test each sensor for a bias and each balance for a leak by the likelihood ratio (R7).

        Args:
            level: Confidence level; that of the reconciliation if left out.
            correction: Correction for many tests at once: "sidak", "bonferroni" or None.
        Returns: One standard normal number for each sensor and balance, estimated sizes, critical values and alarms.
        """
        return gross_errors.likelihood_ratio_test(self.solution, *self._level_and_correction(level, correction))

    def serial_elimination(
        self,
        level: Any = None,
        correction: Any = "sidak",
        *,
        leaks: bool = False,
        most: Any = None,
    ) -> Elimination:
        """Eliminate the worst sensor of each row until its global test passes or no sensor is significant (R9).

        Args:
            level: Confidence level; that of the reconciliation if left out.
            correction: Correction for many tests at once: "sidak", "bonferroni" or None.
            leaks: Whether balances may be eliminated too.
            most: Largest number of eliminations in a row; None for any number.
        Returns: The gross errors of each row, with their estimated sizes.
        Raises: ReconciliationError, if an argument has no such value.
        """
        if most is not None and (not isinstance(most, int) or most < 1):
            raise ReconciliationError(
                f"most must be a number ≥ 1, or None, but got {most!r}. Leave it out for any number."
            )
        return serial_elimination(self.solution, *self._level_and_correction(level, correction), leaks=leaks, most=most)

    def without(self, suspects: Elimination | str | Iterable[str]) -> Reconciliation:
        """Reconcile again without the given sensors or balances.

        Args:
            suspects: The result of serial elimination, each suspect in its row; or names of sensors and balances, in
                all rows.
        Returns: A new reconciliation.
        Raises: ReconciliationError, if there is no such sensor or balance.
        Example:
            >>> from equipoise.balances.linear import LinearConstraint
            >>> meters = LinearConstraint.from_equations(["a = b", "b = c"], outputs=["a", "b", "c"])
            >>> result = reconcile([10.0, 10.2, 14.1], 1.0, meters)
            >>> result.without(result.serial_elimination()).values
            array([10.1, 10.1, 10.1])
        """
        values, dropped = (
            self._measurements.values.copy(),
            np.zeros((len(self._measurements), self._measurements.constraint.n_balances), bool),
        )
        if self.solution.dropped is not None:
            dropped |= self.solution.dropped
        for rows, name, kind in _eliminations(suspects, self.variables, self._measurements.constraint.names):
            if kind == SENSOR:
                values[rows, self.variables.index(name)] = np.nan
            else:
                dropped[rows, self._measurements.constraint.index(name)] = True
        table = replace(self._measurements, values=values)
        return _solved(Solution(table, dropped if dropped.any() else None), self.level)

    def logbook(self, time: Any = None, test: GrossErrorTest | None = None) -> Logbook:
        """Return alarms, suspects and classes by variable and by balance; logbooks of consecutive pieces can be added.

        Args:
            time: When each row was measured: numbers or dates; the row's number, from 1, if left out.
            test: The likelihood ratio test, if it was already calculated.
        """
        return logbook(self, test or self.likelihood_ratio_test(), time)

    def plot(self, time: Any = None, sensors: int = 3) -> Figure:
        """Plot the global test over time, and the adjustments of the most suspect sensors.

        Args:
            time: When each row was measured: numbers or dates; the row's number, from 1, if left out.
            sensors: Number of sensors.
        Returns: A matplotlib figure, to be saved or shown.
        """
        return trends.figure(self.logbook(time), sensors)

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one line for each variable: unit, measured and reconciled value, half-widths and class.

        Over the rows of a table, values are means, half-widths root mean squares, and the class is that of most rows.
        Measured values are averaged over the readings, reconciled ones over all rows that determine the variable.
        """
        return _overview(self.solution, self.level)

    def __repr__(self) -> str:
        sizes = {
            "balance": self._measurements.constraint.n_balances,
            "variable": len(self.variables),
            "row": len(self._measurements),
        }
        counts = ", ".join(f"{count} {noun}{'s' if count != 1 else ''}" for noun, count in sizes.items())
        head = f"Reconciliation({counts})"
        return "\n  ".join([head, repr(self.global_test()), *_overview_lines(self.to_frame())])

    @property
    def _measurements(self) -> Measurements:
        return self.solution.measurements

    def _residuals_of(self, values: Array) -> Array:
        constraint = self._measurements.constraint
        y, x = values[:, : constraint.n_outputs], values[:, constraint.n_outputs :]
        x = x if x.shape[1] else np.zeros((len(values), constraint.n_columns))
        return constraint.residual(x, y)

    def _level_and_correction(self, level: Any, correction: Any) -> tuple[float, str | None]:
        return self.level if level is None else checked_level(level), checked_correction(correction)

    def _without_row_axis(self, values: NDArray[Any]) -> Any:
        return values[0] if self._measurements.single else values

    def _in_kind(self, values: NDArray[Any]) -> Any:
        return values[0] if self._measurements.single else self._measurements.in_kind(values)


def _solved(solution: Solution, level: float) -> Reconciliation:
    """Return a reconciliation whose values are already calculated, so that errors in the data are raised now."""
    _ = solution.estimates
    return Reconciliation(solution, level)


def _eliminations(
    suspects: Elimination | str | Iterable[str], sensors: tuple[str, ...], balances: tuple[str, ...]
) -> Iterable[tuple[Any, str, str]]:
    """List the rows, name and kind of each sensor or balance that is to be eliminated."""
    if isinstance(suspects, Elimination):
        return [(suspect.row, suspect.candidate.name, suspect.candidate.kind) for suspect in suspects.suspects]
    names = [suspects] if isinstance(suspects, str) else list(suspects)
    for name in names:
        if name not in sensors and name not in balances:
            rule = "suspects must be names of variables or balances"
            raise ReconciliationError(f"{rule}, but got {name!r}. {did_you_mean(str(name), (*sensors, *balances))}")
    return [(slice(None), name, SENSOR if name in sensors else BALANCE) for name in names]


def _overview(solution: Solution, level: float) -> pd.DataFrame:
    """Average measurements and solution over the rows, for `Reconciliation.to_frame`."""
    import pandas as pd

    table = solution.measurements
    factor, values = half_width(level), solution.estimates.values
    data = {
        "unit": [unit or "" for unit in table.units],
        "readings": np.count_nonzero(~np.isnan(table.values), axis=0),
        "measured": _mean(table.values),
        "± before": factor * np.sqrt(_mean(np.square(solution.std_before))),
        "reconciled": _mean(values),
        "± after": factor * np.sqrt(_mean(np.square(solution.std))),
        "adjustment": _mean(values - table.values),
        "class": [_most_frequent(column) for column in solution.classes.T],
    }
    return pd.DataFrame(data, index=pd.Index(table.names, name="variable")).iloc[: table.reported]


def _overview_lines(overview: pd.DataFrame) -> Iterator[str]:
    """Format the first 30 lines of an overview for printing."""
    for name, unit, _, measured, before, reconciled, after, _, kind in overview.head(LISTED).itertuples():
        values = f"{measured:.6g} ± {before:.4g} → {reconciled:.6g} ± {after:.4g}"
        yield f"{name!r}: {values}{f' {unit}' if unit else ''}, {kind}"
    if len(overview) > LISTED:
        yield f"... and {len(overview) - LISTED} more"


def _mean(values: Array) -> Array:
    """Average each column over its numbers; NaN where there are none."""
    numbers = ~np.isnan(values)
    count = numbers.sum(axis=0)
    total = np.where(numbers, values, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _most_frequent(classes: NDArray[np.object_]) -> str:
    names, counts = np.unique(classes.astype(str), return_counts=True)
    return str(names[counts.argmax()]) if len(names) else ""
