"""Rows in which an input is missing: refused with the advice to leave them out, or left out.

Where rows are left out, the others keep their positions in the whole table for all that is printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from equipoise.app.report import Findings
    from equipoise.diagnosis import Diagnosis


@contextmanager
def suggest_skipping(option: str) -> Iterator[None]:
    """Add to the error on a missing input which option leaves out such rows.

    Args:
        option: The option of a command, or the line of a job file.
    """
    from equipoise.app.tables import MissingError, TableError

    try:
        yield
    except MissingError as error:
        raise TableError(f"{error} Or leave out such rows with {option}.") from error


class CompleteChunks:
    """The rows of a text table chunk by chunk, as `tables.chunks` gives them, with or without incomplete rows.

    Args:
        path: The table.
        inputs: Columns that must be there.
        n_rows: Rows of each chunk but the last.
        skip: Leave out rows in which an input is missing, as if they had never been in the table.

    Attributes:
        n_incomplete: How many rows were left out so far.
    """

    def __init__(self, path: Path, inputs: Sequence[str], n_rows: int, skip: bool):
        self.path, self.inputs, self.n_rows, self.skip, self.n_incomplete = path, inputs, n_rows, skip, 0

    def __iter__(self) -> Iterator[pd.DataFrame]:
        from equipoise.app import tables

        chunks = tables.chunks(self.path, self.n_rows, text=True)
        return self._complete(chunks) if self.skip else chunks

    def _complete(self, chunks: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Yield full chunks of complete rows, since the noise of draws depends on a row's position among them."""
        import pandas as pd

        from equipoise.app import tables

        buffer = pd.DataFrame()
        for chunk in chunks:
            complete = tables.complete(chunk, self.inputs, self.path)
            self.n_incomplete += len(chunk) - len(complete)
            buffer = pd.concat([buffer, complete]) if len(buffer) else complete
            if len(buffer) >= self.n_rows:
                yield buffer.iloc[: self.n_rows]
                buffer = buffer.iloc[self.n_rows :]
        if len(buffer):
            yield buffer


def diagnosis_by_position(diagnosis: Diagnosis, positions: Any) -> Diagnosis:
    """Return a diagnosis of the complete rows with every row called by its position in the whole table.

    Args:
        diagnosis: Its rows count the complete rows, from 0.
        positions: Position of each complete row in the whole table, `(rows,)`, from 0.
    """
    balances = [
        replace(
            balance,
            worst_rows=_by_position(balance.worst_rows, positions),
            outliers=_by_position(balance.outliers, positions),
        )
        for balance in diagnosis.balances
    ]
    duplicates = tuple(int(positions[row]) for row in diagnosis.duplicates)
    return replace(diagnosis, balances=tuple(balances), duplicates=duplicates)


def findings_by_position(findings: Findings, positions: Any) -> Findings:
    """Return a report's findings on the complete rows with outliers called by their positions in the whole table.

    Args:
        findings: Rows of its outliers count the complete rows, from 0.
        positions: Position of each complete row in the whole table, `(rows,)`, from 0.
    """
    worst = _by_position(findings.outliers.worst, positions)
    return replace(findings, outliers=replace(findings.outliers, worst=worst))


def _by_position(items: tuple[Any, ...], positions: Any) -> tuple[Any, ...]:
    return tuple(replace(item, row=int(positions[item.row])) for item in items)
