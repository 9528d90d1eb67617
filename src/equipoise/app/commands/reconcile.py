"""`equipoise reconcile`: measured values of any number of rows made to obey their balances, and who lies."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.app.commands import gaps
from equipoise.app.commands.screen import is_watched, number, say, table

if TYPE_CHECKING:
    from equipoise.app.commands.measured import MeasuredTable
    from equipoise.app.commands.reconcilers import Reconciler
    from equipoise.reconciliation import Logbook


def run(
    job: Annotated[Path, typer.Argument(help="The job file.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to: csv, tsv or parquet.", show_default=False)],
    data: Annotated[Path | None, typer.Argument(help="The measured table; that of the job by default.")] = None,
    report: Annotated[Path | None, typer.Option(help="One HTML page on what was found.")] = None,
    time: Annotated[str | None, typer.Option(help="The column that says when a row was measured.")] = None,
    level: Annotated[float, typer.Option(help="Probability of intervals, and confidence level of tests.")] = 0.95,
    model: Annotated[Path | None, typer.Option(help="A model file: reconcile with what it predicts, too.")] = None,
) -> None:
    """Adjust what was measured as little as its errors allow, so that it obeys the balances, and say who lies.

    The job's [sensors] say how large errors are; inputs without one are exact, and empty cells were not measured. The
    table keeps its columns and gets, for each variable, what is reconciled; for each row the global test, and the
    sensor or balance that is most suspect. It is read and written piece by piece. With a model (--model), what it
    predicts from the inputs counts as well, and sensors that the job says nothing of are those that it learned.
    """
    from equipoise.app.commands.reconcilers import Classical, WithModel, added_columns
    from equipoise.app.job import Plant
    from equipoise.reconciliation import checked_level

    checked_level(level)
    plant = Plant.load(job)
    source = data or plant.data
    _check_targets(output, report, job, source, *filter(None, [model]))
    reconciler = WithModel.load(plant, model, level) if model else Classical.of_plant(plant, level)
    measured = reconciler.table(source, time)
    measured.check_header(added_columns(measured.outputs))
    log = _write(output, report, measured, reconciler)
    _show(log)
    say(f"{output}: {log.totals.rows} rows")
    if report:
        say(f"{report}: {report.stat().st_size / 1e6:.1f} MB")


def _check_targets(output: Path, report: Path | None, *read: Path) -> None:
    """Raise if a file would be overwritten that is read, or cannot be written."""
    from equipoise.app.commands.rows import check_output
    from equipoise.app.tables import TableError

    check_output(output, *read)
    if report is None:
        return
    if report.resolve() in (path.resolve() for path in (output, *read)):
        raise TableError(f"--report must not be a file that is read or written, but got '{report}'. Give another name.")
    if report.is_dir() or not report.parent.is_dir():
        raise TableError(f"--report must be a file in a folder that exists, but got '{report}'. Give another name.")


def _write(output: Path, report: Path | None, measured: MeasuredTable, reconciler: Reconciler) -> Logbook:
    """Write table and page. The page is written before the table is moved to its place: both appear, or none."""
    from equipoise.app.tables import TableWriter

    with TableWriter(output) as written:
        log = _reconciled(written, measured, reconciler)
        if report is not None:
            _write_page(report, _page(log, measured))
    return log


def _write_page(report: Path, page: bytes) -> None:
    from equipoise.app.tables import TableError
    from equipoise.data import write_atomically

    try:
        write_atomically(report, lambda file: file.write(page))
    except OSError as error:
        rule = f"--report must be a file that can be written, but got '{report}': {error.strerror or error}"
        raise TableError(f"{rule}. Give another name.") from error


def _reconciled(written: Any, measured: MeasuredTable, reconciler: Reconciler) -> Logbook:
    from tqdm.auto import tqdm

    from equipoise.app.commands.rows import beside, tell_of_doubtful
    from equipoise.app.tables import ColumnConverter, count_blank_rows

    total: Any = None
    converter = ColumnConverter(measured.path, written.path)
    with tqdm(desc="reconcile", unit="row", disable=not is_watched()) as bar:
        for piece in measured.pieces():
            columns, log = reconciler.of(piece)
            written.write(beside(converter.convert(piece.frame), columns))
            total = log if total is None else total + log
            bar.update(len(piece.frame))
    tell_of_doubtful(converter.doubtful)
    gaps.tell(0, count_blank_rows(measured.path))
    return total


def _page(log: Logbook, measured: MeasuredTable) -> bytes:
    from equipoise.app.report import plant_report, render
    from equipoise.app.tables import locate_rows, row_noun

    notes = {"table": measured.path.name, "job file": measured.plant.file}
    title = f"{measured.path.stem}: measured and reconciled"
    lines = partial(locate_rows, path=measured.path) if row_noun(measured.path) == "line" else None
    return render(plant_report(log, title=title, job=measured.plant.text, notes=notes, lines=lines)).encode()


# --- What is shown ----------------------------------------------------------------------------------------------------


VARIABLES = ["variable", "class", "readings", "measured", "±", "reconciled", "±", "adjusted"]
VARIABLES += ["alarms", "suspect in", "error"]


def _show(log: Logbook) -> None:
    from equipoise.reconciliation import summary_sentences

    percent = f"{100 * log.level:g} %"
    table(
        f"Variables: means over their readings and over {log.totals.rows} rows, ± half of the {percent} interval",
        VARIABLES,
        [_variable(row) for row in log.sensors().reset_index().to_dict("records")],
        left=2,
    )
    table(
        "Balances: residuals as measured, errors ± as above",
        ["balance", "unit", "tolerance", "residual", "sd", "alarms", "suspect in", "error"],
        [_balance(row) for row in log.balances().reset_index().to_dict("records")],
        left=2,
    )
    for sentence in summary_sentences(log):
        say(sentence)


def _variable(row: dict[Any, Any]) -> list[str]:
    digits = {"measured": 5, "± before": 3, "reconciled": 5, "± after": 3, "adjustment": 3}
    values = [number(row[column], most) for column, most in digits.items()]
    return [row["variable"], row["class"], f"{row['readings']}", *values, f"{row['alarms']}", *_suspicion(row)]


def _balance(row: dict[Any, Any]) -> list[str]:
    values = [number(row[column]) for column in ("tolerance", "residual", "residual std")]
    alarms = f"{row['nodal alarms']}" if isinstance(row["nodal alarms"], int) else "–"
    return [row["balance"], row["unit"], *values, alarms, *_suspicion(row)]


def _suspicion(row: dict[Any, Any]) -> list[str]:
    """In how many rows something is the suspect, and of which error."""
    spread = "" if math.isnan(row["± error"]) else f" ± {number(row['± error'], 2)}"
    return [f"{row['suspect']}", number(row["error"]) + spread]
