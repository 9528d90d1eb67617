"""Tables on their way in: columns by name, numbers only, the shapes that the balances want, nothing out of range."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from equipoise.balances import LinearConstraint
from equipoise.data import frames
from equipoise.data.scaling import Standardizer
from equipoise.data.table_passes import Table, is_mapped, is_whole, pieces
from equipoise.errors import EquipoiseError, InputError

Array = NDArray[np.float64]
LEAST_MEASURED = 3  # rows in which every output must be measured
FARTHEST = 1e30  # standard deviations from the training data: beyond them single precision overflows


class InputRangeError(EquipoiseError, ValueError):
    """An input so far out that nothing can be computed with it: its column, its row from 0, and its value."""

    rule = f"must lie within {FARTHEST:g} standard deviations of the training data"

    def __init__(self, column: str, row: int, value: float):
        got = f"{value:g} in column {column!r}, row {row}"
        super().__init__(f"X {self.rule}, but got {got}. Correct it or drop the row.")
        self.column, self.row, self.value = column, row, value


def check_inputs(estimator: BaseEstimator, X: Any, columns: Sequence[str], reset: bool) -> Table:
    """Inputs as an array of float64, shape `(n, n_x)`; one to learn from that stays in its file is left as it is.

    Args:
        estimator: On which scikit-learn keeps the names and the number of inputs.
        X: A table.
        columns: Which to take, in this order; all if there are none, and of an array.
        reset: Whether this is a new fit, or rows that must have the columns of the last one.
    """
    X = frames.select(X, columns, "X")
    if reset and is_mapped(X) and X.ndim == 2 and min(X.shape) > 0 and len(X) >= LEAST_MEASURED:
        check_mapped("X", X, columns)
        validate_data(estimator, X, skip_check_array=True)  # keeps the number of inputs
        return X
    try:
        least = LEAST_MEASURED if reset else 1
        checked = validate_data(estimator, X, reset=reset, dtype=np.float64, ensure_min_samples=least)
    except (TypeError, ValueError) as error:
        if (found := frames.first_non_number(X)) is None:
            raise
        raise InputError(f"X must hold finite numbers only, but got {found}. Drop it or fill it in.") from error
    values = np.asarray(checked)
    if reset:  # later rows are measured against the training data, by `check_range`
        _check_sizes("X", values, columns or frames.columns_of(X))
    return values


def check_outputs(y: Any, columns: Sequence[str] = ()) -> tuple[Table, float]:
    """Outputs as an array with as many axes as they came with, and their relative rounding as they came.

    The array is of float64; one that stays in its file is left as it is.

    Args:
        y: A table.
        columns: Names of its columns, where they are known.
    Example:
        >>> check_outputs(np.array([1, 2], dtype=np.float32))
        (array([1., 2.]), 1.1920928955078125e-07)
    """
    if is_mapped(y) and y.ndim in (1, 2) and min(y.shape) > 0:
        check_mapped("y", y.reshape(len(y), -1), columns, nan_ok=True)
        return y, _rounding_of(y)
    checks: Any = {"ensure_2d": False, "ensure_all_finite": "allow-nan", "input_name": "y"}
    Y = check_array(y, dtype=None, **checks)  # type: ignore[arg-type]
    try:
        values = check_array(Y, dtype=np.float64, **checks)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        if (found := frames.first_non_number(y)) is None:
            raise
        raise InputError(f"y must hold numbers, NaN where not measured, but got {found}.") from error
    _check_sizes("y", values.reshape(len(values), -1), columns or output_names(y))
    return values, _rounding_of(Y)


def _rounding_of(Y: Table) -> float:
    return float(np.finfo(Y.dtype if Y.dtype.kind == "f" else float).eps)


def check_mapped(argument: str, table: Table, columns: Sequence[str], nan_ok: bool = False) -> None:
    """Raise, with column and row, unless a table that stays in its file holds finite numbers.

    Args:
        argument: "X" or "y".
        table: Shape `(n, k)`.
        columns: Names of its columns; made up if there are not k of them.
        nan_ok: Whether numbers may be missing.
    """
    if not is_whole(table):
        raise InputError(
            f"The file of {argument} must not change while it is mapped, but got a shorter one. Map it anew."
        )
    row = 0
    for (part,) in pieces(table):
        _check_sizes(argument, part, columns, nan_ok, row)
        row += len(part)


def _check_sizes(argument: str, part: Table, columns: Sequence[str], nan_ok: bool = True, first: int = 0) -> None:
    """Raise, with column and row, if a number is infinite or absurd, or missing where it must not be.

    Args:
        first: Number of the first row of this part of the table.
    """
    bad = frames.is_absurd(part) if nan_ok else frames.is_absurd(part) | np.isnan(part)
    if bad.any():
        i, j = map(int, np.argwhere(bad)[0])
        name = columns[j] if len(columns) == part.shape[1] else f"{argument}{j}".lower()
        rule = "finite numbers, NaN where not measured" if nan_ok else "finite numbers only"
        rule = f"numbers {frames.bound_of(part[i, j])}" if np.isfinite(part[i, j]) else rule
        got = f"{part[i, j]} in column {name!r}, row {first + i}"
        raise InputError(f"{argument} must hold {rule}, but got {got}. Drop it or fill it in.")


def output_names(y: Any) -> tuple[str, ...]:
    """Names of the columns of a frame, or of the one column of a series; none of an array."""
    name = getattr(y, "name", None)
    return frames.columns_of(y) or ((name,) if isinstance(name, str) else ())


def match_constraint(
    constraint: LinearConstraint | None, X: Table, Y: Table, inputs: Sequence[str] | None
) -> LinearConstraint | None:
    """The constraint with a column of A for every input, checked against the shapes of the data.

    Args:
        constraint: One without inputs takes whatever inputs there are.
        X, Y: Inputs and outputs, shapes `(n, n_x)` and `(n, n_y)`.
        inputs: Names that came with X.
    """
    c = constraint
    if c is None:
        return None
    if Y.shape[1] != c.n_outputs:
        raise InputError(
            f"y must have one column per output of the balances ({', '.join(map(repr, c.outputs))}), "
            f"but got {Y.shape[1]} columns."
        )
    if c.n_columns == 0:
        names = [f"x{j}" for j in range(X.shape[1])] if inputs is None else list(inputs)
        A = np.zeros((c.n_balances, X.shape[1]))
        return LinearConstraint(c.B, A, c.b, names=c.names, inputs=names, outputs=c.outputs, units=c.units)
    if X.shape[1] != c.n_columns or c.n_inputs == 0:
        raise InputError(
            f"X must have one column for each input and known column of the balances "
            f"({', '.join(map(repr, c.columns))}), at least one of them an input, but got {X.shape[1]} columns."
        )
    return c


def check_range(X: Array, standardizer: Standardizer, names: Sequence[str] | None) -> None:
    """Raise unless inputs are near enough to be computed with, and every term of a balance beside its scale.

    Args:
        X: Inputs, then known columns, shape `(n, n_x + n_known)`.
        standardizer: Of the training data.
        names: Of the inputs where there are no balances that know them.
    """
    s, c = standardizer, standardizer.constraint
    with np.errstate(over="ignore"):
        size = np.zeros(X.shape)
        size[:, : len(s.x_mean)] = np.abs(s.inputs(X))
        if c is not None:
            size = np.maximum(size, np.abs(X) * (np.abs(c.A) / s.row_scale[:, None]).max(0, initial=0.0))
    if (size > FARTHEST).any():
        i, j = map(int, np.argwhere(size > FARTHEST)[0])
        names = names if c is None else c.columns
        raise InputRangeError(f"x{j}" if names is None else str(names[j]), i, float(X[i, j]))
