"""The rows that a command works on: columns of a table as frames of numbers, in the order that models take them."""

from __future__ import annotations

import hashlib
import shlex
import tomllib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from equipoise.app.job import Job
    from equipoise.estimator import ConstrainedBNNRegressor


@dataclass(frozen=True)
class RowsOfTable:
    """Inputs (and known columns), outputs, and the other columns that hold numbers, row by row.

    Attributes:
        places: Positions of the rows in the table, from 0.
        left_out: How many more there are, in which an input is missing.
        passed_over: How many more there are, between the others, without any value.
    """

    X: Any
    Y: Any
    others: dict[str, Any]
    places: Any
    left_out: int
    passed_over: int


def header_of(path: Path) -> tuple[str, ...]:
    """Names of a table's columns; a single one is not enough to learn from, and nearly always a wrong delimiter."""
    from equipoise.app import tables

    names = tables.header(path)
    if len(names) == 1:
        rule = f"'{path.name}' must have several columns, but got {names[0]!r} alone"
        advice = "Separate its columns by comma, semicolon, tab or |. Delete a title above their names, if any"
        raise tables.TableError(f"{rule}. {advice}.")
    return names


def job_to_learn(path: Path) -> Job:
    """The job that a file describes, or why nothing can be learned from it: it may be that of a plant."""
    from equipoise.app.job import Job, JobError, Plant

    try:
        return Job.load(path)
    except JobError as error:
        _check_columns(path)
        try:
            Plant.load(path)
        except JobError:
            raise error from None
        line = shlex.join(["equipoise", "reconcile", str(path)])
        raise JobError(f"{error} If it is the job of a plant, use: {line}") from error


def _check_columns(path: Path) -> None:
    """Raise if a job's columns are not in its table: then what else is wrong with it may come from that."""
    from equipoise.app.job import Job, JobError
    from equipoise.app.tables import TableError, header

    try:
        said = tomllib.loads(path.read_text("utf-8-sig"))
        job = Job(**{key: said[key] for key in ("data", "inputs", "outputs", "known") if key in said})
        job._file, names = path.name, header(path.parent / job.data)
    except (OSError, ValueError, TypeError, JobError, TableError):
        return
    job.check_header(names)


def rows_of_job(job: Job) -> RowsOfTable:
    """The columns of a job's table. Raises, with column and line, where an input is missing or no number."""
    from equipoise.app import tables
    from equipoise.app.commands.gaps import hinted
    from equipoise.app.tables import count_blank_rows

    job.check_header(header_of(job.data))
    whole, known = tables.read(job.data), job.inputs + job.known
    table = tables.complete(whole, known, job.data) if job.skip_incomplete else whole
    check_left(len(table), job.data)
    sorted_out = {*job.columns}
    others = {
        str(name): column.to_numpy(dtype=float)
        for name, column in table.items()
        if name not in sorted_out and column.dtype.kind == "f"
    }
    with hinted(f"skip_incomplete = true in '{job.file}'"):
        X = _frame(table, known, job.data, missing_ok=False)
    Y = _frame(table, job.outputs, job.data, missing_ok=True)
    left_out, passed_over = len(whole) - len(table), count_blank_rows(job.data)
    return RowsOfTable(X, Y, others, table.index.to_numpy(), left_out, passed_over)


def rows_for_model(model: ConstrainedBNNRegressor, path: Path, skip: bool = False) -> RowsOfTable:
    """The columns that a fitted model needs of a table: inputs, known columns and outputs.

    Args:
        model: Fitted.
        path: The table.
        skip: Leave out rows in which an input is missing.
    """
    from equipoise.app import tables
    from equipoise.app.commands.gaps import OPTION, hinted
    from equipoise.app.report import input_names
    from equipoise.app.tables import count_blank_rows

    inputs, outputs = input_names(model), model.output_names_
    _refuse_prediction(path, outputs)
    whole = tables.read(path, [*inputs, *outputs])
    table = tables.complete(whole, inputs, path) if skip else whole
    check_left(len(table), path)
    with hinted(OPTION):
        X = _frame(table, inputs, path, missing_ok=False)
    Y = _frame(table, outputs, path, missing_ok=True)
    left_out, passed_over = len(whole) - len(table), count_blank_rows(path)
    return RowsOfTable(in_kind(model, X), in_kind(model, Y), {}, table.index.to_numpy(), left_out, passed_over)


