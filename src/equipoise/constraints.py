"""Linear balances between the columns of a table, `A x + B y = b`, with the names of everything in them.

Inputs `x` (network inputs, then known columns that only enter balances) and outputs `y` are columns of the user's
table, in the user's units. A constraint is a checked value: its rows are finite, involve outputs and are independent.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from equipoise.dependence import find_dependence, leftover
from equipoise.equations import (
    EquationError,
    LinearEquation,
    column_unit,
    did_you_mean,
    format_equation,
    parse_equation,
    quoted_list,
)

FloatArray = NDArray[np.float64]
# Loose on purpose: what does not convert to floats, or is no text, is refused with a message that says where it stands.
Numbers = Any
Names = Iterable[Any]


class ConstraintError(ValueError):
    """Balances that are not usable as a constraint, or data that do not fit them."""


@dataclass(frozen=True, init=False, eq=False, repr=False)
class LinearConstraint:
    """Linear balances `A x + B y = b` over named columns.

    Args:
        B: Coefficients of the outputs, shape `(m, n_y)`.
        A: Coefficients of inputs, then known columns, shape `(m, n_x + n_known)`; zeros when left out.
        b: Constants, shape `(m,)`; zeros when left out.
        names: One name per balance.
        inputs: Names of the network's inputs.
        outputs: Names of the outputs.
        known: Names of columns that enter balances but not the network.
        units: One unit or None per balance. When left out, the unit on which all columns with coefficient ±1 that
            carry one (`"Voltage [V]"`) agree.
    Raises: ConstraintError, if a coefficient is not finite, a balance involves no output, names clash, or balances
        are dependent or contradictory. Dependence does not depend on the units of columns and balances.
    Example:
        >>> LinearConstraint([[1, -1, -1]], outputs=["Q_tot [W]", "Q_rev [W]", "Q_irr [W]"], names=["heat"])
        LinearConstraint(1 balance, 0 inputs, 0 known, 3 outputs)
          'heat' [W]: `Q_tot [W]` = `Q_rev [W]` + `Q_irr [W]`
    """

    A: FloatArray
    B: FloatArray
    b: FloatArray
    names: tuple[str, ...]
    inputs: tuple[str, ...]
    known: tuple[str, ...]
    outputs: tuple[str, ...]
    units: tuple[str | None, ...]
    equations: tuple[str, ...]

    def __init__(
        self,
        B: Numbers,
        A: Numbers | None = None,
        b: Numbers | None = None,
        *,
        names: Names | None = None,
        inputs: Names | None = None,
        outputs: Names | None = None,
        known: Names = (),
        units: Names | None = None,
    ):
        B = _matrix("B", B, "(balances, outputs)")
        m, n_y = B.shape
        names = _names("names", (f"balance {k}" for k in range(m)) if names is None else names)
        outputs = _names("outputs", (f"y{j}" for j in range(n_y)) if outputs is None else outputs)
        known = _names("known", known)
        inputs = None if inputs is None else _names("inputs", inputs)
        width = len(inputs or ()) + len(known)
        A = np.zeros((m, width)) if A is None else _matrix("A", A, "(balances, inputs and known columns)")
        inputs = tuple(f"x{j}" for j in range(A.shape[1] - len(known))) if inputs is None else inputs
        b = np.zeros(m) if b is None else _numbers("b", b)
        vars(self).update(A=A + 0.0, B=B + 0.0, b=b + 0.0, names=names, inputs=inputs, known=known, outputs=outputs)
        _check(self)
        vars(self).update(units=_units(self, units), equations=tuple(map(self._text, range(m))))
        self.__setstate__(vars(self))

    @classmethod
    def from_equations(
        cls,
        equations: str | Names | Mapping[str, Any],
        *,
        inputs: Names = (),
        outputs: Names,
        known: Names = (),
    ) -> LinearConstraint:
        """Read balances from text (see `parse_equation`).

        Args:
            equations: One text, a list of texts, each its own name, or a mapping of names to texts.
            inputs: Names of the network's inputs.
            outputs: Names of the outputs.
            known: Names of columns that enter balances but not the network.
        Example:
            >>> balances = LinearConstraint.from_equations({"mass": "feed + 1 = top + bottom"}, inputs=["feed"],
            ...                                            outputs=["top", "bottom"])
            >>> balances.A, balances.B, balances.b
            (array([[1.]]), array([[-1., -1.]]), array([-1.]))
        """
        named = _named_texts(equations)
        inputs, known, outputs = _names("inputs", inputs), _names("known", known), _names("outputs", outputs)
        _check_unique_columns(inputs, known, outputs)
        order = inputs + known + outputs
        parsed = [_parsed(name, text, order) for name, text in named]
        table = np.array([[row.coefficients.get(column, 0.0) for column in order] for row in parsed])
        A, B = np.split(table, [len(inputs + known)], axis=1)
        b = [-row.constant for row in parsed]
        constraint = cls(B, A, b, names=[n for n, _ in named], inputs=inputs, outputs=outputs, known=known)
        vars(constraint).update(equations=tuple(row.text for row in parsed))
        return constraint

    @property
    def n_balances(self) -> int:
        """Number of balances `m`."""
        return len(self.names)

    @property
    def n_inputs(self) -> int:
        """Number of network inputs, without known columns."""
        return len(self.inputs)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of `A`: inputs, then known."""
        return self.inputs + self.known

    @property
    def n_columns(self) -> int:
        """Number of columns of `A`."""
        return len(self.columns)

    @property
    def n_outputs(self) -> int:
        """Number of outputs `n_y`."""
        return len(self.outputs)

    def target(self, X: Numbers) -> FloatArray:
        """What `B y` should be, `t = b − A x`, shape `(..., m)`.

        Args:
            X: Inputs, then known columns, shape `(..., n_columns)`. A missing value (NaN) makes only those balances
                NaN which it enters; the same holds for `residual` and `magnitude`.
        Example:
            >>> LinearConstraint([[1.0]], A=[[-2.0]], b=[0.5]).target([[1.0], [2.0]])
            array([[2.5],
                   [4.5]])
        """
        return self.b - _combined(self.A, _rows("X", X, self.columns))

    def residual(self, X: Numbers, Y: Numbers) -> FloatArray:
        """By how much rows of data miss each balance, shape `(..., m)`::

            z = A x + B y − b        (Z1)

        Args:
            X: Inputs, then known columns, shape `(..., n_columns)`.
            Y: Outputs, shape `(..., n_outputs)`; leading axes broadcast against those of X.
        Example:
            >>> LinearConstraint([[1.0]], A=[[-2.0]], b=[0.5]).residual([1.0], [2.75])
            array([0.25])
        """
        x, y = self._data(X, Y)
        return _combined(self.A, x) + _combined(self.B, y) - self.b  # Z1

    def magnitude(self, X: Numbers, Y: Numbers) -> FloatArray:
        """Size of the terms of each balance, `Σ_j |A_kj x_j| + Σ_j |B_kj y_j| + |b_k|`, shape `(..., m)`.

        Rounding errors of `residual` are measured against it.

        Example:
            >>> LinearConstraint([[1.0]], A=[[-2.0]], b=[0.5]).magnitude([1.0], [2.75])
            array([5.25])
        """
        x, y = self._data(X, Y)
        return _combined(np.abs(self.A), np.abs(x)) + _combined(np.abs(self.B), np.abs(y)) + np.abs(self.b)

    def scale(self, output_std: Numbers) -> FloatArray:
        """Spread of each balance if its outputs varied independently, shape `(m,)`::

            c_k = sqrt(Σ_j B_kj² s_j²)        (Z2)

        Where all outputs of a balance are constant, `s_j = 1` is taken, so that `c_k > 0`.

        Args:
            output_std: Standard deviations `s` of the outputs, shape `(n_outputs,)`.
        Example:
            >>> LinearConstraint([[3, 4, 0], [0, 0, 2]]).scale([1.0, 1.0, 0.0])
            array([5., 2.])
        """
        s = _rows("output_std", output_std, self.outputs)
        rule = "output_std must hold one finite standard deviation ≥ 0 per output"
        if s.ndim != 1:
            raise ConstraintError(f"{rule}, but got shape {s.shape}. Give shape ({self.n_outputs},).")
        for name, value in zip(self.outputs, s, strict=True):
            if not 0 <= value < np.inf:
                raise ConstraintError(f"{rule}, but got {value} for {name!r}. Correct it.")
        c = np.hypot.reduce(self.B * s, axis=1)  # Z2, without overflow
        return np.where(c > 0, c, np.hypot.reduce(self.B, axis=1))

    def blocks(self, uncertain_inputs: Numbers | None = None) -> tuple[tuple[int, ...], ...]:
        """Group balances that share an output, directly or through others; groups can be solved one by one.

        Args:
            uncertain_inputs: Mask of shape `(n_columns,)`; a marked column joins its balances like an output does.
        Returns: Row numbers of each group, in order of their first row.
        Example:
            >>> LinearConstraint([[1, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 1]]).blocks()
            ((0, 2), (1,))
        """
        mask = np.zeros(self.n_columns, bool) if uncertain_inputs is None else np.asarray(uncertain_inputs)
        if mask.dtype != bool or mask.shape != (self.n_columns,):
            rule = f"uncertain_inputs must be {self.n_columns} booleans, one for each of {quoted_list(self.columns)}"
            raise ConstraintError(f"{rule}, but got {reprlib.repr(uncertain_inputs)}. Give a mask over these columns.")
        return connected_rows(np.hstack([self.B, self.A[:, mask]]) != 0)

    def without(self, name: str) -> LinearConstraint:
        """Return the constraint lacking one balance.

        Example:
            >>> LinearConstraint([[1, 1, 0], [0, 1, 1]], names=["left", "right"]).without("left").names
            ('right',)
        """
        row = self.index(name)
        if self.n_balances == 1:
            rule = f"without() must leave at least one balance, but got {name!r}, the only one"
            raise ConstraintError(f"{rule}. Use None for no constraint.")
        kept = [k for k in range(self.n_balances) if k != row]
        state = {field: vars(self)[field][kept] for field in ("A", "B", "b")}
        state |= {field: tuple(vars(self)[field][k] for k in kept) for field in ("names", "units", "equations")}
        smaller = object.__new__(LinearConstraint)
        smaller.__setstate__(vars(self) | state)
        return smaller

    def index(self, name: str) -> int:
        """Row number of a balance.

        Example:
            >>> LinearConstraint([[1, 1, 0], [0, 1, 1]], names=["left", "right"]).index("right")
            1
        """
        if name not in self.names:
            advice = did_you_mean(str(name), self.names)
            raise ConstraintError(f"name must be the name of a balance, but got {name!r}. {advice}")
        return self.names.index(name)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        # Pickling and copying lose the read-only flag.
        for array in (self.A, self.B, self.b):
            array.setflags(write=False)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, LinearConstraint) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        balances = f"{self.n_balances} balance{'s' if self.n_balances > 1 else ''}"
        head = f"{balances}, {self.n_inputs} inputs, {len(self.known)} known, {self.n_outputs} outputs"
        rows = [self._line(k) for k in range(min(self.n_balances, 20))]
        rows += [f"... and {self.n_balances - 20} more"] if self.n_balances > 20 else []
        return "\n  ".join([f"LinearConstraint({head})", *rows])

    def _key(self) -> tuple:
        numbers = (self.A.tobytes(), self.B.tobytes(), self.b.tobytes())
        return (*numbers, self.names, self.inputs, self.known, self.outputs, self.units)

    def _line(self, row: int) -> str:
        name, unit, text = self.names[row], self.units[row], self.equations[row]
        label = ("" if name == text else repr(name)) + (f" [{unit}]" if unit else "")
        return f"{label}: {text}".removeprefix(": ").lstrip()

    def _text(self, row: int) -> str:
        return format_equation(_entries(self, row), constant=-self.b[row])

    def _data(self, X: Numbers, Y: Numbers) -> tuple[FloatArray, FloatArray]:
        x, y = _rows("X", X, self.columns), _rows("Y", Y, self.outputs)
        try:
            np.broadcast_shapes(x.shape[:-1], y.shape[:-1])
        except ValueError:
            got = f"shapes {x.shape} and {y.shape}"
            raise ConstraintError(f"X and Y must have the same rows, but got {got}. Give one row each.") from None
        return x, y


