"""Diagnosis of a table before training: which balances hold, how to repair the others, and faults of the table."""

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
from equipoise.diagnosis.balance_diagnosis import (
    BIASED,
    DOES_NOT_HOLD,
    MAX_LISTED_ROWS,
    MAX_SPREAD,
    TOO_FEW_ROWS,
    BalanceFinding,
    MeasuredBalance,
    diagnose_balance,
)
from equipoise.diagnosis.column_diagnosis import (
    ColumnFinding,
    column_warnings,
    copy_warnings,
    diagnose_column,
    duplicated_rows,
)
from equipoise.diagnosis.repairs import Terms

Array = NDArray[np.float64]
MENTIONED_ROWS = 3  # outliers that are named in a sentence


@dataclass(frozen=True)
class Diagnosis:
    """Findings on the balances, columns and rows of a table.

    Attributes:
        balances: One finding per balance.
        columns: One finding per column: inputs, known columns, outputs, then others.
        n_rows: Number of rows of the table.
        n_duplicates: Number of rows that repeat an earlier one exactly.
        duplicates: Positions of the first ten of them.
        units_checked: Whether the units of the balances were compared; None if no column of a balance has a unit.
        warnings: Sentences on everything that deserves attention.
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
        """Whether no balance has the verdict `does not hold`; the verdicts `biased` and `too few rows` do not count."""
        return all(balance.holds for balance in self.balances)

    @property
    def remarks(self) -> tuple[str, ...]:
        """The warnings, without those that repeat verdict, reason and repair of a balance."""
        verdicts = set(_verdict_warnings(self.balances))
        return tuple(warning for warning in self.warnings if warning not in verdicts)

    def to_dict(self) -> dict[str, Any]:
        """Convert the diagnosis to a dictionary of plain values for JSON; numbers that are not finite become None."""
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
    """Diagnose whether data obey balances, what would repair those that they do not obey, and faults of the table.

    Args:
        constraint: The balances, a `LinearConstraint`.
        X: Inputs, then known columns, in their own units, shape `(n, n_columns)`; NaN is missing.
        Y: Outputs in their own units, shape `(n, n_outputs)`; NaN is missing.
        sensor_std: Standard deviations of the outputs' sensors, in the outputs' units: a mapping from outputs to
            numbers, or an array `(n_outputs,)`. A balance with a sensor that is not given, NaN or "learn" is judged by
            the sizes of its terms.
        candidates: Other columns of the table by name, shape `(n,)` each, one of which may be missing in a balance.
        precision: Relative rounding of the data, if they once were of a shorter type than float64.
        called: Function from positions of rows to their names in sentences, such as "lines 5 and 9"; by default the
            positions themselves, from 0.
    Returns: One finding for each balance and each column, and warnings in words.
    Raises: ConstraintError, if columns do not fit the constraint or each other, or for another kind of equality.
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
    if not isinstance(constraint, LinearConstraint):
        rule = f"constraint must be a LinearConstraint for a diagnosis, but got {type(constraint).__name__}"
        raise ConstraintError(f"{rule}. Look at its residual(X, Y) instead.")
    X, Y, others = _checked(constraint, X, Y, candidates or {})
    names = (*constraint.columns, *constraint.outputs)
    table = dict(zip(names, (*X.T, *Y.T), strict=True)) | others
    columns = tuple(diagnose_column(name, _role(name, constraint), values) for name, values in table.items())
    usable = [column.name for column in columns if column.minimum is not None and not column.constant]
    measured = _measured(constraint, table, _sensor_std(sensor_std, constraint.outputs), precision)
    balances = tuple(_finding(balance, constraint, table, usable) for balance in measured)
    repeated = duplicated_rows(table)
    units_checked, unit_warnings = _compare_units(constraint)
    warnings = [
        *_verdict_warnings(balances),
        *_outlier_warnings(balances, called or _by_position),
        *unit_warnings,
        *(warning for column in columns for warning in column_warnings(column, len(X))),
        *copy_warnings(table),
    ]
    if len(repeated):
        warnings.append(f"{len(repeated)} of {len(X)} rows repeat an earlier one exactly.")
    positions = tuple(map(int, repeated[:MAX_LISTED_ROWS]))
    return Diagnosis(balances, columns, len(X), len(repeated), positions, units_checked, tuple(warnings))


def _role(name: str, constraint: LinearConstraint) -> str:
    roles = {"input": constraint.inputs, "known": constraint.known, "output": constraint.outputs}
    return next((role for role, names in roles.items() if name in names), "other")


def _checked(
    constraint: LinearConstraint, X: Any, Y: Any, candidates: Mapping[str, Any]
) -> tuple[Array, Array, dict[str, Array]]:
    """Check and convert the data; return X and Y with contiguous columns, and the candidates, all in float64."""
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


def _sensor_std(sensor_std: Any, outputs: tuple[str, ...]) -> Array:
    """Check `sensor_std` and return the standard deviation of each output's sensor, NaN where it is not known."""
    if sensor_std is None or (isinstance(sensor_std, str) and sensor_std == "learn"):
        return np.full(len(outputs), np.nan)
    if isinstance(sensor_std, Mapping):
        for name in sensor_std:
            if name not in outputs:
                advice = did_you_mean(str(name), outputs)
                raise ConstraintError(f"sensor_std must name outputs, but got {name!r}. {advice}")
        values = [sensor_std.get(name, math.nan) for name in outputs]
        sensor_std = [math.nan if isinstance(value, str) and value == "learn" else value for value in values]
    try:
        std = np.asarray(sensor_std, dtype=float)
    except (TypeError, ValueError):
        rule = "sensor_std must hold numbers or 'learn', one per output"
        raise ConstraintError(f"{rule}, but got {reprlib.repr(sensor_std)}. Correct it.") from None
    if std.shape != (len(outputs),):
        rule = f"sensor_std must be a mapping from outputs, or have shape ({len(outputs)},)"
        raise ConstraintError(f"{rule}, but got shape {std.shape}. The outputs are {quoted_list(outputs)}.")
    for name, value in zip(outputs, std, strict=True):
        if value < 0 or np.isinf(value):
            raise ConstraintError(f"sensor_std must be finite and ≥ 0, but got {value} for {name!r}. Correct it.")
    return std


