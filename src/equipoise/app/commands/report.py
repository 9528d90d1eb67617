"""`equipoise report`: one self-contained page on what a model learned, and on its predictions for a table."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.app.commands.console import is_interactive, print_text
from equipoise.app.commands.fit import FitOptions
from equipoise.app.commands.incomplete_rows import findings_by_position
from equipoise.app.commands.row_counts import RowCounts
from equipoise.app.commands.shared_options import (
    SKIP_INCOMPLETE,
    DataTable,
    Device,
    ModelFile,
    SkipIncomplete,
    check_output,
)
from equipoise.app.commands.table_rows import line_finder, locate_range_errors, read_model_rows
from equipoise.errors import check_device

if TYPE_CHECKING:
    from equipoise.artifact import Description


def run(
    model: ModelFile,
    data: DataTable,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page; beside the model by default.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Its title.")] = None,
    device: Device = None,
    skip_incomplete: SkipIncomplete = False,
) -> None:
    """Write one HTML page: predictions, calibration, balances, tolerances, and where the uncertainty comes from.

    It opens offline and prints well. Rows that were not trained on say more than others.
    """
    from equipoise.app.commands.open_model import open_model
    from equipoise.app.report import findings, render, report
    from equipoise.artifact import model_file as artifact

    target = output or model.with_suffix(".html")
    check_output(target, model, data)
    description = artifact.describe(model)
    check_device(device)
    loaded = open_model(model, device)
    rows = read_model_rows(loaded, data, skip_incomplete)
    with locate_range_errors(data, rows.positions):
        evidence = findings(loaded, rows.X, rows.Y, progress=is_interactive())
    evidence = findings_by_position(evidence, rows.positions) if rows.n_incomplete else evidence
    page = report(
        evidence,
        title=title or f"{model.stem}: what was learned",
        job=description.job,
        commands=[
            *_fit_command(description, model),
            _report_command(model, data, skip_incomplete, output=target, title=title, device=device),
        ],
        notes=_page_notes(description, model, data),
        lines=line_finder(data),
    )
    content = render(page).encode()
    artifact.write(target, lambda file: file.write(content))
    RowCounts.of(loaded, rows.X, n_incomplete=rows.n_incomplete, n_blank=rows.n_blank).print_notes(loaded)
    print_text(f"{target}: {len(content) / 1e6:.1f} MB")


def _page_notes(description: Description, model: Path, data: Path) -> dict[str, Any]:
    """Return what the page says of its sources: model file, table, the data and the software of the training."""
    notes: dict[str, Any] = {"model file": model.name, "table": data.name}
    known = ("data", "data_sha256", "rows", "rows left out")
    notes |= {f"trained on: {key}": value for key, value in description.notes.items() if key in known}
    if description.notes.get("quick"):
        first_look = "fit --quick, a first look: a network and epochs of its own, not those of the job file"
        notes["trained on: how"] = first_look
    versions = ", ".join(f"{name} {version}" for name, version in description.versions.items())
    return {**notes, "trained with": versions}


def _fit_command(description: Description, model: Path) -> list[str]:
    """Return the command line that makes the model again, as a list of one; an empty list if no command made it."""
    notes: dict[str, Any] = description.notes
    if description.job is None or "quick" not in notes:
        return []
    job = os.path.normpath(model.parent / notes.get("job file", f"{model.stem}.toml"))
    seed = description.configuration.random_state
    options = FitOptions(seed, notes["quick"], notes.get("device"), notes.get("processes", 1))
    return [options.command(Path(job), model)]


def _report_command(model: Path, data: Path, skip_incomplete: bool, **options: object) -> str:
    """Return the command line that makes the page again; options that are None are left out."""
    words = [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
    words += [SKIP_INCOMPLETE] if skip_incomplete else []
    return shlex.join(["equipoise", "report", str(model), str(data), *words])
