"""Standardizer: the translation of data *and* balances to standardized units; nothing else in the library scales.

::

    x' = (x − x̄) / s_x,   y' = (y − ȳ) / s_y,   B' = diag(1/c) B diag(s_y),   t' = (t − B ȳ) / c      (Z3)

with `t = b − A x` the targets and `c` the balances' scales (Z2), so that `B' y' = t'` exactly where `A x + B y = b`,
every row of `B'` has unit norm, and a tolerance in these units is relative. Where coefficients differ from row to row
of the data, `c` is that of their root mean squares over the training data, one number per balance, and it is their root
mean squares that have unit norm. Targets are computed from `x` in the user's units: known columns need no scaling, and
no digits are lost in a round trip.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.balances import Equality, LinearConstraint, balance_scale, linearised
from equipoise.data.table_passes import Moments, Positions, Table, pieces
from equipoise.errors import InputError

Array = NDArray[np.float64]
MARGIN = 0.05  # fraction of an input's range by which a value may exceed it, as held-out rows do by chance


@dataclass(frozen=True)
class Standardizer:
    """Means and standard deviations of the training data, and the balances' scales.

    Args:
        x_mean, x_std: Means and standard deviations of the network's inputs, shape `(n_x,)`.
        y_mean, y_std: Means and standard deviations of the outputs, shape `(n_y,)`.
        constraint: The balances in the user's units, or None.
        x_lowest, x_highest: Range of the network's inputs, shape `(n_x,)`; None from old model files without it.
        B_rms: Root mean squares of the coefficients `B` over the training data, shape `(m, n_y)`, in the user's units;
            None where they are the same in all rows.
    """

    x_mean: Array
    x_std: Array
    y_mean: Array
    y_std: Array
    constraint: Equality | None = None
    x_lowest: Array | None = None
    x_highest: Array | None = None
    B_rms: Array | None = None

    @classmethod
    def fit(
        cls, X: Table, Y: Table, constraint: Equality | None = None, rows: Positions | None = None
    ) -> "Standardizer":
        """Compute means, standard deviations and ranges of a table's columns.

        A constant input gets its own size for a standard deviation, a constant output a millionth of it.

        Args:
            X: Inputs, then known columns, in the user's units, shape `(n, n_x + n_known)`.
            Y: Outputs in the user's units, shape `(n, n_y)`; NaN is ignored.
            constraint: The balances, or None.
            rows: Positions of the rows to use, ascending; all if None.
        Returns: The translation of these columns and balances to standardized units.
        Example:
            >>> Standardizer.fit(np.array([[1.0], [3.0]]), np.array([[2.0], [2.0]])).x_mean
            array([2.])
        """
        n_inputs = X.shape[1] if constraint is None else constraint.n_inputs
        x, y = (Moments.over(part for (part,) in pieces(table, rows=rows)) for table in (X[:, :n_inputs], Y))
        x_mean, x_std, y_mean, y_std, magnitude = x.center, x.spread, y.center, y.spread, y.largest
        # A constant input that changes after the fit must not give a huge x': one unit of x' is its whole value.
        x_std = np.where(x_std > 0, x_std, np.where(x_mean != 0, np.abs(x_mean), 1.0))
        # A constant output counts for nothing in a balance's scale beside ones that vary, but divides by no zero.
        y_std = np.where(y_std > 0, y_std, 1e-6 * np.where(magnitude > 0, magnitude, 1.0))
        B_rms = None
        if constraint is not None and constraint.shared_B is None:
            B_rms = _root_mean_squares(constraint, X, rows)
        return cls(x_mean, x_std, y_mean, y_std, constraint, x.lowest, x.highest, B_rms)

    @property
    def row_scale(self) -> Array:
        """Scales `c_k` of the balances in their own units, shape `(m,)` (Z2)."""
        if self.B_rms is None:
            return self._balances.scale(self.y_std)
        return balance_scale(self.B_rms, self.y_std)

    @property
    def B(self) -> Array | None:
        """Coefficients `B'` in standardized units, shape `(m, n_y)` (Z3); None where they differ from row to row."""
        B = self._balances.shared_B
        return None if B is None else self._scaled(B)

    @property
    def typical_B(self) -> Array:
        """Coefficients `B'` in standardized units, root mean squares where they differ from row to row, `(m, n_y)`."""
        B = self._balances.shared_B if self.B_rms is None else self.B_rms
        return self._scaled(B)  # type: ignore[arg-type]

    def balances(self) -> Equality:
        """Return the balances between standardized outputs, `B' y' = t'`; inputs stay in the user's units."""
        balances, B = self._balances, self.B
        if B is None:
            return StandardizedBalances(self)
        return LinearConstraint(B, names=balances.names, outputs=balances.outputs)

    def inputs(self, X: Array) -> Array:
        """Standardize the network's inputs.

        Args:
            X: Inputs, then known columns, in the user's units, shape `(n, n_x + n_known)`.
        Returns: `x'`, shape `(n, n_x)`.
        """
        return (X[:, : len(self.x_mean)] - self.x_mean) / self.x_std

    def beyond(self, X: Array) -> NDArray[np.bool_]:
        """Mark inputs of the network that exceed the range of the training data by more than 5 % of it.

        Args:
            X: Inputs, then known columns, in the user's units, shape `(n, n_x + n_known)`.
        Returns: Mask, shape `(n, n_x)`; nothing is marked where the range is not known.
        """
        x = X[:, : len(self.x_mean)]
        if self.x_lowest is None or self.x_highest is None:
            return np.zeros(x.shape, dtype=bool)
        margin = MARGIN * (self.x_highest - self.x_lowest)
        return (x < self.x_lowest - margin) | (x > self.x_highest + margin)

    def outputs(self, Y: Array) -> Array:
        """Standardize outputs, shape `(..., n_y)`, from the user's units."""
        return (Y - self.y_mean) / self.y_std

    def linearise(self, X: Array, Y: Array | None = None) -> tuple[Array, Array]:
        """Compute coefficients and targets of the balances in standardized units (Z3).

        Args:
            X: Inputs, then known columns, in the user's units, shape `(n, n_x + n_known)`.
            Y: Outputs at which nonlinear balances are linearised, in the user's units, shape `(n, n_y)`.
        Returns: `B'`, shape `(m, n_y)` if it is the same in all rows, else `(n, m, n_y)`; and `t'`, shape `(n, m)`.
        Raises: InputError, if coefficients or targets of an equality of the user's own are not usable.
        """
        B, target = linearised(self._balances, X, Y)
        if not isinstance(self._balances, LinearConstraint):
            self._check_rows(np.broadcast_to(B, (len(X), *B.shape[-2:])), target)
        return self._scaled(B), (target - B @ self.y_mean) / self.row_scale  # Z3

    def target(self, X: Array) -> Array:
        """Compute the targets `t'` of the balances in standardized units, shape `(n, m)`, from X as of `linearise`."""
        return self.linearise(X)[1]

    def outputs_to_user(self, y: Array) -> Array:
        """Translate standardized outputs, shape `(..., n_y)`, back to the user's units."""
        return self.y_mean + self.y_std * y

    def rounding(self, X: Table, Y: Table, relative: float) -> Array:
        """Compute the rounding level of each balance's residual in standardized units::

            relative · max_i (Σ_j |A_kj x_ij| + Σ_j |B_kj y_ij| + |b_k|) / c_k

        Args:
            X: Inputs, then known columns, in the user's units, shape `(n, n_x + n_known)`.
            Y: Outputs in the user's units, shape `(n, n_y)`; NaN counts as 0.
            relative: Relative rounding of the terms.
        Returns: The levels, shape `(m,)`.
        """
        largest = [self._balances.magnitude(x, np.nan_to_num(y)).max(axis=0) for x, y in pieces(X, Y)]
        return relative * np.max(largest, axis=0) / self.row_scale

    def _scaled(self, B: Array) -> Array:
        """Compute `B'` from coefficients `B` in the user's units, shape `(..., m, n_y)` (Z3)."""
        return B * self.y_std / self.row_scale[:, None]

    def _check_rows(self, B: Array, target: Array) -> None:
        """Raise, with the balance's name, unless coefficients and targets are finite and keep to the pattern."""
        names, outputs = self._balances.names, self._balances.outputs
        stray = ((B != 0) & ~self._balances.pattern).any(0)
        if stray.any():
            k, j = map(int, np.argwhere(stray)[0])
            rule = f"Coefficients outside pattern must be 0, but got others for {outputs[j]!r} in balance {names[k]!r}"
            raise InputError(f"{rule}. Add it to the pattern of {type(self._balances).__name__}.")
        bad = ~(np.isfinite(B).all(-1) & np.isfinite(target))
        if bad.any():
            row, k = map(int, np.argwhere(bad)[0])
            rule = f"Balance {names[k]!r} must have finite coefficients and a finite target in every row"
            got = f"{B[row, k].tolist()} and {target[row, k]} in row {row} of the rows it was evaluated for"
            raise InputError(f"{rule}, but got {got}. Look for unusual inputs there.")

    @property
    def _balances(self) -> Equality:
        if self.constraint is None:
            raise InputError("This Standardizer was fitted without balances, so it has no row scales or targets.")
        return self.constraint


