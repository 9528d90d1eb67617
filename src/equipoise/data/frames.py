"""Tables in, tables out in kind: pandas, polars and others through narwhals; arrays pass through."""

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
LARGEST = np.float64(1e100)  # of measurements: squares of larger ones, and sums of those, are soon no numbers any more


def is_absurd(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Where numbers are infinite, or larger in size than anything that was ever measured.

    Example:
        >>> is_absurd(np.array([1e30, np.nan, -1e300, np.inf]))
        array([False, False,  True,  True])
    """
    return np.abs(values) > LARGEST


def bound_of(value: float) -> str:
    """What a number that `is_absurd` must be instead."""
    return f"below {LARGEST:g} in size" if math.isfinite(value) else "finite"


def is_frame(data: Any) -> bool:
    """Whether `data` is a data frame of any library narwhals knows."""
    return isinstance(nw.from_native(data, eager_only=True, pass_through=True), nw.DataFrame)


def columns_of(data: Any) -> tuple[str, ...]:
    """Column names of a frame, empty for an array."""
    return tuple(map(str, nw.from_native(data, eager_only=True).columns)) if is_frame(data) else ()


def select(data: Any, names: Sequence[str], argument: str) -> Any:
    """The named columns of a frame, in that order; arrays and unnamed frames are returned as they are.

    Names that a constraint made up (`x0`, `y0`, …) match columns by position.
    """
    if not is_frame(data) or not names:
        return data
    present = columns_of(data)
    missing = [name for name in names if name not in present]
    if not missing:
        frame = nw.from_native(data, eager_only=True)
        return frame[:, [present.index(name) for name in names]].to_native()
    made_up = all(name[:1] in "xy" and name[1:].isdigit() for name in names)
    if made_up and len(missing) == len(names) == len(present):
        return data
    near = {name: difflib.get_close_matches(name, present, n=1) for name in missing}
    listed = ", ".join(repr(name) + (f" (did you mean {near[name][0]!r}?)" if near[name] else "") for name in missing)
    raise InputError(f"{argument} must have every column that the balances name, but got none called {listed}.")


def first_non_number(data: Any) -> str | None:
    """The first column of a frame that does not hold numbers throughout, with its value and row, in words."""
    if not is_frame(data):
        return None
    frame = nw.from_native(data, eager_only=True)
    for j, name in enumerate(columns_of(data)):
        for i, value in enumerate(frame[:, j].to_list()):
            try:
                if math.isfinite(float("nan") if value is None else float(value)):
                    continue
            except (TypeError, ValueError):
                pass
            return f"{value!r} in column {name!r}, row {i}"
    return None


def first_column(data: Any) -> Any:
    """The first column of an array or frame, one-dimensional and of the same kind."""
    return nw.from_native(data, eager_only=True)[:, 0].to_native() if is_frame(data) else data[:, 0]


def frame_builder(like: Any, names: Sequence[str], labels: Any = None) -> "FrameBuilder":
    """Gives `(n, k)` arrays the kind of `like`: its library, and its index if it has one.

    Args:
        like: What the inputs came in.
        names: Names of the k columns.
        labels: Their labels where a pandas frame had other ones than text.
    """
    if not is_frame(like):
        return FrameBuilder(None, None, tuple(names), None)
    frame = nw.from_native(like, eager_only=True)
    return FrameBuilder(frame.implementation, nw.maybe_get_index(frame), tuple(names), labels)


@dataclass(frozen=True)
class FrameBuilder:
    """Puts an array into a frame of one library, or leaves it an array."""

    library: Any
    index: Any
    names: tuple[str, ...]
    labels: Any

    def __call__(self, values: Array) -> Any:
        if self.library is None:
            return values
        data = {name: values[:, j] for j, name in enumerate(self.names)}
        made = nw.from_dict(data, backend=self.library).to_native()
        if self.index is not None:  # pandas and its kin
            made.index = self.index
            made.columns = self.names if self.labels is None else self.labels
        return made
