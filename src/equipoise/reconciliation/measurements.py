"""Measurements of a plant: values, standard deviations, inputs and tolerances, checked and converted to arrays."""

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from equipoise.balances import LinearConstraint, column_unit, did_you_mean, quoted_list
from equipoise.data import FrameBuilder, frames
from equipoise.errors import EquipoiseError

Array = NDArray[np.float64]


class ReconciliationError(EquipoiseError, ValueError):
    """Measurements that cannot be reconciled in the form in which they were given."""


@dataclass(frozen=True, eq=False)
class Measurements:
    """Rows of measured values with their errors, and the balances they should obey.

    Args:
        constraint: The balances.
        names: Names of all n variables: outputs, then the columns of `A`.
        reported: How many of them are reconciled and reported: the outputs, or all variables.
        values: Measured values, shape `(rows, n)`, NaN where nothing was measured.
        std: Standard deviations, shape `(n,)` or `(rows, n)`; 0 is exact, ∞ is as good as not measured.
        tolerance: Standard deviations of the balances, shape `(m,)`; ∞ drops a balance.
        covariance: Covariance of the errors, shape `(n, n)`, where they are correlated.
        single: Whether one row was given on its own.
        in_kind: Converts arrays `(rows, n)` to the kind of table that was given.
        labels: Name of each row.
    """

    constraint: LinearConstraint
    names: tuple[str, ...]
    reported: int
    values: Array
    std: Array
    tolerance: Array
    covariance: Array | None
    single: bool
    in_kind: FrameBuilder
    labels: Any

    @property
    def C(self) -> Array:
        """Coefficients of all variables, `(B, A)`, shape `(m, n)`."""
        return np.hstack([self.constraint.B, self.constraint.A])[:, : len(self.names)]

    @property
    def units(self) -> tuple[str | None, ...]:
        """The unit of each variable, as given in its name; None without one."""
        return tuple(map(column_unit, self.names))

    def __len__(self) -> int:
        return len(self.values)


def measurements(
    values: Any,
    std: Any,
    constraint: Any,
    inputs: Any = None,
    inputs_std: Any = None,
    covariance: Any = None,
    tolerance: Any = None,
) -> Measurements:
    """Check the arguments of `reconcile` and convert them to arrays.

    Args:
        values, std, constraint, inputs, inputs_std, covariance, tolerance: As for `reconcile`.
    Raises: ReconciliationError, with the name of what is wrong.
    Example:
        >>> flows = LinearConstraint.from_equations("a = b + c", outputs=["a", "b", "c"])
        >>> measurements({"a": 3, "b": 1, "c": None}, {"a": 0.1, "b": 0.1, "c": 0.1}, flows).values
        array([[ 3.,  1., nan]])
    """
    if not isinstance(constraint, LinearConstraint):
        rule = "constraint must be a LinearConstraint with at least one balance"
        raise ReconciliationError(f"{rule}, but got {reprlib.repr(constraint)}. Use LinearConstraint.from_equations.")
    y, single = _rows("values", values, constraint.outputs)
    x = _inputs(inputs, constraint, len(y), missing=inputs_std is not None)
    z = np.hstack([y, x]) if x.shape[1] else y
    names = (constraint.outputs + constraint.columns)[: z.shape[1]]
    reported = constraint.n_outputs if inputs_std is None else len(names)
    V = None if covariance is None else _covariance(covariance, std, constraint.outputs)
    y_std = _std_of("std", std, constraint.outputs, y) if V is None else np.sqrt(np.diagonal(V))
    x_std = _std_of("inputs_std", 0.0 if inputs_std is None else inputs_std, names[len(constraint.outputs) :], x, 0.0)
    tolerance = _std_of("tolerance", 0.0 if tolerance is None else tolerance, constraint.names, None, 0.0)
    if V is not None and x_std.ndim == 2:
        advice = "Give one standard deviation for each input, or std instead of covariance"
        raise ReconciliationError(f"inputs_std must be the same for all rows where covariance is given. {advice}.")
    return Measurements(
        constraint,
        names,
        reported,
        values=z,
        std=_side_by_side(y_std, x_std),
        tolerance=tolerance,
        covariance=None if V is None else np.asarray(scipy.linalg.block_diag(V, np.diag(np.square(x_std)))),
        single=single,
        in_kind=frames.frame_builder(values, names[:reported]),
        labels=_labels(values, len(z)),
    )


