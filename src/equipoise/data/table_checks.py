"""Checks of the tables that a user passes: columns by name, finite numbers, shapes that fit the balances, ranges."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data

from equipoise.balances import Equality, LinearConstraint
from equipoise.data import frames
from equipoise.data.scaling import Standardizer
from equipoise.data.table_passes import Table, is_mapped, is_whole, pieces
from equipoise.errors import EquipoiseError, InputError, own_errors

Array = NDArray[np.float64]
LEAST_MEASURED = 3  # rows in which every output must be measured
FARTHEST = 1e30  # standard deviations from the training data beyond which single precision overflows


class InputRangeError(EquipoiseError, ValueError):
    """An input so far from the training data that arithmetic would overflow.

    Args:
        column: Name of its column.
        row: Its row, counted from 0.
        value: Its value.
    """

    rule = f"must lie within {FARTHEST:g} standard deviations of the training data"

    def __init__(self, column: str, row: int, value: float):
        got = f"{value:g} in column {column!r}, row {row}"
        super().__init__(f"X {self.rule}, but got {got}. Correct it or drop the row.")
        self.column, self.row, self.value = column, row, value

    def __reduce__(self) -> tuple:
        return type(self), (self.column, self.row, self.value)


class NotFittedError(EquipoiseError, SklearnNotFittedError):
    """A model is asked for something that only a fitted one has; scikit-learn's error of this name is a base."""


def require_fit(estimator: BaseEstimator) -> None:
    """Raise NotFittedError unless an estimator is fitted."""
    try:
        check_is_fitted(estimator)
    except SklearnNotFittedError as error:
        raise NotFittedError(str(error)) from None


def check_lengths(*tables: Any) -> None:
    """Raise an InputError unless all tables have as many rows."""
    with own_errors():
        check_consistent_length(*tables)


def check_inputs(estimator: BaseEstimator, X: Any, columns: Sequence[str], reset: bool) -> Table:
    """Check the inputs that a user passes and convert them to an array.

    Args:
        estimator: The estimator, on which scikit-learn keeps the names and the number of inputs.
        X: Array or data frame.
        columns: Names of the columns to select from a frame, in this order; all if there are none.
        reset: Whether this is a new fit; else the columns must be those of the last fit.
    Returns:
        Inputs as float64, shape `(n, n_x)`. In a new fit, an array that stays in its file is returned as it is.
    Raises: InputError, with column and row, if a number is missing, infinite or not a number, or if there are too few
        rows or the columns are not those of the fit; InputTypeError, if X is no table.
    """
    X = frames.select(X, columns, "X")
    if reset and is_mapped(X) and X.ndim == 2 and min(X.shape) > 0 and len(X) >= LEAST_MEASURED:
        check_mapped("X", X, columns)
        validate_data(estimator, X, skip_check_array=True)  # keeps the number of inputs
        return X
    try:
        with own_errors():
            least = LEAST_MEASURED if reset else 1
            checked = validate_data(estimator, X, reset=reset, dtype=np.float64, ensure_min_samples=least)
    except EquipoiseError as error:
        if (culprit := frames.first_non_number(X, columns)) is None:
            raise
        raise InputError(f"X must hold finite numbers only, but got {culprit}. Drop it or fill it in.") from error
    values = np.asarray(checked)
    if reset:  # later rows are compared with the training data, by `check_range`
        _check_sizes("X", values, columns or frames.columns_of(X))
    return values


