"""Standardizer: the translation of data *and* balances to standardized units; nothing else in the library scales.

::

    x' = (x − x̄) / s_x,   y' = (y − ȳ) / s_y,   B' = diag(1/c) B diag(s_y),   t' = (b − A x − B ȳ) / c      (Z3)

with `c` the balances' scales (Z2), so that `B' y' = t'` exactly where `A x + B y = b`, every row of `B'` has unit
norm, and a tolerance in these units is relative. Targets are computed from `x` in the user's units: known columns
need no scaling, and no digits are lost in a round trip.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.balances import LinearConstraint
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
        x_mean, x_std, y_mean, y_std, magnitude = x.mean, x.std, y.mean, y.std, y.largest
        # A constant input that changes after the fit must not give a huge x': one unit of x' is its whole value.
        x_std = np.where(x_std > 0, x_std, np.where(x_mean != 0, np.abs(x_mean), 1.0))
        # A constant output counts for nothing in a balance's scale beside ones that vary, but divides by no zero.
        y_std = np.where(y_std > 0, y_std, 1e-6 * np.where(magnitude > 0, magnitude, 1.0))
        return cls(x_mean, x_std, y_mean, y_std, constraint, x.lowest, x.highest)

    @property
    def row_scale(self) -> Array:
        """Scales `c_k` of the balances in their own units, shape `(m,)` (Z2)."""
        return self._balances.scale(self.y_std)

    @property
    def B(self) -> Array:
        """Coefficients `B'` of the outputs in standardized units, shape `(m, n_y)` (Z3)."""
        return self._balances.B * self.y_std / self.row_scale[:, None]

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

    def target(self, X: Array) -> Array:
        """Compute the targets of the balances in standardized units (Z3).

        Args:
            X: Inputs, then known columns, in the user's units, shape `(n, n_x + n_known)`.
        Returns: `t'`, shape `(n, m)`.
        """
        return (self._balances.target(X) - self._balances.B @ self.y_mean) / self.row_scale

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

    @property
    def _balances(self) -> LinearConstraint:
        if self.constraint is None:
            raise InputError("This Standardizer was fitted without balances, so it has no row scales or targets.")
        return self.constraint
