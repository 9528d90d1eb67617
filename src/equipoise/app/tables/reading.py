"""Reading tables from files, whole or piece by piece."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from equipoise.app.tables.cells import floats, missing_number_error, numbers, requested_columns
from equipoise.app.tables.files import PathLike, TableError, check_source, import_pyarrow, is_parquet
from equipoise.app.tables.number_format import NumberFormat
from equipoise.app.tables.row_numbers import describe_rows
from equipoise.app.tables.text_format import column_names, open_records, skip_blank

BATCH = 256  # records that are transposed at once: more live lists make Python's garbage collector slow


def header(path: PathLike) -> tuple[str, ...]:
    """Return the names of a table's columns.

    Args:
        path: The table's file, in any format that `chunks` reads.
    Returns: Names without surrounding blanks; column j without a name, counted from 1, is called "unnamed j".
    Raises: TableError if the file cannot be read, or a name occurs twice.
    """
    path = check_source(path)
    if is_parquet(path):
        with _parquet_file(path) as file:
            return column_names(file.schema_arrow.names, path)
    with open_records(path) as reader:
        return column_names(next(skip_blank(reader)), path)


def chunks(
    path: PathLike, rows: int = 65_536, *, columns: Sequence[str] | None = None, text: bool = False
) -> Iterator[pd.DataFrame]:
    """Read a table piece by piece; memory holds one piece.

    Args:
        path: A csv, tsv, txt or parquet file; text tables may be compressed. Encoding, delimiter and decimal sign are
            recognised (see `text_format_of`).
        rows: Largest number of rows in a piece.
        columns: Names of the columns to read, in this order; all by default.
        text: Whether to leave every cell as it stands in the file (in parquet: every value as it was stored), for
            `ColumnConverter` or `numbers`. Otherwise columns with nothing but numbers in this piece become float64.
    Returns: An iterator over pieces; the row index counts from 0 over all of them.
    Raises: TableError if the file or one of its lines cannot be read.
    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "cell.csv").write_text("t,V\\n0,3.5\\n1,3.4\\n2,3.3\\n")
        ...     [piece["V"].tolist() for piece in chunks(Path(folder, "cell.csv"), rows=2)]
        [[3.5, 3.4], [3.3]]
    """
    path, names = check_source(path), header(path)
    if rows < 1:
        raise TableError(f"rows must be 1 at least, but got {rows}.")
    chosen = requested_columns(columns, names, path)
    pieces = _parquet_chunks(path, chosen, rows) if is_parquet(path) else _text_chunks(path, names, chosen, rows)
    return pieces if text else (_typed(piece, NumberFormat.of(path)) for piece in pieces)


def read(path: PathLike, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Read a whole table.

    Args:
        path: The table's file, in any format that `chunks` reads.
        columns: Names of the columns to read, in this order; all by default.
    Returns: The table; columns with nothing but numbers are float64, others stay as they stand in the file.
    Raises: TableError if the file or one of its lines cannot be read.
    """
    pieces = list(chunks(path, columns=columns))
    table = pd.concat(pieces)
    mixed = [name for name in table.columns if len({piece[name].dtype for piece in pieces}) > 1]
    if mixed:  # a column with numbers in one piece and text in another is text throughout
        table[mixed] = pd.concat(list(chunks(path, columns=mixed, text=True)))
    return table


def complete_numbers(piece: pd.DataFrame, columns: Sequence[str], path: PathLike) -> NDArray[np.float64]:
    """Convert named columns of a piece of a table to finite numbers, none of which may be missing.

    Where one is missing, the whole table is read, so that the message does not depend on how it was cut into pieces.

    Args:
        piece: A piece from `chunks(path, text=True)`.
        columns: Names of the columns.
        path: The file that the piece came from.
    Returns: float64, shape `(n, len(columns))`.
    Raises: TableError, with column, line and value, where a cell is missing or not a number.
    """
    values = numbers(piece, columns, path, missing_ok=True)
    incomplete = np.isnan(values).any(axis=0)
    if incomplete.any():
        raise _missing_cells_error(Path(path), columns[int(incomplete.argmax())])
    return values


