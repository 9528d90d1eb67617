"""Linear balances between the columns of a table, `A x + B y = b`, with the names of everything in them.

Inputs `x` (network inputs, then known columns that only enter balances) and outputs `y` are columns of the user's
table, in the user's units. A constraint is a checked value: its rows are finite, involve outputs and are independent.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from equipoise.balances.coefficients import (
    Coefficients,
    ConstraintError,
    FloatArray,
    Names,
    Numbers,
    check_rows,
    read_equations,
)
from equipoise.balances.equality import Equality, balance_scale, check_output_std
from equipoise.balances.names import quoted_list
from equipoise.balances.soundness import check_balances
from equipoise.errors import InputError, InputTypeError

__all__ = ["EQUALITIES", "ConstraintError", "LinearConstraint", "check_equality_kind", "connected_rows"]


@dataclass(frozen=True, init=False, eq=False, repr=False)
class LinearConstraint(Equality):
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
        equations: One text per balance, for people to read; written from the coefficients when left out.
    Raises: ConstraintError, if a coefficient is not finite, a balance involves no output, names clash, or balances
        are dependent or contradictory. Dependence does not depend on the units of columns and balances.
    Example:
        >>> LinearConstraint([[1, -1, -1]], outputs=["Q_tot [W]", "Q_rev [W]", "Q_irr [W]"], names=["heat"])
        LinearConstraint(1 balance, 0 inputs, 0 known, 3 outputs)
          'heat' [W]: `Q_tot [W]` = `Q_rev [W]` + `Q_irr [W]`
    """

    name: ClassVar[str] = "linear"

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
        equations: Names | None = None,
    ):
        balances = Coefficients.from_arrays(B, A, b, names=names, inputs=inputs, outputs=outputs, known=known)
        check_balances(balances)
        self._initialise(balances, _units(balances, units), _equations(balances, equations))

    @classmethod
    def from_equations(
        cls, equations: str | Names | Mapping[str, Any], *, inputs: Names = (), outputs: Names, known: Names = ()
    ) -> LinearConstraint:
        """Read balances from text.

        Both sides of an equation may use `+ - * /`, parentheses, numbers and column names. Backticks quote unusual
        names. A name may leave out its unit as long as it fits only one column.

        Args:
            equations: One text, a list of texts, each its own name, or a mapping of names to texts.
            inputs: Names of the network's inputs.
            outputs: Names of the outputs.
            known: Names of columns that enter balances but not the network.
        Returns: The constraint, with the texts as its `equations`.
        Raises: EquationError, if a text is not a linear equation over these columns; ConstraintError, if the balances
            are not usable as a constraint.
        Example:
            >>> balances = LinearConstraint.from_equations({"mass": "feed + 1 = top + bottom"}, inputs=["feed"],
            ...                                            outputs=["top", "bottom"])
            >>> balances.A, balances.B, balances.b
            (array([[1.]]), array([[-1., -1.]]), array([-1.]))
        """
        balances, texts = read_equations(equations, inputs=inputs, outputs=outputs, known=known)
        return cls(**vars(balances), equations=texts)

    def linearise(self, X: FloatArray, Y: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Return `B` and the targets `t = b − A x`.

        Args:
            X: Inputs, then known columns, shape `(..., n_columns)`, in the user's units.
            Y: Ignored.
        Returns: `B`, shape `(m, n_y)`, and `t`, shape `(..., m)`.
        """
        return self.B, self.target(X)

    @property
    def shared_B(self) -> FloatArray:
        """Coefficients `B`, which are the same in all rows."""
        return self.B

    @property
    def pattern(self) -> NDArray[np.bool_]:
        """Mask of the coefficients that differ from 0, shape `(m, n_y)`."""
        return self.B != 0

    def target(self, X: Numbers) -> FloatArray:
        """Compute the value that `B y` must have at inputs x, `t = b − A x`.

        Args:
            X: Inputs, then known columns, shape `(..., n_columns)`, in the user's units.
        Returns: `t` in the balances' units, shape `(..., m)`; NaN in the balances that a missing value (NaN) enters.
        Raises: ConstraintError, if X has not one number per column.
        Example:
            >>> LinearConstraint([[1.0]], A=[[-2.0]], b=[0.5]).target([[1.0], [2.0]])
            array([[2.5],
                   [4.5]])
        """
        return self.b - _combine(self.A, check_rows("X", X, self.columns))

    def residual(self, X: Numbers, Y: Numbers) -> FloatArray:
        """Compute by how much rows of data miss each balance::

            z = A x + B y − b        (Z1)

        Args:
            X: Inputs, then known columns, shape `(..., n_columns)`, in the user's units.
            Y: Outputs, shape `(..., n_outputs)`; leading axes broadcast against those of X.
        Returns: `z` in the balances' units, shape `(..., m)`; NaN in the balances that a missing value (NaN) enters.
        Raises: ConstraintError, if X or Y has not one number per column, or both have not the same rows.
        Example:
            >>> LinearConstraint([[1.0]], A=[[-2.0]], b=[0.5]).residual([1.0], [2.75])
            array([0.25])
        """
        x, y = self._checked(X, Y)
        return _combine(self.A, x) + _combine(self.B, y) - self.b  # Z1

    def magnitude(self, X: Numbers, Y: Numbers) -> FloatArray:
        """Compute the size of the terms of each balance, `Σ_j |A_kj x_j| + Σ_j |B_kj y_j| + |b_k|`.

        Rounding errors of `residual` are relative to it.

        Args:
            X: Inputs, then known columns, shape `(..., n_columns)`, in the user's units.
            Y: Outputs, shape `(..., n_outputs)`; leading axes broadcast against those of X.
        Returns: The sizes in the balances' units, shape `(..., m)`; NaN in the balances that a missing value enters.
        Raises: ConstraintError, if X or Y has not one number per column, or both have not the same rows.
        Example:
            >>> LinearConstraint([[1.0]], A=[[-2.0]], b=[0.5]).magnitude([1.0], [2.75])
            array([5.25])
        """
        x, y = self._checked(X, Y)
        return _combine(np.abs(self.A), np.abs(x)) + _combine(np.abs(self.B), np.abs(y)) + np.abs(self.b)

    def scale(self, output_std: Numbers, X: Numbers | None = None) -> FloatArray:
        """Compute the standard deviation that each balance would have if its outputs varied independently::

            c_k = sqrt(Σ_j B_kj² s_j²)        (Z2)

        Where all outputs of a balance are constant, `s_j = 1` is used instead, so that `c_k > 0`.

        Args:
            output_std: Standard deviations `s` of the outputs, shape `(n_outputs,)`.
            X: Ignored.
        Returns: `c` in the balances' units, shape `(m,)`.
        Raises: ConstraintError, if a standard deviation is negative, not finite or missing.
        Example:
            >>> LinearConstraint([[3, 4, 0], [0, 0, 2]]).scale([1.0, 1.0, 0.0])
            array([5., 2.])
        """
        return balance_scale(self.B, check_output_std(output_std, self.outputs))

    def settings(self) -> dict[str, Any]:
        """Return names, units and texts, the arguments that are no arrays."""
        arguments = ("names", "inputs", "outputs", "known", "units", "equations")
        return {argument: list(getattr(self, argument)) for argument in arguments}

    def arrays(self) -> dict[str, FloatArray]:
        """Return the coefficients `A`, `B` and `b`."""
        return {"A": self.A, "B": self.B, "b": self.b}

    def blocks(self, uncertain_inputs: Numbers | None = None) -> tuple[tuple[int, ...], ...]:
        """Group coupled balances: those that share an output, directly or through other balances.

        Groups can be solved one by one.

        Args:
            uncertain_inputs: Mask of shape `(n_columns,)`; a marked column couples its balances as an output does.
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
        """Return the constraint without one of its balances.

        Args:
            name: Name of the balance to leave out.
        Raises: ConstraintError, if there is no such balance, or no other one.
        Example:
            >>> LinearConstraint([[1, 1, 0], [0, 1, 1]], names=["left", "right"]).without("left").names
            ('right',)
        """
        row = self.index(name)
        if self.n_balances == 1:
            rule = f"without() must leave at least one balance, but got {name!r}, the only one"
            raise ConstraintError(f"{rule}. Use None for no constraint.")
        rows = [k for k in range(self.n_balances) if k != row]
        names = tuple(self.names[k] for k in rows)
        A, B, b = self.A[rows], self.B[rows], self.b[rows]
        balances = Coefficients(A, B, b, names, self.inputs, self.known, self.outputs)
        smaller = object.__new__(LinearConstraint)  # not checked again: a part of independent rows is independent
        units, equations = tuple(self.units[k] for k in rows), tuple(self.equations[k] for k in rows)
        smaller._initialise(balances, units, equations)
        return smaller

    def __setstate__(self, state: dict[str, Any]) -> None:
        balances = Coefficients(**{field.name: state[field.name] for field in fields(Coefficients)})
        self._initialise(balances, state["units"], state["equations"])

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, LinearConstraint) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def _initialise(self, balances: Coefficients, units: tuple[str | None, ...], equations: tuple[str, ...]) -> None:
        """Set the fields of a new object once; arrays become read-only, a flag that pickling and copying lose."""
        for array in (balances.A, balances.B, balances.b):
            array.setflags(write=False)
        for name, value in (vars(balances) | {"units": units, "equations": equations}).items():
            object.__setattr__(self, name, value)

    def _key(self) -> tuple:
        numbers = (self.A.tobytes(), self.B.tobytes(), self.b.tobytes())
        return (*numbers, self.names, self.inputs, self.known, self.outputs, self.units)


