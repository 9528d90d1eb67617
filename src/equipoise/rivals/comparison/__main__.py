"""`python -m equipoise.rivals.comparison runs/*/compare.json -o docs/comparison.md`: a page of existing results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from equipoise.app.bug_report import WRONG_INPUT, exit_code_of, print_error
from equipoise.data import write_atomically
from equipoise.rivals.cases.case import CaseError
from equipoise.rivals.comparison.comparison import Comparison
from equipoise.rivals.comparison.document import page
from equipoise.rivals.comparison.plotting import figure

FIGURES = "figures/compare-"


def write_page(
    results: Annotated[list[Path], typer.Argument(help="Files compare.json, of different cases.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page.")],
    reading: Annotated[Path | None, typer.Option(help="Markdown to put before the tables.")] = None,
) -> None:
    """Write one page of one or several comparisons, with a figure for each case beside it.

    Args:
        results: Files compare.json, of different cases.
        output: The page to write; figures come into the folder `figures` beside it.
        reading: File with Markdown to put before the tables.
    Raises: CaseError, if a file is not readable, holds no comparison, or cannot be joined to the others.
    """
    comparison = Comparison.merged([Comparison.load(path) for path in results])
    text = page(comparison, "" if reading is None else _text_of(reading), FIGURES)
    drawings = {f"{FIGURES}{case.name}.svg": figure(comparison, case.name) for case in comparison.cases}
    folder = (output.parent / FIGURES).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CaseError(f"The folder '{folder}' must be writable, but got: {error.strerror or error}.") from error
    for place, content in {**drawings, output.name: text}.items():
        write_atomically(output.parent / place, lambda file, content=content: file.write(content.encode()))


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CaseError(f"--reading must be a readable text, but got '{path}' ({error}). Give another.") from error


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code: 0; 2 or 70 after an error, as of `exit_code_of`.

    Args:
        arguments: The command line without the program's name; by default that of the process.
    """
    words = sys.argv[1:] if arguments is None else arguments
    program = "python -m equipoise.rivals.comparison"
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(write_page)
    try:
        return int(typer.main.get_command(app)(words, prog_name=program, standalone_mode=False) or 0)
    except TyperException as error:  # in the command line itself: an unknown option, a missing argument
        print_error(getattr(error, "format_message", lambda: str(error))(), program)
        return WRONG_INPUT
    except Exception as error:
        return exit_code_of(error, words, program=program)


if __name__ == "__main__":
    sys.exit(main())