def connected_rows(pattern: NDArray[np.bool_]) -> tuple[tuple[int, ...], ...]:
    """Group rows of a mask that share a marked column, directly or through other rows.

    Args:
        pattern: Mask, shape `(m, n)`.
    Returns: Row numbers of each group, in order of their first row.
    Example:
        >>> connected_rows(np.array([[True, False], [False, True], [True, False]]))
        ((0, 2), (1,))
    """
    marked = csr_array(pattern, dtype=np.intp)
    count, label = connected_components(marked @ marked.T, directed=False)
    return tuple(tuple(np.flatnonzero(label == k).tolist()) for k in range(count))


def _numbers(argument: str, values: Numbers) -> FloatArray:
    try:
        array = np.asarray(values)
        if array.dtype.kind in "biufO":
            return array.astype(np.float64, copy=False, order="C")
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass
    got = f"{type(values).__name__} {reprlib.repr(values)}"
    raise ConstraintError(f"{argument} must be a dense array of real numbers, but got {got}. Convert it to floats.")


def _matrix(argument: str, values: Numbers, axes: str) -> FloatArray:
    array = _numbers(argument, values)
    if array.ndim != 2:
        advice = f"Write {argument}=[[...]], with one inner list per balance"
        raise ConstraintError(f"{argument} must have shape {axes}, but got shape {array.shape}. {advice}.")
    return array


