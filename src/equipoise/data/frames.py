"""Data frames of pandas, polars and other libraries, read and built through narwhals; arrays stay arrays."""

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from equipoise.errors import InputError

Array = NDArray[np.float64]
LARGEST = np.float64(1e100)  # largest size of a measurement: sums of squares of larger ones overflow


def is_absurd(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark numbers that are infinite, or larger in size than any measurement (1e100).

    Args:
        values: Numbers, NaN where missing, of any shape.
    Returns: Mask of the same shape; NaN is not marked.
    Example:
        >>> is_absurd(np.array([1e30, np.nan, -1e300, np.inf]))
        array([False, False,  True,  True])
    """
    return np.abs(values) > LARGEST


def bound_of(value: float) -> str:
    """Return the rule that a number marked by `is_absurd` breaks, for a message: "below 1e+100 in size" or "finite"."""
    return f"below {LARGEST:g} in size" if math.isfinite(value) else "finite"


def is_frame(data: Any) -> bool:
    """Tell whether `data` is a data frame of any library that narwhals supports."""
    return isinstance(nw.from_native(data, eager_only=True, pass_through=True), nw.DataFrame)


def columns_of(data: Any) -> tuple[str, ...]:
    """Return the column names of a frame; none for an array."""
    return tuple(map(str, nw.from_native(data, eager_only=True).columns)) if is_frame(data) else ()


def select(data: Any, names: Sequence[str], argument: str) -> Any:
    """Select columns of a frame by name, in the order of the names.

    Args:
        data: A frame; arrays are returned as they are.
        names: Names of the columns; without names, all are returned. Names that a constraint generated (`x0`, `y0`, …)
            match columns by position.
        argument: Name of the argument that the data come from, for the message.
    Returns: A frame of the same library, or the array.
    Raises: InputError, if a column is missing.
    """
    if not is_frame(data) or not names:
        return data
    present = columns_of(data)
    missing = [name for name in names if name not in present]
    if not missing:
        frame = nw.from_native(data, eager_only=True)
        return frame[:, [present.index(name) for name in names]].to_native()
    generated = all(name[:1] in "xy" and name[1:].isdigit() for name in names)
    if generated and len(missing) == len(names) == len(present):
        return data
    near = {name: difflib.get_close_matches(name, present, n=1) for name in missing}
    listed = ", ".join(repr(name) + (f" (did you mean {near[name][0]!r}?)" if near[name] else "") for name in missing)
    raise InputError(f"{argument} must have every column that the balances name, but got none called {listed}.")


def first_non_number(data: Any, names: Sequence[str] = (), missing_ok: bool = False) -> str | None:
    """Describe the first value of a table that is not a finite number: value, column and row, for a message.

    Args:
        data: A frame, or an array.
        names: Names of the columns of an array, where they are known.
        missing_ok: Whether values may be missing.
    Returns: The description; None for finite numbers, and for arrays that do not hold floating-point numbers.
    """
    if not is_frame(data):
        return _first_stray(data, names, missing_ok) if isinstance(data, np.ndarray) else None
    frame = nw.from_native(data, eager_only=True)
    for j, name in enumerate(columns_of(data)):
        for i, value in enumerate(frame[:, j].to_list()):
            try:
                number = math.nan if value is None else float(value)
                if math.isfinite(number) or (missing_ok and math.isnan(number)):
                    continue
            except (TypeError, ValueError):
                pass
            return f"{value!r} in column {name!r}, row {i}"
    return None


def _first_stray(values: NDArray[Any], names: Sequence[str], missing_ok: bool) -> str | None:
    """Describe the first number of an array that is not finite, as `first_non_number`."""
    if values.dtype.kind != "f" or values.ndim not in (1, 2):
        return None
    strays = np.argwhere(np.isinf(values) if missing_ok else ~np.isfinite(values))
    if not len(strays):
        return None
    place = tuple(map(int, strays[0]))
    value = "NaN" if np.isnan(values[place]) else str(values[place])
    columns = list(map(repr, names)) if len(names) == values[:1].size else list(map(str, range(values[:1].size)))
    return f"{value} in column {columns[place[1] if len(place) == 2 else 0]}, row {place[0]}"


def first_column(data: Any) -> Any:
    """Return the first column of an array or a frame, as a one-dimensional array or a series of the same library."""
    return nw.from_native(data, eager_only=True)[:, 0].to_native() if is_frame(data) else data[:, 0]


def frame_builder(like: Any, names: Sequence[str], labels: Any = None) -> "FrameBuilder":
    """Make the converter of `(n, k)` arrays into frames of the library of another table.

    Args:
        like: The table whose library, and index if it has one, the frames get; an array for no conversion.
        names: Names of the k columns.
        labels: Labels of the columns of a pandas frame, where they are not text.
    Returns: The converter.
    Example:
        >>> import pandas as pd
        >>> frame_builder(pd.DataFrame({"x": [1.0]}, index=["noon"]), ["y"])(np.array([[2.0]]))
                y
        noon  2.0
    """
    if not is_frame(like):
        return FrameBuilder(None, None, tuple(names), None)
    frame = nw.from_native(like, eager_only=True)
    return FrameBuilder(frame.implementation, nw.maybe_get_index(frame), tuple(names), labels)


@dataclass(frozen=True)
class FrameBuilder:
    """Converter of arrays into frames of one library.

    Args:
        library: The library; None leaves arrays as they are.
        index: Index of the frames, where the library has one.
        names: Names of the columns.
        labels: Labels of the columns of a pandas frame, where they are not text.
    """

    library: Any
    index: Any
    names: tuple[str, ...]
    labels: Any

    def __call__(self, values: Array) -> Any:
        if self.library is None:
            return values
        data = {name: values[:, j] for j, name in enumerate(self.names)}
        frame = nw.from_dict(data, backend=self.library).to_native()
        if self.index is not None:  # pandas and libraries with its interface
            frame.index = self.index
            frame.columns = self.names if self.labels is None else self.labels
        return frame
