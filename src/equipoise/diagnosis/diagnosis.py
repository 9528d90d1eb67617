"""A table against its balances, before any training: what holds, what does not and how to repair it."""

import dataclasses
import math
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_jsonable_python

from equipoise.balances import ConstraintError, LinearConstraint, column_unit, did_you_mean, quoted_list
from equipoise.diagnosis import units
from equipoise.diagnosis.balance_diagnosis import BIASED, FAILS, LARGEST_SPREAD, TOO_FEW, BalanceFinding, Measured, look
from equipoise.diagnosis.column_diagnosis import (
    ColumnFinding,
    copies_in_words,
    duplicated_rows,
    in_words,
    look_at_column,
)
from equipoise.diagnosis.repairs import Terms

Array = NDArray[np.float64]
LISTED = 10  # row positions that are kept of many
MENTIONED = 3  # outlying rows in a sentence


@dataclass(frozen=True)
class Diagnosis:
    """What the data say of the balances, and what is the matter with the table.

    Attributes:
        balances: One finding per balance.
        columns: One finding per column: inputs, known columns, outputs, then others.
        n_rows: Rows of the table.
        n_duplicates: Rows that repeat an earlier one exactly.
        duplicates: Positions of the first of them.
        units_checked: Whether units were looked at; None if no column of a balance carries one.
        warnings: Sentences on everything that deserves a look.
    """

    balances: tuple[BalanceFinding, ...]
    columns: tuple[ColumnFinding, ...]
    n_rows: int
    n_duplicates: int
    duplicates: tuple[int, ...]
    units_checked: bool | None
    warnings: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether no balance has the verdict `does not hold`; a biased one, or one with too few rows, is no failure."""
        return all(balance.holds for balance in self.balances)

    @property
    def remarks(self) -> tuple[str, ...]:
        """The warnings that the findings on the balances do not hold already."""
        told = set(_verdicts(self.balances))
        return tuple(warning for warning in self.warnings if warning not in told)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values for JSON; what is not finite becomes None."""
        plain = to_jsonable_python(dataclasses.asdict(self), inf_nan_mode="null") | {"holds": self.holds}
        for record, balance in zip(plain["balances"], self.balances, strict=True):
            record["holds"] = balance.holds
        for record, column in zip(plain["columns"], self.columns, strict=True):
            record["constant"] = column.constant
        return plain


def diagnose(
    constraint: LinearConstraint,
    X: Any,
    Y: Any,
    *,
    sensor_std: Any = None,
    candidates: Mapping[str, Any] | None = None,
    precision: float = float(np.finfo(float).eps),
    called: Callable[[Sequence[int]], str] | None = None,
) -> Diagnosis:
    """Look whether data obey balances, and what is wrong where they do not.

    Args:
        constraint: The balances.
        X: Inputs, then known columns, shape `(n, n_columns)`; NaN is missing.
        Y: Outputs, shape `(n, n_outputs)`; NaN is missing.
        sensor_std: Standard deviations of the outputs' sensors, in their units: a mapping from outputs to numbers, or
            an array `(n_outputs,)`. A balance of which a sensor is not given, NaN or "learn" is judged by its terms.
        candidates: Other columns of the table, by name, shape `(n,)` each: one may be missing in a balance.
        precision: Relative rounding of the data, if they once were of a shorter type than float64.
        called: What sentences call rows, given their positions, such as "lines 5 and 9"; by default the positions,
            from 0.
    Raises: ConstraintError, if columns do not fit the constraint or each other.
    Example:
        >>> rng = np.random.default_rng(0)
        >>> top, bottom = rng.uniform(1, 3, (2, 100))
        >>> feed = top + bottom + 0.01 * rng.standard_normal(100)
        >>> wrong = LinearConstraint.from_equations("feed = top - bottom", inputs=["feed"], outputs=["top", "bottom"])
        >>> (balance,) = diagnose(wrong, feed[:, None], np.column_stack([top, bottom])).balances
        >>> balance.verdict
        'does not hold'
        >>> balance.repair.message, balance.repair.equation
        ('flip the sign of `bottom`: residual 4.2 → 0.01', 'feed = top + bottom')
    """
    X, Y, others = _checked(constraint, X, Y, candidates or {})
    names = (*constraint.columns, *constraint.outputs)
    table = dict(zip(names, (*X.T, *Y.T), strict=True)) | others
    columns = tuple(look_at_column(name, _role(name, constraint), values) for name, values in table.items())
    usable = [column.name for column in columns if column.minimum is not None and not column.constant]
    every = _measured(constraint, table, _sensors(sensor_std, constraint.outputs), precision)
    balances = tuple(_finding(measured, constraint, table, usable) for measured in every)
    repeated = duplicated_rows(table)
    checked, faults = _units(constraint)
    outlying = _outliers(balances, called or _by_position)
    warnings = [*_verdicts(balances), *outlying, *faults, *_on_columns(columns, len(X)), *copies_in_words(table)]
    if len(repeated):
        warnings.append(f"{len(repeated)} of {len(X)} rows repeat an earlier one exactly.")
    positions = tuple(map(int, repeated[:LISTED]))
    return Diagnosis(balances, columns, len(X), len(repeated), positions, checked, tuple(warnings))


