"""Cells of a table as numbers, or the column, the line and the text that is none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from equipoise.app.tables.dialect import MISSING, NUMBER, dialect_of
from equipoise.app.tables.files import DoubtError, MissingError, PathLike, TableError
from equipoise.app.tables.notation import Notation
from equipoise.app.tables.places import in_words
from equipoise.app.tables.signs import OTHER, Signs, says_nothing, separates_thousands
from equipoise.balances import did_you_mean, quoted_list
from equipoise.data import bound_of, is_absurd

Array = NDArray[np.float64]

MOSTLY = 0.5
_AROUND = re.compile(  # < 0.1, 5%, 12 kW, 1'000; but not 01.03 or 2026-03-01
    r"[^\w+\-.,]{0,3}(?!0[0-9])[+-]?[0-9][0-9.,'\s]*(?:[eE][+-]?[0-9]+)?(?P<unit>[^0-9]{0,12})"
)
_SPACED = r"[+-]?[0-9]{1,3}(?:['’\s][0-9]{3})+(?:[.,][0-9]*)?"  # 1'000, also with spaces of any kind
_MINUS = r"[−–](?P<size>[0-9].*)"  # signs that print well
_NAN_FOR: dict[str, str] = dict.fromkeys(MISSING, "nan")


def numbers(frame: pd.DataFrame, columns: Sequence[str], path: PathLike, *, missing_ok: bool) -> Array:
    """The named columns as finite numbers, NaN where missing, shape `(n, len(columns))`.

    Args:
        frame: A table or a piece of one, as `read` or `chunks` give it.
        columns: Names of the columns.
        path: The file it came from, for messages, and for its decimal sign.
        missing_ok: Whether cells may be missing: empty, `NA`, `NaN` or another of `dialect.MISSING`.
    Raises: TableError, with column, line and value.
    Example:
        >>> numbers(pd.DataFrame({"a": ["1", "NA"], "b": ["007", "x"]}), ["a"], "cell.csv", missing_ok=True)
        array([[ 1.],
               [nan]])
    """
    path = Path(path)
    chosen, notation = select(columns, tuple(frame.columns), path), Notation.of(path)
    values = np.empty((len(frame), len(chosen)))
    for j, name in enumerate(chosen):
        column: Any = frame.loc[:, name]
        try:
            values[:, j] = _checked(column, path, notation, missing_ok)
        except TableError:
            _refuse_units(frame, column, path, notation)
            raise
    return values


def complete(frame: pd.DataFrame, columns: Sequence[str], path: PathLike) -> pd.DataFrame:
    """The rows of a frame in which none of the named columns is missing, under the index that they had.

    Example:
        >>> complete(pd.DataFrame({"a": ["1", "NA", "3"], "b": ["", "2", ""]}), ["a"], "cell.csv").index.tolist()
        [0, 2]
    """
    return frame.loc[~np.isnan(numbers(frame, columns, path, missing_ok=True)).any(axis=1)]


def select(columns: Sequence[str] | None, names: tuple[str, ...], path: Path) -> tuple[str, ...]:
    """The columns asked for, all of `names` if None; raises if there is none of that name."""
    if absent := [name for name in columns or () if name not in names]:
        rule = f"'{path.name}' must have the columns asked for, but got none called {quoted_list(absent)}."
        advice = did_you_mean(absent[0], names) if len(absent) == 1 else f"Known: {quoted_list(names)}."
        lonely = " It has one column only: is its delimiter a comma, semicolon, tab or |, and no title above?"
        raise TableError(f"{rule} {advice}{lonely if len(names) == 1 else ''}")
    return names if columns is None else tuple(columns)


def floats(column: pd.Series, notation: Notation) -> Array:
    """A column as numbers, NaN where missing, shape `(n,)`. Raises ValueError if a cell is none."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    cells = column.to_numpy(dtype=object)
    if notation.decimal == "." and not notation.undecided:
        with suppress(TypeError, ValueError):  # the fast way: no cell is missing
            return _floats(cells)
    missing = column.isna().to_numpy(dtype=bool)
    texts = ["" if gone else str(cell).strip() for cell, gone in zip(cells, missing, strict=True)]
    texts = notation.plain(texts, str(column.name))
    return _floats(np.array([_NAN_FOR.get(text, text) for text in texts], dtype=object))


def resemble_numbers(cells: Iterable[str]) -> bool:
    """Whether a column of texts was meant to hold numbers: most that is there is one, or one with something around it.

    Example:
        >>> [resemble_numbers([cell]) for cell in ("1,000.5", "5%", "12 kW", "<0.1", "Ann", "A4", "2026-03-01")]
        [True, True, True, True, False, False, False]
        >>> resemble_numbers(["12.03", "24.12"]), resemble_numbers(["12.03", "24.12", "01.03"])
        (True, False)
    """
    there = [cell for cell in map(str.strip, cells) if cell not in MISSING]
    alike = sum(_AROUND.fullmatch(cell) is not None for cell in there)
    return alike > MOSTLY * len(there) and not Signs.of(there).padded


def _floats(cells: NDArray[np.object_]) -> Array:
    together = "".join([cell for cell in cells.tolist() if isinstance(cell, str)])
    if "_" in together or not together.isascii():  # Python would take 1_000, and digits of all scripts
        raise ValueError
    return cells.astype(np.float64)


def _checked(column: pd.Series, path: Path, notation: Notation, missing_ok: bool) -> Array:
    try:
        values = floats(column, notation)
    except ValueError:
        raise _not_a_number(column, _first_bad(column, notation), path, notation) from None
    if (absurd := is_absurd(values)).any():
        place = int(absurd.argmax())
        raise (_too_large if np.isfinite(values[place]) else _not_a_number)(column, place, path, notation)
    if (missing := np.isnan(values)).any() and not missing_ok:
        where = _place(column, int(missing.argmax()), path)
        raise missing_number(str(column.name), where, int(missing.sum()), len(column), path)
    return values


