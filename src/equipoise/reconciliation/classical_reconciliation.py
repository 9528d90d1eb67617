"""Classical data reconciliation: measured values that obey their balances, and whether they had to be bent too far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.balances import did_you_mean
from equipoise.reconciliation import gross_errors, trends
from equipoise.reconciliation.alarms import BALANCE, SENSOR, GlobalTest, GrossErrorTest
from equipoise.reconciliation.logbook import Logbook, logbook
from equipoise.reconciliation.measurements import Measurements, ReconciliationError, measurements
from equipoise.reconciliation.serial_elimination import Elimination, serial_elimination
from equipoise.reconciliation.significance import checked_correction, checked_level, half_width
from equipoise.reconciliation.solution import Solution

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
# Arguments of users are `Any` on purpose: what does not fit is refused with a message that says what does.


class BeforeAfter(NamedTuple):
    """The same thing before reconciliation and after it."""

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
    calculated from the others where the balances determine it.

    Args:
        values: Measured outputs: one row `(n_y,)`, a mapping by name, or a table `(rows, n_y)`, array or data frame.
            NaN is what was not measured; it may differ from row to row.
        std: Standard deviations of their errors: one for all, one each, by order or by name, or a table `(rows, n_y)`.
            0 is exact.
        constraint: The balances, a `LinearConstraint`.
        inputs: Inputs and known columns of the balances, one row for each row of values.
        inputs_std: Standard deviations of the inputs, which are then reconciled too; without it they are exact.
        covariance: Of the outputs' errors, `(n_y, n_y)`, in place of std where they are correlated.
        tolerance: Standard deviations of the balances, in their units: one for all, one each, or by name. 0, the
            default, is a balance that holds exactly.
        level: Probability of intervals, and confidence level of tests.
    Returns: Reconciled values and all that follows from them. Columns are the outputs, and with `inputs_std` the inputs
        after them.
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
    given = measurements(values, std, constraint, inputs, inputs_std, covariance, tolerance)
    return _calculated(Solution(given), level)


@dataclass(frozen=True, eq=False, repr=False)
class Reconciliation:
    """Reconciled values, and what follows from them; made by `reconcile`.

    What is asked for is calculated then, piece by piece of long tables. For one row that was given on its own, the
    first axis is missing; frames come back as frames.

    Args:
        solution: The measurements and how they are worked on.
        level: Probability of intervals, and confidence level of tests.
    """

    solution: Solution
    level: float

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the columns: outputs, then inputs if they were reconciled."""
        return self._of.names[: self._of.reported]

    @property
    def values(self) -> Any:
        """Reconciled values, shape `(rows, n)`; NaN where nothing determines a variable."""
        return self._given(self.solution.outcome.values[:, : self._of.reported])

    @property
    def adjustments(self) -> Any:
        """Reconciled minus measured values; NaN for what was not measured."""
        n = self._of.reported
        return self._given(self.solution.outcome.values[:, :n] - self._of.values[:, :n])

    @property
    def std(self) -> Any:
        """Standard deviations of the reconciled values."""
        return self._given(self.solution.std[:, : self._of.reported])

    @property
    def half_widths(self) -> BeforeAfter:
        """Half of the intervals that hold the true values with probability `level`, before and after."""
        before, after = (half_width(self.level) * std for std in (self.solution.std_before, self.solution.std))
        return BeforeAfter(*(self._given(part[:, : self._of.reported]) for part in (before, after)))

    @property
    def residuals(self) -> BeforeAfter:
        """What each balance misses, `A x + B y − b`, before and after, shape `(rows, m)`; NaN where it is not known."""
        before, after = (self._residual(values) for values in (self._of.values, self.solution.outcome.values))
        return BeforeAfter(self._row(before), self._row(after))

    @property
    def statistic(self) -> Any:
        """Of the global test: the sum of squared adjustments in units of their standard deviations, shape `(rows,)`."""
        return self._row(self.solution.outcome.statistic)

    @property
    def degrees_of_freedom(self) -> Any:
        """Independent balances between measured variables, shape `(rows,)`."""
        return self._row(self.solution.outcome.degrees_of_freedom)

    @property
    def threshold(self) -> Any:
        """What `statistic` stays below with probability `level`."""
        return self.global_test().threshold

    @property
    def classes(self) -> Any:
        """Of each variable: measured redundant or non-redundant, unmeasured observable or unobservable; an array."""
        return self._row(self.solution.classes[:, : self._of.reported])

    def covariance(self, row: int | None = None) -> Array:
        """Covariance of the reconciled values of one row, shape `(n, n)`.

        Args:
            row: Its position in the table; may be left out if there is only one.
        """
        rows = len(self._of)
        if (rows != 1) if row is None else not -rows <= row < rows:
            rule = f"row must be the position of one of {rows} rows"
            raise ReconciliationError(f"{rule}, but got {row}. Covariances are given for one row at a time.")
        position = 0 if row is None else row % rows
        adjuster, n = self.solution.adjuster_of(position), self._of.reported
        return adjuster.covariance_after(self.solution.factor_of(position))[:n, :n]

    def global_test(self, level: Any = None) -> GlobalTest:
        """Is there a gross error at all? χ² of the whole row.

        Args:
            level: Confidence level; that of the reconciliation if left out.
        """
        level = self.level if level is None else checked_level(level)
        return GlobalTest(self.statistic, self.degrees_of_freedom, level, self._of.labels)

    def nodal_test(self, level: Any = None, correction: Any = "sidak") -> GrossErrorTest:
        """Which balance does not close? One test for each, by its own residual alone.

        Args:
            level: Confidence level; that of the reconciliation if left out.
            correction: For many tests at once: "sidak", "bonferroni" or None. So it is for the other tests.
        """
        return gross_errors.nodal_test(self.solution, *self._terms(level, correction))

    def measurement_test(self, level: Any = None, correction: Any = "sidak") -> GrossErrorTest:
        """Which sensor lies? One test of maximum power for each, with the estimated bias.

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
        return gross_errors.measurement_test(self.solution, *self._terms(level, correction))

    def likelihood_ratio_test(self, level: Any = None, correction: Any = "sidak") -> GrossErrorTest:
        """Which sensor lies, or which balance leaks? One likelihood ratio for each, with the estimated size."""
        return gross_errors.likelihood_ratio_test(self.solution, *self._terms(level, correction))

    def serial_elimination(
        self,
        level: Any = None,
        correction: Any = "sidak",
        *,
        leaks: bool = False,
        most: Any = None,
    ) -> Elimination:
        """Take the worst sensor out of each row until its global test passes, no sensor stands out or none is left.

        Args:
            level, correction: As for the other tests.
            leaks: Whether balances may be taken out too.
            most: How many may be taken out of a row.
        """
        if most is not None and (not isinstance(most, int) or most < 1):
            raise ReconciliationError(
                f"most must be a number ≥ 1, or None, but got {most!r}. Leave it out for any number."
            )
        return serial_elimination(self.solution, *self._terms(level, correction), leaks=leaks, most=most)

    def without(self, suspects: Elimination | str | Iterable[str]) -> Reconciliation:
        """Reconcile again without some sensors or balances.

        Args:
            suspects: What serial elimination found, each in its row; or names of sensors and balances, in all rows.
        Example:
            >>> from equipoise.balances.linear import LinearConstraint
            >>> meters = LinearConstraint.from_equations(["a = b", "b = c"], outputs=["a", "b", "c"])
            >>> result = reconcile([10.0, 10.2, 14.1], 1.0, meters)
            >>> result.without(result.serial_elimination()).values
            array([10.1, 10.1, 10.1])
        """
        values, dropped = self._of.values.copy(), np.zeros((len(self._of), self._of.constraint.n_balances), bool)
        if self.solution.dropped is not None:
            dropped |= self.solution.dropped
        for rows, name, kind in _taken(suspects, self.variables, self._of.constraint.names):
            if kind == SENSOR:
                values[rows, self.variables.index(name)] = np.nan
            else:
                dropped[rows, self._of.constraint.index(name)] = True
        given = replace(self._of, values=values)
        return _calculated(Solution(given, dropped if dropped.any() else None), self.level)

    def logbook(self, time: Any = None, test: GrossErrorTest | None = None) -> Logbook:
        """Alarms, suspects and classes, one line for each variable and each balance; logbooks of pieces can be added.

        Args:
            time: When each row was measured: numbers or dates; its number, from 1, if left out.
            test: The likelihood ratio test, where it is there already.
        """
        return logbook(self, test or self.likelihood_ratio_test(), time)

    def plot(self, time: Any = None, sensors: int = 3) -> Figure:
        """Draw the global test over time, and the adjustments of the sensors that are most suspect.

        Args:
            time: As for `logbook`.
            sensors: How many.
        Returns: A figure of matplotlib, to be saved or shown.
        """
        return trends.figure(self.logbook(time), sensors)

    def to_frame(self) -> pd.DataFrame:
        """One line for each variable: its unit, measured and reconciled with half-widths, and its class.

        For a table, values are means over its rows, half-widths root mean squares, and the class is that of most rows.
        """
        return frame(self.solution, self.level)

    def __repr__(self) -> str:
        sizes = {"balance": self._of.constraint.n_balances, "variable": len(self.variables), "row": len(self._of)}
        counts = ", ".join(f"{count} {noun}{'s' if count != 1 else ''}" for noun, count in sizes.items())
        head = f"Reconciliation({counts})"
        return "\n  ".join([head, repr(self.global_test()), *lines(self.to_frame())])

    @property
    def _of(self) -> Measurements:
        return self.solution.measurements

    def _residual(self, values: Array) -> Array:
        n_y = self._of.constraint.n_outputs
        x = values[:, n_y:] if values.shape[1] > n_y else np.zeros((len(values), self._of.constraint.n_columns))
        return self._of.constraint.residual(x, values[:, :n_y])

    def _terms(self, level: Any, correction: Any) -> tuple[float, str | None]:
        return self.level if level is None else checked_level(level), checked_correction(correction)

    def _row(self, values: NDArray[Any]) -> Any:
        return values[0] if self._of.single else values

    def _given(self, values: NDArray[Any]) -> Any:
        return values[0] if self._of.single else self._of.in_kind(values)


def _calculated(solution: Solution, level: float) -> Reconciliation:
    """A reconciliation that has been calculated, so that whatever is wrong with its values has been said."""
    _ = solution.outcome
    return Reconciliation(solution, level)


def _taken(
    suspects: Elimination | str | Iterable[str], sensors: tuple[str, ...], balances: tuple[str, ...]
) -> Iterable[tuple[Any, str, str]]:
    """Rows, name and kind of everything that is to be taken out."""
    if isinstance(suspects, Elimination):
        return [(suspect.row, suspect.candidate.name, suspect.candidate.kind) for suspect in suspects.suspects]
    names = [suspects] if isinstance(suspects, str) else list(suspects)
    for name in names:
        if name not in sensors and name not in balances:
            rule = "suspects must be names of variables or balances"
            raise ReconciliationError(f"{rule}, but got {name!r}. {did_you_mean(str(name), (*sensors, *balances))}")
    return [(slice(None), name, SENSOR if name in sensors else BALANCE) for name in names]


LISTED = 30


def frame(solution: Solution, level: float) -> pd.DataFrame:
    """Unit, measured and reconciled values with their half-widths, adjustment and class of each variable.

    Over the rows of a table, values are means, half-widths root mean squares, and the class is that of most rows;
    measured ones are over the readings, reconciled ones over all rows that determine the variable.

    Args:
        solution: What was reconciled.
        level: Probability of the intervals.
    """
    import pandas as pd

    given = solution.measurements
    factor, values = half_width(level), solution.outcome.values
    data = {
        "unit": [unit or "" for unit in given.units],
        "readings": np.count_nonzero(~np.isnan(given.values), axis=0),
        "measured": _mean(given.values),
        "± before": factor * np.sqrt(_mean(np.square(solution.std_before))),
        "reconciled": _mean(values),
        "± after": factor * np.sqrt(_mean(np.square(solution.std))),
        "adjustment": _mean(values - given.values),
        "class": [_most_frequent(column) for column in solution.classes.T],
    }
    return pd.DataFrame(data, index=pd.Index(given.names, name="variable")).iloc[: given.reported]


def lines(table: pd.DataFrame) -> Iterator[str]:
    """The lines of such a frame in words, at most 30 of them."""
    for name, unit, _, measured, before, reconciled, after, _, kind in table.head(LISTED).itertuples():
        values = f"{measured:.6g} ± {before:.4g} → {reconciled:.6g} ± {after:.4g}"
        yield f"{name!r}: {values}{f' {unit}' if unit else ''}, {kind}"
    if len(table) > LISTED:
        yield f"... and {len(table) - LISTED} more"


def _mean(values: Array) -> Array:
    """Means of the columns without NaN; NaN where there is nothing else."""
    known = ~np.isnan(values)
    count = known.sum(axis=0)
    total = np.where(known, values, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _most_frequent(classes: NDArray[np.object_]) -> str:
    names, counts = np.unique(classes.astype(str), return_counts=True)
    return str(names[counts.argmax()]) if len(names) else ""
