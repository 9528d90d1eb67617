"""The rows of a table that a command works on: named columns as tables of numbers, in the order that models expect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equipoise.app.commands.incomplete_rows import suggest_skipping
from equipoise.app.commands.shared_options import SKIP_INCOMPLETE

if TYPE_CHECKING:
    import pandas as pd

    from equipoise.app.job import Job
    from equipoise.estimator import ConstrainedBNNRegressor


@dataclass(frozen=True)
class TableRows:
    """The rows of a table, as numbers in the user's own units.

    Attributes:
        X: Inputs, then known columns, `(rows, n_x)`.
        Y: Outputs, `(rows, n_y)`, NaN where they were not measured.
        other_columns: The table's other columns of numbers by name, `(rows,)` each.
        positions: Positions of the rows in the table, `(rows,)`, from 0.
        n_incomplete: How many more rows the table has that were left out, as an input is missing.
        n_blank: How many more rows without any value stand between the others.
    """

    X: Any
    Y: Any
    other_columns: dict[str, Any]
    positions: Any
    n_incomplete: int
    n_blank: int


def read_table_header(path: Path) -> tuple[str, ...]:
    """Read the names of a table's columns.

    Raises: TableError, if there is only one: too few to learn from, and nearly always a wrong delimiter.
    """
    from equipoise.app import tables

    names = tables.header(path)
    if len(names) == 1:
        rule = f"'{path.name}' must have several columns, but got {names[0]!r} alone"
        advice = "Separate its columns by comma, semicolon, tab or |. Delete a title above their names, if any"
        raise tables.TableError(f"{rule}. {advice}.")
    return names


def read_job_rows(job: Job) -> TableRows:
    """Read the rows of a job's table: inputs, known columns, outputs, and other columns of numbers.

    Raises: TableError, with column and line, where an input is missing or no number.
    """
    from equipoise.app import tables
    from equipoise.app.tables import count_blank_rows

    job.check_header(read_table_header(job.data))
    whole, inputs = tables.read(job.data), job.inputs + job.known
    table = tables.complete(whole, inputs, job.data) if job.skip_incomplete else whole
    check_not_empty(len(table), job.data)
    job_columns = {*job.columns}
    other_columns = {
        str(name): column.to_numpy(dtype=float)
        for name, column in table.items()
        if name not in job_columns and column.dtype.kind == "f"
    }
    with suggest_skipping(f"skip_incomplete = true in '{job.file}'"):
        X = _numbers(table, inputs, job.data, missing_ok=False)
    Y = _numbers(table, job.outputs, job.data, missing_ok=True)
    n_incomplete, n_blank = len(whole) - len(table), count_blank_rows(job.data)
    return TableRows(X, Y, other_columns, table.index.to_numpy(), n_incomplete, n_blank)


def read_model_rows(model: ConstrainedBNNRegressor, path: Path, skip_incomplete: bool = False) -> TableRows:
    """Read the columns that a fitted model needs of a table: inputs, known columns and outputs.

    Args:
        model: A fitted model.
        path: The table.
        skip_incomplete: Leave out rows in which an input is missing.
    Returns: Frames for a model that was fitted with frames, otherwise arrays; no other columns.
    Raises: TableError, with column and line, where an input is missing or no number, and if the table is a prediction.
    """
    from equipoise.app import tables
    from equipoise.app.report import input_names
    from equipoise.app.tables import count_blank_rows

    inputs, outputs = input_names(model), model.output_names_
    _check_measured(path, outputs)
    whole = tables.read(path, [*inputs, *outputs])
    table = tables.complete(whole, inputs, path) if skip_incomplete else whole
    check_not_empty(len(table), path)
    with suggest_skipping(SKIP_INCOMPLETE):
        X = _numbers(table, inputs, path, missing_ok=False)
    Y = _numbers(table, outputs, path, missing_ok=True)
    n_incomplete, n_blank = len(whole) - len(table), count_blank_rows(path)
    X, Y = frame_or_array(model, X), frame_or_array(model, Y)
    return TableRows(X, Y, {}, table.index.to_numpy(), n_incomplete, n_blank)


def check_not_empty(n_rows: int, path: Path) -> None:
    """Raise TableError if no complete row is left of a table.

    Args:
        n_rows: Number of complete rows.
        path: The table's file, for the message.
    """
    from equipoise.app import tables

    if not n_rows:
        rule = f"'{path.name}' must have a row in which no input is missing"
        raise tables.TableError(f"{rule}, but got none. Fill some in.")


def _check_measured(path: Path, outputs: Sequence[str]) -> None:
    """Raise TableError if a table was written by `predict`: its columns of outputs were never measured."""
    from equipoise.app import tables

    header = {*tables.header(path)}
    for name in (output for output in outputs if output in header):
        measured, moments = f"{name} measured", [f"{name} {moment}" for moment in ("std", "lower", "upper")]
        carried = measured in header and not header.isdisjoint({moments[0], "draw"})
        if carried or header.issuperset(moments):
            beside = measured if carried else moments[0]
            rule = f"'{path.name}' must hold what was measured, but got a prediction: {name!r} beside {beside!r}"
            raise tables.TableError(f"{rule}. Give a table with what was measured.")


def _numbers(table: pd.DataFrame, columns: tuple[str, ...], path: Path, missing_ok: bool) -> pd.DataFrame:
    import pandas as pd

    from equipoise.app import tables

    return pd.DataFrame(tables.numbers(table, columns, path, missing_ok=missing_ok), columns=list(columns))


# --- Rows and their places in a file ----------------------------------------------------------------------------------


@contextmanager
def locate_range_errors(path: Path, positions: Sequence[int]) -> Iterator[None]:
    """Turn the error on an input that is too far out into one that names its line in a file.

    Args:
        path: The table.
        positions: Positions in the table of the rows that are predicted, from 0.
    """
    from equipoise.app import tables
    from equipoise.app.tables import describe_rows
    from equipoise.estimator import InputRangeError

    try:
        yield
    except InputRangeError as error:
        where = f"{describe_rows([int(positions[error.row])], path)} of '{path.name}'"
        rule = f"Column {error.column!r} {error.rule}"
        raise tables.TableError(f"{rule}, but got {error.value:g} in {where}. Correct it, or drop it.") from error


def line_finder(path: Path) -> Callable[[Sequence[int]], list[int]] | None:
    """Return a function from positions of rows to lines of a text file; None for a file that has no lines."""
    from equipoise.app.tables import locate_rows, row_noun

    return partial(locate_rows, path=path) if row_noun(path) == "line" else None


# --- Tables for models and for files ----------------------------------------------------------------------------------


def frame_or_array(model: ConstrainedBNNRegressor, frame: pd.DataFrame) -> Any:
    """Return a frame as it is for a model that was fitted with frames, otherwise as an array.

    Args:
        model: The fitted model.
        frame: Columns of a table.
    """
    return frame if hasattr(model, "feature_names_in_") else frame.to_numpy()


def append_columns(frame: pd.DataFrame, columns: dict[str, Any], times: int = 1) -> pd.DataFrame:
    """Repeat each row of a table and append columns.

    Args:
        frame: The table, of `n` rows.
        columns: Values by name, `(n * times,)` each.
        times: How often each row stands in the result, one below the other.
    """
    import pandas as pd

    repeated = frame.loc[frame.index.repeat(times)] if times > 1 else frame
    return pd.concat([repeated.reset_index(drop=True), pd.DataFrame(columns)], axis=1)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 checksum of a file in hexadecimal digits. Raises TableError if it cannot be read."""
    import hashlib

    from equipoise.app.tables import TableError

    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TableError(f"'{path}' must be readable, but got: {error.strerror or error}. Check its rights.") from error