def missing_number(column: str, where: str, n_missing: int, n_rows: int, path: Path) -> TableError:
    """What is said of a column that must hold a number in every row: where the first one is missing, and how many are.

    Example:
        >>> print(missing_number("SOC", "in line 7", 3, 100, Path("cell.csv")))
        Column 'SOC' must hold a number in every row, but got none in line 7 of 'cell.csv', nor in 2 more below. Fill it
        in, or drop it.
    """
    rule = f"Column {column!r} must hold a number in every row, but got none"
    if n_missing == n_rows > 1:  # no row could be left out
        return TableError(f"{rule} in any row of '{path.name}'. Fill it in, or drop it.")
    more = f", nor in {n_missing - 1} more below" if n_missing > 1 else ""
    return MissingError(f"{rule} {where} of '{path.name}'{more}. Fill it in, or drop it.")


def _first_bad(column: pd.Series, notation: Notation) -> int:
    """The first cell that is no number, found by halves: up to `end` there is one, and none up to `start`."""
    start, end = 0, len(column)
    while end - start > 1:
        middle = (start + end) // 2
        start, end = (middle, end) if _are_numbers(column.iloc[start:middle], notation) else (start, middle)
    return start


def _are_numbers(column: pd.Series, notation: Notation) -> bool:
    with suppress(ValueError):
        return len(floats(column, notation)) == len(column)
    return False


def _refuse_units(frame: pd.DataFrame, column: pd.Series, path: Path, notation: Notation) -> None:
    """Raise if the first row of a table holds units: no numbers in several columns that hold numbers below."""
    if len(frame) < 2 or frame.index[0] != 0 or not _is_below_unit(column, notation):
        return
    if sum(_is_below_unit(frame.iloc[:, j], notation) for j in range(frame.shape[1])) > 1:
        got = f"{column.iloc[0]!r} {_place(column, 0, path)} of '{path.name}'"
        rule = f"Column {column.name!r} must hold numbers, but got {got}"
        raise TableError(f"{rule}. Put units into the names of columns, and delete the line.")


def _is_below_unit(column: pd.Series, notation: Notation) -> bool:
    first = column.iloc[:1]
    return not _are_numbers(first, notation) and _are_numbers(column.iloc[1:], notation)


def _not_a_number(column: pd.Series, position: int, path: Path, notation: Notation) -> TableError:
    cell = str(column.iloc[position])
    rule = f"Column {column.name!r} must hold numbers"
    where = f"{_place(column, position, path)} of '{path.name}'"
    text = cell.strip()
    kind = DoubtError if any(says_nothing(text, sign) for sign in OTHER) else TableError
    return kind(f"{rule}, but got {cell!r} {where}. {_advice(text, notation)}")


def _too_large(column: pd.Series, position: int, path: Path, notation: Notation) -> TableError:
    value = floats(column.iloc[position : position + 1], notation)[0]
    rule, where = f"Column {column.name!r} must hold numbers {bound_of(value)}", _place(column, position, path)
    got = f"{str(column.iloc[position])!r} {where} of '{path.name}'"
    return TableError(f"{rule}, but got {got}. Correct it, or drop the row.")


def _advice(cell: str, notation: Notation) -> str:
    """
    Example:
        >>> _advice("1,000", Notation("."))
        'Is it 1000 or 1.000? Write it without separators of thousands, and decimals with a point.'
        >>> _advice("1,5", Notation("."))
        'Write decimals with a point in all of the file.'
        >>> _advice("12 kW", Notation("."))
        "Write numbers alone, and their unit into the column's name: [kW]."
        >>> _advice("1,926", Notation(",", undecided=True))
        'Is it 1926 or 1,926? No cell tells. Write it without separators of thousands, or one more decimal: 1,9260.'
    """
    sign = {".": "point", ",": "comma"}[notation.decimal]
    plainly = f"Write it without separators of thousands, and decimals with a {sign}."
    if notation.undecided and says_nothing(cell, notation.decimal):
        either = f"Is it {cell.replace(notation.decimal, '')} or {cell}? No cell tells."
        return f"{either} Write it without separators of thousands, or one more decimal: {cell}0."
    if says_nothing(cell, notation.thousands):
        whole, part = cell.split(notation.thousands)
        return f"Is it {whole}{part} or {whole}{notation.decimal}{part}? {plainly}"
    if separates_thousands(cell, notation.decimal):
        return plainly
    if re.fullmatch(_SPACED, cell):
        return plainly
    if found := re.fullmatch(_MINUS, cell):
        return f"Write the minus sign as a hyphen: -{found['size']}."
    if "," in cell and notation.decimal == "." and _is_delimited_by_commas(notation) and re.fullmatch(NUMBER, cell):
        return "Write decimals with a point, or save the table with semicolons: decimal commas need another delimiter."
    if re.fullmatch(NUMBER, cell) and ("," in cell or "." in cell):
        return f"Write decimals with a {sign} in all of the file."
    if (found := _AROUND.fullmatch(cell)) and re.search(r"[^\W_]|[%‰°]", unit := found["unit"].strip()):
        return f"Write numbers alone, and their unit into the column's name: [{unit}]."
    return "Correct it; where an output was not measured, leave the cell empty."


def _is_delimited_by_commas(notation: Notation) -> bool:
    return notation.path is not None and dialect_of(notation.path).delimiter == ","


def _place(column: pd.Series, position: int, path: Path) -> str:
    row = column.index[position]
    return f"in {in_words([int(row) if isinstance(row, int | np.integer) else position], path)}"
