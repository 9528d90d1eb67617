"""Tables in which not every row has the same measurements: rows are grouped, and worked through piece by piece."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from equipoise.balances import equilibrate, quoted_list
from equipoise.reconciliation.adjustment import Adjuster
from equipoise.reconciliation.measurements import Measurements, ReconciliationError
from equipoise.reconciliation.observability import CLASSES, Pattern, examine
from equipoise.reconciliation.whitening import Whitening

Array = NDArray[np.float64]
PIECE = 2**17  # numbers that the largest array of a piece may hold: 1 MB, so that it stays in the cache


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows of one pattern.

    Args:
        rows: Their positions in the table.
        z: Their measured values, 0 where there is none, shape `(rows, n)`.
        adjuster: What the pattern shares.
        factor: Its factor, or those of the rows.
        whitened: What their reduced balances miss, as independent standard normal numbers, shape `(rows, f)`.
    """

    rows: slice | NDArray[np.intp]
    z: Array
    adjuster: Adjuster
    factor: Whitening
    whitened: Array


@dataclass(frozen=True, eq=False)
class Group:
    """All rows of one pattern, and what they share."""

    rows: slice | NDArray[np.intp]
    adjuster: Adjuster


@dataclass(frozen=True, eq=False)
class Outcome:
    """Reconciled rows.

    Args:
        values: Shape `(rows, n)`; NaN where nothing determines a variable.
        statistic: Of the global test, shape `(rows,)`.
        degrees_of_freedom: Shape `(rows,)`.
    """

    values: Array
    statistic: Array
    degrees_of_freedom: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Solution:
    """A reconciliation of a table, calculated piece by piece whenever something is asked of it.

    Args:
        measurements: What was measured.
        dropped: Balances that do not count in a row, shape `(rows, m)`; None if all do in all rows.
    """

    measurements: Measurements
    dropped: NDArray[np.bool_] | None = None

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Rows by pattern, in order of their first row."""
        z, C = self.measurements.values, self.measurements.C
        scaled, _ = equilibrate(C)
        return tuple(Group(rows, self._adjuster(C, scaled, rows)) for rows in _alike(self._status(), len(z)))

    def pieces(self) -> Iterator[Piece]:
        """All rows, in pieces that keep memory bounded.

        Raises: ReconciliationError, if exact values contradict each other.
        """
        for group in self.groups:
            for rows in _split(group.rows, len(self.measurements), self._rows_at_once(group.adjuster)):
                yield self._piece(rows, group.adjuster)

    @cached_property
    def outcome(self) -> Outcome:
        """Reconciled values of all rows, and how far they are from the measured ones."""
        given = self.measurements
        values, statistic = np.empty(given.values.shape), np.empty(len(given))
        freedom = np.zeros(len(given), np.intp)
        for piece in self.pieces():
            values[piece.rows] = piece.adjuster.reconciled(piece.z, piece.whitened, piece.factor)
            statistic[piece.rows] = np.square(piece.whitened).sum(axis=1)  # R5
            freedom[piece.rows] = piece.whitened.shape[1]
        return Outcome(values, statistic, freedom)

    @property
    def std_before(self) -> Array:
        """Standard deviations of the measured values, shape `(rows, n)`; NaN for what was not measured."""
        known = ~np.isnan(self.measurements.values) & np.isfinite(self.measurements.std)
        return np.where(known, self.measurements.std, np.nan)

    @cached_property
    def std(self) -> Array:
        """Standard deviations of the reconciled values, shape `(rows, n)`; rows that are all alike are kept once."""
        shape, shared = self.measurements.values.shape, self.measurements.std.ndim == 1
        own = [(group.rows, group.adjuster.std_after(group.adjuster.whitening)) for group in self.groups if shared]
        if len(own) == 1:
            return np.broadcast_to(own[0][1], shape)
        std = np.empty(shape)
        for rows, of_group in own:
            std[rows] = of_group
        for piece in () if shared else self.pieces():
            std[piece.rows] = piece.adjuster.std_after(piece.factor)
        return std

    @property
    def classes(self) -> NDArray[np.object_]:
        """The class of each variable in words, shape `(rows, n)`."""
        found = np.empty(self.measurements.values.shape, dtype=object)
        for group in self.groups:
            found[group.rows] = group.adjuster.structure.classes(group.adjuster.pattern.unmeasured)
        return found

    @property
    def class_counts(self) -> NDArray[np.intp]:
        """In how many rows each variable is of each class, shape `(n, 4)`, in the order of `CLASSES`."""
        n = len(self.measurements.names)
        counts = np.zeros((n, len(CLASSES)), np.intp)
        for group in self.groups:
            found = group.adjuster.structure.classes(group.adjuster.pattern.unmeasured)
            rows = len(self.measurements) if isinstance(group.rows, slice) else len(group.rows)
            counts[np.arange(n), [CLASSES.index(kind) for kind in found]] += rows
        return counts

    def adjuster_of(self, row: int) -> Adjuster:
        """What the pattern of one row shares."""
        for group in self.groups:
            if isinstance(group.rows, slice) or row in group.rows:
                return group.adjuster
        raise IndexError(row)

    def factor_of(self, row: int) -> Whitening:
        """The factor of one row."""
        adjuster, std = self.adjuster_of(row), self.measurements.std
        return adjuster.whitening if std.ndim == 1 else adjuster.whitening_of(std[row])

    def _status(self) -> NDArray[np.bool_] | None:
        """What tells rows apart: missing values, exact values, dropped balances; None if nothing does."""
        z, std = self.measurements.values, self.measurements.std
        marks = []
        if np.isnan(z).any():
            marks.append(np.isnan(z))
        if std.ndim == 2 and len(std) > 1:
            kinds = (std == 0, np.isinf(std))
            marks += [kind for kind in kinds if (kind != kind[0]).any()]
        if self.dropped is not None:
            marks.append(self.dropped)
        return np.hstack(marks) if marks else None

    def _adjuster(self, C: Array, scaled: Array, rows: slice | NDArray[np.intp]) -> Adjuster:
        given = self.measurements
        first = rows.start if isinstance(rows, slice) else rows[0]
        std = given.std if given.std.ndim == 1 else given.std[first]
        unmeasured = np.isnan(given.values[first]) | np.isinf(std)
        dropped = np.isinf(given.tolerance)
        dropped = dropped if self.dropped is None else dropped | self.dropped[first]
        exact = (std == 0) & ~unmeasured
        pattern = Pattern(unmeasured, exact, (given.tolerance > 0) & ~dropped, dropped)
        structure = examine(scaled, pattern, given.constraint.n_outputs)
        typical = std if given.std.ndim == 1 else np.sqrt(np.square(given.std[rows]).mean(axis=0))
        return Adjuster(C, given.constraint.b, typical, given.tolerance, pattern, structure, given.covariance)

    def _rows_at_once(self, adjuster: Adjuster) -> int:
        m, n = adjuster.C.shape
        if self.measurements.std.ndim == 1:
            return max(1, PIECE // (m + n))
        return max(1, PIECE // ((m + n) * (adjuster.structure.degrees_of_freedom + len(adjuster.unmeasured) + 1)))

    def _piece(self, rows: slice | NDArray[np.intp], adjuster: Adjuster) -> Piece:
        given = self.measurements
        z = given.values[rows]
        if len(adjuster.unmeasured):
            z = np.where(adjuster.pattern.unmeasured, 0.0, z)
        factor = adjuster.whitening if given.std.ndim == 1 else adjuster.whitening_of(given.std[rows])
        if adjuster.reduced.null.shape[1]:
            self._check_exact(rows, z, adjuster)
        return Piece(rows, z, adjuster, factor, adjuster.whitened(z, factor))

    def _check_exact(self, rows: slice | NDArray[np.intp], z: Array, adjuster: Adjuster) -> None:
        missed = adjuster.contradictions(z)
        if not missed.any():
            return
        given, (row, which) = self.measurements, np.argwhere(missed)[0]
        weights = np.abs(adjuster.reduced.null[:, which])
        involved = weights > 1e-8 * weights.max()
        entered = (adjuster.C[involved] != 0).any(axis=0) & adjuster.pattern.exact
        balances = quoted_list(name for name, taken in zip(given.constraint.names, involved, strict=True) if taken)
        values = quoted_list(name for name, taken in zip(given.names, entered, strict=True) if taken)
        label = given.labels[np.arange(len(given))[rows][row]]
        where = "" if given.single else f" in row {label}"
        rule = f"Exact values (std 0) must obey the balances, but got {values}{where}, which contradict {balances}"
        raise ReconciliationError(f"{rule}. Correct one of them, or give it a standard deviation.")


def _alike(status: NDArray[np.bool_] | None, n_rows: int) -> list[slice | NDArray[np.intp]]:
    """Rows that have the same marks, in order of their first."""
    if n_rows == 0:
        return []
    if status is None or (status == status[0]).all():
        return [slice(0, n_rows)]
    packed = np.packbits(status, axis=1)
    keys = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    by_group = np.split(np.argsort(which, kind="stable"), np.cumsum(np.bincount(which))[:-1])
    return [by_group[k] for k in np.argsort(first)]


def _split(rows: slice | NDArray[np.intp], n_rows: int, most: int) -> Iterator[slice | NDArray[np.intp]]:
    """Rows in pieces of at most `most`."""
    count = n_rows if isinstance(rows, slice) else len(rows)
    for start in range(0, count, most):
        yield slice(start, min(start + most, count)) if isinstance(rows, slice) else rows[start : start + most]