EQUALITIES: Mapping[str, type[Equality]] = {LinearConstraint.name: LinearConstraint}


def check_equality_kind(constraint: Any) -> None:
    """Raise unless `constraint` is an equality that can be fitted.

    Args:
        constraint: A `LinearConstraint`, or an object of a class of your own that derives from `Equality`.
    Raises:
        InputTypeError: If it is no equality.
        InputError: If its class has a name of the library, or depends on the outputs other than linearly.
    """
    if not isinstance(constraint, Equality):
        got, advice = (
            type(constraint).__name__,
            "Build one with LinearConstraint.from_equations(...), or derive a class",
        )
        advice = f"{advice} from equipoise.Equality"
        if isinstance(constraint, type):
            got = f"the class {constraint.__name__}"
            advice = f"Pass an object, {constraint.__name__}(...)" if issubclass(constraint, Equality) else advice
        raise InputTypeError(f"constraint must be a LinearConstraint or None, but got {got}. {advice}.")
    kind = type(constraint)
    name = getattr(kind, "name", None)
    if not (isinstance(name, str) and name) or EQUALITIES.get(name, kind) is not kind:
        rule = f"{kind.__name__} must have a name of its own, but got {name!r}"
        raise InputError(f"{rule}. Give the class an attribute name, another one than those of the library.")
    if not constraint.is_linear:
        rule = (
            f"constraint must be linear in the outputs to be fitted, but got {kind.__name__}, whose is_linear is False"
        )
        raise InputError(f"{rule}. Write it with coefficients that depend on inputs and known columns alone.")


