"""`equipoise reconcile`: measured values of any number of rows made to obey their balances, and faulty sensors."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.app.commands.console import format_number, print_table, print_text, progress_bar
from equipoise.app.commands.row_counts import print_ambiguous_columns, print_omissions
from equipoise.app.commands.shared_options import JobFile, check_output
from equipoise.app.commands.table_rows import append_columns, line_finder

if TYPE_CHECKING:
    from equipoise.app.commands.measured_table import MeasuredTable
    from equipoise.app.commands.reconcilers import Reconciler
    from equipoise.app.tables import TableWriter
    from equipoise.reconciliation import Logbook


def run(
    job: JobFile,
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
    from equipoise.app.commands.reconcilers import BalanceReconciler, ModelReconciler, added_columns
    from equipoise.app.job import Plant
    from equipoise.reconciliation import checked_level

    checked_level(level)
    plant = Plant.load(job)
    source = data or plant.data
    _check_targets(output, report, job, source, *filter(None, [model]))
    reconciler = ModelReconciler.load(plant, model, level) if model else BalanceReconciler.of_plant(plant, level)
    measured = reconciler.measured_table(source, time)
    measured.check_header(added_columns(measured.outputs))
    log = _write(output, report, measured, reconciler)
    _print_log(log)
    print_text(f"{output}: {log.totals.rows} rows")
    if report:
        print_text(f"{report}: {report.stat().st_size / 1e6:.1f} MB")


def _check_targets(output: Path, report: Path | None, *sources: Path) -> None:
    """Raise TableError if table or page would replace a file that is read, or cannot be written."""
    from equipoise.app.tables import TableError

    check_output(output, *sources)
    if report is None:
        return
    if report.resolve() in (path.resolve() for path in (output, *sources)):
        raise TableError(f"--report must not be a file that is read or written, but got '{report}'. Give another name.")
    if report.is_dir() or not report.parent.is_dir():
        raise TableError(f"--report must be a file in a folder that exists, but got '{report}'. Give another name.")


def _write(output: Path, report: Path | None, measured: MeasuredTable, reconciler: Reconciler) -> Logbook:
    """Write table and page. The page is written before the table is moved to its place: both appear, or none."""
    from equipoise.app.tables import TableWriter

    with TableWriter(output) as table:
        log = _write_table(table, measured, reconciler)
        if report is not None:
            _write_page(report, _page(log, measured))
    return log


def _write_table(table: TableWriter, measured: MeasuredTable, reconciler: Reconciler) -> Logbook:
    """Write the measured table chunk by chunk with the columns that are added, and return the log of all rows."""
    from equipoise.app.tables import ColumnConverter, count_blank_rows

    total: Any = None
    converter = ColumnConverter(measured.path, table.path)
    with progress_bar("reconcile") as bar:
        for chunk in measured.chunks():
            columns, log = reconciler.reconcile(chunk)
            table.write(append_columns(converter.convert(chunk.frame), columns))
            total = log if total is None else total + log
            bar.update(len(chunk.frame))
    print_ambiguous_columns(converter.doubtful)
    print_omissions(0, count_blank_rows(measured.path))
    return total


def _write_page(report: Path, page: bytes) -> None:
    from equipoise.app.tables import TableError
    from equipoise.data import write_atomically

    try:
        write_atomically(report, lambda file: file.write(page))
    except OSError as error:
        rule = f"--report must be a file that can be written, but got '{report}': {error.strerror or error}"
        raise TableError(f"{rule}. Give another name.") from error


def _page(log: Logbook, measured: MeasuredTable) -> bytes:
    """Return the HTML page on a reconciled table, encoded."""
    from equipoise.app.report import plant_report, render

    notes = {"table": measured.path.name, "job file": measured.plant.file}
    title, lines = f"{measured.path.stem}: measured and reconciled", line_finder(measured.path)
    return render(plant_report(log, title=title, job=measured.plant.text, notes=notes, lines=lines)).encode()


# --- What is printed --------------------------------------------------------------------------------------------------


VARIABLE_HEADER = ["variable", "class", "readings", "measured", "±", "reconciled", "±", "adjusted"]
VARIABLE_HEADER += ["alarms", "suspect in", "error"]


def _print_log(log: Logbook) -> None:
    """Print a table of variables, a table of balances, and the verdicts on sensors and balances."""
    from equipoise.reconciliation import summary_sentences

    percent = f"{100 * log.level:g} %"
    print_table(
        f"Variables: means over their readings and over {log.totals.rows} rows, ± half of the {percent} interval",
        VARIABLE_HEADER,
        [_variable_cells(record) for record in log.sensors().reset_index().to_dict("records")],
        left=2,
    )
    print_table(
        "Balances: residuals as measured, errors ± as above",
        ["balance", "unit", "tolerance", "residual", "sd", "alarms", "suspect in", "error"],
        [_balance_cells(record) for record in log.balances().reset_index().to_dict("records")],
        left=2,
    )
    for sentence in summary_sentences(log):
        print_text(sentence)


def _variable_cells(record: dict[Any, Any]) -> list[str]:
    digits = {"measured": 5, "± before": 3, "reconciled": 5, "± after": 3, "adjustment": 3}
    values = [format_number(record[column], n_digits) for column, n_digits in digits.items()]
    counts = [record["variable"], record["class"], f"{record['readings']}"]
    return [*counts, *values, f"{record['alarms']}", *_suspect_cells(record)]


def _balance_cells(record: dict[Any, Any]) -> list[str]:
    values = [format_number(record[column]) for column in ("tolerance", "residual", "residual std")]
    alarms = f"{record['nodal alarms']}" if isinstance(record["nodal alarms"], int) else "–"
    return [record["balance"], record["unit"], *values, alarms, *_suspect_cells(record)]


def _suspect_cells(record: dict[Any, Any]) -> list[str]:
    """Return in how many rows a sensor or balance is the suspect, and its mean gross error with its half-width."""
    half_width = "" if math.isnan(record["± error"]) else f" ± {format_number(record['± error'], 2)}"
    return [f"{record['suspect']}", format_number(record["error"]) + half_width]
