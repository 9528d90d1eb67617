"""Dependent balances: which rows of `B` are combinations of others, whatever the units of rows and columns."""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import structural_rank

FloatArray = NDArray[np.float64]
RANK_TOLERANCE = 1e-10  # pivot of the QR factorisation below which equilibrated rows may be dependent
CANCELLED = 1e-8  # relative to the sum of its absolute terms: a smaller sum counts as zero


@dataclass(frozen=True)
class Dependence:
    """A combination `λᵀ B = 0` of dependent rows.

    Args:
        weights: `λ`, shape `(m,)`; zeros where rounding hides the combination.
        rank: Rank of the matrix of all rows.
    """

    weights: FloatArray
    rank: int


def find_dependence(B: FloatArray) -> Dependence | None:
    """Find the first row that is a combination of earlier rows.

    Args:
        B: Coefficients, shape `(m, n_y)`, in any units of rows and columns; no row of zeros.
    Returns: The combination; None where all rows are independent.
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
        elif (combination := _find_null_combination(rows[trial])).any():
            weights = np.zeros(m)
            weights[trial] = combination * factors[trial] / factors[k]
            return Dependence(weights, rank)
    # With too few outputs the rows are dependent, even where rounding hides their combination.
    most = int(structural_rank(csr_array(B)))
    return Dependence(np.zeros(m), most) if most < m else None


def combine(weights: FloatArray, values: FloatArray) -> FloatArray:
    """Compute `λᵀ M`, with zeros where its terms cancel to rounding.

    Args:
        weights: `λ`, shape `(m,)`.
        values: `M`, shape `(m, …)`.
    """
    total = weights @ values
    return np.where(np.abs(total) > CANCELLED * (np.abs(weights) @ np.abs(values)), total, 0.0)


def _rank(rows: FloatArray) -> int:
    """Return the rank of rows of unit length, by QR with column pivoting of their transpose."""
    R, _ = map(np.asarray, scipy.linalg.qr(rows.T, mode="r", pivoting=True))
    return int(np.count_nonzero(np.abs(np.diagonal(R)) > RANK_TOLERANCE))


def _find_null_combination(rows: FloatArray) -> FloatArray:
    """Find the sparsest λ with `λᵀ rows = 0`, for rows of which all but the last are independent.

    A column of `λᵀ rows` counts as zero only where its own terms cancel, whatever its unit. Returns zeros where no λ
    makes all columns zero.
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
    """Scale rows and columns so that all coefficients are of comparable size and all rows of unit length.

    The factors of rows and columns bring the non-zero coefficients as near to 1 as possible: they minimise
    `Σ (log|B_kj| + ρ_k + γ_j)²` (Curtis and Reid, 1972). ρ and γ absorb any change of units.

    Args:
        B: Coefficients, shape `(m, n)`, no row of zeros.
    Returns: The scaled rows, shape `(m, n)`, and the factor of each row, shape `(m,)`.
    Example:
        >>> rows, factors = equilibrate(np.array([[1.0, 1000.0]]))
        >>> rows.round(6)
        array([[0.707107, 0.707107]])
    """
    nonzero = (B != 0).astype(float)
    logs = np.log(np.abs(np.where(B == 0, 1.0, B)))
    share = nonzero / np.maximum(nonzero.sum(axis=0), 1)
    laplacian = np.diag(nonzero.sum(axis=1)) - share @ nonzero.T
    log_row = np.linalg.lstsq(laplacian, share @ logs.sum(axis=0) - logs.sum(axis=1), rcond=None)[0]
    log_column = -(nonzero * (logs + log_row[:, None])).sum(axis=0) / np.maximum(nonzero.sum(axis=0), 1)
    scaled = np.exp(log_row)[:, None] * B * np.exp(log_column)
    length = np.hypot.reduce(scaled, axis=1)
    return scaled / length[:, None], np.exp(log_row) / length
