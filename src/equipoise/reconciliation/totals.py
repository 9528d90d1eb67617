"""Totals over the rows of a table: counts, means and variances, alarms, errors and the worst rows.

Totals of two pieces of a table add up to those of both, so that memory does not grow with the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from heapq import nlargest
from operator import add
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from equipoise.data import ColumnMoments
from equipoise.reconciliation.error_sizes import Additive, SuspectErrors
from equipoise.reconciliation.gross_error_results import (
    EQUAL_WITHIN,
    ROWS_AT_ONCE,
    Candidate,
    GlobalTest,
    GrossErrorTest,
)
from equipoise.reconciliation.significance import normal_p
from equipoise.reconciliation.trends import Timeline

Array = NDArray[np.float64]
LISTED = 10  # worst rows that are kept


@dataclass(frozen=True)
class Incident:
    """A row that fails the global test.

    Args:
        row: Its position in the table, from 0.
        time: When it was measured; None if unknown.
        statistic, threshold: Of its global test.
        suspect: The sensor or balance with the largest |z|, if that is an alarm; None otherwise.
        size, size_std: Estimated bias or leak and its standard deviation, in the suspect's unit; NaN without a suspect.
    """

    row: int
    time: Any
    statistic: float
    threshold: float
    suspect: Candidate | None
    size: float
    size_std: float


@dataclass(frozen=True, eq=False)
class WorstRows:
    """The rows whose global statistic exceeds its threshold by the largest factor; those of two pieces can be added.

    Args:
        rows: Number of rows of the piece.
        incidents: At most `LISTED` of them, the worst first.
    """

    rows: int
    incidents: tuple[Incident, ...]

    def __add__(self, other: WorstRows) -> WorstRows:
        later = tuple(Incident(**{**vars(incident), "row": incident.row + self.rows}) for incident in other.incidents)
        worst = nlargest(LISTED, self.incidents + later, key=lambda incident: incident.statistic / incident.threshold)
        return WorstRows(self.rows + other.rows, tuple(worst))


@dataclass(frozen=True, eq=False)
class Totals(Additive):
    """Totals over the rows of a table; those of two pieces add up to those of both.

    There are n variables, m balances, and c candidates for gross errors (the variables, then the balances).

    Args:
        rows, tested, alarms: Number of rows, of rows with a global test, and of rows that fail it.
        measured, reconciled, adjustments: Moments of the measured and reconciled values, and of their differences.
        var_before, var_after: Moments of the variances of measured and reconciled values.
        classes: In how many rows each variable is of each class, in the order of `CLASSES`.
        candidate_alarms: In how many rows the likelihood ratio test of each candidate gives an alarm.
        errors: Estimated errors of the candidates in the rows in which they are the suspect.
        expected_alarms: In how many rows each candidate would give an alarm by chance, without gross errors.
        alike: In how many rows candidate k explains the row as well as the suspect j, entry `(j, k)`.
        residuals: Moments of the residuals before reconciliation of balances whose variables are all measured.
        nodal_alarms: In how many rows the nodal test of each balance gives an alarm.
        worst_rows: The rows that fail the global test most clearly.
        timeline: The global test and the adjustments over time.
    """

    rows: int
    tested: int
    alarms: int
    measured: ColumnMoments
    reconciled: ColumnMoments
    adjustments: ColumnMoments
    var_before: ColumnMoments
    var_after: ColumnMoments
    classes: Int[np.ndarray, "n 4"]
    candidate_alarms: Int[np.ndarray, " c"]
    errors: SuspectErrors
    expected_alarms: Float[np.ndarray, " c"]
    alike: Int[np.ndarray, "c c"]
    residuals: ColumnMoments
    nodal_alarms: Int[np.ndarray, " m"]
    worst_rows: WorstRows
    timeline: Timeline


@dataclass(frozen=True, eq=False)
class TableResults:
    """The results of a reconciliation of a table, with or without a model, over which totals are taken.

    Args:
        values: Measured values, shape `(rows, n)`; NaN where there is none.
        reconciled: Reconciled values, shape `(rows, n)`.
        std_before, std_after: Standard deviations of both, shape `(n,)` or `(rows, n)`.
        classes: In how many rows each variable is of each class, shape `(n, 4)`.
        residuals: Residuals of the balances before reconciliation, shape `(rows, m)`; NaN where a variable is missing.
        nodal_alarms: Whether the nodal test of a balance gives an alarm, shape `(rows, m)`.
        global_test: The global test.
        likelihood_ratios: The likelihood ratio test of sensors and balances.
        time: When each row was measured, shape `(rows,)`; None if unknown.
    """

    values: Array
    reconciled: Array
    std_before: Array
    std_after: Array
    classes: NDArray[np.intp]
    residuals: Array
    nodal_alarms: NDArray[np.bool_]
    global_test: GlobalTest
    likelihood_ratios: GrossErrorTest
    time: Any = None


def totals(results: TableResults) -> Totals:
    """Sum the results of one piece of a table over its rows, in portions that fit into the processor's cache."""
    test = results.global_test
    statistic, threshold = np.atleast_1d(test.statistic), np.atleast_1d(test.threshold)
    starts = range(0, max(len(results.values), 1), ROWS_AT_ONCE)
    parts = (_totals_of(results, statistic, threshold, slice(start, start + ROWS_AT_ONCE)) for start in starts)
    return replace(reduce(add, parts), classes=results.classes)