def _rows(argument: str, data: Any, names: tuple[str, ...]) -> tuple[Array, bool]:
    """Return a table as an array `(rows, n)`, and whether it was a single row."""
    array = as_numbers(argument, _ordered(argument, data, names)).copy()  # the user's own array may be changed later
    if array.ndim not in (1, 2) or array.shape[-1] != len(names):
        rule = f"{argument} must have {len(names)} columns ({quoted_list(names)})"
        raise ReconciliationError(f"{rule}, but got shape {array.shape}. Give one row, or a table of rows.")
    absurd = np.argwhere(frames.is_absurd(np.atleast_2d(array)))
    if len(absurd):
        row, column = absurd[0]
        value = float(np.atleast_2d(array)[row, column])
        rule, got = f"{argument} must be {frames.bound_of(value)}", f"{value} for {names[column]!r} in row {row}"
        raise ReconciliationError(f"{rule}, but got {got}. Use NaN for what was not measured.")
    return np.atleast_2d(array), array.ndim == 1


def _ordered(argument: str, data: Any, names: tuple[str, ...], default: float | None = None) -> Any:
    """Arrange frames, mappings and named series in the order of the names; return other data unchanged.

    Args:
        argument: Name of the user's argument, for messages.
        data: The user's data.
        names: Names that the data must have.
        default: Value of a name that a mapping lacks; None if no name may be missing.
    """
    if frames.is_frame(data):
        try:
            return frames.select(data, names, argument)
        except ValueError as error:
            raise ReconciliationError(str(error)) from None
    if not isinstance(data, Mapping):
        if not (hasattr(data, "items") and hasattr(data, "index") and np.ndim(data) == 1):
            return data
        data = dict(data.items())
    unknown = [name for name in data if name not in names]
    if unknown:
        rule = f"{argument} must name {quoted_list(names)}"
        raise ReconciliationError(f"{rule}, but got {unknown[0]!r}. {did_you_mean(str(unknown[0]), names)}")
    missing = [name for name in names if name not in data]
    if missing and default is None:
        advice = "Give it a value, NaN for what is not known"
        raise ReconciliationError(
            f"{argument} must name all variables, but got nothing for {quoted_list(missing)}. {advice}."
        )
    return [data.get(name, default) for name in names]


def as_numbers(argument: str, data: Any) -> Array:
    """Convert the user's data to an array of floats of any shape.

    Args:
        argument: Name of the user's argument, for messages.
        data: The user's data.
    Raises: ReconciliationError, with the entry that is no number.
    """
    try:
        return np.asarray(data, dtype=np.float64)
    except (TypeError, ValueError):
        got = frames.first_non_number(data) or reprlib.repr(data)
        raise ReconciliationError(f"{argument} must hold numbers, but got {got}. Correct or remove it.") from None


def _inputs(inputs: Any, constraint: LinearConstraint, n_rows: int, *, missing: bool) -> Array:
    """Return inputs and known columns, shape `(rows, n_columns)`; no columns where no balance needs any."""
    if inputs is None:
        needed = [name for name, a in zip(constraint.columns, constraint.A.T, strict=True) if a.any()]
        if needed:
            rule = f"inputs must hold {quoted_list(constraint.columns)}, which balances use"
            raise ReconciliationError(f"{rule}, but got None. Give their values, one row for each row of values.")
        return np.zeros((n_rows, 0))
    x, _ = _rows("inputs", inputs, constraint.columns)
    if len(x) != n_rows:
        raise ReconciliationError(f"inputs must have {n_rows} rows, like values, but got {len(x)}. Make them agree.")
    if not missing and np.isnan(x).any():
        row, column = np.argwhere(np.isnan(x))[0]
        got = f"NaN for {constraint.columns[column]!r} in row {row}"
        advice = "Give inputs_std, and it is estimated from the balances"
        raise ReconciliationError(f"inputs without inputs_std must have values, but got {got}. {advice}.")
    return x


