"""Dependent balances: which rows of `B` are combinations of others, whatever the units of rows and columns."""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import structural_rank

FloatArray = NDArray[np.float64]
RANK_TOLERANCE = 1e-10  # pivot below which equilibrated rows are suspected of being dependent
CANCELLED = 1e-8  # part of its terms below which a sum counts as zero


@dataclass(frozen=True)
class Dependence:
    """A combination `λᵀ B = 0` of dependent rows.

    Args:
        weights: `λ`, shape `(m,)`; zeros when rounding hides the combination.
        rank: Rank of all rows together.
    """

    weights: FloatArray
    rank: int


def find_dependence(B: FloatArray) -> Dependence | None:
    """The first row that depends on earlier ones, with its combination; None when all rows are independent.

    Example:
        >>> find_dependence(np.array([[1.0, 1.0], [2.0, 2.0]])).weights
        array([-2.,  1.])
        >>> find_dependence(np.array([[1.0, 1.0], [1.0, 2.0]])) is None
        True
    """
    rows, factors = equilibrate(B)
    m, rank = len(rows), _rank(rows)
    independent: list[int] = []
    for k in range(m if rank < m else 0):
        trial = [*independent, k]
        if _rank(rows[trial]) == len(trial):
            independent = trial
        elif (combination := _null_combination(rows[trial])).any():
            weights = np.zeros(m)
            weights[trial] = combination * factors[trial] / factors[k]
            return Dependence(weights, rank)
    # With too few outputs the rows are dependent, even where rounding hides their combination.
    most = int(structural_rank(csr_array(B)))
    return Dependence(np.zeros(m), most) if most < m else None


def combine(weights: FloatArray, values: FloatArray) -> FloatArray:
    """`λᵀ M`, with zeros where its terms cancel to rounding."""
    total = weights @ values
    return np.where(np.abs(total) > CANCELLED * (np.abs(weights) @ np.abs(values)), total, 0.0)


def _rank(rows: FloatArray) -> int:
    """Rank of rows of unit length, by QR with column pivoting of their transpose."""
    R, _ = map(np.asarray, scipy.linalg.qr(rows.T, mode="r", pivoting=True))
    return int(np.count_nonzero(np.abs(np.diagonal(R)) > RANK_TOLERANCE))


def _null_combination(rows: FloatArray) -> FloatArray:
    """The sparsest λ with `λᵀ rows = 0`, of rows of which all but the last are independent.

    A column of `λᵀ rows` counts as zero only if its own terms cancel, whatever its unit; if none does, λ is zero.
    """
    R, pivots = map(np.asarray, scipy.linalg.qr(rows.T, mode="r", pivoting=True))
    rank = len(rows) - 1
    full = np.ones(len(rows))
    full[pivots[:rank]] = -scipy.linalg.solve_triangular(R[:rank, :rank], R[:rank, rank])
    for negligible in (1e-8, 1e-10, 1e-12, 1e-14):
        weights = np.where(np.abs(full) > negligible * np.abs(full).max(), full, 0.0)
        if not combine(weights, rows).any():
            return weights
    return np.zeros(len(rows))


def equilibrate(B: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Rows of unit length with columns of comparable size, and the factor of each row.

    The factors of rows and columns are those that bring the non-zero coefficients as near to 1 as can be: they minimise
    `Σ (log|B_kj| + ρ_k + γ_j)²` (Curtis and Reid, 1972). ρ and γ absorb any change of units.
    """
    entered = (B != 0).astype(float)
    logs = np.log(np.abs(np.where(B == 0, 1.0, B)))
    share = entered / np.maximum(entered.sum(axis=0), 1)
    laplacian = np.diag(entered.sum(axis=1)) - share @ entered.T
    log_row = np.linalg.lstsq(laplacian, share @ logs.sum(axis=0) - logs.sum(axis=1), rcond=None)[0]
    log_column = -(entered * (logs + log_row[:, None])).sum(axis=0) / np.maximum(entered.sum(axis=0), 1)
    scaled = np.exp(log_row)[:, None] * B * np.exp(log_column)
    length = np.hypot.reduce(scaled, axis=1)
    return scaled / length[:, None], np.exp(log_row) / length
