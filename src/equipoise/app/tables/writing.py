"""Writing tables to files, piece by piece; a file appears only when it is complete."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype

from equipoise.app.tables.files import (
    DELIMITERS,
    PathLike,
    TableError,
    import_pyarrow,
    is_parquet,
    open_compressed,
    suffixes_of,
)
from equipoise.balances import quoted_list
from equipoise.data import write_target


class TableWriter:
    """Writer of a table, piece by piece, as a context manager.

    Rows go to a hidden file beside the target, which replaces the target when the `with` block ends without an error
    and is deleted otherwise. Numbers are written with as many digits as it takes to read them back exactly, missing
    ones as empty cells.

    Args:
        path: The file to write; its suffix decides on csv, tsv, txt (with tabs) or parquet, and on the compression.
    Raises: TableError, on entering, writing or leaving, if the file cannot be written.

    Example:
        >>> import tempfile
        >>> from equipoise.app.tables import read
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with TableWriter(f"{folder}/out.csv.gz") as table:
        ...         table.write(pd.DataFrame({"name": ["007"], "Voltage [V]": [0.1]}))
        ...     read(f"{folder}/out.csv.gz", ["Voltage [V]"]).to_numpy()
        array([[0.1]])
    """

    def __init__(self, path: PathLike):
        self.path = Path(path)
        self._sink_type = _ParquetSink if is_parquet(self.path) else _TextSink
        with _writing(self.path):
            self._target = write_target(self.path)
        self._part = self._target.with_name(f".{self._target.name}.{os.getpid()}.part")
        self._columns: tuple[Any, ...] | None = None
        self._open = ExitStack()

    def __enter__(self) -> TableWriter:
        if not self.path.parent.is_dir():
            rule = f"The folder of '{self.path.name}' must exist, but got '{self.path.parent}'"
            raise TableError(f"{rule}. Make it first.")
        if self.path.is_dir():
            raise TableError(f"A table must be written to a file, but got the folder '{self.path}'. Give a file name.")
        try:
            with _writing(self.path):
                self._sink = self._sink_type(self._open, self._part, self.path)
        except BaseException:
            self._abandon()
            raise
        return self

    def write(self, frame: pd.DataFrame) -> None:
        """Append rows to the table.

        Args:
            frame: The rows. Every frame must have the columns of the first; the index is not written.
        Raises: TableError if columns differ, or the file cannot be written.
        """
        columns = tuple(frame.columns)
        if self._columns not in (None, columns):
            rule = f"Every piece of '{self.path}' must have the columns {quoted_list(self._columns or ())}"
            raise TableError(f"{rule}, but got {quoted_list(columns)}. Give the same ones in the same order.")
        with _writing(self.path):
            self._sink.write(frame, first=self._columns is None)
        self._columns = columns

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._abandon()

    def _finish(self) -> None:
        if self._columns is None:
            raise TableError(
                f"'{self.path}' must have columns, but got nothing to write. Write a frame, even if empty."
            )
        with _writing(self.path):
            self._open.close()
            with open(self._part, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(self._part, self._target)

    def _abandon(self) -> None:
        with suppress(Exception):  # flushing fails again where writing failed; the first error is the one to raise
            self._open.close()
        self._part.unlink(missing_ok=True)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise TableError(f"'{path}' must be writable, but got: {reason}. Nothing was written.") from error


class _TextSink:
    """A text table that is being written."""

    def __init__(self, stack: ExitStack, part: Path, path: Path):
        self.text = stack.enter_context(io.TextIOWrapper(open_compressed(stack, part, path), "utf-8", newline=""))
        self.delimiter = DELIMITERS[suffixes_of(path)[0]]

    def write(self, frame: pd.DataFrame, first: bool) -> None:
        """Append rows; the header comes before the first ones.

        Args:
            frame: The rows.
            first: Whether these are the first rows of the table.
        """
        columns = [_cells(frame.iloc[:, j]) for j in range(frame.shape[1])]
        texts = (cells for cells, dtype in zip(columns, frame.dtypes, strict=True) if not is_numeric_dtype(dtype))
        has_returns = any("\r" in cell for cells in texts for cell in cells if isinstance(cell, str))
        quoting = csv.QUOTE_NONNUMERIC if has_returns else csv.QUOTE_MINIMAL  # the latter leaves a lone \r unquoted
        writer = csv.writer(self.text, delimiter=self.delimiter, lineterminator="\n", quoting=quoting)
        if first:
            writer.writerow(frame.columns)
        writer.writerows(zip(*columns, strict=True))


def _cells(column: pd.Series) -> list[Any]:
    """Return the values of a column as Python objects, which csv writes with all their digits; "" where missing."""
    cells, missing = column.tolist(), column.isna().to_numpy(dtype=bool)
    if not missing.any():
        return cells
    return ["" if is_missing else cell for cell, is_missing in zip(cells, missing, strict=True)]


class _ParquetSink:
    """A parquet table that is being written."""

    def __init__(self, stack: ExitStack, part: Path, path: Path):
        self.library, self.stack, self.path = import_pyarrow(), stack, path
        self.file = stack.enter_context(part.open("wb"))
        self.writer: Any = None

    def write(self, frame: pd.DataFrame, first: bool) -> None:
        """Append rows; the header comes before the first ones.

        Args:
            frame: The rows.
            first: Whether these are the first rows of the table.
        """
        schema = None if first else self.writer.schema
        try:
            table = self.library.Table.from_pandas(frame, schema=schema, preserve_index=False)
        except (self.library.ArrowException, TypeError) as error:
            rule = f"Every column of '{self.path}' must hold one kind of values"
            raise TableError(f"{rule}, but got: {error}. Write it as csv.") from error
        table = table.replace_schema_metadata(None)
        if first:
            self.writer = self.stack.enter_context(self.library.parquet.ParquetWriter(self.file, table.schema))
        self.writer.write_table(table)
