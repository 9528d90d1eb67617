"""`python -m equipoise.rivals.comparison runs/*/compare.json -o docs/comparison.md`: a page of existing results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from equipoise.data import write_atomically
from equipoise.rivals.comparison.comparison import Comparison
from equipoise.rivals.comparison.document import page
from equipoise.rivals.comparison.plotting import figure

FIGURES = "figures/compare-"


def write_page(
    results: Annotated[list[Path], typer.Argument(help="Files compare.json, of different cases.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page.")],
    reading: Annotated[Path | None, typer.Option(help="Markdown to put before the tables.")] = None,
) -> None:
    """Write one page of one or several comparisons, with a figure for each case beside it."""
    comparison = Comparison.merged([Comparison.load(path) for path in results])
    text = page(comparison, "" if reading is None else reading.read_text("utf-8"), FIGURES)
    drawings = {f"{FIGURES}{case.name}.svg": figure(comparison, case.name) for case in comparison.cases}
    (output.parent / FIGURES).parent.mkdir(parents=True, exist_ok=True)
    for place, content in {**drawings, output.name: text}.items():
        write_atomically(output.parent / place, lambda file, content=content: file.write(content.encode()))


if __name__ == "__main__":
    typer.run(write_page)