def check_left(count: int, path: Path) -> None:
    """Raise if no row is left of a table."""
    from equipoise.app import tables

    if not count:
        rule = f"'{path.name}' must have a row in which no input is missing"
        raise tables.TableError(f"{rule}, but got none. Fill some in.")


def _refuse_prediction(path: Path, outputs: Sequence[str]) -> None:
    """Raise if a table was written by `predict`: what has the name of an output there was never measured."""
    from equipoise.app import tables

    names = {*tables.header(path)}
    for name in (each for each in outputs if each in names):
        measured, spread = f"{name} measured", [f"{name} {part}" for part in ("std", "lower", "upper")]
        carried = measured in names and not names.isdisjoint({spread[0], "draw"})
        if carried or names.issuperset(spread):
            beside = measured if carried else spread[0]
            rule = f"'{path.name}' must hold what was measured, but got a prediction: {name!r} beside {beside!r}"
            raise tables.TableError(f"{rule}. Give a table with what was measured.")


@contextmanager
def placed(path: Path, rows: Sequence[int]) -> Iterator[None]:
    """Says of an input that is too far out in which line of a file it stands; the rows are those predicted."""
    from equipoise.app import tables
    from equipoise.app.tables import describe_rows
    from equipoise.estimator import InputRangeError

    try:
        yield
    except InputRangeError as error:
        where = f"{describe_rows([int(rows[error.row])], path)} of '{path.name}'"
        rule = f"Column {error.column!r} {error.rule}"
        raise tables.TableError(f"{rule}, but got {error.value:g} in {where}. Correct it, or drop it.") from error


def in_kind(model: ConstrainedBNNRegressor, frame: pd.DataFrame) -> Any:
    """A frame for a model that was fitted with one, otherwise an array."""
    return frame if hasattr(model, "feature_names_in_") else frame.to_numpy()


def beside(frame: pd.DataFrame, told: dict[str, Any], times: int = 1) -> pd.DataFrame:
    """The columns of a table, and what is told of them, by column; `times` lines of it for each row."""
    import pandas as pd

    repeated = frame.loc[frame.index.repeat(times)] if times > 1 else frame
    return pd.concat([repeated.reset_index(drop=True), pd.DataFrame(told)], axis=1)


def tell_of_doubtful(columns: Collection[str]) -> None:
    """A remark on columns that were carried over with points of which nobody knows what they are."""
    from equipoise.app.commands.screen import remark
    from equipoise.balances import quoted_list

    if columns:
        told = "are carried over as they stand: they may separate thousands, and are read as decimal points now."
        remark(f"points in {quoted_list(sorted(columns))} {told}")


def check_output(output: Path, *read: Path) -> None:
    """Raise if a command would overwrite a file that it reads."""
    from equipoise.app.tables import TableError

    if output.resolve() in (path.resolve() for path in read):
        raise TableError(f"--output must not be a file that is read, but got '{output}'. Give another name.")


def fingerprint(path: Path) -> str:
    """Return the SHA-256 of a file, which tells whether it is the same."""
    from equipoise.app.tables import TableError

    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TableError(f"'{path}' must be readable, but got: {error.strerror or error}. Check its rights.") from error


def _frame(table: pd.DataFrame, columns: tuple[str, ...], path: Path, missing_ok: bool) -> pd.DataFrame:
    import pandas as pd

    from equipoise.app import tables

    return pd.DataFrame(tables.numbers(table, columns, path, missing_ok=missing_ok), columns=list(columns))
