"""How the numbers of a table are written: their decimal sign, and the columns with separators of thousands."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from equipoise.app.tables.dialect import column_names, dialect_of, filled, lines_of, reader_of
from equipoise.app.tables.files import is_parquet
from equipoise.app.tables.signs import OTHER, Signs, gathered, says_nothing, separates_thousands


@dataclass(frozen=True)
class Notation:
    """How numbers are written in texts.

    Args:
        decimal: The decimal sign.
        path: The text table they stand in, if any: it is looked through where a number alone does not tell.
        undecided: Whether the decimal sign may separate thousands as well, so that 1,926 is no number.

    Example:
        >>> Notation(",").plain(["1,5", "1.000,5", "1.926"], "flow")
        ['1.5', '1000.5', '1?926']
    """

    decimal: str = "."
    path: Path | None = None
    undecided: bool = False

    @classmethod
    def of(cls, path: Path) -> Notation:
        """That of a table."""
        if not path.is_file() or is_parquet(path):
            return cls()
        dialect = dialect_of(path)
        return cls(dialect.decimal, path, dialect.undecided)

    @property
    def thousands(self) -> str:
        """The sign that separates thousands, if any does."""
        return OTHER[self.decimal]

    @property
    def grouped(self) -> frozenset[str]:
        """Columns with separators of thousands, in which 1.926 is 1926, say.

        That is beyond doubt if there are numbers such as 1.000,5 or 1.234.567 among them. Otherwise it takes another
        column that shows the decimal sign, and smaller numbers without any sign, so that they are not all decimals
        with three digits.
        """
        if self.path is None:
            return frozenset()
        state = self.path.stat()
        return _grouped(self.path, self.decimal, state.st_mtime_ns, state.st_size)

    def plain(self, cells: Sequence[str], column: str) -> list[str]:
        """Cells of a column with a decimal point and without separators; with a ? where a sign may be either."""
        texts = self._ungrouped(cells, column) if any(self.thousands in cell for cell in cells) else list(cells)
        if self.undecided:
            texts = [text.replace(self.decimal, "?") if says_nothing(text, self.decimal) else text for text in texts]
        return [text.replace(".", "?").replace(",", ".") for text in texts] if self.decimal == "," else texts

    def _ungrouped(self, cells: Sequence[str], column: str) -> list[str]:
        sign, grouped = self.thousands, column in self.grouped
        return [
            cell.replace(sign, "")
            if sign in cell and (separates_thousands(cell, sign) or (grouped and says_nothing(cell, sign)))
            else cell
            for cell in cells
        ]


@lru_cache(maxsize=16)
def _grouped(path: Path, decimal: str, modified: int, size: int) -> frozenset[str]:
    """Of a file as it was at a time: all of its rows have their say, so that all pieces are read alike."""
    if not _may_be_grouped(path, OTHER[decimal]):
        return frozenset()
    with reader_of(path) as reader:
        records = filled(reader)
        names = column_names(next(records), path)
        (columns,) = deque(gathered(records, 4096), maxlen=1) or [[]]
    certain = any(column.shows(decimal) for column in columns)
    pairs = zip(names, columns, strict=False)  # a line that is too long is told when it is read
    return frozenset(name for name, column in pairs if _is_grouped(column, decimal, certain))


def _may_be_grouped(path: Path, sign: str) -> bool:
    """Whether a cell can have the sign at all: where it is the delimiter, only one in quotes can."""
    dialect = dialect_of(path)
    mark = '"' if sign == dialect.delimiter else sign
    with lines_of(path, dialect.encoding) as lines:
        return any(mark in line for line in lines)


def _is_grouped(column: Signs, decimal: str, certain: bool) -> bool:
    sign = OTHER[decimal]
    if sign not in column.either or sign in column.decimal or column.padded or column.long:
        return False
    return sign in column.thousands or (certain and column.short and decimal not in column.decimal)
