"""Arguments and options that several commands share, and the checks of their values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JobFile = Annotated[Path, typer.Argument(help="The job file.", show_default=False)]
ModelFile = Annotated[Path, typer.Argument(help="The model file.", show_default=False)]
DataTable = Annotated[Path, typer.Argument(help="A table with inputs and outputs.", show_default=False)]
Device = Annotated[str | None, typer.Option(help="Where torch computes, for instance cuda.")]
SKIP_INCOMPLETE = "--skip-incomplete"
SkipIncomplete = Annotated[bool, typer.Option(SKIP_INCOMPLETE, help="Leave out rows in which an input is missing.")]


def check_output(output: Path, *sources: Path) -> None:
    """Raise TableError if the output of a command is one of the files that it reads.

    Args:
        output: The file to be written.
        sources: The files that are read.
    """
    from equipoise.app.tables import TableError

    if output.resolve() in (path.resolve() for path in sources):
        raise TableError(f"--output must not be a file that is read, but got '{output}'. Give another name.")
