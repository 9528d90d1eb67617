"""Columns of a table as an array that stays in a file: for tables that do not fit into memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from equipoise.app.tables.cells import Array, numbers
from equipoise.app.tables.files import PathLike, TableError, existing
from equipoise.app.tables.reading import chunks


@contextmanager
def memory_mapped(
    path: PathLike, columns: Sequence[str], folder: PathLike | None = None, *, rows: int = 65_536
) -> Iterator[Array]:
    """The named columns as an array of float64, NaN where missing, that is read from a temporary file when needed.

    The file has no name and is gone with the context, however that ends. It takes 8 bytes for each row and column;
    memory holds one piece of the table.

    Args:
        path: As in `chunks`.
        columns: Their names, in the order of the array's columns; parts of it stay in the file too.
        folder: For the temporary file; that of the table by default, since those of the system are often in memory.
        rows: The most rows of a piece.
    Raises: TableError, with column, line and value, or because the disk is full.
    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "cell.csv").write_text("t,V,I\\n0,3.5,1\\n1,3.4,\\n")
        ...     with memory_mapped(Path(folder, "cell.csv"), ["V", "I"]) as table:
        ...         np.asarray(table)
        array([[3.5, 1. ],
               [3.4, nan]])
    """
    path = existing(path)
    if not columns:
        raise TableError(f"columns must name some of '{path.name}', but got none. Give one at least.")
    place = path.parent if folder is None else Path(folder)
    with ExitStack() as stack:
        with _room_in(place, path):
            file: Any = stack.enter_context(tempfile.TemporaryFile(dir=place, buffering=0))
            count = _write(file, path, columns, rows)
        yield np.memmap(file, np.float64, "r", shape=(count, len(columns)))


def _write(file: Any, path: Path, columns: Sequence[str], rows: int) -> int:
    """Append all rows; returns how many."""
    count = 0
    for piece in chunks(path, rows, columns=columns, text=True):
        left = memoryview(numbers(piece, columns, path, missing_ok=True).data).cast("B")
        while left:  # what has no buffer of its own may take less than it is given
            left = left[file.write(left) :]
        count += len(piece)
    return count


@contextmanager
def _room_in(folder: Path, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # what cannot be read is a TableError by now
        rule = f"The folder '{folder}' must have room for the numbers of '{path.name}'"
        raise TableError(f"{rule}, but got: {error.strerror or error}. Give another folder.") from error
