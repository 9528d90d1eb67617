"""The time column of a table: numbers or dates in non-decreasing order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from equipoise.app.tables.cells import numbers
from equipoise.app.tables.files import PathLike, TableError
from equipoise.app.tables.row_numbers import describe_rows
from equipoise.app.tables.text_format import MISSING

FIRST_YEAR, LAST_YEAR = 1678, 2261  # the whole years that nanoseconds in 64 bits can represent

DOTTED = re.compile(r"^(\d{1,2})\.(\d{1,2})\.(\d{4})(?=$|[ T])")  # day.month.year: dates with dots have no other order


class TimeColumn:
    """Reader of the time column of a table, piece by piece.

    Args:
        column: Name of the column. It holds numbers, or dates such as 2026-03-01 08:30 or 1.3.2026; the first cell that
            is not missing decides which.
        path: The table's file, which messages name.

    Example:
        >>> TimeColumn("t", "plant.csv").read(pd.DataFrame({"t": ["2026-03-01 08:30", "2026-03-01 08:31"]}))
        array(['2026-03-01T08:30:00.000000000', '2026-03-01T08:31:00.000000000'],
              dtype='datetime64[ns]')
    """

    def __init__(self, column: str, path: PathLike):
        self.column, self.path = column, Path(path)
        self._last: NDArray[Any] | None = None

    def read(self, frame: pd.DataFrame) -> NDArray[Any]:
        """Return the times of the next piece of the table.

        Args:
            frame: A piece from `chunks(path, text=True)`; pieces must be passed in their order.
        Returns: Times of its rows, float64 or datetime64 in nanoseconds (UTC), shape `(n,)`.
        Raises: TableError where a time is missing, is neither a number nor a date, or is earlier than the one before.
        """
        times = self._first_times(frame) if self._last is None else self._more_times(frame, self._last)
        self._check_order(frame, times)
        self._last = times[-1:]
        return times

    def _more_times(self, frame: pd.DataFrame, last: NDArray[Any]) -> NDArray[Any]:
        if last.dtype.kind == "M":
            return self._dates(frame[self.column])
        return numbers(frame, [self.column], self.path, missing_ok=False)[:, 0]

    def _first_times(self, frame: pd.DataFrame) -> NDArray[Any]:
        """Return the times of the first piece; its first cell that is not missing decides on numbers or dates."""
        column = frame[self.column]
        present = column.notna() & ~column.astype(str).str.strip().isin(MISSING)
        if self._is_number(frame.loc[present].head(1)):
            return numbers(frame, [self.column], self.path, missing_ok=False)[:, 0]
        return self._dates(column)

    def _is_number(self, frame: pd.DataFrame) -> bool:
        try:
            return bool(len(numbers(frame, [self.column], self.path, missing_ok=False)))
        except TableError:
            return False

    def _dates(self, column: Any) -> NDArray[Any]:
        """Parse dates; those with a time zone are converted to UTC, others are taken as UTC."""
        cells = column if pd.api.types.is_datetime64_any_dtype(column.dtype) else column.astype(str).str.strip()
        format = None if cells is column else "ISO8601"
        if format:
            cells = cells.str.replace(DOTTED, _iso, regex=True)
        times = pd.to_datetime(cells, format=format, utc=True, errors="coerce").dt.tz_localize(None)
        self._refuse(column, times.isna(), "hold numbers, or dates such as 2026-03-01 08:30, in every row")
        self._refuse(
            column, ~times.dt.year.between(FIRST_YEAR, LAST_YEAR), f"hold dates from {FIRST_YEAR} to {LAST_YEAR}"
        )
        return times.to_numpy(dtype="datetime64[ns]")

    def _refuse(self, column: Any, wrong: Any, rule: str) -> None:
        """Raise TableError with the rule and the first cell for which `wrong` is true, if there is one."""
        if wrong.any():
            position = int(wrong.to_numpy().argmax())
            where = f"{describe_rows([int(column.index[position])], self.path)} of '{self.path.name}'"
            got = f"{str(column.iloc[position])!r} in {where}"
            raise TableError(f"Column {self.column!r} must {rule}, but got {got}. Correct it.")

    def _check_order(self, frame: pd.DataFrame, times: NDArray[Any]) -> None:
        before = times[:1] if self._last is None else self._last
        backwards = np.flatnonzero(times < np.concatenate([before, times[:-1]]))
        if len(backwards):
            position = int(backwards[0])
            where = f"{describe_rows([int(frame.index[position])], self.path)} of '{self.path.name}'"
            got = f"{str(frame[self.column].iloc[position])!r} in {where}"
            rule = f"Column {self.column!r} must not go back in time"
            raise TableError(f"{rule}, but got {got}, which is earlier than the row before. Sort the table.")


def _iso(match: re.Match[str]) -> str:
    day, month, year = match.groups()
    return f"{year}-{month:0>2}-{day:0>2}"
