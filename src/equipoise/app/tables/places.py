"""Rows as people see them: lines of a text file, rows of another."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from equipoise.app.tables.dialect import filled, n_hollow, reader_of
from equipoise.app.tables.files import is_parquet


def noun(path: Path) -> str:
    """What people call a row of this file."""
    return "line" if path.is_file() and not is_parquet(path) else "row"


def n_passed_over(path: Path) -> int:
    """How many rows without any value stand between those of a table, and are passed over; none of parquet."""
    return n_hollow(path) if noun(path) == "line" else 0


def places(rows: Sequence[int], path: Path) -> list[int]:
    """Where rows of a table, counted from 0, stand in its file.

    Args:
        rows: Positions, in any order.
        path: The file: a text table is read as far as the last of them, for blank lines and line breaks in cells.
    Returns: The line in which each begins, as editors count, the header being line 1; from 1 where there are no lines.
    """
    if noun(path) == "row":
        return [row + 1 for row in rows]
    lines = _lines(frozenset(rows), path)
    return [lines[row] for row in rows]


def in_words(rows: Sequence[int], path: Path) -> str:
    """Rows as they are called in a sentence.

    Example:
        >>> in_words([4], Path("cell.parquet")), in_words([8, 3], Path("cell.parquet"))
        ('row 5', 'rows 9 and 4')
    """
    *most, last = map(str, places(rows, path))
    return f"{noun(path)}s {', '.join(most)} and {last}" if most else f"{noun(path)} {last}"


def _lines(rows: Collection[int], path: Path) -> dict[int, int]:
    found: dict[int, int] = {}
    with reader_of(path) as reader:
        for row, record in enumerate(filled(reader), start=-1):  # the header is no row
            if row in rows:
                found[row] = reader.line_num - sum(cell.count("\n") for cell in record)
                if len(found) == len(rows):
                    break
    return found
