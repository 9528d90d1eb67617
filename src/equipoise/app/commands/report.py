"""`equipoise report`: one self-contained page on what a model learned, for a table that it is looked at with."""

from __future__ import annotations

import os
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.app.commands import fit, gaps
from equipoise.app.commands.extent import Extent
from equipoise.app.commands.screen import is_watched, say

if TYPE_CHECKING:
    from equipoise.artifact import Description


def run(
    model: Annotated[Path, typer.Argument(help="The model file.", show_default=False)],
    data: Annotated[Path, typer.Argument(help="A table with inputs and outputs.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page; beside the model by default.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Its title.")] = None,
    device: Annotated[str | None, typer.Option(help="Where torch computes, for instance cuda.")] = None,
    skip_incomplete: gaps.Skip = False,
) -> None:
    """Write one HTML page: predictions, calibration, balances, tolerances, and where the uncertainty comes from.

    It opens offline and prints well. Rows that were not trained on say more than others.
    """
    from equipoise.app.commands.device import check_device
    from equipoise.app.commands.rows import check_output, placed, rows_for_model
    from equipoise.app.report import findings, render, report
    from equipoise.app.tables import locate_rows, row_noun
    from equipoise.artifact import model_file as artifact

    target = output or model.with_suffix(".html")
    check_output(target, model, data)
    described = artifact.describe(model)
    check_device(device)
    loaded = artifact.load(model, device)
    rows = rows_for_model(loaded, data, skip_incomplete)
    with placed(data, rows.places):
        found = findings(loaded, rows.X, rows.Y, progress=is_watched())
    found = gaps.outliers_at_places(found, rows.places) if rows.left_out else found
    notes = {"model file": model.name, "table": data.name, **{f"trained on: {k}": v for k, v in _trained(described)}}
    notes["trained with"] = ", ".join(f"{name} {version}" for name, version in described.versions.items())
    lines = partial(locate_rows, path=data) if row_noun(data) == "line" else None
    words = _words(model, data, skip_incomplete, output=target, title=title, device=device)
    heading, commands = title or f"{model.stem}: what was learned", _again(described, model, words)
    page = report(found, title=heading, job=described.job, commands=commands, notes=notes, lines=lines)
    text = render(page)
    artifact.write(target, lambda file: file.write(text.encode()))
    gaps.tell(rows.left_out, rows.passed_over)
    Extent.of(loaded, rows.X).tell(loaded)
    say(f"{target}: {len(text.encode()) / 1e6:.1f} MB")


def _trained(described: Description) -> list[tuple[str, object]]:
    """What is known of the data that the model was trained on, and how."""
    known = ("data", "data_sha256", "rows", "rows left out")
    first_look = [("how", "fit --quick, a first look: a network and epochs of its own, not those of the job file")]
    found = [(key, value) for key, value in described.notes.items() if key in known]
    return [*found, *(first_look if described.notes.get("quick") else [])]


def _again(described: Description, model: Path, words: list[str]) -> list[str]:
    """The command lines that make the model and the page again; the former only if a command made it."""
    notes: dict[str, Any] = described.notes
    report = shlex.join(["equipoise", "report", *words])
    if described.job is None or "quick" not in notes:
        return [report]
    job = os.path.normpath(model.parent / notes.get("job file", f"{model.stem}.toml"))
    made = fit.line(
        Path(job),
        model,
        described.configuration.random_state,
        notes["quick"],
        notes.get("device"),
        notes.get("processes", 1),
    )
    return [made, report]


def _words(model: Path, data: Path, skip_incomplete: bool, **options: object) -> list[str]:
    """What was said to this command."""
    said = [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
    return [str(model), str(data), *said, *(["--skip-incomplete"] if skip_incomplete else [])]