def _totals_of(results: TableResults, statistic: Array, threshold: Array, rows: slice) -> Totals:
    """Sum the results of consecutive rows; classes are left at 0, since they are counted for all rows at once."""
    values, reconciled = results.values[rows], results.reconciled[rows]
    statistic, threshold, adjustments = statistic[rows], threshold[rows], reconciled - values
    before, after = (std if std.ndim == 1 else std[rows] for std in (results.std_before, results.std_after))
    before = np.where(~np.isnan(values) & np.isfinite(before), before, np.nan)
    test, time = results.likelihood_ratios.of_rows(rows), None
    if results.time is not None:
        time = np.asarray(results.time)[rows]
    return Totals(
        len(values),
        int(np.count_nonzero(~np.isnan(threshold))),
        int(np.count_nonzero(statistic > threshold)),
        ColumnMoments.of(values),
        ColumnMoments.of(reconciled),
        ColumnMoments.of(adjustments),
        ColumnMoments.of(np.square(before)),
        ColumnMoments.of(np.square(np.broadcast_to(after, values.shape))),
        np.zeros_like(results.classes),
        np.count_nonzero(np.abs(test.z) > test.limit[:, None], axis=0),
        SuspectErrors.of(test),
        np.where(np.isnan(test.z), 0.0, normal_p(test.limit)[:, None]).sum(axis=0),
        _alike(test),
        ColumnMoments.of(results.residuals[rows]),
        np.count_nonzero(results.nodal_alarms[rows], axis=0),
        _worst_rows(test, statistic, threshold, time),
        Timeline.of(statistic, threshold, adjustments, time),
    )


def _alike(test: GrossErrorTest) -> NDArray[np.intp]:
    """Count the rows in which candidate k has the |z| of the suspect j, and so explains the row as well, `(c, c)`."""
    count = len(test.candidates)
    counts = np.zeros((count, count), np.intp)
    same = equally_suspect(test)
    for j in np.unique(test.worst[test.worst >= 0]):
        counts[j] = same[test.worst == j].sum(axis=0)
    return counts


def equally_suspect(test: GrossErrorTest) -> NDArray[np.bool_]:
    """Find the candidates that explain a row as well as its suspect: those with the same |z|, but for rounding.

    Args:
        test: A test of c candidates, such as the likelihood ratio test.
    Returns: Shape `(rows, c)`, true for the suspect itself too; all false in rows without a suspect.
    """
    same = np.zeros(test.z.shape, bool)
    rows = np.flatnonzero(test.worst >= 0)
    size = np.nan_to_num(np.abs(test.z[rows]), nan=-1.0)
    largest = size[np.arange(len(rows)), test.worst[rows]]
    same[rows] = size >= (1 - EQUAL_WITHIN) * largest[:, None]
    return same


def _worst_rows(test: GrossErrorTest, statistic: Array, threshold: Array, time: Any) -> WorstRows:
    """Collect the rows that fail the global test, those with the largest ratio of statistic to threshold first."""
    failing = np.flatnonzero(statistic > threshold)
    order = failing[np.argsort(-(statistic / threshold)[failing], kind="stable")][:LISTED]
    incidents = []
    for row in order:
        j = int(test.worst[row])
        suspect = test.candidates[j] if j >= 0 else None
        size, size_std = (test.z[row, j] * test.std[row, j], test.std[row, j]) if j >= 0 else (np.nan, np.nan)
        measured_at = None if time is None else np.asarray(time)[row]
        test_values = float(statistic[row]), float(threshold[row])
        incidents.append(Incident(int(row), measured_at, *test_values, suspect, float(size), float(size_std)))
    return WorstRows(len(statistic), tuple(incidents))
