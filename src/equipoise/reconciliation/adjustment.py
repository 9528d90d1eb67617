"""The reconciliation of rows in which the same variables are measured: what they share, and their values."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int
from numpy.typing import NDArray

from equipoise.balances import CANCELLED
from equipoise.reconciliation.observability import Pattern, Projection, Structure, project

Array = NDArray[np.float64]
SMALL = 1e-6  # part of a variance below which the difference of two larger numbers is not good enough


@dataclass(frozen=True, eq=False)
class Whitening:
    """Uncertain quantities `x` in reduced balances `G x = h`, as orthonormal columns.

    With the covariance `V = F Fᵀ` of their errors::

        Fᵀ Gᵀ = Q R,    so    S = G V Gᵀ = Rᵀ R        (R2)

    S itself is never formed, which keeps twice the digits. A leading axis holds one factor for each row of a table.

    Args:
        spread: `F`: standard deviations `(k,)` or `(rows, k)`, or a lower triangle `(k, k)`.
        Q: Shape `(..., k, f)` for f reduced balances, all independent.
        R: Shape `(..., f, f)`.
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
        """Factorize reduced balances.

        Args:
            G: Coefficients.
            spread: As above.
            triangular: Whether `spread` is a triangle.
        Example:
            >>> meters = Whitening.of(np.array([[1.0, -1.0]]), np.array([3.0, 4.0]))  # one flow, two meters
            >>> abs(meters.whiten(np.array([[10.0]])))  # 10 off, where 5 is a standard deviation
            array([[2.]])
        """
        W = spread_terms(G, spread, triangular=triangular)
        Q, R = np.linalg.qr(W) if len(G) else (W, np.zeros((*W.shape[:-2], 0, 0)))  # R2
        return cls(spread, Q, R, triangular)

    def whiten(self, missed: Float[np.ndarray, "rows f"]) -> Float[np.ndarray, "rows f"]:
        """`e = R⁻ᵀ (h − G x)`, independent standard normal numbers if nothing is wrong (R3)."""
        if self.R.ndim == 2:
            return solve_triangle(self.R, missed.T, transposed=True).T
        return np.linalg.solve(self.R.mT, missed[..., None])[..., 0]

    def adjustments(self, whitened: Float[np.ndarray, "rows f"]) -> Float[np.ndarray, "rows k"]:
        """What is added to the measured values, `F Q e` (R3)."""
        moved = _times(self.Q, whitened)
        return moved @ self.spread.T if self.triangular else moved * self.spread

    def biases(self) -> Float[np.ndarray, "*rows f k"]:
        """What a unit of bias of each quantity takes from the whitened residuals, `R⁻ᵀ G = Qᵀ F⁻¹` (R7)."""
        if self.triangular:
            return solve_triangle(self.spread, self.Q, transposed=True, lower=True).T
        return self.Q.mT / self.spread[..., None, :]

    def leaks(self, unit: Float[np.ndarray, "f m"]) -> Float[np.ndarray, "*rows f m"]:
        """What leaks take from the whitened residuals if they take `unit` from those of `G x = h`, `R⁻ᵀ unit` (R7)."""
        return solve_triangle(self.R, unit, transposed=True) if self.R.ndim == 2 else np.linalg.solve(self.R.mT, unit)

    def var_share(self) -> Float[np.ndarray, "*rows k"]:
        """Share of each quantity's own variance that is left, `1 − ‖q_j‖²`, for independent errors (R4)."""
        share = np.clip(1.0 - np.square(self.Q).sum(-1), 0.0, 1.0)
        for j in np.unique(np.nonzero(share < SMALL)[-1]):
            rest = -_times(self.Q, self.Q[..., j, :])
            rest[..., j] += 1.0
            share[..., j] = np.square(rest).sum(-1)
        return share

    def var_left(self, moves: Float[np.ndarray, "*rows u k"]) -> Float[np.ndarray, "*rows u"]:
        """Variance left of combinations `l ξ` of the standardized errors ξ, `‖l − Q Qᵀ l‖²` (R4).

        That is `‖l‖² − ‖Qᵀ l‖²`; where the difference is small it is calculated as it stands, which loses half as many
        digits. So it is for `var_share`.
        """
        along, total = moves @ self.Q, np.square(moves).sum(-1)
        var = np.clip(total - np.square(along).sum(-1), 0.0, None)
        for j in np.unique(np.nonzero(var < SMALL * total)[-1]):
            var[..., j] = np.square(moves[..., j, :] - _times(self.Q, along[..., j, :])).sum(-1)
        return var


