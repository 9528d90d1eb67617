"""Passes over tables that need not fit into memory: pieces of rows, and moments merged from those of pieces.

Tables in memory are read in the same way, short ones as a single piece, so that there is one way of computing.
"""

import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Positions = NDArray[np.intp]
Table = NDArray[Any]  # numbers of any kind, made float64 when they are read
PIECE = 16_384  # rows
CONSTANT = 8 * np.finfo(float).eps  # relative: a column that varies less is constant to rounding


def is_mapped(data: Any) -> bool:
    """Tell whether `data` is an array of numbers that stays in its file (a memory map), or a view of one.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryFile() as file:
        ...     table = np.memmap(file, shape=(4, 2))
        >>> is_mapped(table), is_mapped(table[:, 1]), is_mapped(table + 1)
        (True, True, False)
    """
    return isinstance(data, np.ndarray) and data.dtype.kind in "fiu" and isinstance(_root(data).base, mmap.mmap)


def is_whole(array: Table) -> bool:
    """Tell whether the file behind an array is still as long as when it was mapped; reading beyond its end is fatal."""
    root = _root(array)
    file: Any = root.base
    return not (isinstance(root, np.memmap) and isinstance(file, mmap.mmap)) or file.size() >= root.offset + root.nbytes


def _root(array: Table) -> Table:
    """Return the array that owns the memory of which an array is a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def pieces(*tables: Table, rows: Positions | None = None) -> Iterator[tuple[Array, ...]]:
    """Read the same rows of several tables as float64, at most `PIECE` at a time.

    Args:
        tables: Arrays of the same length, in memory or in files.
        rows: Positions of the rows to read, ascending; all if None.
    Returns: Iterator over the pieces, each a tuple with one array per table.
    Example:
        >>> [(x.shape, y.dtype.name) for x, y in pieces(np.ones((20_000, 3)), np.ones(20_000, dtype=np.float32))]
        [((16384, 3), 'float64'), ((3616, 3), 'float64')]
    """
    for start in range(0, len(tables[0]) if rows is None else len(rows), PIECE):
        part = slice(start, start + PIECE)
        yield tuple(np.asarray(table[part if rows is None else rows[part]], dtype=np.float64) for table in tables)


def gather(table: Table, rows: Positions) -> Array:
    """Read the rows at these positions as float64, in the order of the table, and return them in that of `rows`.

    Args:
        table: The table, shape `(n, k)`, in memory or in its file.
        rows: Positions of the rows, shape `(r,)`.
    Example:
        >>> gather(np.array([[1], [2], [3]]), np.array([2, 0]))
        array([[3.],
               [1.]])
    """
    order = np.argsort(rows)
    values = np.empty((len(rows), *table.shape[1:]))
    values[order] = table[rows[order]]
    return values


@dataclass(frozen=True, eq=False)
class ColumnMoments:
    """Count, mean and sum of squared deviations of the columns of a table; those of two pieces can be added.

    NaN is left out. Means of pieces are joined, not sums, so that deviations of values far from zero keep their digits
    (Chan, Golub and LeVeque 1979).

    Args:
        count: Number of values of each column, shape `(k,)`, as are the others.
        center: Their means, 0 without any.
        scatter: Sums of their squared deviations.
    Example:
        >>> both = ColumnMoments.of(np.array([[1.0], [2.0]])) + ColumnMoments.of(np.array([[6.0], [np.nan]]))
        >>> both.mean, both.std
        (array([3.]), array([2.64575131]))
    """

    count: NDArray[np.int64]
    center: Array
    scatter: Array

    @classmethod
    def of(cls, values: Array) -> Self:
        """Compute the moments of the columns of a table, shape `(n, k)`."""
        known = ~np.isnan(values)
        count = known.sum(axis=0)
        center = np.where(known, values, 0.0).sum(axis=0) / np.maximum(count, 1)
        deviations = np.where(known, values - center, 0.0)
        return cls(count, center, np.square(deviations).sum(axis=0), *cls._further(values, deviations))

    @classmethod
    def over(cls, parts: Iterable[Array]) -> Self:
        """Compute the moments of the columns of a table from its pieces."""
        return reduce(add, map(cls.of, parts))

    @staticmethod
    def _further(values: Array, deviations: Array) -> tuple[Array, ...]:
        """Return the fields that a class has besides those of this one, from values and their deviations."""
        return ()

    def _joined(self, other: Any, share: Array, step: Array) -> tuple[Array, ...]:
        """Return those fields for both tables together.

        Args:
            other: Moments of the second table.
            share, step: Share of the second table in all values, and the difference of its means.
        """
        return ()

    def __add__(self, other: Self) -> Self:
        count, step = self.count + other.count, other.center - self.center
        share = other.count / np.maximum(count, 1)
        scatter = self.scatter + other.scatter + np.square(step) * share * self.count
        return type(self)(count, self.center + step * share, scatter, *self._joined(other, share, step))

    @property
    def mean(self) -> Array:
        """Mean of each column; NaN without values."""
        return np.where(self.count > 0, self.center, np.nan)

    @property
    def var(self) -> Array:
        """Mean squared deviation of each column from its mean; 0 without values."""
        return self.scatter / np.maximum(self.count, 1)

    @property
    def std(self) -> Array:
        """Sample standard deviation of each column; NaN for fewer than two values."""
        return np.where(self.count > 1, np.sqrt(self.scatter / np.maximum(self.count - 1, 1)), np.nan)

    @property
    def standard_error(self) -> Array:
        """Standard error of the mean of independent values; NaN for fewer than two."""
        return self.std / np.sqrt(np.maximum(self.count, 1))


@dataclass(frozen=True, eq=False)
class Moments(ColumnMoments):
    """Moments and ranges of the columns of a table.

    Args:
        lowest, highest: Range of the values; ∞ and −∞ where nothing is measured.
    Example:
        >>> Moments.over([np.array([[1.0], [2.0]]), np.array([[6.0], [np.nan]])]).highest
        array([6.])
    """

    lowest: Array
    highest: Array

    @staticmethod
    def _further(values: Array, deviations: Array) -> tuple[Array, Array]:
        known = ~np.isnan(values)
        lowest = np.where(known, values, np.inf).min(0, initial=np.inf)
        return lowest, np.where(known, values, -np.inf).max(0, initial=-np.inf)

    def _joined(self, other: Any, share: Array, step: Array) -> tuple[Array, Array]:
        return np.minimum(self.lowest, other.lowest), np.maximum(self.highest, other.highest)

    @property
    def largest(self) -> Array:
        """Largest absolute values, shape `(k,)`; 0 where nothing is measured."""
        return np.maximum(np.maximum(-self.lowest, self.highest), 0.0)

    @property
    def spread(self) -> Array:
        """Root mean squared deviations, shape `(k,)`; 0 where a column is constant to rounding."""
        spread = np.sqrt(self.var)
        return np.where(spread <= CONSTANT * self.largest, 0.0, spread)


@dataclass(frozen=True, eq=False)
class Comoments(ColumnMoments):
    """Moments of the columns of a table without missing values, and how they vary with the first of them.

    Args:
        coscatter: Sum of products of the deviations of each column and of the first.
    Example:
        >>> parts = [np.array([[1.0, 2.0], [2.0, 4.0]]), np.array([[6.0, 12.0]])]
        >>> Comoments.over(parts).correlation.round(12)
        array([1., 1.])
    """

    coscatter: Array

    @staticmethod
    def _further(values: Array, deviations: Array) -> tuple[Array]:
        return (deviations.T @ deviations[:, 0],)

    def _joined(self, other: Any, share: Array, step: Array) -> tuple[Array]:
        return (self.coscatter + other.coscatter + step * step[0] * share * self.count,)

    @property
    def correlation(self) -> Array:
        """Correlation of each column with the first, shape `(k,)`; 0 where one of them is constant to rounding."""
        spread = np.sqrt(self.var)
        spread = np.where(spread <= CONSTANT * np.abs(self.center), np.inf, spread)
        return self.coscatter / np.maximum(self.count, 1) / spread / spread[0]
