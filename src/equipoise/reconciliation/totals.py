"""Sums over the rows of a table, added up piece by piece, so that its length does not matter."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import reduce
from heapq import nlargest
from operator import add
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from equipoise.reconciliation.alarms import AT_ONCE, SAME, Candidate, GlobalTest, GrossErrorTest
from equipoise.reconciliation.error_sizes import Moments, Selected
from equipoise.reconciliation.significance import normal_p
from equipoise.reconciliation.trends import Timeline

Array = NDArray[np.float64]
LISTED = 10  # of the worst rows


@dataclass(frozen=True)
class Incident:
    """A row that fails the global test.

    Args:
        row: Its number in the table, from 0.
        time: When it was measured.
        statistic, threshold: Of its global test.
        suspect: Where its gross error is most likely, if anything stands out.
        size, size_std: Of that error.
    """

    row: int
    time: Any
    statistic: float
    threshold: float
    suspect: Candidate | None
    size: float
    size_std: float


@dataclass(frozen=True, eq=False)
class Worst:
    """The rows that miss their thresholds by most; those of two pieces are added to those of both."""

    rows: int
    incidents: tuple[Incident, ...]

    def __add__(self, other: Worst) -> Worst:
        later = tuple(Incident(**{**vars(one), "row": one.row + self.rows}) for one in other.incidents)
        found = nlargest(LISTED, self.incidents + later, key=lambda one: one.statistic / one.threshold)
        return Worst(self.rows + other.rows, tuple(found))


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums over rows; those of two pieces are added to those of both.

    Args:
        rows, tested, alarms: Rows in all, with anything to test, and with an alarm of the global test.
        measured, reconciled, adjustments: Values of the variables.
        var_before, var_after: Variances of what was measured, and of what was reconciled.
        classes: In how many rows each variable is of each class, in the order of `CLASSES`.
        flagged: In how many rows the test of each candidate gives alarm.
        errors: Estimated errors of candidates, where they are the suspect of their row.
        chance: In how many rows each candidate would give alarm if nothing were wrong.
        alike: In how many rows a candidate explains as well what another one is suspected of, `(c, c)`.
        residuals: What balances miss before reconciliation, where all of their variables are measured.
        open: In how many rows the nodal test of each balance gives alarm.
        worst, timeline: Single rows.
    """

    rows: int
    tested: int
    alarms: int
    measured: Moments
    reconciled: Moments
    adjustments: Moments
    var_before: Moments
    var_after: Moments
    classes: Int[np.ndarray, "n 4"]
    flagged: Int[np.ndarray, " c"]
    errors: Selected
    chance: Float[np.ndarray, " c"]
    alike: Int[np.ndarray, "c c"]
    residuals: Moments
    open: Int[np.ndarray, " m"]
    worst: Worst
    timeline: Timeline

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))


@dataclass(frozen=True, eq=False)
class Account:
    """What a reconciliation says of its rows, whatever it was made with.

    Args:
        values: What was measured, shape `(rows, n)`; NaN where nothing was.
        reconciled: What came of it.
        std_before, std_after: Standard deviations, shape `(n,)` or `(rows, n)`.
        classes: In how many rows each variable is of each class.
        residuals: What balances miss as measured, NaN where that is not known, shape `(rows, m)`.
        open: Where that alone is too much.
        check: The global test.
        test: The likelihood ratio test.
        time: When each row was measured, if that is known.
    """

    values: Array
    reconciled: Array
    std_before: Array
    std_after: Array
    classes: NDArray[np.intp]
    residuals: Array
    open: NDArray[np.bool_]
    check: GlobalTest
    test: GrossErrorTest
    time: Any = None


def tally(account: Account) -> Tally:
    """Sums over the rows of one piece of a table, in portions that stay in the cache."""
    limits = np.atleast_1d(account.check.statistic), np.atleast_1d(account.check.threshold)
    starts = range(0, max(len(account.values), 1), AT_ONCE)
    parts = (_of_rows(account, *limits, slice(start, start + AT_ONCE)) for start in starts)
    return replace(reduce(add, parts), classes=account.classes)


def _of_rows(account: Account, statistic: Array, threshold: Array, rows: slice) -> Tally:
    """Sums over some rows; classes are counted for all rows at once."""
    values, found = account.values[rows], account.reconciled[rows]
    statistic, threshold, moved = statistic[rows], threshold[rows], found - values
    before, after = (std if std.ndim == 1 else std[rows] for std in (account.std_before, account.std_after))
    before = np.where(~np.isnan(values) & np.isfinite(before), before, np.nan)
    test, time = account.test.of_rows(rows), None if account.time is None else np.asarray(account.time)[rows]
    return Tally(
        len(values),
        int(np.count_nonzero(~np.isnan(threshold))),
        int(np.count_nonzero(statistic > threshold)),
        Moments.of(values),
        Moments.of(found),
        Moments.of(moved),
        Moments.of(np.square(before)),
        Moments.of(np.square(np.broadcast_to(after, values.shape))),
        np.zeros_like(account.classes),
        np.count_nonzero(np.abs(test.z) > test.limit[:, None], axis=0),
        Selected.of(test),
        np.where(np.isnan(test.z), 0.0, normal_p(test.limit)[:, None]).sum(axis=0),
        _alike(test),
        Moments.of(account.residuals[rows]),
        np.count_nonzero(account.open[rows], axis=0),
        _worst(test, statistic, threshold, time),
        Timeline.of(statistic, threshold, moved, time),
    )


def _alike(test: GrossErrorTest) -> NDArray[np.intp]:
    """How often candidates have the |z| of the suspect, which they have if they would explain the row as well."""
    count = len(test.candidates)
    found = np.zeros((count, count), np.intp)
    same = equally_suspect(test)
    for j in np.unique(test.worst[test.worst >= 0]):
        found[j] = same[test.worst == j].sum(axis=0)
    return found


def equally_suspect(test: GrossErrorTest) -> NDArray[np.bool_]:
    """Candidates that explain a row as well as its suspect, itself included, shape `(rows, c)`; none without one."""
    same = np.zeros(test.z.shape, bool)
    rows = np.flatnonzero(test.worst >= 0)
    size = np.nan_to_num(np.abs(test.z[rows]), nan=-1.0)
    largest = size[np.arange(len(rows)), test.worst[rows]]
    same[rows] = size >= (1 - SAME) * largest[:, None]
    return same


def _worst(test: GrossErrorTest, statistic: Array, threshold: Array, time: Any) -> Worst:
    failing = np.flatnonzero(statistic > threshold)
    order = failing[np.argsort(-(statistic / threshold)[failing], kind="stable")][:LISTED]
    incidents = []
    for row in order:
        j = int(test.worst[row])
        suspect = test.candidates[j] if j >= 0 else None
        size, size_std = (test.z[row, j] * test.std[row, j], test.std[row, j]) if j >= 0 else (np.nan, np.nan)
        when = None if time is None else np.asarray(time)[row]
        missed = float(statistic[row]), float(threshold[row])
        incidents.append(Incident(int(row), when, *missed, suspect, float(size), float(size_std)))
    return Worst(len(statistic), tuple(incidents))
