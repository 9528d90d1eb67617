"""How numbers are written in a text table: its decimal sign, and the columns with thousands separators."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from equipoise.app.tables.files import is_parquet
from equipoise.app.tables.separators import (
    OTHER_SIGN,
    ColumnSeparators,
    is_ambiguous,
    scan_columns,
    separates_thousands,
)
from equipoise.app.tables.text_format import column_names, open_lines, open_records, skip_blank, text_format_of


@dataclass(frozen=True)
class NumberFormat:
    """How numbers are written in a text table.

    Args:
        decimal: The decimal sign, "." or ",".
        path: The text table, if any: all of it is read where single cells do not show whether a sign separates
            thousands.
        ambiguous: Whether the decimal sign may separate thousands as well, so that 1,926 is not accepted as a number.

    Example:
        >>> NumberFormat(",").normalise(["1,5", "1.000,5", "1.926"], "flow")
        ['1.5', '1000.5', '1?926']
    """

    decimal: str = "."
    path: Path | None = None
    ambiguous: bool = False

    @classmethod
    def of(cls, path: Path) -> NumberFormat:
        """Return the number format of a table: that of its text format, or the default if it is parquet or no file."""
        if not path.is_file() or is_parquet(path):
            return cls()
        text_format = text_format_of(path)
        return cls(text_format.decimal, path, text_format.ambiguous)

    @property
    def thousands(self) -> str:
        """The sign that separates thousands where one does: the other one of point and comma."""
        return OTHER_SIGN[self.decimal]

    @property
    def grouped_columns(self) -> frozenset[str]:
        """Names of the columns with thousands separators, in which 1.926 stands for 1926, for example.

        A column is one of them if it has numbers such as 1.000,5 or 1.234.567. Otherwise another column must prove the
        decimal sign, and the column must have whole numbers below 1000, so that its numbers are not all decimals with
        three digits.
        """
        if self.path is None:
            return frozenset()
        state = self.path.stat()
        return _find_grouped_columns(self.path, self.decimal, state.st_mtime_ns, state.st_size)

    def normalise(self, cells: Sequence[str], column: str) -> list[str]:
        """Rewrite numbers with a decimal point and without thousands separators.

        Args:
            cells: Cells of a column, without surrounding blanks.
            column: Name of the column.
        Returns: The cells, with a "?" in place of a sign that may be a decimal sign or a thousands separator.
        """
        texts = self._without_thousands(cells, column) if any(self.thousands in cell for cell in cells) else list(cells)
        if self.ambiguous:
            texts = [text.replace(self.decimal, "?") if is_ambiguous(text, self.decimal) else text for text in texts]
        return [text.replace(".", "?").replace(",", ".") for text in texts] if self.decimal == "," else texts

    def _without_thousands(self, cells: Sequence[str], column: str) -> list[str]:
        sign, grouped = self.thousands, column in self.grouped_columns
        return [
            cell.replace(sign, "")
            if sign in cell and (separates_thousands(cell, sign) or (grouped and is_ambiguous(cell, sign)))
            else cell
            for cell in cells
        ]


@lru_cache(maxsize=16)
def _find_grouped_columns(path: Path, decimal: str, modified: int, size: int) -> frozenset[str]:
    """Find the columns with thousands separators in all rows of a file; its time and size tell versions apart."""
    if not _may_contain(path, OTHER_SIGN[decimal]):
        return frozenset()
    with open_records(path) as reader:
        records = skip_blank(reader)
        names = column_names(next(records), path)
        (columns,) = deque(scan_columns(records, 4096), maxlen=1) or [[]]
    certain = any(column.proves_decimal(decimal) for column in columns)
    pairs = zip(names, columns, strict=False)  # a line with too many cells raises when it is read
    return frozenset(name for name, column in pairs if _is_grouped(column, decimal, certain))


def _may_contain(path: Path, sign: str) -> bool:
    """Return whether any cell can contain the sign; where it is the delimiter, only a quoted cell can."""
    text_format = text_format_of(path)
    mark = '"' if sign == text_format.delimiter else sign
    with open_lines(path, text_format.encoding) as lines:
        return any(mark in line for line in lines)


def _is_grouped(column: ColumnSeparators, decimal: str, certain: bool) -> bool:
    sign = OTHER_SIGN[decimal]
    if sign not in column.ambiguous or sign in column.decimal or column.padded or column.long:
        return False
    return sign in column.thousands or (certain and column.short and decimal not in column.decimal)
