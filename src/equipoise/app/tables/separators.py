"""Points and commas in numbers: which one is the decimal sign, which one separates thousands, column by column."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import islice, zip_longest

OTHER_SIGN = {".": ",", ",": "."}

_GROUPS = {sign: rf"[1-9][0-9]{{0,2}}(?:{re.escape(sign)}[0-9]{{3}})" for sign in OTHER_SIGN}
_AMBIGUOUS = {sign: rf"[+-]?{_GROUPS[sign]}" for sign in OTHER_SIGN}
_THOUSANDS = {s: rf"[+-]?(?:{_GROUPS[s]}+{re.escape(d)}[0-9]*|{_GROUPS[s]}{{2,}})" for s, d in OTHER_SIGN.items()}
_DECIMAL = {
    sign: rf"(?!{_AMBIGUOUS[sign]}$)[+-]?(?:(?:0|[1-9][0-9]*){re.escape(sign)}[0-9]*|{re.escape(sign)}[0-9]+)"
    r"(?:[eE][+-]?[0-9]+)?"
    for sign in OTHER_SIGN
}
_SHORT = r"[+-]?[1-9][0-9]{0,2}"
_LONG = r"[+-]?[1-9][0-9]{3,}(?:[.,][0-9]*)?"
_PADDED = r"[+-]?0[0-9]+[.,].*"


def _search(pattern: str, text: str) -> bool:
    return re.search(rf"^(?:{pattern})$", text, re.MULTILINE) is not None


def separates_thousands(cell: str, sign: str) -> bool:
    """Return whether a sign in a number can only separate thousands.

    Args:
        cell: Text of a cell.
        sign: The sign, a point or a comma.
    Example:
        >>> [separates_thousands(cell, ".") for cell in ("1.000,5", "1.234.567", "1.926")]
        [True, True, False]
    """
    return re.fullmatch(_THOUSANDS[sign], cell) is not None


def is_ambiguous(cell: str, sign: str) -> bool:
    """Return whether a sign in a number may be the decimal sign or separate thousands.

    Args:
        cell: Text of a cell.
        sign: The sign, a point or a comma.
    Example:
        >>> [is_ambiguous(cell, ".") for cell in ("1.926", "0.926", "1.92", "1926")]
        [True, False, False, False]
    """
    return re.fullmatch(_AMBIGUOUS[sign], cell) is not None


@dataclass(frozen=True)
class ColumnSeparators:
    """How points and commas are used in the numbers of a column.

    Attributes:
        decimal: Signs that can only be decimal signs in some cell, as in 3,5 or 0,125.
        thousands: Signs that can only separate thousands in some cell, as in 1.000,5 or 1.234.567.
        ambiguous: Signs that may be either in some cell, as in 1.926.
        short: Whether there are whole numbers from 1 to 999; beside them, 1.926 is not one of numbers that all have
            three decimals.
        long: Whether a number has four digits in a row, as in 1926, so that thousands are not separated.
        padded: Whether a cell has leading zeros, as in 01.03, so that the column holds dates or names, not numbers.
    """

    decimal: frozenset[str] = frozenset()
    thousands: frozenset[str] = frozenset()
    ambiguous: frozenset[str] = frozenset()
    short: bool = False
    long: bool = False
    padded: bool = False

    @classmethod
    def of(cls, cells: Iterable[str]) -> ColumnSeparators:
        """Summarise the points and commas in the cells of a column; cells that are not numbers are ignored.

        Example:
            >>> separators = ColumnSeparators.of(["1.926", "947", "x"])
            >>> separators.ambiguous, separators.short, separators.long
            (frozenset({'.'}), True, False)
        """
        text = "\n".join([cell.strip() for cell in cells if "\n" not in cell])
        signs = [sign for sign in OTHER_SIGN if sign in text]
        decimal, thousands, ambiguous = (
            frozenset(sign for sign in signs if _search(kind[sign], text))
            for kind in (_DECIMAL, _THOUSANDS, _AMBIGUOUS)
        )
        return cls(decimal, thousands, ambiguous, *(_search(pattern, text) for pattern in (_SHORT, _LONG, _PADDED)))

    def __or__(self, other: ColumnSeparators) -> ColumnSeparators:
        return ColumnSeparators(*(getattr(self, field.name) | getattr(other, field.name) for field in fields(self)))

    def proves_decimal(self, decimal: str) -> bool:
        """Return whether a cell proves that this sign is the decimal sign, and no cell proves the other one."""
        proven = {sign: sign in self.decimal or OTHER_SIGN[sign] in self.thousands for sign in OTHER_SIGN}
        return proven[decimal] and not proven[OTHER_SIGN[decimal]] and not self.padded


def scan_columns(records: Iterable[Sequence[str]], rows: int) -> Iterator[list[ColumnSeparators]]:
    """Summarise the points and commas in the columns of a table, batch by batch.

    Args:
        records: Records of the table, without the header.
        rows: Number of records in a batch.
    Returns: An iterator that gives, after each batch, the separators of each column in all records so far.
    """
    columns, remaining = [], iter(records)
    while batch := list(islice(remaining, rows)):
        latest = map(ColumnSeparators.of, zip_longest(*batch, fillvalue=""))
        columns = [before | new for before, new in zip_longest(columns, latest, fillvalue=ColumnSeparators())]
        yield columns


def decimal_sign(columns: Sequence[ColumnSeparators], delimiter: str) -> str:
    """Decide on the decimal sign of a table by majority of its columns.

    Columns that prove a sign are counted first. On a tie, columns that look like whole numbers with thousands
    separators are counted for the other sign; then columns in which all numbers have three decimals. If the counts are
    still equal, a table delimited by semicolons has decimal commas, since the comma would else be its delimiter.

    Args:
        columns: Separators of each column.
        delimiter: The table's delimiter.
    """
    comma, point = (_support(columns, sign) for sign in ",.")
    if comma == point:
        return "," if delimiter == ";" and any(comma) else "."
    return "," if comma > point else "."


def has_ambiguous_sign(columns: Sequence[ColumnSeparators], decimal: str, delimiter: str) -> bool:
    """Return whether the decimal sign of a table may also separate thousands, because no cell decides.

    A point in a table that is not delimited by semicolons is taken for a decimal sign, unless there are commas that may
    be decimal signs as well: then one of the two separates thousands.

    Args:
        columns: Separators of each column.
        decimal: The sign that `decimal_sign` decided on.
        delimiter: The table's delimiter.
    """
    commas = any("," in column.ambiguous and not column.padded for column in columns)
    if decimal == "." and delimiter != ";" and not commas:
        return False
    is_open = any(decimal in column.ambiguous for column in columns)
    return is_open and not any(column.proves_decimal(sign) for column in columns for sign in OTHER_SIGN)


def _support(columns: Sequence[ColumnSeparators], sign: str) -> tuple[int, int, int]:
    n_proofs = sum(column.proves_decimal(sign) for column in columns)
    undecided = [column for column in columns if not (column.padded or column.decimal or column.thousands)]
    n_whole = sum(column.short and OTHER_SIGN[sign] in column.ambiguous for column in undecided)
    n_possible = sum(sign in column.ambiguous for column in undecided)
    return n_proofs, n_whole, n_possible
