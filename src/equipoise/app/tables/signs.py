"""Points and commas in numbers: which of them begins decimals, which one separates thousands, column by column."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import islice, zip_longest

OTHER = {".": ",", ",": "."}

_GROUPS = {sign: rf"[1-9][0-9]{{0,2}}(?:{re.escape(sign)}[0-9]{{3}})" for sign in OTHER}
_EITHER = {sign: rf"[+-]?{_GROUPS[sign]}" for sign in OTHER}
_THOUSANDS = {s: rf"[+-]?(?:{_GROUPS[s]}+{re.escape(d)}[0-9]*|{_GROUPS[s]}{{2,}})" for s, d in OTHER.items()}
_DECIMAL = {
    sign: rf"(?!{_EITHER[sign]}$)[+-]?(?:(?:0|[1-9][0-9]*){re.escape(sign)}[0-9]*|{re.escape(sign)}[0-9]+)"
    r"(?:[eE][+-]?[0-9]+)?"
    for sign in OTHER
}
_SHORT = r"[+-]?[1-9][0-9]{0,2}"
_LONG = r"[+-]?[1-9][0-9]{3,}(?:[.,][0-9]*)?"
_PADDED = r"[+-]?0[0-9]+[.,].*"


def _search(pattern: str, text: str) -> bool:
    return re.search(rf"^(?:{pattern})$", text, re.MULTILINE) is not None


def separates_thousands(cell: str, sign: str) -> bool:
    """Whether a sign in a number separates thousands beyond doubt.

    Example:
        >>> [separates_thousands(cell, ".") for cell in ("1.000,5", "1.234.567", "1.926")]
        [True, True, False]
    """
    return re.fullmatch(_THOUSANDS[sign], cell) is not None


def says_nothing(cell: str, sign: str) -> bool:
    """Whether a sign in a number may begin decimals or separate thousands.

    Example:
        >>> [says_nothing(cell, ".") for cell in ("1.926", "0.926", "1.92", "1926")]
        [True, False, False, False]
    """
    return re.fullmatch(_EITHER[sign], cell) is not None


@dataclass(frozen=True)
class Signs:
    """What the numbers of a column show.

    Attributes:
        decimal: Signs that begin decimals beyond doubt, as in 3,5 or 0,125.
        thousands: Signs that separate thousands beyond doubt, as in 1.000,5 or 1.234.567.
        either: Signs that may do either, as in 1.926.
        short: Whether there are whole numbers from 1 to 999: beside 1.926, they are not decimals of a fixed number.
        long: Whether four digits stand together, as in 1926: nobody separates thousands then.
        padded: Whether zeros stand before, as in 01.03: then these are dates or names, and no numbers.
    """

    decimal: frozenset[str] = frozenset()
    thousands: frozenset[str] = frozenset()
    either: frozenset[str] = frozenset()
    short: bool = False
    long: bool = False
    padded: bool = False

    @classmethod
    def of(cls, cells: Iterable[str]) -> Signs:
        """
        Example:
            >>> found = Signs.of(["1.926", "947", "x"])
            >>> found.either, found.short, found.long
            (frozenset({'.'}), True, False)
        """
        text = "\n".join([cell.strip() for cell in cells if "\n" not in cell])
        there = [sign for sign in OTHER if sign in text]
        decimal, thousands, either = (
            frozenset(sign for sign in there if _search(kind[sign], text)) for kind in (_DECIMAL, _THOUSANDS, _EITHER)
        )
        return cls(decimal, thousands, either, *(_search(each, text) for each in (_SHORT, _LONG, _PADDED)))

    def __or__(self, other: Signs) -> Signs:
        return Signs(*(getattr(self, field.name) | getattr(other, field.name) for field in fields(self)))

    def shows(self, decimal: str) -> bool:
        """Whether it is beyond doubt that a sign begins decimals, and nothing speaks for the other one."""
        says = {sign: sign in self.decimal or OTHER[sign] in self.thousands for sign in OTHER}
        return says[decimal] and not says[OTHER[decimal]] and not self.padded


def gathered(records: Iterable[Sequence[str]], rows: int) -> Iterator[list[Signs]]:
    """What the columns show, as more and more records are seen, so many at a time."""
    columns, left = [], iter(records)
    while batch := list(islice(left, rows)):
        seen = map(Signs.of, zip_longest(*batch, fillvalue=""))
        columns = [before | more for before, more in zip_longest(columns, seen, fillvalue=Signs())]
        yield columns


def decimal_sign(columns: Sequence[Signs], delimiter: str) -> str:
    """The decimal sign of a table: that of most columns, so that an odd one does not decide for the others.

    Columns count first in which it is beyond doubt; then those that look like whole numbers with separators of
    thousands, which the other sign is then; then those in which all numbers have three decimals. Where they balance, a
    semicolon tells: it is there because the comma is taken.
    """
    comma, point = (_support(columns, sign) for sign in ",.")
    if comma == point:
        return "," if delimiter == ";" and any(comma) else "."
    return "," if comma > point else "."


def is_undecided(columns: Sequence[Signs], decimal: str, delimiter: str) -> bool:
    """Whether the decimal sign of a table may as well separate thousands, as no cell decides.

    A point in a table that is not delimited by semicolons is taken for what it is nearly everywhere, unless there are
    commas that may as well begin decimals: one of the two separates thousands.
    """
    commas = any("," in column.either and not column.padded for column in columns)
    if decimal == "." and delimiter != ";" and not commas:
        return False
    alike = any(decimal in column.either for column in columns)
    return alike and not any(column.shows(sign) for column in columns for sign in OTHER)


def _support(columns: Sequence[Signs], sign: str) -> tuple[int, int, int]:
    shown = sum(column.shows(sign) for column in columns)
    open_ones = [column for column in columns if not (column.padded or column.decimal or column.thousands)]
    whole = sum(column.short and OTHER[sign] in column.either for column in open_ones)
    alike = sum(sign in column.either for column in open_ones)
    return shown, whole, alike