def _rows(argument: str, values: Numbers, columns: tuple[str, ...]) -> FloatArray:
    array = _numbers(argument, values)
    if array.shape[-1:] != (len(columns),):
        rule = f"{argument} must have {len(columns)} columns ({quoted_list(columns)})"
        raise ConstraintError(f"{rule}, but got shape {array.shape}. Give these columns in this order.")
    return array


def _names(argument: str, values: Names) -> tuple[str, ...]:
    if isinstance(values, str):
        raise ConstraintError(f"{argument} must be a list of names, but got the text {values!r}. Write [{values!r}].")
    names = tuple(values)
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise ConstraintError(f"{argument} must hold non-empty text only, but got {name!r}. Give it a name.")
    return tuple(map(str, names))


def _named_texts(equations: str | Names | Mapping[str, Any]) -> list[tuple[str, str]]:
    texts = [equations] if isinstance(equations, str) else equations
    named = dict(equations).items() if isinstance(equations, Mapping) else [(text, text) for text in texts]
    for name, text in named:
        if not isinstance(text, str):
            raise ConstraintError(f"equations must hold text, but got {text!r} for {name!r}. Write 'a = b + c'.")
    if not named:
        raise ConstraintError("equations must hold at least one balance, but got none. Use None for no constraint.")
    names = _names("equations", [name for name, _ in named])
    return [(name.strip(), text) for name, (_, text) in zip(names, named, strict=True)]