def spread_terms(
    G: Float[np.ndarray, "f k"], spread: Float[np.ndarray, "..."], *, triangular: bool = False
) -> Float[np.ndarray, "*rows k f"]:
    """`Fᵀ Gᵀ`."""
    return spread.T @ G.T if triangular else spread[..., None] * G.T


def solve_triangle(triangle: Array, right: Array, *, transposed: bool = False, lower: bool = False) -> Array:
    """Solve with a triangle; no rows and no columns are allowed."""
    if not triangle.size or not right.size:
        return np.zeros((len(triangle), right.shape[1]))
    trans = 1 if transposed else 0
    return np.asarray(scipy.linalg.solve_triangular(triangle, right, trans, lower, check_finite=False))


def _times(matrix: Array, rows: Array) -> Array:
    """`matrix @ row` for every row, with one matrix for all of them, or one each."""
    return rows @ matrix.T if matrix.ndim == 2 else (matrix @ rows[..., None])[..., 0]


@dataclass(frozen=True, eq=False)
class Adjuster:
    """Everything that the rows of one pattern share. Nothing of size n × n is made for a row.

    Args:
        C, b: Balances `C z = b`.
        std: Standard deviations of all variables; typical ones where each row has its own.
        tolerance: Standard deviations of the balances.
        pattern, structure: What is measured, and what follows from it.
        covariance: Of all variables, where measurements are correlated.
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
        """Independent balances among what is measured.

        Where exact values leave a reduced balance nothing uncertain, or nothing new, the others are picked by QR with
        column pivoting; of the rest, combinations remain that must vanish by themselves.
        """
        onto, count = self.projection.onto, self.structure.degrees_of_freedom
        G = onto.T @ self._terms  # R1
        if count == len(G):
            return Reduced(G, onto, onto[:, :0])
        W = spread_terms(G, self._spread(self.std), triangular=self.covariance is not None)
        R, pivots = map(np.asarray, scipy.linalg.qr(W, mode="r", pivoting=True)) if W.size else (W, np.arange(len(G)))
        kept, others = pivots[:count], pivots[count:]
        same = solve_triangle(R[:count, :count], R[:count, count:])
        return Reduced(G[kept], onto[:, kept], onto[:, others] - onto[:, kept] @ same)

    @cached_property
    def whitening(self) -> Whitening:
        """The factor of all rows that have these standard deviations."""
        return self.whitening_of(self.std)

    def whitening_of(self, std: Float[np.ndarray, "*rows n"]) -> Whitening:
        """The factor for other standard deviations, `(n,)` or one of them for each row, `(rows, n)`."""
        return Whitening.of(self.reduced.G, self._spread(std), triangular=self.covariance is not None)

    def residuals(self, z: Float[np.ndarray, "rows n"]) -> Float[np.ndarray, "rows m"]:
        """What each balance lacks in units of its uncertainty, `(b − C z)/c`; unmeasured variables are 0 in z."""
        return (self.b - z @ self.C.T) / self.projection.row_scale

    def whitened(self, z: Float[np.ndarray, "rows n"], factor: Whitening) -> Float[np.ndarray, "rows f"]:
        """What the reduced balances miss, as independent standard normal numbers.

        ::

            e = R⁻ᵀ (h − G x) = R⁻ᵀ Pᵀ (b − C z)/c,    x̂ = x + F Q e        (R3)

        Args:
            z: Measured values, 0 where there is none.
            factor: That of all rows, or those of each.
        """
        return factor.whiten(self.residuals(z) @ self.reduced.onto)  # R3

    def contradictions(self, z: Float[np.ndarray, "rows n"]) -> Float[np.ndarray, "rows s"]:
        """By how much combinations of exact values break the balances; 0 within rounding, 1e-9 of their terms."""
        null = self.reduced.null
        missed = self.residuals(z) @ null
        size = (np.abs(self.b) + np.abs(z) @ np.abs(self.C).T) / self.projection.row_scale
        return np.where(np.abs(missed) > 1e-9 * (size @ np.abs(null)), missed, 0.0)

    def reconciled(
        self, z: Float[np.ndarray, "rows n"], whitened: Float[np.ndarray, "rows f"], factor: Whitening
    ) -> Float[np.ndarray, "rows n"]:
        """Reconciled values of all variables; NaN where nothing determines them."""
        found = z.copy()
        moved = factor.adjustments(whitened)
        found[:, self.measured] += moved[:, : len(self.measured)]  # R3
        if len(self.unmeasured):
            lacking = self.residuals(found)
            lacking[:, self.pattern.tolerant] += moved[:, len(self.measured) :] / self._slack_scale
            solved = lacking @ self.projection.solve.T
            found[:, self.unmeasured] = np.where(self.structure.observable[self.unmeasured], solved, np.nan)
        return found

    def residual_std(self, factor: Whitening) -> Float[np.ndarray, "*rows m"]:
        """Standard deviation of each balance's residual, as far as what is measured goes (R6)."""
        terms = self._terms * self.projection.row_scale[:, None]
        if factor.triangular:
            return np.sqrt(np.square(terms @ factor.spread).sum(axis=-1))
        return np.sqrt(np.square(factor.spread) @ np.square(terms).T)

    def directions(self, factor: Whitening) -> Float[np.ndarray, "*rows f c"]:
        """What a unit of bias of each variable, then of leak of each balance, takes from the whitened residuals::

            f_j = R⁻ᵀ G_j    for a bias of variable j,    f_k = R⁻ᵀ Pᵀ 1_k/c_k    for a leak of balance k        (R7)

        Zero for whatever no balance would notice.
        """
        m, n = self.C.shape
        found = np.zeros((*factor.Q.shape[:-2], factor.R.shape[-1], n + m))
        biases = factor.biases()[..., : len(self.measured)]
        found[..., self.measured] = np.where(self.structure.redundant[self.measured], biases, 0.0)  # R7
        noticed = self.structure.checked & (np.linalg.norm(self.reduced.null, axis=1) < CANCELLED)
        leaks = factor.leaks(self.reduced.onto.T / self.projection.row_scale)
        found[..., n:] = np.where(noticed, leaks, 0.0)  # R7
        return found

    def std_after(self, factor: Whitening) -> Float[np.ndarray, "*rows n"]:
        """Standard deviations after reconciliation; NaN where nothing determines a variable.

        ::

            V̂ = F (I − Q Qᵀ) Fᵀ,    û = D (b + ε̂ − C ẑ)/c        (R4)

        for measured variables and for unmeasured ones, which are solved for (`Projection.solve`) from the reconciled
        values ẑ of the others and the errors ε̂ of tolerant balances.
        """
        std, n = np.zeros((*factor.Q.shape[:-2], self.C.shape[1])), len(self.measured)
        if factor.triangular:
            std[self.measured] = np.sqrt(factor.var_left(factor.spread[:n]))
        else:
            std[..., self.measured] = (factor.spread * np.sqrt(factor.var_share()))[..., :n]  # R4
        if len(self.unmeasured):
            left = np.sqrt(factor.var_left(self._through(factor)))
            std[..., self.unmeasured] = np.where(self.structure.observable[self.unmeasured], left, np.nan)
        return std

    def covariance_after(self, factor: Whitening) -> Float[np.ndarray, "n n"]:
        """All of `V̂` for one row; NaN for what nothing determines."""
        moves = np.zeros((self.C.shape[1], len(factor.Q)))
        moves[self.measured] = (factor.spread if factor.triangular else np.diag(factor.spread))[: len(self.measured)]
        moves[self.unmeasured] = self._through(factor)
        rest = moves - moves @ factor.Q @ factor.Q.T
        rest[self.pattern.unmeasured & ~self.structure.observable] = np.nan
        return rest @ rest.T  # R4

    def _through(self, factor: Whitening) -> Array:
        """How unmeasured variables follow the standardized errors of what they are solved from, `(..., u, k)`."""
        through = -self.projection.solve @ self._terms
        return through @ factor.spread if factor.triangular else through * factor.spread[..., None, :]

    @cached_property
    def _terms(self) -> Array:
        """Scaled coefficients of measured variables and of the errors of tolerant balances, shape `(m, k)`."""
        terms = np.hstack([self.C[:, self.measured], -np.eye(len(self.C))[:, self.pattern.tolerant]])
        return terms / self.projection.row_scale[:, None]

    @property
    def _slack_scale(self) -> Array:
        return self.projection.row_scale[self.pattern.tolerant]

    def _spread(self, std: Array) -> Array:
        """`F` of measured variables and of the errors of tolerant balances: standard deviations, or a triangle."""
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
        onto: Which combinations of scaled balances they are.
        null: Combinations in which nothing uncertain is left.
    """

    G: Float[np.ndarray, "f k"]
    onto: Float[np.ndarray, "m f"]
    null: Float[np.ndarray, "m s"]
