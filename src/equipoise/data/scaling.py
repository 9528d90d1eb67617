"""Standardizer: data *and* balances change units together; nothing else in the library scales.

::

    x' = (x − x̄) / s_x,   y' = (y − ȳ) / s_y,   B' = diag(1/c) B diag(s_y),   t' = (b − A x − B ȳ) / c      (Z3)

with `c` the balances' scales (Z2), so that `B' y' = t'` exactly where `A x + B y = b`, every row of `B'` has unit
norm, and a tolerance in these units is relative. Targets are computed from the user's own `x`: known columns need no
scaling, and no digit is lost to a detour.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.balances import LinearConstraint
from equipoise.data.table_passes import Moments, Positions, Table, pieces
from equipoise.errors import InputError

Array = NDArray[np.float64]
MARGIN = 0.05  # of the range of an input, by which a value may exceed it: held-out rows do so by chance


@dataclass(frozen=True)
class Standardizer:
    """Means and standard deviations of the training data, and the balances' scales.

    Args:
        x_mean, x_std: Of the network's inputs, shape `(n_x,)`.
        y_mean, y_std: Of the outputs, shape `(n_y,)`.
        constraint: The balances in the user's units, or None.
        x_lowest, x_highest: Range of the network's inputs, shape `(n_x,)`; None where a model file is too old to know.
    """

    x_mean: Array
    x_std: Array
    y_mean: Array
    y_std: Array
    constraint: LinearConstraint | None = None
    x_lowest: Array | None = None
    x_highest: Array | None = None

    @classmethod
    def fit(
        cls, X: Table, Y: Table, constraint: LinearConstraint | None = None, rows: Positions | None = None
    ) -> "Standardizer":
        """From inputs `(n, n_x [+ known])` and outputs `(n, n_y)`, NaN in Y ignored; of some rows, or of all."""
        n_inputs = X.shape[1] if constraint is None else constraint.n_inputs
        x, y = (Moments.over(part for (part,) in pieces(table, rows=rows)) for table in (X[:, :n_inputs], Y))
        x_mean, x_std, y_mean, y_std, magnitude = x.mean, x.std, y.mean, y.std, y.largest
        # A constant input says nothing, and must not shout when it does change: one unit of x' is all of its value.
        x_std = np.where(x_std > 0, x_std, np.where(x_mean != 0, np.abs(x_mean), 1.0))
        # A constant output counts for nothing in a balance's scale beside ones that vary, but divides by no zero.
        y_std = np.where(y_std > 0, y_std, 1e-6 * np.where(magnitude > 0, magnitude, 1.0))
        return cls(x_mean, x_std, y_mean, y_std, constraint, x.lowest, x.highest)

    @property
    def row_scale(self) -> Array:
        """`c_k` in the balances' own units, shape `(m,)` (Z2)."""
        return self._balances.scale(self.y_std)

    @property
    def B(self) -> Array:
        """`B'`, shape `(m, n_y)` (Z3)."""
        return self._balances.B * self.y_std / self.row_scale[:, None]

    def inputs(self, X: Array) -> Array:
        """`x'` of the network's inputs (known columns, if any, are left out)."""
        return (X[:, : len(self.x_mean)] - self.x_mean) / self.x_std

    def beyond(self, X: Array) -> NDArray[np.bool_]:
        """Which inputs of the network lie outside the range of those trained on by more than 5 % of it, `(n, n_x)`."""
        x = X[:, : len(self.x_mean)]
        if self.x_lowest is None or self.x_highest is None:
            return np.zeros(x.shape, dtype=bool)
        margin = MARGIN * (self.x_highest - self.x_lowest)
        return (x < self.x_lowest - margin) | (x > self.x_highest + margin)

    def outputs(self, Y: Array) -> Array:
        """`y'`."""
        return (Y - self.y_mean) / self.y_std

    def target(self, X: Array) -> Array:
        """`t'`, shape `(n, m)` (Z3)."""
        return (self._balances.target(X) - self._balances.B @ self.y_mean) / self.row_scale

    def outputs_to_user(self, y: Array) -> Array:
        """`y' → y`."""
        return self.y_mean + self.y_std * y

    def rounding(self, X: Table, Y: Table, relative: float) -> Array:
        """`relative · max_i (Σ|A||x| + Σ|B||y| + |b|) / c_k`: a rounding level in the units of `t'`, shape `(m,)`."""
        largest = [self._balances.magnitude(x, np.nan_to_num(y)).max(axis=0) for x, y in pieces(X, Y)]
        return relative * np.max(largest, axis=0) / self.row_scale

    @property
    def _balances(self) -> LinearConstraint:
        if self.constraint is None:
            raise InputError("This Standardizer was fitted without balances, so it has no row scales or targets.")
        return self.constraint
