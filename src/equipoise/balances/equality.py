"""What the rest of the library knows of balances: equalities `g(x, y) = 0` between the columns of a table.

An equality is a class with names, and with `linearise`, which gives the coefficients `B` of the outputs and the targets
`t` with `B y = t`, row by row. `LinearConstraint` has one `B` for all rows. `equipoise.testing.check_equality` says
whether a class keeps to the contract.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from equipoise.balances.coefficients import (
    ConstraintError,
    FloatArray,
    Names,
    Numbers,
    check_names,
    check_rows,
    check_unique_columns,
)
from equipoise.balances.names import did_you_mean, quoted_list


class Equality(ABC):
    """Balances between inputs x, known columns and outputs y, which `linearise` writes as `B y = t`, row by row.

    Args:
        names: One name per balance.
        outputs: Names of the outputs.
        inputs: Names of the network's inputs, at least one.
        known: Names of columns that enter balances but not the network.
        units: One unit or None per balance; None for no units.
        equations: One text per balance, for people to read; the names when left out.

    Attributes:
        name: Name of the class in messages and model files.
        is_linear: Whether `B` and `t` do not depend on the outputs, so that draws can be made to obey exactly. Only
            such equalities can be fitted.
    """

    name: ClassVar[str]
    is_linear: ClassVar[bool] = True

    names: tuple[str, ...]
    inputs: tuple[str, ...]
    known: tuple[str, ...]
    outputs: tuple[str, ...]
    units: tuple[str | None, ...]
    equations: tuple[str, ...]

    def __init__(
        self,
        *,
        names: Names,
        outputs: Names,
        inputs: Names = (),
        known: Names = (),
        units: Names | None = None,
        equations: Names | None = None,
    ):
        self.names, self.outputs = check_names("names", names), check_names("outputs", outputs)
        self.inputs, self.known = check_names("inputs", inputs), check_names("known", known)
        check_unique_columns(self.inputs, self.known, self.outputs)
        if not (self.names and self.outputs) or len(set(self.names)) < len(self.names):
            got = f"balances {quoted_list(self.names)} and outputs {quoted_list(self.outputs)}"
            raise ConstraintError(f"An equality must have outputs, and balances with different names, but got {got}.")
        self.units = (None,) * len(self.names) if units is None else tuple(units)
        self.equations = self.names if equations is None else tuple(equations)
        for argument, values in (("units", units), ("equations", equations)):
            if values is not None and (isinstance(values, str) or len(getattr(self, argument)) != len(self.names)):
                rule = f"{argument} must hold one text for each of {quoted_list(self.names)}"
                raise ConstraintError(f"{rule}, but got {values!r}. Give a list.")

    @abstractmethod
    def linearise(self, X: FloatArray, Y: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Compute coefficients and targets of the balances, `B y = t`, for rows of data in the user's units.

        Args:
            X: Inputs, then known columns, shape `(n, n_columns)`.
            Y: Outputs at which nonlinear balances `g(x, y) = 0` are linearised, `B = ∂g/∂y` and `t = B y − g`, shape
                `(n, n_y)`. Equalities with `is_linear` get None in predictions, and ignore it.
        Returns: `B`, shape `(m, n_y)` if it is the same in all rows, else `(n, m, n_y)`; and `t`, shape `(n, m)`.
        """

    @property
    def shared_B(self) -> FloatArray | None:
        """Coefficients `B`, shape `(m, n_y)`, if they are the same in all rows; None if they differ."""
        return None

    @property
    def pattern(self) -> NDArray[np.bool_]:
        """Mask of the coefficients that may differ from 0 in any row, shape `(m, n_y)`; all, unless a class says which.

        Balances without a common output are solved one by one, and sensors are learned for outputs in the mask.
        """
        return np.ones((self.n_balances, self.n_outputs), dtype=bool)

    def residual(self, X: Numbers, Y: Numbers) -> FloatArray:
        """Compute by how much rows of data miss each balance, `z = B y − t` (Z1).

        Args:
            X: Inputs, then known columns, shape `(..., n_columns)`, in the user's units.
            Y: Outputs, shape `(..., n_outputs)`; leading axes broadcast against those of X.
        Returns: `z` in the balances' units, shape `(..., m)`; NaN in the balances that a missing value (NaN) enters.
        Raises: ConstraintError, if X or Y has not one number per column, or both have not the same rows.
        """
        B, target, y = self._at(X, Y)
        return combine_outputs(B, y, self.pattern) - target  # Z1

    def magnitude(self, X: Numbers, Y: Numbers) -> FloatArray:
        """Compute the size of the terms of each balance, `Σ_j |B_kj y_j| + |t_k|`, to which rounding is relative.

        Args:
            X: Inputs, then known columns, shape `(..., n_columns)`, in the user's units.
            Y: Outputs, shape `(..., n_outputs)`; leading axes broadcast against those of X.
        Returns: The sizes in the balances' units, shape `(..., m)`; NaN in the balances that a missing value enters.
        Raises: ConstraintError, if X or Y has not one number per column, or both have not the same rows.
        """
        B, target, y = self._at(X, Y)
        return combine_outputs(np.abs(B), np.abs(y), self.pattern) + np.abs(target)

    def scale(self, output_std: Numbers, X: Numbers | None = None) -> FloatArray:
        """Compute the standard deviation that each balance would have if its outputs varied independently (Z2).

        Where `B` differs from row to row, `B_kj` is its root mean square over rows.

        Args:
            output_std: Standard deviations `s` of the outputs, shape `(n_outputs,)`.
            X: Inputs, then known columns, shape `(n, n_columns)`; needed where `B` differs from row to row.
        Returns: `c` in the balances' units, shape `(m,)`.
        Raises: ConstraintError, if a standard deviation is negative, not finite or missing, or if X is.
        """
        std, B = check_output_std(output_std, self.outputs), self.shared_B
        if B is None:
            if X is None:
                rule = (
                    f"scale needs rows of data where coefficients differ by row, as those of {quoted_list(self.names)}"
                )
                raise ConstraintError(f"{rule}, but got X=None. Pass X.")
            B = np.sqrt(np.square(linearised(self, check_rows("X", X, self.columns))[0]).mean(0))
        return balance_scale(B, std)

    def settings(self) -> dict[str, Any]:
        """Return the arguments with which the class makes this equality again, as JSON can hold them."""
        return {}

    def arrays(self) -> dict[str, FloatArray]:
        """Return further arguments of the class, those that are arrays, which model files keep as tensors."""
        return {}

    @property
    def n_balances(self) -> int:
        """Number of balances, `m`."""
        return len(self.names)

    @property
    def n_inputs(self) -> int:
        """Number of network inputs, `n_x`, without known columns."""
        return len(self.inputs)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of X: inputs, then known."""
        return self.inputs + self.known

    @property
    def n_columns(self) -> int:
        """Number of columns of X, `n_x + n_known`."""
        return len(self.columns)

    @property
    def n_outputs(self) -> int:
        """Number of outputs, `n_y`."""
        return len(self.outputs)

    def index(self, name: str) -> int:
        """Return the number of a balance.

        Args:
            name: Name of the balance.
        Raises: ConstraintError, if there is no such balance.
        """
        if name not in self.names:
            advice = did_you_mean(str(name), self.names)
            raise ConstraintError(f"name must be the name of a balance, but got {name!r}. {advice}")
        return self.names.index(name)

    def __repr__(self) -> str:
        balances = f"{self.n_balances} balance{'s' if self.n_balances > 1 else ''}"
        head = f"{balances}, {self.n_inputs} inputs, {len(self.known)} known, {self.n_outputs} outputs"
        rows = [self._line(k) for k in range(min(self.n_balances, 20))]
        rows += [f"... and {self.n_balances - 20} more"] if self.n_balances > 20 else []
        return "\n  ".join([f"{type(self).__name__}({head})", *rows])

    def _line(self, row: int) -> str:
        name, unit, text = self.names[row], self.units[row], self.equations[row]
        label = ("" if name == text else repr(name)) + (f" [{unit}]" if unit else "")
        return f"{label}: {text}".removeprefix(": ").lstrip()

    def _checked(self, X: Numbers, Y: Numbers) -> tuple[FloatArray, FloatArray]:
        """Convert rows of data, and check that they have one number per column and broadcast."""
        x, y = check_rows("X", X, self.columns), check_rows("Y", Y, self.outputs)
        try:
            np.broadcast_shapes(x.shape[:-1], y.shape[:-1])
        except ValueError:
            got = f"shapes {x.shape} and {y.shape}"
            raise ConstraintError(f"X and Y must have the same rows, but got {got}. Give one row each.") from None
        return x, y

    def _at(self, X: Numbers, Y: Numbers) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return `B`, shape `(..., m, n_y)`, `t`, shape `(..., m)`, and the outputs as an array."""
        x, y = self._checked(X, Y)
        if self.is_linear:
            at, lead = None, x.shape[:-1]
        else:
            lead = np.broadcast_shapes(x.shape[:-1], y.shape[:-1])
            x, y = np.broadcast_to(x, (*lead, x.shape[-1])), np.broadcast_to(y, (*lead, y.shape[-1]))
            at = y.reshape(-1, y.shape[-1])
        B, target = linearised(self, x.reshape(-1, x.shape[-1]), at)
        B = B if B.ndim == 2 else B.reshape(*lead, *B.shape[1:])
        return B, target.reshape(*lead, self.n_balances), y


