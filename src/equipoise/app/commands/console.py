"""What commands print: results on standard output; notes, errors, progress on standard error. Plain text in pipes."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from equipoise.errors import EquipoiseError

PIPED_WIDTH = 160
COLUMN_GAP = 3  # characters between two columns of a table
LARGEST_PLAIN = 1e6  # from which numbers are written with an exponent


class OutputError(EquipoiseError, OSError):
    """Standard output cannot be written, for instance because it goes to a file on a full disk."""


# --- Standard output --------------------------------------------------------------------------------------------------


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
    """Print a table; on a terminal that is too narrow for it, the columns that do not fit follow in a table below.

    Args:
        title: The line above the table.
        header: Names of the columns.
        rows: Cells of each row, one for each column.
        left: How many of the first columns are aligned to the left; the others are aligned to the right.
    Raises: OutputError, if standard output cannot be written.
    """
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    console = _console()
    sys.stdout.flush()  # on a broken pipe rich itself would end the process, also for what was printed before
    for columns in _fitting_columns([header, *rows], console.width if sys.stdout.isatty() else sys.maxsize):
        table = Table(title=title, box=SIMPLE, title_justify="left", pad_edge=False)
        for i in columns:
            table.add_column(Text(header[i]), justify="left" if i < left else "right", overflow="fold")
        for row in rows:
            table.add_row(*(Text(row[i]) for i in columns))
        with console.capture() as capture:
            console.print(table)
        print_text("\n".join(line.rstrip() for line in capture.get().split("\n")), end="")


def print_text(text: str, end: str = "\n") -> None:
    """Print a text on standard output as it is: nothing in it is taken for markup.

    Args:
        text: The text.
        end: Characters that follow it.
    Raises: OutputError, if it cannot be written.
    """
    with _output_errors():
        print(text, end=end)


def print_json(values: Any) -> None:
    """Print values as JSON for programs; NaN and infinity, which JSON does not have, become null."""
    from pydantic_core import to_json

    print_text(to_json(values, indent=2, inf_nan_mode="null", fallback=lambda scalar: scalar.item()).decode())


def flush_output() -> None:
    """Write what is still buffered for standard output.

    Raises: OutputError, if it cannot be written, for instance to a full disk.
    """
    with _output_errors():
        sys.stdout.flush()


@contextmanager
def _output_errors() -> Iterator[None]:
    """Raise OutputError where the system refuses to write; a broken pipe ends the command silently in the caller."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        rule = "Standard output must be writable"
        raise OutputError(f"{rule}, but got: {error.strerror or error}. Make room, or write elsewhere.") from error


def _console() -> Any:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False, soft_wrap=False)


def _fitting_columns(lines: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """Split the columns of a table into groups that fit into a width; each group repeats the first column.

    Args:
        lines: The cells of header and rows.
        width: Characters in a line of the terminal. A group of two columns may exceed it.
    Returns: Positions of the columns of each group.

    Example:
        >>> lines = [["name", "first", "second"], ["a", "1.00", "2.00"]]
        >>> _fitting_columns(lines, 80), _fitting_columns(lines, 16)
        ([[0, 1, 2]], [[0, 1], [0, 2]])
    """
    widths = [max(map(len, column)) + COLUMN_GAP for column in zip(*lines, strict=True)]
    groups = [[0]]
    for i in range(1, len(widths)):
        if len(groups[-1]) > 1 and sum(widths[j] for j in [*groups[-1], i]) > width:
            groups.append([0])
        groups[-1].append(i)
    return groups


# --- Standard error ---------------------------------------------------------------------------------------------------


def print_note(text: str) -> None:
    """Print a note on standard error: something that users should know, though the command goes on."""
    print(f"note: {text}", file=sys.stderr)


def is_interactive() -> bool:
    """Return whether standard error, where progress is shown, is a terminal."""
    return sys.stderr.isatty()


def progress_bar(title: str) -> Any:
    """Return a progress bar that counts rows on standard error, and shows nothing unless that is a terminal.

    Args:
        title: The word before the bar.
    Returns: A context manager whose `update(n_rows)` moves the bar on.
    """
    from tqdm.auto import tqdm

    return tqdm(desc=title, unit="row", disable=not is_interactive())


def replace_unencodable() -> None:
    """Make standard streams of a small character set, such as pipes of Windows, print ? for characters they lack."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


# --- Numbers ----------------------------------------------------------------------------------------------------------


def format_number(value: float | None, digits: int = 3) -> str:
    """Format a number with so many significant digits; a dash stands for None and NaN.

    Args:
        value: The number, None or NaN.
        digits: Number of significant digits.
    Example:
        >>> format_number(0.0123456), format_number(None), format_number(12.0), format_number(-2551.3)
        ('0.0123', '–', '12', '-2550')
        >>> format_number(2.5e7)
        '2.5e+07'
    """
    if value is None or math.isnan(value):
        return "–"
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e+" in text and abs(value) < LARGEST_PLAIN else text


def format_percent(share: float | None) -> str:
    """Format a share as percent with one decimal; a dash stands for None and NaN.

    Example:
        >>> format_percent(0.9512)
        '95.1 %'
    """
    return "–" if share is None or math.isnan(share) else f"{100 * share:.1f} %"
