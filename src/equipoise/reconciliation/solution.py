"""The least-squares solution of a table: rows are grouped by measurement pattern and adjusted piece by piece.

Rows with the same measured, exact and missing values share the elimination of unmeasured variables and, if they have
the same standard deviations, the QR factors too.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from equipoise.balances import equilibrate, quoted_list
from equipoise.reconciliation.adjustment import Adjuster, Whitening
from equipoise.reconciliation.measurements import Measurements, ReconciliationError
from equipoise.reconciliation.observability import CLASSES, Pattern, classify

Array = NDArray[np.float64]
PIECE_NUMBERS = 2**17  # numbers in the largest array of a piece: 1 MB, so that it stays in the processor's cache


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows with one measurement pattern, and their whitened residuals.

    Args:
        rows: Their positions in the table.
        z: Their measured values, 0 for unmeasured variables, shape `(rows, n)`.
        adjuster: The adjustment of this measurement pattern.
        factor: Its whitening factor, or one for each row.
        whitened: Whitened residuals: independent standard normal numbers without gross errors, shape `(rows, f)`.
    """

    rows: slice | NDArray[np.intp]
    z: Array
    adjuster: Adjuster
    factor: Whitening
    whitened: Array


@dataclass(frozen=True, eq=False)
class RowGroup:
    """All rows with one measurement pattern, and their adjustment."""

    rows: slice | NDArray[np.intp]
    adjuster: Adjuster


