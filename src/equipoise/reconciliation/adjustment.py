"""Adjustment by least squares: measured values are changed as little as their errors allow until the balances hold.

An `Adjuster` serves all rows with one measurement pattern. Unmeasured variables are eliminated first
(`observability.project`); what remains are reduced balances `G x = h` between measured variables. `Whitening` turns
their residuals into independent standard normal numbers, on which the adjustment and all tests for gross errors rest.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int
from numpy.typing import NDArray

from equipoise.balances import CANCELLED
from equipoise.reconciliation.observability import Pattern, Projection, Structure, project

Array = NDArray[np.float64]
SMALL = 1e-6  # fraction of a variance below which a difference of two variances has lost too many digits


@dataclass(frozen=True, eq=False)
class Whitening:
    """A QR factor of reduced balances `G x = h` that turns their residuals into independent standard normal numbers.

    With the covariance `V = F Fᵀ` of the errors of `x`::

        Fᵀ Gᵀ = Q R,    so    S = G V Gᵀ = Rᵀ R        (R2)

    S itself is never formed, which keeps twice as many digits. A leading axis holds one factor for each row of a table.

    Args:
        spread: `F`: standard deviations `(k,)` or `(rows, k)`, or a lower triangle `(k, k)`.
        Q: Orthonormal columns, shape `(..., k, f)` for f independent reduced balances.
        R: Upper triangle, shape `(..., f, f)`.
        triangular: Whether `spread` is a triangle.
    """

    spread: Float[np.ndarray, "..."]
    Q: Float[np.ndarray, "*rows k f"]
    R: Float[np.ndarray, "*rows f f"]
    triangular: bool = False

    @classmethod
    def of(
        cls, G: Float[np.ndarray, "f k"], spread: Float[np.ndarray, "..."], *, triangular: bool = False
    ) -> "Whitening":
        """Factorise reduced balances (R2).

        Args:
            G: Coefficients of the reduced balances, shape `(f, k)`.
            spread: Standard deviations `(k,)` or `(rows, k)`, or a lower triangle `(k, k)`.
            triangular: Whether `spread` is a triangle.
        Example:
            >>> meters = Whitening.of(np.array([[1.0, -1.0]]), np.array([3.0, 4.0]))  # one flow, two meters
            >>> abs(meters.whiten(np.array([[10.0]])))  # 10 off, where 5 is a standard deviation
            array([[2.]])
        """
        W = spread_terms(G, spread, triangular=triangular)
        Q, R = np.linalg.qr(W) if len(G) else (W, np.zeros((*W.shape[:-2], 0, 0)))  # R2
        return cls(spread, Q, R, triangular)

    def whiten(self, residuals: Float[np.ndarray, "rows f"]) -> Float[np.ndarray, "rows f"]:
        """Return the whitened residuals `e = R⁻ᵀ (h − G x)`: standard normal if there is no gross error (R3).

        Args:
            residuals: `h − G x`, shape `(rows, f)`.
        """
        if self.R.ndim == 2:
            return solve_triangle(self.R, residuals.T, transposed=True).T
        return np.linalg.solve(self.R.mT, residuals[..., None])[..., 0]

    def adjustments(self, whitened: Float[np.ndarray, "rows f"]) -> Float[np.ndarray, "rows k"]:
        """Return what is added to the measured values, `F Q e`, shape `(rows, k)` (R3)."""
        standardized = _times(self.Q, whitened)
        return standardized @ self.spread.T if self.triangular else standardized * self.spread

    def biases(self) -> Float[np.ndarray, "*rows f k"]:
        """Compute how a bias of each quantity appears in the whitened residuals, `R⁻ᵀ G = Qᵀ F⁻¹` (R7).

        Returns: One column per quantity, shape `(..., f, k)`: a bias of size s of quantity j shifts the mean of the
            whitened residuals by `−s` times column j.
        """
        if self.triangular:
            return solve_triangle(self.spread, self.Q, transposed=True, lower=True).T
        return self.Q.mT / self.spread[..., None, :]

    def leaks(self, unit: Float[np.ndarray, "f m"]) -> Float[np.ndarray, "*rows f m"]:
        """Return the directions of unit leaks in the whitened residuals, `R⁻ᵀ unit` (R7).

        Args:
            unit: What a unit leak of each balance subtracts from the residuals of `G x = h`, shape `(f, m)`.
        """
        return solve_triangle(self.R, unit, transposed=True) if self.R.ndim == 2 else np.linalg.solve(self.R.mT, unit)

    def var_share(self) -> Float[np.ndarray, "*rows k"]:
        """Return the share of each quantity's variance that adjustment leaves, `1 − ‖q_j‖²` (R4).

        For independent errors only. Small shares are calculated as in `var_left`.
        """
        share = np.clip(1.0 - np.square(self.Q).sum(-1), 0.0, 1.0)
        for j in np.unique(np.nonzero(share < SMALL)[-1]):
            remainder = -_times(self.Q, self.Q[..., j, :])
            remainder[..., j] += 1.0
            share[..., j] = np.square(remainder).sum(-1)
        return share

    def var_left(self, coefficients: Float[np.ndarray, "*rows u k"]) -> Float[np.ndarray, "*rows u"]:
        """Return the variance after adjustment of linear combinations `l ξ`, `‖l − Q Qᵀ l‖²` (R4).

        That is `‖l‖² − ‖Qᵀ l‖²`. Where this difference is small, the norm of `l − Q Qᵀ l` is calculated instead, which
        loses half as many digits.

        Args:
            coefficients: `l`, coefficients of the standardized errors ξ of the measured values, shape `(..., u, k)`.
        """
        along, total = coefficients @ self.Q, np.square(coefficients).sum(-1)
        var = np.clip(total - np.square(along).sum(-1), 0.0, None)
        for j in np.unique(np.nonzero(var < SMALL * total)[-1]):
            var[..., j] = np.square(coefficients[..., j, :] - _times(self.Q, along[..., j, :])).sum(-1)
        return var


def spread_terms(
    G: Float[np.ndarray, "f k"], spread: Float[np.ndarray, "..."], *, triangular: bool = False
) -> Float[np.ndarray, "*rows k f"]:
    """Return `Fᵀ Gᵀ`, shape `(..., k, f)`, for standard deviations or, if triangular, a lower triangle `F`.

    Args:
        G: Coefficients, shape `(f, k)`.
        spread: Standard deviations, shape `(..., k)`, or the triangle `F`, shape `(k, k)`.
        triangular: Whether `spread` is a triangle.
    """
    return spread.T @ G.T if triangular else spread[..., None] * G.T


def solve_triangle(triangle: Array, right: Array, *, transposed: bool = False, lower: bool = False) -> Array:
    """Solve a triangular system; a system without rows or without columns is allowed.

    Args:
        triangle: The matrix, shape `(k, k)`.
        right: Right sides, shape `(k, r)`.
        transposed: Whether to solve with the transposed matrix.
        lower: Whether the matrix is a lower triangle.
    """
    if not triangle.size or not right.size:
        return np.zeros((len(triangle), right.shape[1]))
    trans = 1 if transposed else 0
    return np.asarray(scipy.linalg.solve_triangular(triangle, right, trans, lower, check_finite=False))


def _times(matrix: Array, vectors: Array) -> Array:
    """Multiply each row by a matrix, the same one for all rows or one each."""
    return vectors @ matrix.T if matrix.ndim == 2 else (matrix @ vectors[..., None])[..., 0]


@dataclass(frozen=True, eq=False)
class Adjuster:
    """The adjustment of all rows with one measurement pattern. Nothing of size n × n is made for a row.

    Args:
        C, b: Balances `C z = b`.
        std: Standard deviations of all variables; typical ones where each row has its own.
        tolerance: Standard deviations of the balances.
        pattern: Which variables are measured.
        structure: Which of them are redundant or observable.
        covariance: Covariance of the errors of all variables, where they are correlated.
    """

    C: Float[np.ndarray, "m n"]
    b: Float[np.ndarray, " m"]
    std: Float[np.ndarray, " n"]
    tolerance: Float[np.ndarray, " m"]
    pattern: Pattern
    structure: Structure
    covariance: Float[np.ndarray, "n n"] | None = None

    @cached_property
    def measured(self) -> Int[np.ndarray, " n_m"]:
        """Positions of the variables that are measured with an error."""
        return np.flatnonzero(self.pattern.measured)

    @cached_property
    def unmeasured(self) -> Int[np.ndarray, " u"]:
        """Positions of the variables that are not measured."""
        return np.flatnonzero(self.pattern.unmeasured)

    @cached_property
    def projection(self) -> Projection:
        """The balances without the unmeasured variables."""
        return project(self.C, self.std, self.tolerance, self.pattern, self.structure)

    @cached_property
    def reduced(self) -> "Reduced":
        """Independent balances between measured variables (R1).

        Where exact values leave reduced balances without uncertain terms, or with linearly dependent ones, QR with
        column pivoting selects independent balances; the others yield combinations of exact values that must vanish by
        themselves.
        """
        combinations, count = self.projection.combinations, self.structure.degrees_of_freedom
        G = combinations.T @ self._terms  # R1
        if count == len(G):
            return Reduced(G, combinations, combinations[:, :0])
        W = spread_terms(G, self._spread(self.std), triangular=self.covariance is not None)
        R, pivots = map(np.asarray, scipy.linalg.qr(W, mode="r", pivoting=True)) if W.size else (W, np.arange(len(G)))
        independent, dependent = pivots[:count], pivots[count:]
        coefficients = solve_triangle(R[:count, :count], R[:count, count:])
        return Reduced(
            G[independent],
            combinations[:, independent],
            combinations[:, dependent] - combinations[:, independent] @ coefficients,
        )

    @cached_property
    def whitening(self) -> Whitening:
        """The whitening factor of all rows that have the standard deviations `std`."""
        return self.whitening_of(self.std)

    def whitening_of(self, std: Float[np.ndarray, "*rows n"]) -> Whitening:
        """Factorise the reduced balances for other standard deviations, `(n,)` or one row each, `(rows, n)`."""
        return Whitening.of(self.reduced.G, self._spread(std), triangular=self.covariance is not None)

    def residuals(self, z: Float[np.ndarray, "rows n"]) -> Float[np.ndarray, "rows m"]:
        """Return the scaled residuals `(b − C z)/c` of the balances, in units of their uncertainty, shape `(rows, m)`.

        Args:
            z: Values of all variables, 0 for unmeasured ones.
        """
        return (self.b - z @ self.C.T) / self.projection.row_scale

    def whitened(self, z: Float[np.ndarray, "rows n"], factor: Whitening) -> Float[np.ndarray, "rows f"]:
        """Return the whitened residuals of the reduced balances: independent standard normal numbers.

        ::

            e = R⁻ᵀ (h − G x) = R⁻ᵀ Pᵀ (b − C z)/c,    x̂ = x + F Q e        (R3)

        Args:
            z: Measured values, 0 for unmeasured variables.
            factor: The whitening factor of all rows, or one for each.
        Returns: `e`, shape `(rows, f)`.
        """
        return factor.whiten(self.residuals(z) @ self.reduced.combinations)  # R3

    def contradictions(self, z: Float[np.ndarray, "rows n"]) -> Float[np.ndarray, "rows s"]:
        """Return by how much combinations of exact values violate the balances, shape `(rows, s)`; 0 within rounding.

        Rounding is 1e-9 of the sum of the absolute terms.
        """
        combinations = self.reduced.exact_combinations
        residuals = self.residuals(z) @ combinations
        magnitude = (np.abs(self.b) + np.abs(z) @ np.abs(self.C).T) / self.projection.row_scale
        return np.where(np.abs(residuals) > 1e-9 * (magnitude @ np.abs(combinations)), residuals, 0.0)

    def reconciled(
        self, z: Float[np.ndarray, "rows n"], whitened: Float[np.ndarray, "rows f"], factor: Whitening
    ) -> Float[np.ndarray, "rows n"]:
        """Return reconciled values of all variables, shape `(rows, n)`; NaN for unobservable variables.

        Args:
            z: Measured values, 0 for unmeasured variables.
            whitened: Whitened residuals from `whitened`.
            factor: The whitening factor of all rows, or one for each.
        """
        values = z.copy()
        adjustments = factor.adjustments(whitened)
        values[:, self.measured] += adjustments[:, : len(self.measured)]  # R3
        if len(self.unmeasured):
            residuals = self.residuals(values)
            residuals[:, self.pattern.tolerant] += adjustments[:, len(self.measured) :] / self._slack_scale
            solution = residuals @ self.projection.left_inverse.T
            values[:, self.unmeasured] = np.where(self.structure.observable[self.unmeasured], solution, np.nan)
        return values

    def residual_std(self, factor: Whitening) -> Float[np.ndarray, "*rows m"]:
        """Return the standard deviation of the residual of each balance, from its measured variables (R6)."""
        terms = self._terms * self.projection.row_scale[:, None]
        if factor.triangular:
            return np.sqrt(np.square(terms @ factor.spread).sum(axis=-1))
        return np.sqrt(np.square(factor.spread) @ np.square(terms).T)

    def directions(self, factor: Whitening) -> Float[np.ndarray, "*rows f c"]:
        """Compute how a gross error of each variable or balance appears in the whitened residuals::

            f_j = R⁻ᵀ G_j    for a bias of variable j,    f_k = R⁻ᵀ Pᵀ 1_k/c_k    for a leak of balance k        (R7)

        A bias or leak of size s, in the unit of the variable or balance, shifts the mean of the whitened residuals by
        `−s` times its direction.

        Args:
            factor: The whitening factor of all rows, or one for each.
        Returns: One column per candidate, first the biases of all n variables, then the leaks of all m balances, shape
            `(..., f, n + m)`; a column is 0 where no balance can detect the error.
        """
        m, n = self.C.shape
        directions = np.zeros((*factor.Q.shape[:-2], factor.R.shape[-1], n + m))
        biases = factor.biases()[..., : len(self.measured)]
        directions[..., self.measured] = np.where(self.structure.redundant[self.measured], biases, 0.0)  # R7
        testable = self.structure.checked & (np.linalg.norm(self.reduced.exact_combinations, axis=1) < CANCELLED)
        leaks = factor.leaks(self.reduced.combinations.T / self.projection.row_scale)
        directions[..., n:] = np.where(testable, leaks, 0.0)  # R7
        return directions

    def std_after(self, factor: Whitening) -> Float[np.ndarray, "*rows n"]:
        """Return the standard deviations after reconciliation, shape `(..., n)`; NaN for unobservable variables.

        ::

            V̂ = F (I − Q Qᵀ) Fᵀ,    û = D (b + ε̂ − C ẑ)/c        (R4)

        for measured variables and for unmeasured ones, which are solved for (`Projection.left_inverse`) from the
        reconciled values ẑ of the others and the errors ε̂ of tolerant balances.
        """
        std, n = np.zeros((*factor.Q.shape[:-2], self.C.shape[1])), len(self.measured)
        if factor.triangular:
            std[self.measured] = np.sqrt(factor.var_left(factor.spread[:n]))
        else:
            std[..., self.measured] = (factor.spread * np.sqrt(factor.var_share()))[..., :n]  # R4
        if len(self.unmeasured):
            left = np.sqrt(factor.var_left(self._unmeasured_sensitivity(factor)))
            std[..., self.unmeasured] = np.where(self.structure.observable[self.unmeasured], left, np.nan)
        return std

    def covariance_after(self, factor: Whitening) -> Float[np.ndarray, "n n"]:
        """Return the covariance `V̂` of all variables of one row, shape `(n, n)`; NaN for unobservable variables."""
        sensitivity = np.zeros((self.C.shape[1], len(factor.Q)))
        spread = factor.spread if factor.triangular else np.diag(factor.spread)
        sensitivity[self.measured] = spread[: len(self.measured)]
        sensitivity[self.unmeasured] = self._unmeasured_sensitivity(factor)
        remainder = sensitivity - sensitivity @ factor.Q @ factor.Q.T
        remainder[self.pattern.unmeasured & ~self.structure.observable] = np.nan
        return remainder @ remainder.T  # R4

    def _unmeasured_sensitivity(self, factor: Whitening) -> Array:
        """Return coefficients of unmeasured variables in standardized errors of measured ones, `(..., u, k)`."""
        sensitivity = -self.projection.left_inverse @ self._terms
        return sensitivity @ factor.spread if factor.triangular else sensitivity * factor.spread[..., None, :]

    @cached_property
    def _terms(self) -> Array:
        """Scaled coefficients of measured variables and of the errors of tolerant balances, shape `(m, k)`."""
        terms = np.hstack([self.C[:, self.measured], -np.eye(len(self.C))[:, self.pattern.tolerant]])
        return terms / self.projection.row_scale[:, None]

    @property
    def _slack_scale(self) -> Array:
        return self.projection.row_scale[self.pattern.tolerant]

    def _spread(self, std: Array) -> Array:
        """Return `F` of measured variables and of the errors of tolerant balances.

        Args:
            std: Standard deviations of all variables, shape `(n,)` or `(rows, n)`; not used with a covariance.
        Returns: Standard deviations `(k,)` or `(rows, k)`; with a covariance, a lower triangle `(k, k)`.
        """
        slack = self.tolerance[self.pattern.tolerant]
        if self.covariance is None:
            own = std[..., self.measured]
            return np.concatenate([own, np.broadcast_to(slack, (*own.shape[:-1], len(slack)))], axis=-1)
        part = self.covariance[np.ix_(self.measured, self.measured)]
        own = np.sqrt(np.diagonal(part))
        triangle = own[:, None] * np.linalg.cholesky(part / own / own[:, None])
        return np.asarray(scipy.linalg.block_diag(triangle, np.diag(slack)))


@dataclass(frozen=True, eq=False)
class Reduced:
    """Balances between measured variables alone.

    Args:
        G: Coefficients of measured variables, then of the errors of tolerant balances; rows are independent.
        combinations: The combinations of scaled balances that the rows of `G` are, shape `(m, f)`.
        exact_combinations: Combinations of scaled balances without any uncertain term, shape `(m, s)`.
    """

    G: Float[np.ndarray, "f k"]
    combinations: Float[np.ndarray, "m f"]
    exact_combinations: Float[np.ndarray, "m s"]
