"""Columns that nobody computes with, carried from one file into another: texts as they stand, numbers as numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from equipoise.app.tables.dialect import MISSING, NUMBER
from equipoise.app.tables.files import PathLike, is_parquet
from equipoise.app.tables.notation import Notation
from equipoise.app.tables.reading import chunks, header
from equipoise.app.tables.signs import says_nothing

# Without zeros before, as in 007, which are part of a name; and no larger than float64 can hold.
_NUMBER = r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-2]?[0-9]{1,2})?"
_NO_NUMBER = re.compile(rf"^(?!{_NUMBER}$)", re.MULTILINE)
_FRACTION = re.compile(r"[.eE]")
_LONG = re.compile(r"^[+-]?[0-9]{16,}$", re.MULTILINE)  # more digits than float64 tells apart
_TOO_LONG = re.compile(r"^[+-]?[0-9]{19,}$", re.MULTILINE)  # more than 64 bits hold


@dataclass(frozen=True)
class Content:
    """What was seen in the cells of a column.

    Attributes:
        text: Whether something else than numbers.
        number: Whether a number.
        fraction: Whether a number with decimals.
        long: Whether a whole number of so many digits that decimals have no room beside it.
        named: Whether a cell that says in words that nothing is there.
    """

    text: bool = False
    number: bool = False
    fraction: bool = False
    long: bool = False
    named: bool = False

    @classmethod
    def of(cls, cells: Sequence[str]) -> Content:
        """Of cells without surrounding blanks, with a decimal point if any.

        Example:
            >>> Content.of(["1.5", "", "2"]).kind, Content.of(["1", "NA"]).kind, Content.of(["007", "8"]).kind
            ('float64', 'Int64', 'object')
        """
        there = [cell for cell in cells if cell not in MISSING]
        named = any(cell for cell in cells if cell in MISSING)
        if not there:
            return cls(named=named)
        together = "\n".join(there)
        several = together.count("\n") >= len(there)
        text = several or bool(_NO_NUMBER.search(together) or _TOO_LONG.search(together))
        return cls(text, True, bool(_FRACTION.search(together)), bool(_LONG.search(together)), named)

    def __or__(self, other: Content) -> Content:
        return Content(*(a or b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    @property
    def kind(self) -> str:
        """The type that loses nothing: of pandas, so that whole numbers may have gaps."""
        if self.text or (self.fraction and self.long) or (self.named and not self.number):
            return "object"
        return "Int64" if self.number and not self.fraction else "float64"


def _is_number_or_missing(cell: str) -> bool:
    return cell in MISSING or re.fullmatch(NUMBER, cell) is not None


class Carrier:
    """Carries the columns of a table over into another file, piece by piece.

    What was stored in Parquet stays as it was. Columns of a text table go into another one as they stand, but for those
    of numbers with a decimal comma, which get a point, so that a file has one decimal sign. Into Parquet, a column goes
    as whole numbers, numbers or text, whichever loses nothing. All of the table is looked through before.

    Args:
        source: The table that is read.
        target: The file that is written.

    Attributes:
        doubtful: Columns so far with points that stay, and may separate thousands or begin decimals.
    """

    def __init__(self, source: PathLike, target: PathLike):
        self.source, self.target = Path(source), Path(target)
        self.doubtful: set[str] = set()

    def carry(self, frame: pd.DataFrame) -> pd.DataFrame:
        """A piece of the table as `chunks` gives it with `text=True`, in the same order."""
        if is_parquet(self.source) or (self._has_points and not is_parquet(self.target)):
            return frame
        turn = self._stored if is_parquet(self.target) else self._written
        columns: dict[Any, Any] = {name: turn(column) for name, column in frame.items()}
        return pd.DataFrame(columns, index=frame.index)

    @cached_property
    def notation(self) -> Notation:
        """How the numbers of the source are written."""
        return Notation.of(self.source)

    @property
    def _has_points(self) -> bool:
        return self.notation.decimal == "." and not self.notation.undecided

    @cached_property
    def kinds(self) -> dict[str, str]:
        """The types of the columns in Parquet."""
        found = dict.fromkeys(header(self.source), Content())
        for piece in chunks(self.source, text=True):
            for name, column in piece.items():
                if not found[str(name)].text:
                    found[str(name)] |= Content.of(self._plain(column))
        return {name: content.kind for name, content in found.items()}

    @cached_property
    def texts(self) -> set[str]:
        """The columns that hold something else than numbers."""
        found: set[str] = set()
        for piece in chunks(self.source, text=True):
            for name, column in piece.items():
                if name not in found and not all(map(_is_number_or_missing, self._plain(column))):
                    found.add(str(name))
        return found

    def _plain(self, column: pd.Series) -> list[str]:
        return self.notation.plain([cell.strip() for cell in column], str(column.name))

    def _written(self, column: pd.Series) -> list[str]:
        pairs = list(zip(column, self._plain(column), strict=True))
        if any("?" in plain and says_nothing(cell.strip(), ".") for cell, plain in pairs):
            self.doubtful.add(str(column.name))
        return column.tolist() if column.name in self.texts else [plain for _, plain in pairs]

    def _stored(self, column: pd.Series) -> Any:
        kind = self.kinds[str(column.name)]
        if kind == "object":
            return column
        cells = [None if cell in MISSING else cell for cell in self._plain(column)]
        if kind == "Int64":
            return pd.array([None if cell is None else int(cell) for cell in cells], dtype="Int64")
        return np.array([np.nan if cell is None else float(cell) for cell in cells])
