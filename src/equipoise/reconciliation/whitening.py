"""What measured values miss their balances by, as independent standard normal numbers; what is left of their errors."""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from jaxtyping import Float
from numpy.typing import NDArray

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
