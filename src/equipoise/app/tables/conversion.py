"""Columns copied from one table file to another without computing with them, converted to the target's format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from equipoise.app.tables.files import PathLike, is_parquet
from equipoise.app.tables.number_format import NumberFormat
from equipoise.app.tables.reading import chunks, header
from equipoise.app.tables.separators import is_ambiguous
from equipoise.app.tables.text_format import MISSING, NUMBER

# No leading zeros as in 007, which are part of a name; and no larger than float64 can hold.
_NUMBER = r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-2]?[0-9]{1,2})?"
_NO_NUMBER = re.compile(rf"^(?!{_NUMBER}$)", re.MULTILINE)
_FRACTION = re.compile(r"[.eE]")
_LONG = re.compile(r"^[+-]?[0-9]{16,}$", re.MULTILINE)  # more digits than float64 distinguishes
_TOO_LONG = re.compile(r"^[+-]?[0-9]{19,}$", re.MULTILINE)  # does not fit into 64 bits


@dataclass(frozen=True)
class ColumnContent:
    """Kinds of cells that occur in a column of a text table.

    Attributes:
        text: Whether a cell holds text that is not a number.
        number: Whether a cell holds a number.
        fraction: Whether a number has decimals.
        long: Whether a whole number has more digits than float64 distinguishes.
        named: Whether a missing cell is marked by a word, such as `NA`.
    """

    text: bool = False
    number: bool = False
    fraction: bool = False
    long: bool = False
    named: bool = False

    @classmethod
    def of(cls, cells: Sequence[str]) -> ColumnContent:
        """Summarise the cells of a column.

        Args:
            cells: Texts without surrounding blanks; numbers have a decimal point.
        Returns: The kinds of cells that occur among them.

        Example:
            >>> [ColumnContent.of(cells).kind for cells in (["1.5", "", "2"], ["1", "NA"], ["007", "8"])]
            ['float64', 'Int64', 'object']
        """
        present = [cell for cell in cells if cell not in MISSING]
        named = any(cell for cell in cells if cell in MISSING)
        if not present:
            return cls(named=named)
        together = "\n".join(present)
        has_line_breaks = together.count("\n") >= len(present)
        text = has_line_breaks or bool(_NO_NUMBER.search(together) or _TOO_LONG.search(together))
        return cls(text, True, bool(_FRACTION.search(together)), bool(_LONG.search(together)), named)

    def __or__(self, other: ColumnContent) -> ColumnContent:
        return ColumnContent(*(a or b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    @property
    def kind(self) -> str:
        """The pandas type that stores the column without loss: `object`, `Int64` (nullable) or `float64`."""
        if self.text or (self.fraction and self.long) or (self.named and not self.number):
            return "object"
        return "Int64" if self.number and not self.fraction else "float64"


def _is_number_or_missing(cell: str) -> bool:
    return cell in MISSING or re.fullmatch(NUMBER, cell) is not None


class ColumnConverter:
    """Converts columns, piece by piece, from the file format of one table to that of another.

    Columns of a Parquet table stay as they are. From text to text, cells are copied unchanged, except numbers with a
    decimal comma, which get a point, so that the target has one decimal sign. From text to Parquet, a column becomes
    whole numbers, floating-point numbers or text, whichever loses nothing; the whole source is read once to decide.

    Args:
        source: The table that is read.
        target: The file that will be written.

    Attributes:
        doubtful: Names of columns, among the pieces converted so far, in which a point was kept although it may either
            separate thousands or begin decimals.

    Example:
        >>> import tempfile
        >>> from equipoise.app.tables import chunks
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     source = Path(folder, "cell.csv")
        ...     _ = source.write_text("run;Voltage [V]\\n007;3,51\\n008;3,52\\n")
        ...     converter = ColumnConverter(source, Path(folder, "out.parquet"))
        ...     [converter.convert(piece).values.tolist() for piece in chunks(source, text=True)]
        [[['007', 3.51], ['008', 3.52]]]
    """

    def __init__(self, source: PathLike, target: PathLike):
        self.source, self.target = Path(source), Path(target)
        self.doubtful: set[str] = set()

    def convert(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Convert one piece of the source to the format of the target.

        Args:
            frame: A piece of the source from `chunks(source, text=True)`.
        Returns: The same rows and columns, with cells as the target stores them.
        """
        if is_parquet(self.source) or (self._has_decimal_points and not is_parquet(self.target)):
            return frame
        convert = self._parquet_column if is_parquet(self.target) else self._text_column
        columns: dict[Any, Any] = {name: convert(column) for name, column in frame.items()}
        return pd.DataFrame(columns, index=frame.index)

    @cached_property
    def number_format(self) -> NumberFormat:
        """The number format of the source."""
        return NumberFormat.of(self.source)

    @property
    def _has_decimal_points(self) -> bool:
        return self.number_format.decimal == "." and not self.number_format.ambiguous

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Pandas type of each column when written to Parquet, by name (see `ColumnContent.kind`)."""
        contents = dict.fromkeys(header(self.source), ColumnContent())
        for piece in chunks(self.source, text=True):
            for name, column in piece.items():
                if not contents[str(name)].text:
                    contents[str(name)] |= ColumnContent.of(self._normalised(column))
        return {name: content.kind for name, content in contents.items()}

    @cached_property
    def text_columns(self) -> set[str]:
        """Names of the columns with a cell that is neither a number nor missing."""
        names: set[str] = set()
        for piece in chunks(self.source, text=True):
            for name, column in piece.items():
                if name not in names and not all(map(_is_number_or_missing, self._normalised(column))):
                    names.add(str(name))
        return names

    def _normalised(self, column: pd.Series) -> list[str]:
        return self.number_format.normalise([cell.strip() for cell in column], str(column.name))

    def _text_column(self, column: pd.Series) -> list[str]:
        normalised = self._normalised(column)
        pairs = zip(column, normalised, strict=True)
        if any("?" in text and is_ambiguous(cell.strip(), ".") for cell, text in pairs):
            self.doubtful.add(str(column.name))
        return column.tolist() if column.name in self.text_columns else normalised

    def _parquet_column(self, column: pd.Series) -> Any:
        kind = self.kinds[str(column.name)]
        if kind == "object":
            return column
        cells = [None if cell in MISSING else cell for cell in self._normalised(column)]
        if kind == "Int64":
            return pd.array([None if cell is None else int(cell) for cell in cells], dtype="Int64")
        return np.array([np.nan if cell is None else float(cell) for cell in cells])
