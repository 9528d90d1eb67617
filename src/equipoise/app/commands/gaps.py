"""Rows in which an input is missing: refused with a hint, or left out and counted; and those without any value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.app.commands.screen import remark

if TYPE_CHECKING:
    import pandas as pd

    from equipoise.app.report import Findings
    from equipoise.diagnosis import Diagnosis

OPTION = "--skip-incomplete"
Skip = Annotated[bool, typer.Option(OPTION, help="Leave out rows in which an input is missing.")]


@contextmanager
def hinted(how: str) -> Iterator[None]:
    """Says of an input that is missing how to leave out such rows."""
    from equipoise.app.tables import MissingError, TableError

    try:
        yield
    except MissingError as error:
        raise TableError(f"{error} Or leave out such rows with {how}.") from error


def in_sentences(left_out: int, passed_over: int) -> Iterator[str]:
    """What is told if any row was left out for want of an input, or passed over for want of any value.

    Example:
        >>> list(in_sentences(2, 0)), list(in_sentences(0, 1))
        (['2 rows were left out, in which an input is missing.'], ['1 row without any value was passed over.'])
    """
    if left_out:
        rows = "1 row was" if left_out == 1 else f"{left_out:,} rows were"
        yield f"{rows} left out, in which an input is missing."
    if passed_over:
        rows = "1 row without any value was" if passed_over == 1 else f"{passed_over:,} rows without any value were"
        yield f"{rows} passed over."


def tell(left_out: int, passed_over: int) -> None:
    """A remark if any row was left out, or passed over."""
    for sentence in in_sentences(left_out, passed_over):
        remark(sentence)


def at_places(found: Diagnosis, places: Any) -> Diagnosis:
    """A diagnosis of some rows of a table, with rows by their positions in all of it."""
    balances = [
        replace(balance, **{name: _moved(getattr(balance, name), places) for name in ("worst_rows", "outliers")})
        for balance in found.balances
    ]
    duplicates = tuple(int(places[row]) for row in found.duplicates)
    return replace(found, balances=tuple(balances), duplicates=duplicates)


def outliers_at_places(found: Findings, places: Any) -> Findings:
    """Findings on some rows of a table, with rows by their positions in all of it."""
    return replace(found, outliers=replace(found.outliers, worst=_moved(found.outliers.worst, places)))


def _moved(rows: tuple[Any, ...], places: Any) -> tuple[Any, ...]:
    return tuple(replace(each, row=int(places[each.row])) for each in rows)


class RowsWithInputs:
    """The rows of a table piece by piece, as `tables.chunks` gives them as text, with or without incomplete ones.

    Args:
        path: The table.
        inputs: Columns that must be there.
        rows: Of every piece but the last.
        skip: Leave out rows in which an input is missing, as if they had never been in the table.

    Attributes:
        left_out: How many were left out so far.
    """

    def __init__(self, path: Path, inputs: Sequence[str], rows: int, skip: bool):
        self.path, self.inputs, self.rows, self.skip, self.left_out = path, inputs, rows, skip, 0

    def __iter__(self) -> Iterator[pd.DataFrame]:
        from equipoise.app import tables

        pieces = tables.chunks(self.path, self.rows, text=True)
        return self._complete(pieces) if self.skip else pieces

    def _complete(self, pieces: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Pieces of so many rows again: the noise of draws depends on where a row stands."""
        import pandas as pd

        from equipoise.app import tables

        held = pd.DataFrame()
        for piece in pieces:
            kept = tables.complete(piece, self.inputs, self.path)
            self.left_out += len(piece) - len(kept)
            held = pd.concat([held, kept]) if len(held) else kept
            if len(held) >= self.rows:
                yield held.iloc[: self.rows]
                held = held.iloc[self.rows :]
        if len(held):
            yield held