class StandardizedBalances(Equality):
    """Balances whose coefficients differ from row to row, between standardized outputs: `B' y' = t'` (Z3).

    Args:
        standardizer: The translation of the user's units; it has the balances.
    """

    name = "standardized"

    def __init__(self, standardizer: Standardizer):
        own = standardizer._balances
        super().__init__(names=own.names, outputs=own.outputs, inputs=own.inputs, known=own.known)
        self._standardizer, self._own = standardizer, own

    @property
    def pattern(self) -> NDArray[np.bool_]:
        """Mask of the coefficients that may differ from 0 in any row, shape `(m, n_y)`."""
        return self._own.pattern

    def linearise(self, X: Array, Y: Array | None = None) -> tuple[Array, Array]:
        """Compute `B'` and `t'`.

        Args:
            X: Inputs, then known columns, in the user's units, shape `(n, n_columns)`.
            Y: Standardized outputs, shape `(n, n_y)`; None for balances that are linear in them.
        """
        return self._standardizer.linearise(X, None if Y is None else self._standardizer.outputs_to_user(Y))

    def scale(self, output_std: Array, X: Array | None = None) -> Array:
        """Return ones: balances in standardized units are divided by their scales already.

        Args:
            output_std, X: Ignored.
        """
        return np.ones(self.n_balances)


def _root_mean_squares(equality: Equality, X: Table, rows: Positions | None) -> Array:
    """Compute the root mean square of each coefficient over rows of a table, shape `(m, n_y)`.

    Raises: InputError, if a balance involves no output in any row.
    """
    sums, n_rows = np.zeros((equality.n_balances, equality.n_outputs)), 0
    for (x,) in pieces(X, rows=rows):
        sums += np.square(linearised(equality, x)[0]).sum(0)
        n_rows += len(x)
    for name, of_balance in zip(equality.names, sums, strict=True):
        if not of_balance.any():
            raise InputError(f"Balance {name!r} must involve an output, but got coefficients 0 in all rows. Drop it.")
    return np.sqrt(sums / max(n_rows, 1))
