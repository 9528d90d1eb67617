"""`equipoise check`: whether the data obey the balances of a job, and which change would make them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from equipoise.app.commands.console import format_number, print_json, print_note, print_table, print_text
from equipoise.app.commands.exit_codes import BALANCE_VIOLATED
from equipoise.app.commands.incomplete_rows import diagnosis_by_position
from equipoise.app.commands.row_counts import omission_sentences
from equipoise.app.commands.shared_options import JobFile
from equipoise.app.commands.table_rows import TableRows, read_job_rows
from equipoise.app.commands.training_job import load_training_job

if TYPE_CHECKING:
    from equipoise.app.job import Job
    from equipoise.diagnosis import BalanceFinding, Diagnosis

N_WORST = 3  # rows of each balance that are printed


def run(
    job: JobFile,
    json: Annotated[bool, typer.Option("--json", help="For programs: everything that was found, as JSON.")] = False,
) -> None:
    """Look whether the data obey the balances, before any training.

    For each balance: the residual in its own unit, a verdict, and, where it does not hold, the single change that would
    make it hold. Ends with 1 if a balance does not hold, with 2 if the job itself is wrong.
    """

    described = load_training_job(job)
    described.constraint()  # raises on wrong balances before the table is read
    diagnosis = diagnose_job(described, read_job_rows(described))
    if json:
        print_json(diagnosis.to_dict())
    else:
        _print_diagnosis(diagnosis, described)
    if not diagnosis.holds:
        raise typer.Exit(BALANCE_VIOLATED)


def diagnose_job(job: Job, rows: TableRows) -> Diagnosis:
    """Diagnose the balances of a job, if it has any, and the columns of its table.

    Args:
        job: The job.
        rows: The rows of its table.
    Returns: The diagnosis; its rows are positions in the whole table, its warnings also those on rows left out.
    """
    from equipoise.app.tables import describe_rows
    from equipoise.diagnosis import diagnose

    def row_names(selected: Sequence[int]) -> str:
        return describe_rows([int(rows.positions[row]) for row in selected], job.data)

    constraint = job.constraint()
    if constraint is None:
        diagnosis = _diagnose_columns(job, rows)
    else:
        X, Y = rows.X[list(constraint.columns)].to_numpy(), rows.Y.to_numpy()
        diagnosis = diagnose(
            constraint, X, Y, sensor_std=job.sensor_std, candidates=rows.other_columns, called=row_names
        )
    omissions = omission_sentences(rows.n_incomplete, rows.n_blank)
    warnings = (*_few_rows(job, rows), *omissions, *diagnosis.warnings)
    return diagnosis_by_position(dataclasses.replace(diagnosis, warnings=warnings), rows.positions)


def _diagnose_columns(job: Job, rows: TableRows) -> Diagnosis:
    """Diagnose the columns of a job without balances."""
    from equipoise.diagnosis import (
        MAX_LISTED_ROWS,
        Diagnosis,
        column_warnings,
        copy_warnings,
        diagnose_column,
        duplicated_rows,
    )

    n_rows, table = len(rows.Y), {**rows.X, **rows.Y}
    names_by_role = {"input": job.inputs, "known": job.known, "output": job.outputs}
    roles = ((name, role) for role, names in names_by_role.items() for name in names)
    columns = tuple(diagnose_column(name, role, table[name].to_numpy()) for name, role in roles)
    repeated = duplicated_rows([column.to_numpy() for column in table.values()])
    warnings = [text for column in columns for text in column_warnings(column, n_rows)]
    warnings += copy_warnings({name: column.to_numpy() for name, column in table.items()})
    positions = tuple(map(int, repeated[:MAX_LISTED_ROWS]))
    return Diagnosis((), columns, n_rows, len(repeated), positions, None, tuple(warnings))


def _few_rows(job: Job, rows: TableRows) -> Iterator[str]:
    if len(rows.Y) < len(job.outputs):
        count = "1 row" if len(rows.Y) == 1 else f"{len(rows.Y)} rows"
        yield f"'{job.data.name}' has {count} for {len(job.outputs)} outputs: too few to learn from."


# --- What is printed --------------------------------------------------------------------------------------------------


class RowNumbers(NamedTuple):
    """The word for rows of a file, "line" or "row", and the number of each by its position."""

    noun: str
    by_position: dict[int, int]


def _print_diagnosis(diagnosis: Diagnosis, job: Job) -> None:
    from equipoise.app.tables import locate_rows, row_noun

    worst = [row.row for balance in diagnosis.balances for row in balance.worst_rows[:N_WORST]]
    by_position = dict(zip(worst, locate_rows(worst, job.data), strict=True)) if worst else {}
    numbers = RowNumbers(row_noun(job.data), by_position)
    header = ["balance", "verdict", "unit", "residual mean", "sd", "beside its terms", "largest", f"in {numbers.noun}"]
    if diagnosis.balances:
        cells = [_balance_cells(balance, numbers) for balance in diagnosis.balances]
        print_table(f"{diagnosis.n_rows} rows", header, cells, left=3)
    else:
        print_text("The job has no balances; equipoise init finds those that hide in the data.")
    for balance in diagnosis.balances:
        for text in _balance_lines(balance, numbers, job):
            print_text(text)
    for warning in diagnosis.remarks:
        print_note(warning)


def _balance_cells(balance: BalanceFinding, numbers: RowNumbers) -> list[str]:
    worst = balance.worst_rows[0] if balance.worst_rows else None
    return [
        balance.name,
        balance.verdict,
        balance.unit or "",
        format_number(balance.mean),
        format_number(balance.std),
        _format_share(balance.relative),
        format_number(None if worst is None else worst.residual),
        "" if worst is None else str(numbers.by_position[worst.row]),
    ]


def _balance_lines(balance: BalanceFinding, numbers: RowNumbers, job: Job) -> Iterator[str]:
    """Yield the lines on a balance: equation, verdict, worst rows, and the repair with its line of the job file."""
    from equipoise.app.job import toml_line
    from equipoise.diagnosis import HOLDS_TO_ROUNDING

    yield f"{balance.name}: {balance.equation}"
    yield f"  {balance.verdict}: {balance.reason}"
    if balance.worst_rows and balance.verdict != HOLDS_TO_ROUNDING:
        yield f"  worst rows: {', '.join(_worst_rows(balance, numbers))}"
    if balance.repair is not None:
        yield f"  to repair it, {balance.repair.message}"
        yield f"  {toml_line(balance.name, balance.repair.equation)}"
        if (column := balance.repair.column) is not None and column not in job.columns:
            yield f"  and put {column!r} into known, or into outputs if it is to be predicted"


def _worst_rows(balance: BalanceFinding, numbers: RowNumbers) -> Iterator[str]:
    for row in balance.worst_rows[:N_WORST]:
        residual = f"{format_number(row.residual)} {balance.unit or ''}".strip()
        share = _format_share(abs(row.relative))
        yield f"{numbers.noun} {numbers.by_position[row.row]} ({residual}, {share} of its terms)"


def _format_share(share: float | None) -> str:
    return "–" if share is None else f"{format_number(100 * share, 2)} %"
