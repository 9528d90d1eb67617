"""What is the matter with the columns and rows of a table: missing and infinite values, constants, copies."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, and its bits look random: products with it spread over all 64 bits
_HALF = np.uint64(32)


@dataclass(frozen=True)
class ColumnFinding:
    """One column of the table.

    Attributes:
        name: Its name.
        role: `input`, `known`, `output` or `other`.
        missing, infinite: How many values are.
        minimum, maximum: Of the finite values; None if there are none.
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


def look_at_column(name: str, role: str, values: Array) -> ColumnFinding:
    """Count and range the values of one column, shape `(n,)`.

    Example:
        >>> look_at_column("x", "input", np.array([2.0, np.nan, 2.0, np.inf]))
        ColumnFinding(name='x', role='input', missing=1, infinite=1, minimum=2.0, maximum=2.0)
    """
    low, high = (float(values.min()), float(values.max())) if len(values) else (math.nan, math.nan)
    if math.isfinite(low) and math.isfinite(high):  # NaN would have come through
        return ColumnFinding(name, role, 0, 0, low, high)
    finite, missing = values[np.isfinite(values)], int(np.isnan(values).sum())
    infinite = len(values) - missing - len(finite)
    if not len(finite):
        return ColumnFinding(name, role, missing, infinite, None, None)
    return ColumnFinding(name, role, missing, infinite, float(finite.min()), float(finite.max()))


def in_words(column: ColumnFinding, n_rows: int) -> list[str]:
    """What a user should know of a column, as sentences."""
    said = []
    if column.missing == n_rows:
        return [f"Column '{column.name}' has no values at all."]
    if column.missing:
        said.append(f"Column '{column.name}' misses {column.missing} of {n_rows} values.")
    if column.infinite:
        said.append(f"Column '{column.name}' has {column.infinite} infinite values.")
    if column.constant and n_rows > 1:
        said.append(f"Column '{column.name}' is constant ({column.minimum:.6g}).")
    return said


def copies_in_words(table: Mapping[str, Array]) -> list[str]:
    """A sentence on each column that varies and repeats an earlier one exactly, missing values included.

    Example:
        >>> copies_in_words({"flow": np.array([1.0, 2.0]), "two": np.full(2, 2.0), "flow 2": np.array([1.0, 2.0])})
        ["Column 'flow 2' is a copy of 'flow'."]
    """
    first: dict[bytes, str] = {}
    said = []
    for name, values in table.items():
        bits = _bits(values)
        if not len(bits) or (bits == bits[0]).all():
            continue
        original = first.setdefault(hashlib.blake2b(bits.tobytes()).digest(), name)
        if original != name:
            said.append(f"Column '{name}' is a copy of '{original}'.")
    return said


def duplicated_rows(columns: Sequence[Array] | Mapping[str, Array]) -> NDArray[np.intp]:
    """Positions of the rows that repeat an earlier one exactly, missing values included.

    Rows are compared by a 64-bit hash first, then in full with the first row of the same hash, so that no row is called
    a duplicate that is none.

    Args:
        columns: Of shape `(n,)` each.
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
    """The bits of floats, alike for both zeros and for all kinds of NaN."""
    positive = values + 0.0  # −0 becomes 0
    positive[np.isnan(positive)] = np.nan
    return positive.view(np.uint64)