def _parsed(name: str, text: str, columns: Sequence[str]) -> LinearEquation:
    try:
        return parse_equation(text, columns)
    except EquationError as error:
        raise EquationError(str(error) if name == text.strip() else f"Balance {name!r}: {error}") from None


def _entries(constraint: LinearConstraint, row: int) -> dict[str, float]:
    """Non-zero coefficients of one balance by column, outputs first."""
    columns = constraint.outputs + constraint.columns
    values = np.concatenate([constraint.B[row], constraint.A[row]])
    return {columns[j]: float(values[j]) for j in np.flatnonzero(values)}


def _units(constraint: LinearConstraint, units: Names | None) -> tuple[str | None, ...]:
    if units is None:
        return tuple(_agreed_unit(_entries(constraint, row)) for row in range(constraint.n_balances))
    given = (units,) if isinstance(units, str) else tuple(units)
    if len(given) != constraint.n_balances or not all(isinstance(unit, str | None) for unit in given):
        rule = f"units must hold one text or None for each of {quoted_list(constraint.names)}"
        raise ConstraintError(f"{rule}, but got {units!r}. Leave units out to read them from column names.")
    return given


def _agreed_unit(coefficients: Mapping[str, float]) -> str | None:
    units = {column_unit(name) for name, c in coefficients.items() if abs(c) == 1} - {None}
    return units.pop() if len(units) == 1 else None


def _combined(coefficients: FloatArray, values: FloatArray) -> FloatArray:
    """Linear combinations `M z` of the last axis; a z_j that is not finite spoils only the rows it enters."""
    missing = ~np.isfinite(values)
    if not missing.any():
        return values @ coefficients.T
    total = np.where(missing, 0.0, values) @ coefficients.T
    return np.where(missing.astype(float) @ (coefficients != 0).T > 0, np.nan, total)


