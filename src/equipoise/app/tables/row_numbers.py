"""Numbers by which people find rows in a file: line numbers of a text table, row numbers of a parquet table."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from equipoise.app.tables.files import is_parquet
from equipoise.app.tables.text_format import count_blank_records, open_records, skip_blank


def row_noun(path: Path) -> str:
    """Return "line" for an existing text table, "row" for other tables: what people call a row of this file."""
    return "line" if path.is_file() and not is_parquet(path) else "row"


def count_blank_rows(path: Path) -> int:
    """Count the rows without any value between the other rows of a text table, which are skipped; 0 for parquet."""
    return count_blank_records(path) if row_noun(path) == "line" else 0


def locate_rows(rows: Sequence[int], path: Path) -> list[int]:
    """Return the line or row numbers in a file for rows of a table.

    Args:
        rows: Positions of the rows, from 0, in any order.
        path: The table's file. A text table is read up to the last of these rows, since blank lines and line breaks in
            cells count.
    Returns: For a text table, the line in which each row begins, as editors count; otherwise `row + 1` for each.
    """
    if row_noun(path) == "row":
        return [row + 1 for row in rows]
    lines = _line_numbers(frozenset(rows), path)
    return [lines[row] for row in rows]


def describe_rows(rows: Sequence[int], path: Path) -> str:
    """Name rows of a table in words, for messages.

    Args:
        rows: Positions of the rows, from 0.
        path: The table's file.
    Returns: A noun and numbers, such as "lines 9 and 4": lines of a text table, rows of a parquet table.

    Example:
        >>> describe_rows([4], Path("cell.parquet")), describe_rows([8, 3], Path("cell.parquet"))
        ('row 5', 'rows 9 and 4')
    """
    *most, last = map(str, locate_rows(rows, path))
    return f"{row_noun(path)}s {', '.join(most)} and {last}" if most else f"{row_noun(path)} {last}"


def _line_numbers(rows: Collection[int], path: Path) -> dict[int, int]:
    lines: dict[int, int] = {}
    with open_records(path) as reader:
        for row, record in enumerate(skip_blank(reader), start=-1):  # row -1 is the header
            if row in rows:
                lines[row] = reader.line_num - sum(cell.count("\n") for cell in record)
                if len(lines) == len(rows):
                    break
    return lines
