"""`equipoise check`: do the data obey the balances of a job, and what would make them?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from equipoise.app.commands.screen import as_json, number, remark, say, table

if TYPE_CHECKING:
    from equipoise.app.commands.rows import RowsOfTable
    from equipoise.app.job import Job
    from equipoise.diagnosis import BalanceFinding, Diagnosis

WORST = 3  # rows of each balance that are shown


def run(
    job: Annotated[Path, typer.Argument(help="The job file.", show_default=False)],
    json: Annotated[bool, typer.Option("--json", help="For programs: everything that was found, as JSON.")] = False,
) -> None:
    """Look whether the data obey the balances, before any training.

    For each balance: the residual in its own unit, a verdict, and, where it does not hold, the single change that would
    make it hold. Ends with 1 if a balance does not hold, with 2 if the job itself is wrong.
    """
    from equipoise.app.commands.rows import job_to_learn, rows_of_job

    described = job_to_learn(job)
    described.constraint()  # complains of the job before the table is read
    found = diagnosis_of(described, rows_of_job(described))
    if json:
        as_json(found.to_dict())
    else:
        _show(found, described)
    if not found.holds:
        raise typer.Exit(1)


def diagnosis_of(job: Job, rows: RowsOfTable) -> Diagnosis:
    """What the data say of the balances of a job, if it has any, and what is the matter with its table."""
    from equipoise.app.commands.gaps import at_places, in_sentences
    from equipoise.app.tables import describe_rows
    from equipoise.diagnosis import diagnose

    constraint = job.constraint()
    if constraint is None:
        found = _without_balances(job, rows)
    else:
        X, Y = rows.X[list(constraint.columns)].to_numpy(), rows.Y.to_numpy()
        found = diagnose(
            constraint,
            X,
            Y,
            sensor_std=job.sensor_std,
            candidates=rows.others,
            called=lambda some: describe_rows([int(rows.places[row]) for row in some], job.data),
        )
    warnings = (*_few_rows(job, rows), *in_sentences(rows.left_out, rows.passed_over), *found.warnings)
    return at_places(dataclasses.replace(found, warnings=warnings), rows.places)


def _without_balances(job: Job, rows: RowsOfTable) -> Diagnosis:
    from equipoise.diagnosis import (
        MAX_LISTED_ROWS,
        Diagnosis,
        column_warnings,
        copy_warnings,
        diagnose_column,
        duplicated_rows,
    )

    n_rows, table = len(rows.Y), {**rows.X, **rows.Y}
    roles = {"input": job.inputs, "known": job.known, "output": job.outputs}
    named = ((name, role) for role, names in roles.items() for name in names)
    columns = tuple(diagnose_column(name, role, table[name].to_numpy()) for name, role in named)
    repeated = duplicated_rows([column.to_numpy() for column in table.values()])
    warnings = [text for column in columns for text in column_warnings(column, n_rows)]
    warnings += copy_warnings({name: column.to_numpy() for name, column in table.items()})
    positions = tuple(map(int, repeated[:MAX_LISTED_ROWS]))
    return Diagnosis((), columns, n_rows, len(repeated), positions, None, tuple(warnings))


def _few_rows(job: Job, rows: RowsOfTable) -> Iterator[str]:
    if len(rows.Y) < len(job.outputs):
        count = "1 row" if len(rows.Y) == 1 else f"{len(rows.Y)} rows"
        yield f"'{job.data.name}' has {count} for {len(job.outputs)} outputs: too few to learn from."


def _show(found: Diagnosis, job: Job) -> None:
    from equipoise.app.tables import locate_rows, row_noun

    worst = [row.row for balance in found.balances for row in balance.worst_rows[:WORST]]
    where = Places(row_noun(job.data), dict(zip(worst, locate_rows(worst, job.data), strict=True)) if worst else {})
    header = ["balance", "verdict", "unit", "residual mean", "sd", "beside its terms", "largest", f"in {where.noun}"]
    if found.balances:
        table(f"{found.n_rows} rows", header, [_line(balance, where) for balance in found.balances], left=3)
    else:
        say("The job has no balances; equipoise init finds those that hide in the data.")
    for balance in found.balances:
        for text in _paragraph(balance, where, job):
            say(text)
    for warning in found.remarks:
        remark(warning)


class Places(NamedTuple):
    """What rows are called, and where those that are listed stand in their file."""

    noun: str
    by_row: dict[int, int]


def _line(balance: BalanceFinding, where: Places) -> list[str]:
    worst = balance.worst_rows[0] if balance.worst_rows else None
    return [
        balance.name,
        balance.verdict,
        balance.unit or "",
        number(balance.mean),
        number(balance.std),
        _share(balance.relative),
        number(None if worst is None else worst.residual),
        "" if worst is None else str(where.by_row[worst.row]),
    ]


def _paragraph(balance: BalanceFinding, where: Places, job: Job) -> Iterator[str]:
    from equipoise.app.job import toml_line
    from equipoise.diagnosis import HOLDS_TO_ROUNDING

    yield f"{balance.name}: {balance.equation}"
    yield f"  {balance.verdict}: {balance.reason}"
    if balance.worst_rows and balance.verdict != HOLDS_TO_ROUNDING:
        yield f"  worst rows: {', '.join(_worst_rows(balance, where))}"
    if balance.repair is not None:
        yield f"  to repair it, {balance.repair.message}"
        yield f"  {toml_line(balance.name, balance.repair.equation)}"
        if (column := balance.repair.column) is not None and column not in job.columns:
            yield f"  and put {column!r} into known, or into outputs if it is to be predicted"


def _worst_rows(balance: BalanceFinding, where: Places) -> Iterator[str]:
    for row in balance.worst_rows[:WORST]:
        size = f"{number(row.residual)} {balance.unit or ''}".strip()
        yield f"{where.noun} {where.by_row[row.row]} ({size}, {_share(abs(row.relative))} of its terms)"


def _share(relative: float | None) -> str:
    return "–" if relative is None else f"{number(100 * relative, 2)} %"
