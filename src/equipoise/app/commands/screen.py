"""What commands show: tables and remarks on standard output, problems on standard error; plain text when piped."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from equipoise.errors import EquipoiseError

PIPED_WIDTH = 160
LARGEST_PLAIN = 1e6  # from which numbers are written with an exponent


class OutputError(EquipoiseError, OSError):
    """Standard output cannot be written, for instance because it goes to a file on a full disk."""


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
    """Show a table; all but the first `left` columns are aligned to the right.

    What a narrow terminal has no room for follows below, beside the first column again.
    """
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    console = _console()
    sys.stdout.flush()  # where nobody reads on, rich itself would end the process, also for what was said before
    for columns in _side_by_side([header, *rows], console.width if sys.stdout.isatty() else sys.maxsize):
        shown = Table(title=title, box=SIMPLE, title_justify="left", pad_edge=False)
        for i in columns:
            shown.add_column(Text(header[i]), justify="left" if i < left else "right", overflow="fold")
        for row in rows:
            shown.add_row(*(Text(row[i]) for i in columns))
        with console.capture() as drawn:
            console.print(shown)
        _print("\n".join(line.rstrip() for line in drawn.get().split("\n")), end="")


def end_output() -> None:
    """Write what is still buffered for standard output.

    Raises: OutputError, if it cannot be written, for instance to a full disk.
    """
    with _writable():
        sys.stdout.flush()


def _print(text: str, end: str = "\n") -> None:
    with _writable():
        print(text, end=end)


@contextmanager
def _writable() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # nobody reads on: the caller ends the command without a word
        raise
    except OSError as error:
        rule = "Standard output must be writable"
        raise OutputError(f"{rule}, but got: {error.strerror or error}. Make room, or write elsewhere.") from error


def _side_by_side(lines: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """Which columns of a table to show together, so that they are no wider than `width`, as far as that can be.

    Example:
        >>> lines = [["name", "first", "second"], ["a", "1.00", "2.00"]]
        >>> _side_by_side(lines, 80), _side_by_side(lines, 16)
        ([[0, 1, 2]], [[0, 1], [0, 2]])
    """
    gap = 3
    widths = [max(map(len, column)) + gap for column in zip(*lines, strict=True)]
    parts = [[0]]
    for i in range(1, len(widths)):
        if len(parts[-1]) > 1 and sum(widths[j] for j in [*parts[-1], i]) > width:
            parts.append([0])
        parts[-1].append(i)
    return parts


def say(text: str, end: str = "\n") -> None:
    """Show a text on standard output; what looks like markup is shown as it is.

    Raises: OutputError, if it cannot be written.
    """
    _print(text, end)


def remark(text: str) -> None:
    """Something to know, on standard error."""
    print(f"note: {text}", file=sys.stderr)


def problem(text: str) -> None:
    """What went wrong, on standard error."""
    print(f"equipoise: {' '.join(text.split())}", file=sys.stderr)


def say_what_can_be_said() -> None:
    """Let standard streams of a small character set, as pipes of Windows have, show ? for what they lack."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def as_json(values: Any) -> None:
    """Values for programs; a number that JSON lacks becomes null."""
    from pydantic_core import to_json

    _print(to_json(values, indent=2, inf_nan_mode="null", fallback=lambda scalar: scalar.item()).decode())


def is_watched() -> bool:
    """Whether somebody looks at standard error, where progress is shown."""
    return sys.stderr.isatty()


def number(value: float | None, digits: int = 3) -> str:
    """
    Example:
        >>> number(0.0123456), number(None), number(12.0), number(-2551.3), number(2.5e7)
        ('0.0123', '–', '12', '-2550', '2.5e+07')
    """
    if value is None or math.isnan(value):
        return "–"
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e+" in text and abs(value) < LARGEST_PLAIN else text


def percent(share: float | None) -> str:
    """
    Example:
        >>> percent(0.9512)
        '95.1 %'
    """
    return "–" if share is None or math.isnan(share) else f"{100 * share:.1f} %"


def _console() -> Any:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False, soft_wrap=False)