def connected_rows(pattern: NDArray[np.bool_]) -> tuple[tuple[int, ...], ...]:
    """Group rows of a mask that share a marked column, directly or through other rows.

    Args:
        pattern: Mask of the marked columns of each row, shape `(m, n)`.
    Returns: Row numbers of each group, in order of their first row.
    Example:
        >>> connected_rows(np.array([[True, False], [False, True], [True, False]]))
        ((0, 2), (1,))
    """
    marked = csr_array(pattern, dtype=np.intp)
    count, label = connected_components(marked @ marked.T, directed=False)
    return tuple(tuple(np.flatnonzero(label == k).tolist()) for k in range(count))


def _units(balances: Coefficients, units: Names | None) -> tuple[str | None, ...]:
    if units is None:
        return tuple(map(balances.unit, range(len(balances.names))))
    each = (units,) if isinstance(units, str) else tuple(units)
    if len(each) != len(balances.names) or not all(isinstance(unit, str | None) for unit in each):
        rule = f"units must hold one text or None for each of {quoted_list(balances.names)}"
        raise ConstraintError(f"{rule}, but got {units!r}. Leave units out to read them from column names.")
    return each


def _equations(balances: Coefficients, equations: Names | None) -> tuple[str, ...]:
    if equations is None:
        return tuple(map(balances.text, range(len(balances.names))))
    each = (equations,) if isinstance(equations, str) else tuple(equations)
    if len(each) != len(balances.names) or not all(isinstance(text, str) for text in each):
        rule = f"equations must hold one text for each of {quoted_list(balances.names)}"
        raise ConstraintError(f"{rule}, but got {equations!r}. Leave equations out to write them from coefficients.")
    return each


def _combine(coefficients: FloatArray, values: FloatArray) -> FloatArray:
    """Compute linear combinations `M z` of the last axis; NaN where a `z_j` with `M_kj ≠ 0` is not finite."""
    missing = ~np.isfinite(values)
    if not missing.any():
        return values @ coefficients.T
    total = np.where(missing, 0.0, values) @ coefficients.T
    return np.where(missing.astype(float) @ (coefficients != 0).T > 0, np.nan, total)
