"""Passes over tables that need not fit into memory: pieces of rows, and moments merged from those of pieces.

Tables in memory are read in the same way, short ones as a single piece, so that there is one way of computing.
"""

import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

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


def merging_step(count: Any, mean: Array, other_count: Any, other_mean: Array) -> tuple[Any, Any, Array]:
    """Return what joins the means and squares of two tables (Chan, Golub and LeVeque 1979).

    With the step between the means and the share `s` of the second table, the mean of both is `mean + s · step`, and
    the sum of squared deviations of both exceeds that of each by `s · count · step²`.

    Args:
        count, mean: Number of values of the first table, one for all columns or one for each, and their means, `(k,)`.
        other_count, other_mean: Those of the second.
    Returns: Number of values of both, share of the second, and step.
    """
    total = count + other_count
    return total, other_count / np.maximum(total, 1), other_mean - mean


@dataclass(frozen=True)
class Moments:
    """Means, variances and ranges of the columns of a table over their measured values; NaN is left out.

    Args:
        count: Number of measured values of each column, shape `(k,)`, as are the others.
        mean, var: Mean and mean square deviation from it; 0 where nothing is measured.
        lowest, highest: Range of the values; ∞ and −∞ where nothing is measured.
    """

    count: NDArray[np.int64]
    mean: Array
    var: Array
    lowest: Array
    highest: Array

    @staticmethod
    def over(parts: Iterable[Array]) -> "Moments":
        """Compute the moments of a table, shape `(n, k)`, from its pieces.

        Example:
            >>> Moments.over([np.array([[1.0], [2.0]]), np.array([[6.0], [np.nan]])]).mean
            array([3.])
        """
        return reduce(Moments._merge, map(Moments._compute, parts))

    @staticmethod
    def _compute(values: Array) -> "Moments":
        measured = ~np.isnan(values)
        count = measured.sum(0)
        n = np.maximum(count, 1)
        mean = np.where(measured, values, 0.0).sum(0) / n
        squares = np.where(measured, values - mean, 0.0) ** 2
        lowest = np.where(measured, values, np.inf).min(0, initial=np.inf)
        highest = np.where(measured, values, -np.inf).max(0, initial=-np.inf)
        return Moments(count, mean, squares.sum(0) / n, lowest, highest)

    def _merge(self, other: "Moments") -> "Moments":
        """Return the moments of both tables together."""
        count, share, step = merging_step(self.count, self.mean, other.count, other.mean)
        var = (1.0 - share) * self.var + share * other.var + share * (1.0 - share) * step**2
        lowest, highest = np.minimum(self.lowest, other.lowest), np.maximum(self.highest, other.highest)
        return Moments(count, self.mean + share * step, var, lowest, highest)

    @property
    def largest(self) -> Array:
        """Largest absolute values, shape `(k,)`; 0 where nothing is measured."""
        return np.maximum(np.maximum(-self.lowest, self.highest), 0.0)

    @property
    def std(self) -> Array:
        """Standard deviations, shape `(k,)`; 0 where a column is constant to rounding."""
        std = np.sqrt(self.var)
        return np.where(std <= CONSTANT * self.largest, 0.0, std)


@dataclass(frozen=True)
class Comoments:
    """Means, variances, and covariances with the first column, of a table without missing values.

    Args:
        count: Number of rows.
        mean, var: Mean and mean square deviation from it of each column, shape `(k,)`.
        cov: Covariance of each column with the first, shape `(k,)`.
    """

    count: int
    mean: Array
    var: Array
    cov: Array

    @staticmethod
    def over(parts: Iterable[Array]) -> "Comoments":
        """Compute the comoments of a table, shape `(n, k)`, from its pieces.

        Example:
            >>> comoments = Comoments.over([np.array([[1.0, 2.0], [2.0, 4.0]]), np.array([[6.0, 12.0]])])
            >>> (comoments.cov / comoments.var).round(12)
            array([1. , 0.5])
        """
        return reduce(Comoments._merge, map(Comoments._compute, parts))

    @staticmethod
    def _compute(values: Array) -> "Comoments":
        n = max(len(values), 1)
        mean = values.sum(0) / n
        centred = values - mean
        return Comoments(len(values), mean, (centred**2).sum(0) / n, centred.T @ centred[:, 0] / n)

    def _merge(self, other: "Comoments") -> "Comoments":
        count, share, step = merging_step(self.count, self.mean, other.count, other.mean)
        between = share * (1.0 - share) * step
        return Comoments(
            count,
            self.mean + share * step,
            (1.0 - share) * self.var + share * other.var + between * step,
            (1.0 - share) * self.cov + share * other.cov + between * step[0],
        )

    @property
    def correlation(self) -> Array:
        """Correlation of each column with the first, shape `(k,)`; 0 where one of them is constant to rounding."""
        std = np.sqrt(self.var)
        std = np.where(std <= CONSTANT * np.abs(self.mean), np.inf, std)
        return self.cov / std / std[0]
