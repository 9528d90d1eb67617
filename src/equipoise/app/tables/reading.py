"""Tables out of files, whole or piece by piece."""

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

from equipoise.app.tables.cells import floats, missing_number, numbers, select
from equipoise.app.tables.dialect import column_names, filled, reader_of
from equipoise.app.tables.files import PathLike, TableError, existing, is_parquet, pyarrow
from equipoise.app.tables.notation import Notation
from equipoise.app.tables.places import in_words

BATCH = 256  # records that are turned into columns at once: more live lists make Python's garbage collector slow


def header(path: PathLike) -> tuple[str, ...]:
    """Names of the columns, without surrounding blanks; one without name is called after its position."""
    path = existing(path)
    if is_parquet(path):
        with _parquet_file(path) as file:
            return column_names(file.schema_arrow.names, path)
    with reader_of(path) as reader:
        return column_names(next(filled(reader)), path)


def chunks(
    path: PathLike, rows: int = 65_536, *, columns: Sequence[str] | None = None, text: bool = False
) -> Iterator[pd.DataFrame]:
    """A table piece by piece, with a row index that goes on from piece to piece; memory holds one piece.

    Args:
        path: csv, tsv, txt or parquet, compressed too. How it is written is recognised (see `dialect_of`).
        rows: The most rows of a piece.
        columns: The columns to be read, in this order; all when left out.
        text: Leave every cell as it stands in the file (in parquet: every value as it was stored), to be carried
            through, or to be turned into numbers by `numbers`. Otherwise columns that hold nothing but numbers in
            this piece are float64.
    Raises: TableError.
    """
    path, names = existing(path), header(path)
    if rows < 1:
        raise TableError(f"rows must be 1 at least, but got {rows}.")
    chosen = select(columns, names, path)
    pieces = _parquet_chunks(path, chosen, rows) if is_parquet(path) else _text_chunks(path, names, chosen, rows)
    return pieces if text else (_typed(piece, Notation.of(path)) for piece in pieces)


def read(path: PathLike, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """A whole table. Columns that hold nothing but numbers are float64; others stay as they stand in the file.

    Args:
        path: As in `chunks`.
        columns: The columns to be read, in this order; all when left out.
    Raises: TableError.
    """
    pieces = list(chunks(path, columns=columns))
    table = pd.concat(pieces)
    mixed = [name for name in table.columns if len({piece[name].dtype for piece in pieces}) > 1]
    if mixed:  # numbers at first, text further down: text throughout
        table[mixed] = pd.concat(list(chunks(path, columns=mixed, text=True)))
    return table


def complete_numbers(piece: pd.DataFrame, columns: Sequence[str], path: PathLike) -> NDArray[np.float64]:
    """The named columns of a piece as finite numbers, shape `(n, len(columns))`; none may be missing.

    Where one is, the whole table is looked through, so that what is said does not depend on its pieces.

    Args:
        piece: As `chunks` gives it as text.
        columns: Names of the columns.
        path: The file it came from.
    Raises: TableError, with column, line and value.
    """
    values = numbers(piece, columns, path, missing_ok=True)
    gone = np.isnan(values).any(axis=0)
    if gone.any():
        raise _missing_in(Path(path), columns[int(gone.argmax())])
    return values


def _missing_in(path: Path, column: str) -> TableError:
    first, n_missing, n_rows = 0, 0, 0
    for piece in chunks(path, columns=[column], text=True):
        missing = np.isnan(numbers(piece, [column], path, missing_ok=True)[:, 0])
        first = first if n_missing else n_rows + int(missing.argmax())
        n_missing, n_rows = n_missing + int(missing.sum()), n_rows + len(piece)
    return missing_number(column, f"in {in_words([first], path)}", n_missing, n_rows, path)


def _typed(piece: pd.DataFrame, notation: Notation) -> pd.DataFrame:
    columns: dict[Any, Any] = dict(piece.items())
    for name, column in columns.items():
        with suppress(ValueError):
            columns[name] = floats(column, notation)
    return pd.DataFrame(columns, index=piece.index)


def _text_chunks(path: Path, names: tuple[str, ...], chosen: tuple[str, ...], rows: int) -> Iterator[pd.DataFrame]:
    places, start = [names.index(name) for name in chosen], 0
    with reader_of(path) as reader:
        records = filled(reader)
        next(records)
        while (count := (cells := _cells(records, len(names), rows, path)).shape[1]) > 0:
            index = pd.RangeIndex(start, start + count)
            yield pd.DataFrame(cells[places].T, index, pd.Index(chosen, dtype=object), dtype=object, copy=False)
            start += count
    _check_rows(start, path)


def _cells(records: Iterator[list[str]], width: int, rows: int, path: Path) -> NDArray[np.object_]:
    """The cells of the next records, shape `(width, n)` with `n <= rows`."""
    cells, count = np.empty((width, rows), dtype=object), 0
    while batch := list(islice(records, min(BATCH, rows - count))):
        if set(map(len, batch)) != {width}:
            raise _ragged(path, width)
        for j, column in enumerate(zip(*batch, strict=True)):
            cells[j, count : count + len(batch)] = column
        count += len(batch)
    return cells[:, :count]


def _ragged(path: Path, width: int) -> TableError:
    with reader_of(path) as reader:
        ((usual, _),) = Counter(map(len, islice(filled(reader), BATCH))).most_common(1)
    if usual != width:
        rule = f"The header of '{path.name}' must name every column"
        got = f"{width} {'name' if width == 1 else 'names'}, and {usual} cells in most lines"
        return TableError(f"{rule}, but got {got}. Delete what stands above the header, or name the others, too.")
    with reader_of(path) as reader:
        row = next(row for row in filled(reader) if len(row) != width)
        rule = f"Every line of '{path.name}' must have {width} cells, as many as its header"
        return TableError(f"{rule}, but got {len(row)} in line {reader.line_num}. Correct it.")


def _check_rows(count: int, path: Path) -> None:
    if not count:
        raise TableError(f"'{path.name}' must hold rows, but got a header only. Add the data below it.")


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    library = pyarrow()
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