def _std_of(
    argument: str, data: Any, names: tuple[str, ...], values: Array | None, default: float | None = None
) -> Array:
    """Return standard deviations, shape `(n,)`, or `(rows, n)` where each row has its own.

    Args:
        argument: Name of the user's argument, for messages.
        data: One number for all, or one each, by order or by name; or a table of them.
        names: Names of the variables or balances.
        values: Measured values, `(rows, n)`, which need no standard deviation where they are NaN; None for balances.
        default: Standard deviation of a name that is left out; None if no name may be missing.
    """
    if data is None:
        advice = f"Give one for each of {quoted_list(names)}, or covariance"
        raise ReconciliationError(f"{argument} must hold standard deviations, but got None. {advice}.")
    std = as_numbers(argument, _ordered(argument, data, names, default))
    shapes = [(), (len(names),)] + ([] if values is None else [values.shape])
    if std.shape not in shapes:
        rule = f"{argument} must be one number, or one for each of {quoted_list(names)}"
        rows = "" if values is None else ", for all rows or for each of them"
        raise ReconciliationError(f"{rule}{rows}, but got shape {std.shape}. Make it fit.")
    std = np.broadcast_to(std, (len(names),)) if std.ndim == 0 else std
    _check_std(argument, std, names, values)
    return np.where(np.isnan(std), np.inf, std)


def _check_std(argument: str, std: Array, names: tuple[str, ...], values: Array | None) -> None:
    """Raise a ReconciliationError if a standard deviation is negative, or missing where a value needs one."""
    needed = np.ones(std.shape, bool) if values is None else ~np.isnan(values)
    needed = needed.any(axis=0) if needed.ndim > std.ndim else needed
    wrong = np.argwhere((std < 0) | (np.isnan(std) & needed))
    if len(wrong):
        *row, column = wrong[0]
        entry = f"{std[tuple(wrong[0])]} for {names[column]!r}" + (f" in row {row[0]}" if row else "")
        advice = "Use 0 for what is exact, and NaN as the value of what was not measured"
        advice = "Use 0 for a balance that holds exactly" if values is None else advice
        raise ReconciliationError(f"{argument} must hold numbers ≥ 0, but got {entry}. {advice}.")


def _covariance(data: Any, std: Any, outputs: tuple[str, ...]) -> Array:
    """Return the covariance of the outputs; it must be positive definite but for exact outputs, whose rows are 0."""
    V, n = as_numbers("covariance", _square(data, outputs)), len(outputs)
    if V.shape != (n, n):
        rule = f"covariance must have shape ({n}, {n}), for {quoted_list(outputs)}"
        raise ReconciliationError(f"{rule}, but got shape {V.shape}. Use std for variances alone.")
    own = np.sqrt(np.clip(np.diagonal(V), 0.0, None))
    scale = np.where(own > 0, own, 1.0)
    correlation = V / scale / scale[:, None]
    if not np.isfinite(V).all() or not np.allclose(correlation, correlation.T, rtol=0, atol=1e-8):
        raise ReconciliationError("covariance must be symmetric and finite, but got one that is not. Correct it.")
    least = np.linalg.eigvalsh(correlation + np.diag(own == 0)).min()
    if least < 1e-12 or (np.diagonal(V) < 0).any() or V[own == 0].any():
        got = f"correlations with the eigenvalue {least:.3g}"
        advice = "Errors that are the same in two instruments need one variable of their own"
        raise ReconciliationError(f"covariance must be positive definite, but got {got}. {advice}.")
    if std is not None and not np.allclose(_std_of("std", std, outputs, np.zeros((1, n))), own, rtol=1e-6, atol=0):
        rule = "std must be None, or the root of the diagonal of covariance, where that is given"
        raise ReconciliationError(f"{rule}, but got {reprlib.repr(std)}. Leave one of them out.")
    return (V + V.T) / 2


def _square(data: Any, outputs: tuple[str, ...]) -> Any:
    """Arrange a frame with rows and columns in the order of the outputs; return other data unchanged.

    Rows are named by the frame's index, or else like its columns.
    """
    if not frames.is_frame(data):
        return data
    index: list[Any] = list(getattr(data, "index", ()))
    rows: list[Any] = index if set(index) >= set(outputs) else list(frames.columns_of(data))
    table = as_numbers("covariance", _ordered("covariance", data, outputs))
    return table[[rows.index(name) for name in outputs]] if set(rows) >= set(outputs) else table


def _side_by_side(y_std: Array, x_std: Array) -> Array:
    """Join standard deviations of outputs and inputs; one for each row where either has one for each row."""
    if y_std.ndim == x_std.ndim:
        return np.concatenate([y_std, x_std], axis=-1) if x_std.size else y_std
    rows = len(y_std if y_std.ndim == 2 else x_std)
    return np.hstack([np.broadcast_to(part, (rows, part.shape[-1])) for part in (y_std, x_std)])


def _labels(values: Any, n_rows: int) -> Any:
    """Return the index of a pandas frame, or row numbers."""
    index = getattr(values, "index", None) if frames.is_frame(values) else None
    return np.arange(n_rows) if index is None else index
