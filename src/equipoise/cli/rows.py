"""The rows that a command works on: columns of a table as frames of numbers, in the order that models take them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from equipoise.estimator import ConstrainedBNNRegressor
    from equipoise.job import Job


@dataclass(frozen=True)
class RowsOfTable:
    """Inputs (and known columns), outputs, and the other columns that hold numbers, row by row."""

    X: pd.DataFrame
    Y: pd.DataFrame
    others: dict[str, Any]


def rows_of_job(job: Job) -> RowsOfTable:
    """The columns of a job's table. Raises, with column and line, where an input is missing or no number."""
    from equipoise import tables

    job.check_header(tables.header(job.data))
    table = tables.read(job.data)
    sorted_out = {*job.columns}
    others = {
        str(name): column.to_numpy(dtype=float)
        for name, column in table.items()
        if name not in sorted_out and column.dtype.kind == "f"
    }
    known = job.inputs + job.known
    return RowsOfTable(
        _frame(table, known, job.data, missing_ok=False), _frame(table, job.outputs, job.data, missing_ok=True), others
    )


def rows_for_model(model: ConstrainedBNNRegressor, path: Path) -> RowsOfTable:
    """The columns that a fitted model needs of a table: inputs, known columns and outputs."""
    from equipoise import tables
    from equipoise.report.evidence import input_names

    inputs, outputs = input_names(model), model.output_names_
    table = tables.read(path, [*inputs, *outputs])
    return RowsOfTable(_frame(table, inputs, path, missing_ok=False), _frame(table, outputs, path, missing_ok=True), {})


def fingerprint(path: Path) -> str:
    """SHA-256 of a file, which tells whether it is the same."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _frame(table: pd.DataFrame, columns: tuple[str, ...], path: Path, missing_ok: bool) -> pd.DataFrame:
    import pandas as pd

    from equipoise import tables

    return pd.DataFrame(tables.numbers(table, columns, path, missing_ok=missing_ok), columns=list(columns))