def _measured(
    constraint: LinearConstraint, table: Mapping[str, Array], sensor_std: Array, precision: float
) -> Iterator[MeasuredBalance]:
    """Evaluate each balance in the rows in which all its columns were measured.

    Args:
        constraint: The balances.
        table: Columns by name, shape `(n,)` each.
        sensor_std: Standard deviations of the outputs' sensors, shape `(n_outputs,)`; NaN where not known.
        precision: Relative rounding of the data.
    """
    order = (*constraint.columns, *constraint.outputs)
    for k, name in enumerate(constraint.names):
        row = np.concatenate([constraint.A[k], constraint.B[k]])
        coefficients = {order[j]: float(row[j]) for j in np.flatnonzero(row)}
        terms, rows, magnitude = _terms(coefficients, -float(constraint.b[k]), table, constraint.units[k], precision)
        explained = np.hypot.reduce(np.where(constraint.B[k] != 0, constraint.B[k] * sensor_std, 0.0))
        residual_std = None if np.isnan(explained) else float(explained)
        yield MeasuredBalance(name, constraint.equations[k], terms, rows, magnitude, precision, residual_std)


def _terms(
    coefficients: Mapping[str, float], constant: float, table: Mapping[str, Array], unit: str | None, precision: float
) -> tuple[Terms, NDArray[np.intp], Array]:
    """Evaluate one balance column by column (Z1).

    Args:
        coefficients: Coefficients of the balance by column.
        constant: Its constant, on the side of the terms.
        table: Columns by name, shape `(n,)` each.
        unit: Unit of the balance.
        precision: Relative rounding of the data.
    Returns: Its terms, the positions of the rows in which all its columns were measured, and the sum of the absolute
        values of its terms in each of them.
    """
    n_rows = len(next(iter(table.values())))
    z, magnitude = np.full(n_rows, constant), np.full(n_rows, abs(constant))
    with np.errstate(invalid="ignore", over="ignore"):  # infinite values count as missing
        for name, coefficient in coefficients.items():
            term = coefficient * table[name]
            z += term
            magnitude += np.abs(term)
    rows = np.flatnonzero(np.isfinite(magnitude))
    z, magnitude = _select(z, rows), _select(magnitude, rows)
    columns = {name: _select(table[name], rows) for name in coefficients}
    rounding = 64 * precision * float(magnitude.max(initial=0.0))
    return Terms(coefficients, constant, columns, z, rounding, unit), rows, magnitude


def _select(values: Array, rows: NDArray[np.intp]) -> Array:
    """Return the values of a column in some rows, in ascending order; a view if these are all rows."""
    return values if len(rows) == len(values) else values[rows]


def _finding(
    balance: MeasuredBalance, constraint: LinearConstraint, table: Mapping[str, Array], usable: Sequence[str]
) -> BalanceFinding:
    """Diagnose one balance; any usable column of the table may be missing in it."""
    inputs = {name: _select(table[name], balance.rows) for name in constraint.columns}
    others = {name: _select(table[name], balance.rows) for name in usable if name not in balance.terms.coefficients}
    return diagnose_balance(balance, inputs, others, constraint.outputs)


def _compare_units(constraint: LinearConstraint) -> tuple[bool | None, list[str]]:
    """Return whether the units of the balances were compared (None: there are none), and sentences on their faults."""
    columns = (*constraint.columns, *constraint.outputs)
    coefficients = np.hstack([constraint.A, constraint.B])
    rows = [{columns[j]: float(row[j]) for j in np.flatnonzero(row)} for row in coefficients]
    if not any(column_unit(name) for row in rows for name in row):
        return None, []
    if not units.available():
        return False, ["Units were not looked at: pint is not installed. Install equipoise[units]."]
    named = zip(constraint.names, rows, strict=True)
    return True, [f"Balance '{name}': {fault}." for name, row in named for fault in units.unit_faults(row)]


def _verdict_warnings(balances: Sequence[BalanceFinding]) -> Iterator[str]:
    for balance in balances:
        if balance.verdict in (DOES_NOT_HOLD, BIASED, TOO_FEW_ROWS):
            verdict = {BIASED: "is biased", TOO_FEW_ROWS: "has too few rows"}.get(balance.verdict, balance.verdict)
            repair = f" To repair it, {balance.repair.message}." if balance.repair else ""
            yield f"Balance '{balance.name}' {verdict}: {balance.reason}.{repair}"
        elif (balance.relative_std or 0.0) > MAX_SPREAD:
            yield f"Balance '{balance.name}' cannot be told from chance: its terms vary as if they were unrelated."


def _outlier_warnings(balances: Sequence[BalanceFinding], called: Callable[[Sequence[int]], str]) -> Iterator[str]:
    for balance in balances:
        if n := balance.n_outliers:
            rows = called([outlier.row for outlier in balance.outliers[:MENTIONED_ROWS]])
            which = f"first of all {rows}" if n > MENTIONED_ROWS else rows
            many = "the residual of 1 row stands out" if n == 1 else f"residuals of {n} rows stand out"
            yield f"Balance '{balance.name}': {many} ({which})."


def _by_position(rows: Sequence[int]) -> str:
    return ", ".join(map(str, rows))