def _role(name: str, constraint: LinearConstraint) -> str:
    roles = {"input": constraint.inputs, "known": constraint.known, "output": constraint.outputs}
    return next((role for role, names in roles.items() if name in names), "other")


def _checked(
    constraint: LinearConstraint, X: Any, Y: Any, candidates: Mapping[str, Any]
) -> tuple[Array, Array, dict[str, Array]]:
    """Columns of float64, of one length, each contiguous."""
    X, Y = np.asarray(X, dtype=float, order="F"), np.asarray(Y, dtype=float, order="F")
    for argument, data, names in (("X", X, constraint.columns), ("Y", Y, constraint.outputs)):
        if data.ndim != 2 or data.shape[1] != len(names):
            rule = f"{argument} must have shape (rows, {len(names)})"
            raise ConstraintError(f"{rule}, but got {data.shape}. Its columns are {quoted_list(names)}.")
    others = {name: np.asarray(values, dtype=float) for name, values in candidates.items()}
    for name, shape in {"Y": Y.shape[:1], **{name: values.shape for name, values in others.items()}}.items():
        if shape != X.shape[:1]:
            rule = f"X, Y and candidates must have the same rows, but got {len(X)} in X and shape {shape} for {name!r}"
            raise ConstraintError(f"{rule}. Take them from one table.")
    twice = [name for name in others if _role(name, constraint) != "other"]
    if twice:
        rule = f"candidates must be columns that the constraint has not, but got {quoted_list(twice)}"
        raise ConstraintError(f"{rule}. Leave them out.")
    return X, Y, others


def _sensors(said: Any, outputs: tuple[str, ...]) -> Array:
    """Standard deviation of each output's sensor, NaN where it is not known."""
    if said is None or (isinstance(said, str) and said == "learn"):
        return np.full(len(outputs), np.nan)
    if isinstance(said, Mapping):
        for name in said:
            if name not in outputs:
                advice = did_you_mean(str(name), outputs)
                raise ConstraintError(f"sensor_std must name outputs, but got {name!r}. {advice}")
        said = [said.get(name, math.nan) for name in outputs]
        said = [math.nan if isinstance(value, str) and value == "learn" else value for value in said]
    try:
        std = np.asarray(said, dtype=float)
    except (TypeError, ValueError):
        rule = "sensor_std must hold numbers or 'learn', one per output"
        raise ConstraintError(f"{rule}, but got {reprlib.repr(said)}. Correct it.") from None
    if std.shape != (len(outputs),):
        rule = f"sensor_std must be a mapping from outputs, or have shape ({len(outputs)},)"
        raise ConstraintError(f"{rule}, but got shape {std.shape}. The outputs are {quoted_list(outputs)}.")
    for name, value in zip(outputs, std, strict=True):
        if value < 0 or np.isinf(value):
            raise ConstraintError(f"sensor_std must be finite and ≥ 0, but got {value} for {name!r}. Correct it.")
    return std


