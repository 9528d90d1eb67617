"""Cells of a table as numbers; errors name the column, the line and the text that is not a number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from equipoise.app.tables.files import AmbiguousNumberError, MissingError, PathLike, TableError
from equipoise.app.tables.number_format import NumberFormat
from equipoise.app.tables.row_numbers import describe_rows
from equipoise.app.tables.separators import OTHER_SIGN, ColumnSeparators, is_ambiguous, separates_thousands
from equipoise.app.tables.text_format import MISSING, NUMBER, text_format_of
from equipoise.balances import did_you_mean, quoted_list
from equipoise.data import bound_of, is_absurd

Array = NDArray[np.float64]

NUMERIC_SHARE = 0.5  # a column with a larger share of cells that resemble numbers was meant to hold numbers
_DECORATED = re.compile(  # < 0.1, 5%, 12 kW, 1'000; but not 01.03 or 2026-03-01
    r"[^\w+\-.,]{0,3}(?!0[0-9])[+-]?[0-9][0-9.,'\s]*(?:[eE][+-]?[0-9]+)?(?P<unit>[^0-9]{0,12})"
)
_THOUSANDS_BY_SPACES = r"[+-]?[0-9]{1,3}(?:['’\s][0-9]{3})+(?:[.,][0-9]*)?"  # 1'000, also with spaces of any kind
_MINUS = r"[−–](?P<size>[0-9].*)"  # typographic minus signs
_NAN_FOR: dict[str, str] = dict.fromkeys(MISSING, "nan")


def numbers(frame: pd.DataFrame, columns: Sequence[str], path: PathLike, *, missing_ok: bool) -> Array:
    """Convert named columns of a table to finite numbers.

    Args:
        frame: A table or a piece of one, from `read` or `chunks`.
        columns: Names of the columns.
        path: The file that the rows came from: its decimal sign is used, and messages name its lines.
        missing_ok: Whether cells may be missing: empty, `NA`, `NaN` or another of `text_format.MISSING`.
    Returns: float64, NaN where missing, shape `(n, len(columns))`.
    Raises: TableError, with column, line and value, where a cell is not a number, or is missing and must not be.
    Example:
        >>> numbers(pd.DataFrame({"a": ["1", "NA"], "b": ["007", "x"]}), ["a"], "cell.csv", missing_ok=True)
        array([[ 1.],
               [nan]])
    """
    path = Path(path)
    chosen, number_format = requested_columns(columns, tuple(frame.columns), path), NumberFormat.of(path)
    values = np.empty((len(frame), len(chosen)))
    for j, name in enumerate(chosen):
        column: Any = frame.loc[:, name]
        try:
            values[:, j] = _checked(column, path, number_format, missing_ok)
        except TableError:
            _refuse_units(frame, column, path, number_format)
            raise
    return values


def complete(frame: pd.DataFrame, columns: Sequence[str], path: PathLike) -> pd.DataFrame:
    """Return the rows in which none of the named columns is missing.

    Args:
        frame: A table or a piece of one, from `read` or `chunks`.
        columns: Names of the columns that must not be missing.
        path: The file that the rows came from.
    Returns: Those rows with all columns of `frame` and the index that they had.
    Raises: TableError, with column, line and value, where a cell is neither a number nor missing.

    Example:
        >>> complete(pd.DataFrame({"a": ["1", "NA", "3"], "b": ["", "2", ""]}), ["a"], "cell.csv").index.tolist()
        [0, 2]
    """
    return frame.loc[~np.isnan(numbers(frame, columns, path, missing_ok=True)).any(axis=1)]


def requested_columns(columns: Sequence[str] | None, names: tuple[str, ...], path: Path) -> tuple[str, ...]:
    """Return the requested column names, or all `names` if `columns` is None; raise TableError for unknown ones.

    Args:
        columns: Names of the requested columns; None for all.
        names: Names of all columns of the table.
        path: The table's file, for the message.
    """
    if unknown := [name for name in columns or () if name not in names]:
        rule = f"'{path.name}' must have the columns asked for, but got none called {quoted_list(unknown)}."
        advice = did_you_mean(unknown[0], names) if len(unknown) == 1 else f"Known: {quoted_list(names)}."
        hint = " It has one column only: is its delimiter a comma, semicolon, tab or |, and no title above?"
        raise TableError(f"{rule} {advice}{hint if len(names) == 1 else ''}")
    return names if columns is None else tuple(columns)


def floats(column: pd.Series, number_format: NumberFormat) -> Array:
    """Convert a column to float64, NaN where missing, shape `(n,)`; raise ValueError if a cell is not a number.

    Args:
        column: Cells as they were read.
        number_format: How numbers are written in the table.
    """
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    cells = column.to_numpy(dtype=object)
    if number_format.decimal == "." and not number_format.ambiguous:
        with suppress(TypeError, ValueError):  # fast path: no cell is missing
            return _floats(cells)
    missing = column.isna().to_numpy(dtype=bool)
    texts = ["" if is_missing else str(cell).strip() for cell, is_missing in zip(cells, missing, strict=True)]
    texts = number_format.normalise(texts, str(column.name))
    return _floats(np.array([_NAN_FOR.get(text, text) for text in texts], dtype=object))


def resemble_numbers(cells: Iterable[str]) -> bool:
    """Return whether a column of texts was meant to hold numbers.

    That is so if most cells that are not missing are numbers, or numbers with something around them, such as a unit.

    Example:
        >>> [resemble_numbers([cell]) for cell in ("1,000.5", "5%", "12 kW", "<0.1", "Ann", "A4", "2026-03-01")]
        [True, True, True, True, False, False, False]
        >>> resemble_numbers(["12.03", "24.12"]), resemble_numbers(["12.03", "24.12", "01.03"])
        (True, False)
    """
    present = [cell for cell in map(str.strip, cells) if cell not in MISSING]
    n_alike = sum(_DECORATED.fullmatch(cell) is not None for cell in present)
    return n_alike > NUMERIC_SHARE * len(present) and not ColumnSeparators.of(present).padded


def _floats(cells: NDArray[np.object_]) -> Array:
    text = "".join([cell for cell in cells.tolist() if isinstance(cell, str)])
    if "_" in text or not text.isascii():  # Python would accept 1_000, and digits of all scripts
        raise ValueError
    return cells.astype(np.float64)


def _checked(column: pd.Series, path: Path, number_format: NumberFormat, missing_ok: bool) -> Array:
    try:
        values = floats(column, number_format)
    except ValueError:
        raise _not_a_number(column, _first_bad(column, number_format), path, number_format) from None
    if (absurd := is_absurd(values)).any():
        position = int(absurd.argmax())
        raise (_too_large if np.isfinite(values[position]) else _not_a_number)(column, position, path, number_format)
    if (missing := np.isnan(values)).any() and not missing_ok:
        where = _locate(column, int(missing.argmax()), path)
        raise missing_number_error(str(column.name), where, int(missing.sum()), len(column), path)
    return values


def missing_number_error(column: str, where: str, n_missing: int, n_rows: int, path: Path) -> TableError:
    """Make the error for a column that must hold a number in every row but has missing cells.

    Args:
        column: Name of the column.
        where: Row or line of the first missing cell, such as "in line 7".
        n_missing, n_rows: How many cells are missing, of how many.
        path: The table's file.
    Returns: `MissingError`, or a plain `TableError` if all cells of several are missing.

    Example:
        >>> print(missing_number_error("SOC", "in line 7", 3, 100, Path("cell.csv")))
        Column 'SOC' must hold a number in every row, but got none in line 7 of 'cell.csv', nor in 2 more below. Fill it
        in, or drop it.
    """
    rule = f"Column {column!r} must hold a number in every row, but got none"
    if n_missing == n_rows > 1:  # leaving rows out would leave none
        return TableError(f"{rule} in any row of '{path.name}'. Fill it in, or drop it.")
    more = f", nor in {n_missing - 1} more below" if n_missing > 1 else ""
    return MissingError(f"{rule} {where} of '{path.name}'{more}. Fill it in, or drop it.")


def _first_bad(column: pd.Series, number_format: NumberFormat) -> int:
    """Find the position of the first cell that is not a number by bisection.

    At each step all cells before `start` are numbers, and there is one before `end` that is not.
    """
    start, end = 0, len(column)
    while end - start > 1:
        middle = (start + end) // 2
        start, end = (middle, end) if _are_numbers(column.iloc[start:middle], number_format) else (start, middle)
    return start


def _are_numbers(column: pd.Series, number_format: NumberFormat) -> bool:
    with suppress(ValueError):
        return len(floats(column, number_format)) == len(column)
    return False


def _refuse_units(frame: pd.DataFrame, column: pd.Series, path: Path, number_format: NumberFormat) -> None:
    """Raise TableError if the first row of a table holds units: texts in several columns that hold numbers below."""
    if len(frame) < 2 or frame.index[0] != 0 or not _is_below_unit(column, number_format):
        return
    if sum(_is_below_unit(frame.iloc[:, j], number_format) for j in range(frame.shape[1])) > 1:
        got = f"{column.iloc[0]!r} {_locate(column, 0, path)} of '{path.name}'"
        rule = f"Column {column.name!r} must hold numbers, but got {got}"
        raise TableError(f"{rule}. Put units into the names of columns, and delete the line.")


def _is_below_unit(column: pd.Series, number_format: NumberFormat) -> bool:
    first = column.iloc[:1]
    return not _are_numbers(first, number_format) and _are_numbers(column.iloc[1:], number_format)


def _not_a_number(column: pd.Series, position: int, path: Path, number_format: NumberFormat) -> TableError:
    cell = str(column.iloc[position])
    rule = f"Column {column.name!r} must hold numbers"
    where = f"{_locate(column, position, path)} of '{path.name}'"
    text = cell.strip()
    kind = AmbiguousNumberError if any(is_ambiguous(text, sign) for sign in OTHER_SIGN) else TableError
    return kind(f"{rule}, but got {cell!r} {where}. {_advice(text, number_format)}")


def _too_large(column: pd.Series, position: int, path: Path, number_format: NumberFormat) -> TableError:
    value = floats(column.iloc[position : position + 1], number_format)[0]
    rule, where = f"Column {column.name!r} must hold numbers {bound_of(value)}", _locate(column, position, path)
    got = f"{str(column.iloc[position])!r} {where} of '{path.name}'"
    return TableError(f"{rule}, but got {got}. Correct it, or drop the row.")


def _advice(cell: str, number_format: NumberFormat) -> str:
    """Suggest how to write a cell that is not a number.

    Example:
        >>> _advice("1,000", NumberFormat("."))
        'Is it 1000 or 1.000? Write it without separators of thousands, and decimals with a point.'
        >>> _advice("1,5", NumberFormat("."))
        'Write decimals with a point in all of the file.'
        >>> _advice("12 kW", NumberFormat("."))
        "Write numbers alone, and their unit into the column's name: [kW]."
        >>> _advice("1,926", NumberFormat(",", ambiguous=True))
        'Is it 1926 or 1,926? No cell tells. Write it without separators of thousands, or one more decimal: 1,9260.'
    """
    sign = {".": "point", ",": "comma"}[number_format.decimal]
    rewrite = f"Write it without separators of thousands, and decimals with a {sign}."
    if number_format.ambiguous and is_ambiguous(cell, number_format.decimal):
        either = f"Is it {cell.replace(number_format.decimal, '')} or {cell}? No cell tells."
        return f"{either} Write it without separators of thousands, or one more decimal: {cell}0."
    if is_ambiguous(cell, number_format.thousands):
        whole, part = cell.split(number_format.thousands)
        return f"Is it {whole}{part} or {whole}{number_format.decimal}{part}? {rewrite}"
    if separates_thousands(cell, number_format.decimal):
        return rewrite
    if re.fullmatch(_THOUSANDS_BY_SPACES, cell):
        return rewrite
    if negative := re.fullmatch(_MINUS, cell):
        return f"Write the minus sign as a hyphen: -{negative['size']}."
    if (
        "," in cell
        and number_format.decimal == "."
        and _is_delimited_by_commas(number_format)
        and re.fullmatch(NUMBER, cell)
    ):
        return "Write decimals with a point, or save the table with semicolons: decimal commas need another delimiter."
    if re.fullmatch(NUMBER, cell) and ("," in cell or "." in cell):
        return f"Write decimals with a {sign} in all of the file."
    if (match := _DECORATED.fullmatch(cell)) and re.search(r"[^\W_]|[%‰°]", unit := match["unit"].strip()):
        return f"Write numbers alone, and their unit into the column's name: [{unit}]."
    return "Correct it; where an output was not measured, leave the cell empty."


def _is_delimited_by_commas(number_format: NumberFormat) -> bool:
    return number_format.path is not None and text_format_of(number_format.path).delimiter == ","


def _locate(column: pd.Series, position: int, path: Path) -> str:
    row = column.index[position]
    return f"in {describe_rows([int(row) if isinstance(row, int | np.integer) else position], path)}"
