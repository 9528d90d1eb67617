"""Coefficients and names of balances, from matrices or from text; `soundness` checks them."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.balances.equations import EquationError, LinearEquation, format_equation, parse_equation
from equipoise.balances.names import column_unit, quoted_list
from equipoise.errors import EquipoiseError

FloatArray = NDArray[np.float64]
# Loose on purpose: values that are no numbers or no text are refused with a message that names the argument.
Numbers = Any
Names = Iterable[Any]


class ConstraintError(EquipoiseError, ValueError):
    """Balances that are not usable as a constraint, or data whose shape does not fit the balances."""


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Coefficients of balances `A x + B y = b`, with the names of balances and columns.

    Args:
        A: Coefficients of inputs, then known columns, shape `(m, n_x + n_known)`.
        B: Coefficients of the outputs, shape `(m, n_y)`.
        b: Constants, shape `(m,)`.
        names: Names of the balances.
        inputs, known, outputs: Names of the columns.
    """

    A: FloatArray
    B: FloatArray
    b: FloatArray
    names: tuple[str, ...]
    inputs: tuple[str, ...]
    known: tuple[str, ...]
    outputs: tuple[str, ...]

    @classmethod
    def from_arrays(
        cls,
        B: Numbers,
        A: Numbers | None = None,
        b: Numbers | None = None,
        *,
        names: Names | None = None,
        inputs: Names | None = None,
        outputs: Names | None = None,
        known: Names = (),
    ) -> Coefficients:
        """Convert matrices and names, with zeros and names such as `x0`, `y0` for what is left out.

        Args:
            B, A, b: As of `LinearConstraint`; copied.
            names, inputs, outputs, known: Names of balances and columns.
        Example:
            >>> Coefficients.from_arrays([[1, -1]], A=[[2]]).text(0)
            'y0 + 2*x0 = y1'
        """
        B = _matrix("B", B, "(balances, outputs)")
        m, n_y = B.shape
        names = check_names("names", (f"balance {k}" for k in range(m)) if names is None else names)
        outputs = check_names("outputs", (f"y{j}" for j in range(n_y)) if outputs is None else outputs)
        known = check_names("known", known)
        inputs = None if inputs is None else check_names("inputs", inputs)
        width = len(inputs or ()) + len(known)
        A = np.zeros((m, width)) if A is None else _matrix("A", A, "(balances, inputs and known columns)")
        inputs = tuple(f"x{j}" for j in range(A.shape[1] - len(known))) if inputs is None else inputs
        b = np.zeros(m) if b is None else np.asarray(_numbers("b", b) + 0.0)
        return cls(A + 0.0, B + 0.0, b, names, inputs, known, outputs)  # copies, and no zero is negative

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of `A`: inputs, then known."""
        return self.inputs + self.known

    def entries(self, row: int) -> dict[str, float]:
        """Return the non-zero coefficients of one balance by column, outputs first."""
        columns = self.outputs + self.columns
        values = np.concatenate([self.B[row], self.A[row]])
        return {columns[j]: float(values[j]) for j in np.flatnonzero(values)}

    def text(self, row: int) -> str:
        """Write one balance as an equation."""
        return format_equation(self.entries(row), constant=-self.b[row])

    def unit(self, row: int) -> str | None:
        """Return the unit on which all columns with coefficient ±1 and a unit in their name agree; None if they do not.

        Example:
            >>> Coefficients.from_arrays([[1, -1, 3]], outputs=["U [V]", "E [V]", "I [A]"]).unit(0)
            'V'
        """
        units = {column_unit(name) for name, c in self.entries(row).items() if abs(c) == 1} - {None}
        return units.pop() if len(units) == 1 else None


def read_equations(
    equations: str | Names | Mapping[str, Any], *, inputs: Names = (), outputs: Names, known: Names = ()
) -> tuple[Coefficients, tuple[str, ...]]:
    """Read the coefficients of balances from text.

    Args:
        equations: One text, a list of texts, each its own name, or a mapping of names to texts.
        inputs, outputs, known: Names of the columns.
    Returns: The coefficients, and the texts without spaces around them.
    Raises: EquationError, if a text is not a linear equation over the columns; ConstraintError, if a column has two
        places or there is no text.
    Example:
        >>> balances, _ = read_equations("feed + 1 = top + bottom", inputs=["feed"], outputs=["top", "bottom"])
        >>> balances.A, balances.B, balances.b
        (array([[1.]]), array([[-1., -1.]]), array([-1.]))
    """
    named = _named_texts(equations)
    inputs, known, outputs = check_names("inputs", inputs), check_names("known", known), check_names("outputs", outputs)
    check_unique_columns(inputs, known, outputs)
    order = inputs + known + outputs
    parsed = [_parse_named(name, text, order) for name, text in named]
    table = np.array([[row.coefficients.get(column, 0.0) for column in order] for row in parsed])
    A, B = np.split(table, [len(inputs + known)], axis=1)
    b = [-row.constant for row in parsed]
    names = [name for name, _ in named]
    balances = Coefficients.from_arrays(B, A, b, names=names, inputs=inputs, outputs=outputs, known=known)
    return balances, tuple(row.text for row in parsed)


def check_rows(argument: str, values: Numbers, columns: tuple[str, ...]) -> FloatArray:
    """Convert rows of data to floats and check that they have one number per column.

    Args:
        argument: Name of the argument, for the message.
        values: The rows, shape `(..., n)`; a frame must have its columns in this order.
        columns: Names of the n columns.
    """
    present = tuple(map(str, getattr(values, "columns", ())))
    if present != columns and sorted(present) == sorted(columns):
        rule = f"{argument} must have the columns {quoted_list(columns)} in this order"
        raise ConstraintError(f"{rule}, but got {quoted_list(present)}. Select them in this order.")
    array = _numbers(argument, values)
    if array.shape[-1:] != (len(columns),):
        rule = f"{argument} must have {len(columns)} columns ({quoted_list(columns)})"
        raise ConstraintError(f"{rule}, but got shape {array.shape}. Give these columns in this order.")
    return array


def check_unique_columns(inputs: tuple[str, ...], known: tuple[str, ...], outputs: tuple[str, ...]) -> None:
    """Raise unless every column is in one of the three roles, and there once.

    Args:
        inputs, known, outputs: Names of the columns in each role.
    """
    seen: dict[str, str] = {}
    for role, names in (("inputs", inputs), ("known", known), ("outputs", outputs)):
        for name in names:
            if name in seen:
                where = f"twice in {role}" if seen[name] == role else f"in {seen[name]} and in {role}"
                raise ConstraintError(
                    f"Columns must have one place each, but got {name!r} {where}. Remove one of them."
                )
            seen[name] = role


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


def check_names(argument: str, values: Names) -> tuple[str, ...]:
    """Convert names to a tuple of texts, and raise unless all of them are non-empty.

    Args:
        argument: Name of the argument, for the message.
        values: The names.
    """
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
    names = check_names("equations", [name for name, _ in named])
    return [(name.strip(), text) for name, (_, text) in zip(names, named, strict=True)]


def _parse_named(name: str, text: str, columns: Sequence[str]) -> LinearEquation:
    try:
        return parse_equation(text, columns)
    except EquationError as error:
        raise EquationError(str(error) if name == text.strip() else f"Balance {name!r}: {error}") from None