def _check(constraint: LinearConstraint) -> None:
    """Raise unless the parts fit together and the balances are usable."""
    _check_unique_columns(constraint.inputs, constraint.known, constraint.outputs)
    _check_shapes(constraint)
    for k, name in enumerate(constraint.names):
        if constraint.names.index(name) < k:
            raise ConstraintError(f"Names of balances must be unique, but got {name!r} twice. Rename or drop one.")
        _check_row(constraint, k)
    _check_independent(constraint)


def _check_unique_columns(inputs: tuple[str, ...], known: tuple[str, ...], outputs: tuple[str, ...]) -> None:
    seen: dict[str, str] = {}
    for role, names in (("inputs", inputs), ("known", known), ("outputs", outputs)):
        for name in names:
            if name in seen:
                where = f"twice in {role}" if seen[name] == role else f"in {seen[name]} and in {role}"
                raise ConstraintError(
                    f"Columns must have one place each, but got {name!r} {where}. Remove one of them."
                )
            seen[name] = role


def _check_shapes(constraint: LinearConstraint) -> None:
    m, n_columns, n_y = len(constraint.B), constraint.n_columns, constraint.n_outputs
    if m == 0 or n_y == 0:
        got = f"shape {constraint.B.shape}"
        raise ConstraintError(f"B must have a balance and an output, but got {got}. Use None for no constraint.")
    for argument, shape in {"names": (m,), "B": (m, n_y), "A": (m, n_columns), "b": (m,)}.items():
        if (got := np.shape(getattr(constraint, argument))) != shape:
            counts = f"{m} balances, {n_columns} inputs and known columns, {n_y} outputs"
            raise ConstraintError(f"{argument} must have shape {shape} for {counts}, but got {got}. Make them agree.")


def _check_row(constraint: LinearConstraint, row: int) -> None:
    name = constraint.names[row]
    entries = _entries(constraint, row) | {"its constant b": float(constraint.b[row])}
    for column, value in entries.items():
        if value and not 1e-100 <= abs(value) <= 1e100:
            rule = f"Balance {name!r} must have finite coefficients, of size 1e-100 to 1e100"
            raise ConstraintError(f"{rule}, but got {value} for {column!r}. Correct it, or choose other units.")
    if not constraint.B[row].any():
        used = [column for column, a in zip(constraint.columns, constraint.A[row], strict=True) if a]
        got = f"only {quoted_list(used)}" if used else f"no column at all (0 = {constraint.b[row]:g})"
        raise ConstraintError(f"Balance {name!r} must involve an output, but got {got}. Check its signs, or drop it.")


def _check_independent(constraint: LinearConstraint) -> None:
    found = find_dependence(constraint.B)
    if found is not None:
        raise ConstraintError(_dependence_message(constraint, found.weights, found.rank))


def _dependence_message(constraint: LinearConstraint, weights: FloatArray, rank: int) -> str:
    """Say what `λᵀ B = 0` means, from what `λᵀ A` and `λᵀ b` leave over."""
    if not weights.any():  # too few outputs, and rounding hides the combination
        names, m = quoted_list(constraint.names), constraint.n_balances
        return f"Balances {names} are linearly dependent (rank {rank} of {m} rows). Drop one of them."
    weights = weights / weights[np.flatnonzero(weights)[0]]
    involved = [name for name, weight in zip(constraint.names, weights, strict=True) if weight]
    left = [name for name, a in zip(constraint.columns, leftover(weights, constraint.A), strict=True) if a]
    gap = leftover(weights, constraint.b)
    choice = f"one of: {', '.join(map(repr, involved))}"
    advice = f"Drop {choice}"
    if left:
        what = f"together fix a relation among inputs only, {quoted_list(left)}, and leave no output"
        advice = f"Drop {choice}, or make one of these inputs an output"
    elif gap:
        what = f"contradict each other by {abs(gap):.6g} in the unit of {involved[0]!r}"
        advice = f"Correct or drop {choice}"
    else:
        what = "are duplicates, equal up to a factor" if len(involved) == 2 else "are linearly dependent"
    ranks = f"(rank {rank} of {constraint.n_balances} rows)"
    return f"Balances {quoted_list(involved)} {what} {ranks}. {advice}."