def _measured(
    constraint: LinearConstraint, table: Mapping[str, Array], sensor_std: Array, precision: float
) -> Iterator[Measured]:
    """Each balance over the rows in which all its columns were measured."""
    order = (*constraint.columns, *constraint.outputs)
    for k, name in enumerate(constraint.names):
        row = np.concatenate([constraint.A[k], constraint.B[k]])
        coefficients = {order[j]: float(row[j]) for j in np.flatnonzero(row)}
        terms, rows, magnitude = _terms(coefficients, -float(constraint.b[k]), table, constraint.units[k], precision)
        explained = np.hypot.reduce(np.where(constraint.B[k] != 0, constraint.B[k] * sensor_std, 0.0))
        known = None if np.isnan(explained) else float(explained)
        yield Measured(name, constraint.equations[k], terms, rows, magnitude, precision, known)


def _terms(
    coefficients: Mapping[str, float], constant: float, table: Mapping[str, Array], unit: str | None, precision: float
) -> tuple[Terms, NDArray[np.intp], Array]:
    """One balance column by column (Z1), its rows, and the sum of its terms' sizes in each of them."""
    n_rows = len(next(iter(table.values())))
    z, magnitude = np.full(n_rows, constant), np.full(n_rows, abs(constant))
    with np.errstate(invalid="ignore", over="ignore"):  # infinite values count as missing
        for name, coefficient in coefficients.items():
            term = coefficient * table[name]
            z += term
            magnitude += np.abs(term)
    rows = np.flatnonzero(np.isfinite(magnitude))
    z, magnitude = _rows(z, rows), _rows(magnitude, rows)
    columns = {name: _rows(table[name], rows) for name in coefficients}
    rounding = 64 * precision * float(magnitude.max(initial=0.0))
    return Terms(coefficients, constant, columns, z, rounding, unit), rows, magnitude


def _rows(values: Array, rows: NDArray[np.intp]) -> Array:
    """Some rows of a column; all of them without copying."""
    return values if len(rows) == len(values) else values[rows]


def _finding(
    measured: Measured, constraint: LinearConstraint, table: Mapping[str, Array], usable: Sequence[str]
) -> BalanceFinding:
    inside = measured.terms.coefficients
    inputs = {name: _rows(table[name], measured.rows) for name in constraint.columns}
    others = {name: _rows(table[name], measured.rows) for name in usable if name not in inside}
    return look(measured, inputs, others, constraint.outputs)


def _units(constraint: LinearConstraint) -> tuple[bool | None, list[str]]:
    """Whether units were looked at (None: there are none), and what is wrong with them."""
    columns = (*constraint.columns, *constraint.outputs)
    coefficients = np.hstack([constraint.A, constraint.B])
    rows = [{columns[j]: float(row[j]) for j in np.flatnonzero(row)} for row in coefficients]
    if not any(column_unit(name) for row in rows for name in row):
        return None, []
    if not units.available():
        return False, ["Units were not looked at: pint is not installed. Install equipoise[units]."]
    named = zip(constraint.names, rows, strict=True)
    return True, [f"Balance '{name}': {fault}." for name, row in named for fault in units.unit_faults(row)]


def _verdicts(balances: Sequence[BalanceFinding]) -> Iterator[str]:
    for balance in balances:
        if balance.verdict in (FAILS, BIASED, TOO_FEW):
            verdict = {BIASED: "is biased", TOO_FEW: "has too few rows"}.get(balance.verdict, balance.verdict)
            repair = f" To repair it, {balance.repair.message}." if balance.repair else ""
            yield f"Balance '{balance.name}' {verdict}: {balance.reason}.{repair}"
        elif (balance.relative_std or 0.0) > LARGEST_SPREAD:
            yield f"Balance '{balance.name}' cannot be told from chance: its terms vary as if they were unrelated."


def _outliers(balances: Sequence[BalanceFinding], called: Callable[[Sequence[int]], str]) -> Iterator[str]:
    for balance in balances:
        if n := balance.n_outliers:
            rows = called([outlier.row for outlier in balance.outliers[:MENTIONED]])
            which = f"first of all {rows}" if n > MENTIONED else rows
            many = "the residual of 1 row stands out" if n == 1 else f"residuals of {n} rows stand out"
            yield f"Balance '{balance.name}': {many} ({which})."


def _by_position(rows: Sequence[int]) -> str:
    return ", ".join(map(str, rows))


def _on_columns(columns: Sequence[ColumnFinding], n_rows: int) -> Iterator[str]:
    for column in columns:
        yield from in_words(column, n_rows)