@dataclass(frozen=True, eq=False)
class Estimates:
    """Reconciled values of a table and the statistic of its global test.

    Args:
        values: Reconciled values, shape `(rows, n)`; NaN for unobservable variables.
        statistic: Statistic of the global test, shape `(rows,)`.
        degrees_of_freedom: Shape `(rows,)`.
    """

    values: Array
    statistic: Array
    degrees_of_freedom: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Solution:
    """The least-squares solution of a table, calculated piece by piece when one of its properties is used.

    Args:
        measurements: Measured values and their errors.
        dropped: Balances that are not imposed on a row, shape `(rows, m)`; None if all are imposed on all rows.
    """

    measurements: Measurements
    dropped: NDArray[np.bool_] | None = None

    @cached_property
    def groups(self) -> tuple[RowGroup, ...]:
        """Rows by measurement pattern, in order of their first row."""
        z, C = self.measurements.values, self.measurements.C
        scaled, _ = equilibrate(C)
        return tuple(RowGroup(rows, self._adjuster(C, scaled, rows)) for rows in _equal_rows(self._marks(), len(z)))

    def pieces(self) -> Iterator[Piece]:
        """Iterate over all rows, in pieces that keep memory bounded.

        Raises: ReconciliationError, if exact values contradict each other.
        """
        for group in self.groups:
            for rows in _split(group.rows, len(self.measurements), self._rows_at_once(group.adjuster)):
                yield self._piece(rows, group.adjuster)

    @cached_property
    def estimates(self) -> Estimates:
        """Reconciled values of all rows, and the statistic of the global test (R3, R5)."""
        table = self.measurements
        values, statistic = np.empty(table.values.shape), np.empty(len(table))
        freedom = np.zeros(len(table), np.intp)
        for piece in self.pieces():
            values[piece.rows] = piece.adjuster.reconciled(piece.z, piece.whitened, piece.factor)
            statistic[piece.rows] = np.square(piece.whitened).sum(axis=1)  # R5
            freedom[piece.rows] = piece.whitened.shape[1]
        return Estimates(values, statistic, freedom)

    @property
    def std_before(self) -> Array:
        """Standard deviations of the measured values, shape `(rows, n)`; NaN where nothing was measured."""
        known = ~np.isnan(self.measurements.values) & np.isfinite(self.measurements.std)
        return np.where(known, self.measurements.std, np.nan)

    @cached_property
    def std(self) -> Array:
        """Standard deviations of the reconciled values, shape `(rows, n)`; stored once if all rows are alike."""
        shape, one_std = self.measurements.values.shape, self.measurements.std.ndim == 1
        shared_std = [
            (group.rows, group.adjuster.std_after(group.adjuster.whitening)) for group in self.groups if one_std
        ]
        if len(shared_std) == 1:
            return np.broadcast_to(shared_std[0][1], shape)
        std = np.empty(shape)
        for rows, group_std in shared_std:
            std[rows] = group_std
        for piece in () if one_std else self.pieces():
            std[piece.rows] = piece.adjuster.std_after(piece.factor)
        return std

    @property
    def classes(self) -> NDArray[np.object_]:
        """The class of each variable in words, shape `(rows, n)`."""
        classes = np.empty(self.measurements.values.shape, dtype=object)
        for group in self.groups:
            classes[group.rows] = group.adjuster.structure.classes(group.adjuster.pattern.unmeasured)
        return classes

    @property
    def class_counts(self) -> NDArray[np.intp]:
        """In how many rows each variable is of each class, shape `(n, 4)`, in the order of `CLASSES`."""
        n = len(self.measurements.names)
        counts = np.zeros((n, len(CLASSES)), np.intp)
        for group in self.groups:
            classes = group.adjuster.structure.classes(group.adjuster.pattern.unmeasured)
            rows = len(self.measurements) if isinstance(group.rows, slice) else len(group.rows)
            counts[np.arange(n), [CLASSES.index(kind) for kind in classes]] += rows
        return counts

    def adjuster_of(self, row: int) -> Adjuster:
        """Return the adjustment of the measurement pattern of one row.

        Args:
            row: Position of the row.
        Raises: ReconciliationError, if there is no such row.
        """
        for group in self.groups:
            if isinstance(group.rows, slice) or row in group.rows:
                return group.adjuster
        raise ReconciliationError(f"row must be a position among {len(self.measurements)}, but got {row}.")

    def factor_of(self, row: int) -> Whitening:
        """Return the whitening factor of one row.

        Args:
            row: Position of the row.
        """
        adjuster, std = self.adjuster_of(row), self.measurements.std
        return adjuster.whitening if std.ndim == 1 else adjuster.whitening_of(std[row])

    def _marks(self) -> NDArray[np.bool_] | None:
        """Mark missing values, exact values and dropped balances, shape `(rows, k)`; None if all rows are alike."""
        z, std = self.measurements.values, self.measurements.std
        columns = []
        if np.isnan(z).any():
            columns.append(np.isnan(z))
        if std.ndim == 2 and len(std) > 1:
            kinds = (std == 0, np.isinf(std))
            columns += [kind for kind in kinds if (kind != kind[0]).any()]
        if self.dropped is not None:
            columns.append(self.dropped)
        return np.hstack(columns) if columns else None

    def _adjuster(self, C: Array, scaled: Array, rows: slice | NDArray[np.intp]) -> Adjuster:
        """Make the adjustment of the rows with one measurement pattern."""
        table = self.measurements
        first = rows.start if isinstance(rows, slice) else rows[0]
        std = table.std if table.std.ndim == 1 else table.std[first]
        unmeasured = np.isnan(table.values[first]) | np.isinf(std)
        dropped = np.isinf(table.tolerance)
        dropped = dropped if self.dropped is None else dropped | self.dropped[first]
        exact = (std == 0) & ~unmeasured
        pattern = Pattern(unmeasured, exact, (table.tolerance > 0) & ~dropped, dropped)
        structure = classify(scaled, pattern, table.constraint.n_outputs)
        typical = std if table.std.ndim == 1 else np.sqrt(np.square(table.std[rows]).mean(axis=0))
        return Adjuster(C, table.constraint.b, typical, table.tolerance, pattern, structure, table.covariance)

    def _rows_at_once(self, adjuster: Adjuster) -> int:
        """Return the number of rows of a piece whose largest array has at most `PIECE_NUMBERS` numbers."""
        m, n = adjuster.C.shape
        if self.measurements.std.ndim == 1:
            return max(1, PIECE_NUMBERS // (m + n))
        return max(
            1, PIECE_NUMBERS // ((m + n) * (adjuster.structure.degrees_of_freedom + len(adjuster.unmeasured) + 1))
        )

    def _piece(self, rows: slice | NDArray[np.intp], adjuster: Adjuster) -> Piece:
        """Whiten the residuals of rows with one measurement pattern."""
        table = self.measurements
        z = table.values[rows]
        if len(adjuster.unmeasured):
            z = np.where(adjuster.pattern.unmeasured, 0.0, z)
        factor = adjuster.whitening if table.std.ndim == 1 else adjuster.whitening_of(table.std[rows])
        if adjuster.reduced.exact_combinations.shape[1]:
            self._check_exact(rows, z, adjuster)
        return Piece(rows, z, adjuster, factor, adjuster.whitened(z, factor))

    def _check_exact(self, rows: slice | NDArray[np.intp], z: Array, adjuster: Adjuster) -> None:
        """Raise a ReconciliationError with the names of exact values that contradict each other."""
        residuals = adjuster.contradictions(z)
        if not residuals.any():
            return
        table, (row, combination) = self.measurements, np.argwhere(residuals)[0]
        weights = np.abs(adjuster.reduced.exact_combinations[:, combination])
        involved = weights > 1e-8 * weights.max()
        exact = (adjuster.C[involved] != 0).any(axis=0) & adjuster.pattern.exact
        balances, values = _named(table.constraint.names, involved), _named(table.names, exact)
        label = table.labels[np.arange(len(table))[rows][row]]
        where = "" if table.single else f" in row {label}"
        rule = f"Exact values (std 0) must obey the balances, but got {values}{where}, which contradict {balances}"
        raise ReconciliationError(f"{rule}. Correct one of them, or give it a standard deviation.")


def _named(names: Iterable[str], mask: NDArray[np.bool_]) -> str:
    """Quote the names that a mask selects."""
    return quoted_list(name for name, selected in zip(names, mask, strict=True) if selected)


def _equal_rows(marks: NDArray[np.bool_] | None, n_rows: int) -> list[slice | NDArray[np.intp]]:
    """Group rows with equal marks, in order of the first row of each group.

    Args:
        marks: What distinguishes rows, shape `(rows, k)`; None if all are alike.
        n_rows: Number of rows.
    """
    if n_rows == 0:
        return []
    if marks is None or (marks == marks[0]).all():
        return [slice(0, n_rows)]
    packed = np.packbits(marks, axis=1)
    keys = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    by_group = np.split(np.argsort(which, kind="stable"), np.cumsum(np.bincount(which))[:-1])
    return [by_group[k] for k in np.argsort(first)]


def _split(rows: slice | NDArray[np.intp], n_rows: int, most: int) -> Iterator[slice | NDArray[np.intp]]:
    """Split rows into pieces of at most `most` rows."""
    count = n_rows if isinstance(rows, slice) else len(rows)
    for start in range(0, count, most):
        yield slice(start, min(start + most, count)) if isinstance(rows, slice) else rows[start : start + most]