def linearised(equality: Equality, X: FloatArray, Y: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
    """Call `linearise`, and check the shapes of what it returns.

    Args:
        equality: The balances.
        X, Y: Rows of data in the user's units, shapes `(n, n_columns)` and `(n, n_y)`; Y may be None.
    Returns: `B`, shape `(m, n_y)` where the equality has a `shared_B`, else `(n, m, n_y)`; and `t`, shape `(n, m)`.
    Raises: ConstraintError, if a shape is another one.
    """
    B, target = (np.asarray(part, dtype=np.float64) for part in equality.linearise(X, Y))
    n, m, n_y = len(X), equality.n_balances, equality.n_outputs
    expected = (m, n_y) if equality.shared_B is not None else (n, m, n_y)
    if B.shape == (m, n_y) and B.shape != expected:
        B = np.broadcast_to(B, expected)
    if B.shape != expected or target.shape != (n, m):
        rule = f"linearise of {type(equality).__name__} must return B of shape {expected} and targets of shape {(n, m)}"
        raise ConstraintError(f"{rule}, but got {B.shape} and {target.shape}. Balances come before outputs.")
    return B, target


def balance_scale(B: FloatArray, output_std: FloatArray) -> FloatArray:
    """Compute `c_k = sqrt(Σ_j B_kj² s_j²)` (Z2), with `s_j = 1` where all outputs of a balance are constant.

    Args:
        B: Coefficients, or their root mean squares over rows, shape `(m, n_y)`.
        output_std: Standard deviations `s` of the outputs, shape `(n_y,)`.
    """
    c = np.hypot.reduce(B * output_std, axis=1)  # Z2, without overflow
    return np.where(c > 0, c, np.hypot.reduce(B, axis=1))


def check_output_std(output_std: Numbers, outputs: tuple[str, ...]) -> FloatArray:
    """Convert standard deviations of outputs to floats, and raise unless there is a finite one ≥ 0 per output.

    Args:
        output_std: Standard deviations, shape `(n_y,)`.
        outputs: Names of the outputs.
    """
    s = check_rows("output_std", output_std, outputs)
    rule = "output_std must hold one finite standard deviation ≥ 0 per output"
    if s.ndim != 1:
        raise ConstraintError(f"{rule}, but got shape {s.shape}. Give shape ({len(outputs)},).")
    for name, value in zip(outputs, s, strict=True):
        if not 0 <= value < np.inf:
            raise ConstraintError(f"{rule}, but got {value} for {name!r}. Correct it.")
    return s


def combine_outputs(B: FloatArray, y: FloatArray, pattern: NDArray[np.bool_]) -> FloatArray:
    """Compute `B y` row by row, shape `(..., m)`; NaN where a `y_j` is not finite and the pattern has it.

    Args:
        B: Coefficients, shape `(..., m, n_y)`.
        y: Outputs, shape `(..., n_y)`.
        pattern: Which outputs are in which balance, shape `(m, n_y)`.
    """
    missing = ~np.isfinite(y)
    total = (B @ np.where(missing, 0.0, y)[..., None])[..., 0]
    return np.where(missing.astype(float) @ pattern.T > 0, np.nan, total) if missing.any() else total
