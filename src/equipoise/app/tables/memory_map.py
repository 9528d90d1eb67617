"""Columns of a table as a memory-mapped array, for tables that do not fit into memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from equipoise.app.tables.cells import Array, numbers
from equipoise.app.tables.files import PathLike, TableError, check_source
from equipoise.app.tables.reading import chunks


@contextmanager
def memory_mapped(
    path: PathLike, columns: Sequence[str], folder: PathLike | None = None, *, rows: int = 65_536
) -> Iterator[Array]:
    """Convert named columns of a table to an array in a temporary file, which is mapped into memory.

    The temporary file takes 8 bytes for each row and column. It has no name and is deleted when the `with` block ends,
    also by an error. Memory holds one piece of the table; slices of the array are memory-mapped as well.

    Args:
        path: The table's file, in any format that `chunks` reads.
        columns: Names of the columns, in the order of the array's columns.
        folder: Folder of the temporary file; by default that of the table, since the system's is often in memory.
        rows: Largest number of rows in a piece.
    Returns: A context manager; it gives a read-only float64 array, NaN where missing, shape `(n, len(columns))`.
    Raises: TableError, with column, line and value, if a cell is not a number, or if the disk is full.
    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "cell.csv").write_text("t,V,I\\n0,3.5,1\\n1,3.4,\\n")
        ...     with memory_mapped(Path(folder, "cell.csv"), ["V", "I"]) as table:
        ...         np.asarray(table)
        array([[3.5, 1. ],
               [3.4, nan]])
    """
    path = check_source(path)
    if not columns:
        raise TableError(f"columns must name some of '{path.name}', but got none. Give one at least.")
    directory = path.parent if folder is None else Path(folder)
    with ExitStack() as stack:
        with _report_full_disk(directory, path):
            file: Any = stack.enter_context(tempfile.TemporaryFile(dir=directory, buffering=0))
            count = _write(file, path, columns, rows)
        yield np.memmap(file, np.float64, "r", shape=(count, len(columns)))


def _write(file: Any, path: Path, columns: Sequence[str], rows: int) -> int:
    """Append the columns of all rows to a file, and return the number of rows."""
    count = 0
    for piece in chunks(path, rows, columns=columns, text=True):
        remaining = memoryview(numbers(piece, columns, path, missing_ok=True).data).cast("B")
        while remaining:  # an unbuffered file may write fewer bytes than asked for
            remaining = remaining[file.write(remaining) :]
        count += len(piece)
    return count


@contextmanager
def _report_full_disk(folder: Path, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # errors of reading are TableErrors by now
        rule = f"The folder '{folder}' must have room for the numbers of '{path.name}'"
        raise TableError(f"{rule}, but got: {error.strerror or error}. Give another folder.") from error