def check_outputs(y: Any, columns: Sequence[str] = ()) -> tuple[Table, float]:
    """Check the outputs that a user passes and convert them to an array.

    Args:
        y: Array, data frame or series; NaN where not measured.
        columns: Names of its columns, where they are known.
    Returns:
        Outputs as float64 with as many axes as `y`, or `y` itself if it stays in its file; and the relative rounding
        (machine epsilon) of the kind of numbers in `y`.
    Raises: InputError, with column and row, if a value is infinite or not a number; InputTypeError, if y is no table.
    Example:
        >>> check_outputs(np.array([1, 2], dtype=np.float32))
        (array([1., 2.]), 1.1920928955078125e-07)
    """
    if is_mapped(y) and y.ndim in (1, 2) and min(y.shape) > 0:
        check_mapped("y", y.reshape(len(y), -1), columns, nan_ok=True)
        return y, _rounding_of(y)
    checks: Any = {"ensure_2d": False, "ensure_all_finite": "allow-nan", "input_name": "y"}
    try:
        with own_errors():
            Y = check_array(y, dtype=None, **checks)  # type: ignore[arg-type]
            values = check_array(Y, dtype=np.float64, **checks)  # type: ignore[arg-type]
    except EquipoiseError as error:
        if (culprit := frames.first_non_number(y, columns, missing_ok=True)) is None:
            raise
        raise InputError(f"y must hold numbers, NaN where not measured, but got {culprit}.") from error
    _check_sizes("y", values.reshape(len(values), -1), columns or output_names(y))
    return values, _rounding_of(Y)


def _rounding_of(Y: Table) -> float:
    return float(np.finfo(Y.dtype if Y.dtype.kind == "f" else float).eps)


def check_mapped(argument: str, table: Table, columns: Sequence[str], nan_ok: bool = False) -> None:
    """Raise, with column and row, unless a table that stays in its file holds finite numbers.

    Args:
        argument: "X" or "y".
        table: The table, shape `(n, k)`.
        columns: Names of its columns; generated if there are not k of them.
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
    """Raise, with column and row, if a number is infinite, absurdly large, or missing where it must not be.

    Args:
        argument, columns, nan_ok: As of `check_mapped`.
        part: Some rows of the table, shape `(n, k)`.
        first: Number of the first of these rows.
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
    """Return the column names of a frame, or the one name of a series; none for an array."""
    name = getattr(y, "name", None)
    return frames.columns_of(y) or ((name,) if isinstance(name, str) else ())


def match_constraint(constraint: Equality | None, X: Table, Y: Table, inputs: Sequence[str] | None) -> Equality | None:
    """Check that a constraint fits the shapes of the data, and give it a column of A for every input.

    Args:
        constraint: The balances; those without inputs fit any inputs, with coefficients 0. None for no balances.
        X: Inputs, then known columns, shape `(n, n_x + n_known)`.
        Y: Outputs, shape `(n, n_y)`.
        inputs: Names of the columns of X; None where X was an array.
    Returns: The constraint with as many inputs and known columns as X has columns; None for no balances.
    Raises: InputError, if the number of columns of X or Y does not fit.
    """
    c = constraint
    if c is None:
        return None
    if Y.shape[1] != c.n_outputs:
        raise InputError(
            f"y must have one column per output of the balances ({', '.join(map(repr, c.outputs))}), "
            f"but got {Y.shape[1]} columns."
        )
    if c.n_columns == 0 and isinstance(c, LinearConstraint):
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
    """Raise if an input is so far from the training data, or a term of a balance so large, that arithmetic overflows.

    Args:
        X: Inputs, then known columns, shape `(n, n_x + n_known)`, in the user's units.
        standardizer: The standardizer that was fitted to the training data.
        names: Names of the inputs, where there are no balances that have them; None generates them.
    Raises: InputRangeError, with column, row and value, beyond 1e30 standard deviations or scales of a balance.
    """
    s, c = standardizer, standardizer.constraint
    with np.errstate(over="ignore"):
        size = np.zeros(X.shape)
        size[:, : len(s.x_mean)] = np.abs(s.inputs(X))
        if isinstance(c, LinearConstraint):  # others may depend on inputs in any way
            size = np.maximum(size, np.abs(X) * (np.abs(c.A) / s.row_scale[:, None]).max(0, initial=0.0))
    if (size > FARTHEST).any():
        i, j = map(int, np.argwhere(size > FARTHEST)[0])
        names = names if c is None else c.columns
        raise InputRangeError(f"x{j}" if names is None else str(names[j]), i, float(X[i, j]))