def _missing_cells_error(path: Path, column: str) -> TableError:
    first, n_missing, n_rows = 0, 0, 0
    for piece in chunks(path, columns=[column], text=True):
        missing = np.isnan(numbers(piece, [column], path, missing_ok=True)[:, 0])
        first = first if n_missing else n_rows + int(missing.argmax())
        n_missing, n_rows = n_missing + int(missing.sum()), n_rows + len(piece)
    return missing_number_error(column, f"in {describe_rows([first], path)}", n_missing, n_rows, path)


def _typed(piece: pd.DataFrame, number_format: NumberFormat) -> pd.DataFrame:
    columns: dict[Any, Any] = dict(piece.items())
    for name, column in columns.items():
        with suppress(ValueError):
            columns[name] = floats(column, number_format)
    return pd.DataFrame(columns, index=piece.index)


def _text_chunks(path: Path, names: tuple[str, ...], chosen: tuple[str, ...], rows: int) -> Iterator[pd.DataFrame]:
    positions, start = [names.index(name) for name in chosen], 0
    with open_records(path) as reader:
        records = skip_blank(reader)
        next(records)
        while (count := (cells := _cells(records, len(names), rows, path)).shape[1]) > 0:
            index = pd.RangeIndex(start, start + count)
            yield pd.DataFrame(cells[positions].T, index, pd.Index(chosen, dtype=object), dtype=object, copy=False)
            start += count
    _check_rows(start, path)


def _cells(records: Iterator[list[str]], width: int, rows: int, path: Path) -> NDArray[np.object_]:
    """Read the cells of the next records, shape `(width, n)` with `n <= rows`."""
    cells, count = np.empty((width, rows), dtype=object), 0
    while batch := list(islice(records, min(BATCH, rows - count))):
        if set(map(len, batch)) != {width}:
            raise _ragged_error(path, width)
        for j, column in enumerate(zip(*batch, strict=True)):
            cells[j, count : count + len(batch)] = column
        count += len(batch)
    return cells[:, :count]


def _ragged_error(path: Path, width: int) -> TableError:
    with open_records(path) as reader:
        ((usual, _),) = Counter(map(len, islice(skip_blank(reader), BATCH))).most_common(1)
    if usual != width:
        rule = f"The header of '{path.name}' must name every column"
        got = f"{width} {'name' if width == 1 else 'names'}, and {usual} cells in most lines"
        return TableError(f"{rule}, but got {got}. Delete what stands above the header, or name the others, too.")
    with open_records(path) as reader:
        row = next(row for row in skip_blank(reader) if len(row) != width)
        rule = f"Every line of '{path.name}' must have {width} cells, as many as its header"
        return TableError(f"{rule}, but got {len(row)} in line {reader.line_num}. Correct it.")


def _check_rows(count: int, path: Path) -> None:
    if not count:
        raise TableError(f"'{path.name}' must hold rows, but got a header only. Add the data below it.")


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    library = import_pyarrow()
    try:
        with library.parquet.ParquetFile(path) as file:
            yield file
    except (OSError, library.ArrowException) as error:
        raise TableError(f"'{path.name}' must be a whole parquet file, but got: {error}. Is it damaged?") from error


def _parquet_chunks(path: Path, chosen: tuple[str, ...], rows: int) -> Iterator[pd.DataFrame]:
    start = 0
    with _parquet_file(path) as file:
        stored = dict(zip(column_names(file.schema_arrow.names, path), file.schema_arrow.names, strict=True))
        wanted = [stored[name] for name in chosen]
        for batch in file.iter_batches(batch_size=rows, columns=wanted):
            piece = batch.to_pandas(types_mapper=pd.ArrowDtype, ignore_metadata=True)[wanted]
            yield piece.set_axis(list(chosen), axis=1).set_axis(pd.RangeIndex(start, start + len(piece)), axis=0)
            start += len(piece)
    _check_rows(start, path)
