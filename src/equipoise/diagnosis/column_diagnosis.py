"""Faults of the columns and rows of a table: missing and infinite values, constants, copied columns, repeated rows."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, with bits that look random, so that products with it spread over 64 bits
_HALF = np.uint64(32)


@dataclass(frozen=True)
class ColumnFinding:
    """Role, gaps and range of one column.

    Attributes:
        name: Name of the column.
        role: `input`, `known`, `output` or `other`.
        missing: Number of missing values (NaN).
        infinite: Number of infinite values.
        minimum, maximum: Smallest and largest finite value, in the column's unit; None if there is no finite value.
    """

    name: str
    role: str
    missing: int
    infinite: int
    minimum: float | None
    maximum: float | None

    @property
    def constant(self) -> bool:
        """Whether all its finite values are the same."""
        return self.minimum is not None and self.minimum == self.maximum


def diagnose_column(name: str, role: str, values: Array) -> ColumnFinding:
    """Count the missing and infinite values of a column and determine the range of the others.

    Args:
        name: Name of the column.
        role: `input`, `known`, `output` or `other`.
        values: Its values, shape `(n,)`; NaN is missing.
    Returns: Counts and range.

    Example:
        >>> diagnose_column("x", "input", np.array([2.0, np.nan, 2.0, np.inf]))
        ColumnFinding(name='x', role='input', missing=1, infinite=1, minimum=2.0, maximum=2.0)
    """
    low, high = (float(values.min()), float(values.max())) if len(values) else (math.nan, math.nan)
    if math.isfinite(low) and math.isfinite(high):  # a NaN would propagate to both
        return ColumnFinding(name, role, 0, 0, low, high)
    finite, missing = values[np.isfinite(values)], int(np.isnan(values).sum())
    infinite = len(values) - missing - len(finite)
    if not len(finite):
        return ColumnFinding(name, role, missing, infinite, None, None)
    return ColumnFinding(name, role, missing, infinite, float(finite.min()), float(finite.max()))


def column_warnings(column: ColumnFinding, n_rows: int) -> list[str]:
    """Write a sentence on each fault of a column: missing values, infinite values, a constant.

    Args:
        column: The column, from `diagnose_column`.
        n_rows: Rows of the table.
    Returns: Sentences; none for a column without faults.
    """
    sentences = []
    if column.missing == n_rows:
        return [f"Column '{column.name}' has no values at all."]
    if column.missing:
        sentences.append(f"Column '{column.name}' misses {column.missing} of {n_rows} values.")
    if column.infinite:
        sentences.append(f"Column '{column.name}' has {column.infinite} infinite values.")
    if column.constant and n_rows > 1:
        sentences.append(f"Column '{column.name}' is constant ({column.minimum:.6g}).")
    return sentences


def copy_warnings(table: Mapping[str, Array]) -> list[str]:
    """Write a sentence on each varying column that repeats an earlier one exactly, missing values included.

    Args:
        table: Columns by name, shape `(n,)` each.
    Example:
        >>> copy_warnings({"flow": np.array([1.0, 2.0]), "two": np.full(2, 2.0), "flow 2": np.array([1.0, 2.0])})
        ["Column 'flow 2' is a copy of 'flow'."]
    """
    first: dict[bytes, str] = {}
    sentences = []
    for name, values in table.items():
        bits = _bits(values)
        if not len(bits) or (bits == bits[0]).all():
            continue
        original = first.setdefault(hashlib.blake2b(bits.tobytes()).digest(), name)
        if original != name:
            sentences.append(f"Column '{name}' is a copy of '{original}'.")
    return sentences


def duplicated_rows(columns: Sequence[Array] | Mapping[str, Array]) -> NDArray[np.intp]:
    """Return the positions of the rows that repeat an earlier row exactly, missing values included.

    Rows are compared by a 64-bit hash first, then value by value with the first row of the same hash, so that every row
    in the result is a true duplicate.

    Args:
        columns: Columns of the table, shape `(n,)` each.
    Returns: Positions in ascending order.
    Example:
        >>> duplicated_rows([np.array([1.0, 2.0, 1.0]), np.array([np.nan, 0.0, np.nan])])
        array([2])
    """
    table = list(columns.values() if isinstance(columns, Mapping) else columns)
    if not table or not len(table[0]):
        return np.zeros(0, dtype=np.intp)
    mixed = np.zeros(len(table[0]), dtype=np.uint64)
    for values in table:
        mixed ^= _bits(values)
        mixed ^= mixed >> _HALF
        mixed *= _MIX
        mixed ^= mixed >> _HALF
    order = np.argsort(mixed, kind="stable")
    starts = np.concatenate([[True], np.diff(mixed[order]) != 0])
    first = order[np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))]
    later, first = order[~starts], first[~starts]
    same = np.logical_and.reduce([_bits(values[later]) == _bits(values[first]) for values in table])
    return np.sort(later[same])


def _bits(values: Array) -> NDArray[np.uint64]:
    """Return the bits of floats, the same for both zeros and the same for all kinds of NaN."""
    positive = values + 0.0  # −0 becomes 0
    positive[np.isnan(positive)] = np.nan
    return positive.view(np.uint64)
