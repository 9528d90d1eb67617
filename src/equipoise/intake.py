"""Tables on their way in: columns by name, numbers only, the shapes that the balances want, nothing out of range."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from equipoise import frames
from equipoise.constraints import LinearConstraint
from equipoise.scaling import Standardizer

Array = NDArray[np.float64]
FARTHEST = 1e30  # standard deviations from the training data: beyond them single precision overflows


class InputRangeError(ValueError):
    """An input so far out that nothing can be computed with it: its column, its row from 0, and its value."""

    rule = f"must lie within {FARTHEST:g} standard deviations of the training data"

    def __init__(self, column: str, row: int, value: float):
        got = f"{value:g} in column {column!r}, row {row}"
        super().__init__(f"X {self.rule}, but got {got}. Correct it or drop the row.")
        self.column, self.row, self.value = column, row, value


def inputs_of(estimator: BaseEstimator, X: Any, columns: Sequence[str], reset: bool) -> Array:
    """Inputs as an array, shape `(n, n_x)`.

    Args:
        estimator: On which scikit-learn keeps the names and the number of inputs.
        X: A table.
        columns: Which to take, in this order; all if there are none, and of an array.
        reset: Whether this is a new fit, or rows that must have the columns of the last one.
    """
    X = frames.select(X, columns, "X")
    try:
        checked = validate_data(estimator, X, reset=reset, dtype=np.float64, ensure_min_samples=2 if reset else 1)
    except (TypeError, ValueError) as error:
        if (found := frames.culprit(X)) is None:
            raise
        raise ValueError(f"X must hold finite numbers only, but got {found}. Drop it or fill it in.") from error
    return np.asarray(checked)


def outputs_of(y: Any) -> tuple[Array, float]:
    """Outputs as an array with as many axes as they came with, and their relative rounding as they came.

    Example:
        >>> outputs_of(np.array([1, 2], dtype=np.float32))
        (array([1., 2.]), 1.1920928955078125e-07)
    """
    checks: Any = {"ensure_2d": False, "ensure_all_finite": "allow-nan", "input_name": "y"}
    Y = check_array(y, dtype=None, **checks)  # type: ignore[arg-type]
    precision = float(np.finfo(Y.dtype if Y.dtype.kind == "f" else float).eps)
    try:
        return check_array(Y, dtype=np.float64, **checks), precision  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        if (found := frames.culprit(y)) is None:
            raise
        raise ValueError(f"y must hold numbers, NaN where not measured, but got {found}.") from error


def output_names(y: Any) -> tuple[str, ...]:
    """Names of the columns of a frame, or of the one column of a series; none of an array."""
    name = getattr(y, "name", None)
    return frames.columns_of(y) or ((name,) if isinstance(name, str) else ())


def fitting_constraint(
    constraint: LinearConstraint | None, X: Array, Y: Array, inputs: Sequence[str] | None
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
        raise ValueError(
            f"y must have one column per output of the balances ({', '.join(map(repr, c.outputs))}), "
            f"but got {Y.shape[1]} columns."
        )
    if c.n_columns == 0:
        names = [f"x{j}" for j in range(X.shape[1])] if inputs is None else list(inputs)
        A = np.zeros((c.n_balances, X.shape[1]))
        return LinearConstraint(c.B, A, c.b, names=c.names, inputs=names, outputs=c.outputs, units=c.units)
    if X.shape[1] != c.n_columns or c.n_inputs == 0:
        raise ValueError(
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
