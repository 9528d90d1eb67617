"""Balances without their unmeasured variables, and the unmeasured variables from the others."""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from jaxtyping import Float
from numpy.typing import NDArray

from equipoise.reconciliation.observability import Pattern, Structure

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Projection:
    """Combinations of balances that no unmeasured variable enters, and what solves the balances for those.

    Any scale of the rows would do in exact arithmetic. Divided by its own uncertainty, a balance of precise meters
    outweighs one of coarse meters in which the same variable is missing, so that no digits are lost between them.

    Args:
        row_scale: Uncertainty `c` of each balance, shape `(m,)`.
        onto: `P` of (R1), for the scaled rows; orthonormal, shape `(m, m − rank)`.
        solve: `D`, what turns scaled residuals into the unmeasured variables; zeros for those it cannot give.
    """

    row_scale: Float[np.ndarray, " m"]
    onto: Float[np.ndarray, "m r"]
    solve: Float[np.ndarray, "u m"]


def project(
    C: Float[np.ndarray, "m n"],
    std: Float[np.ndarray, " n"],
    tolerance: Float[np.ndarray, " m"],
    pattern: Pattern,
    structure: Structure,
) -> Projection:
    """Eliminate the unmeasured variables of a pattern.

    Args:
        C: Coefficients.
        std: Typical standard deviations of the variables.
        tolerance: Standard deviations of the balances; those of dropped ones do not matter.
        pattern, structure: What is measured, and what follows from it.
    Example:
        >>> from equipoise.reconciliation.observability import examine
        >>> C, no_balance = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]]), np.zeros(2, bool)  # a = b, b = c
        >>> pattern = Pattern(np.array([False, True, False]), np.zeros(3, bool), no_balance, no_balance)
        >>> done = project(C, np.ones(3), np.zeros(2), pattern, examine(C, pattern))
        >>> np.abs(done.onto.T @ C).round(6)  # a = c
        array([[0.707107, 0.      , 0.707107]])
    """
    m, unmeasured = len(C), np.flatnonzero(pattern.unmeasured)
    free = np.hstack([C[:, unmeasured], np.eye(m)[:, pattern.dropped]])
    spread = np.where(pattern.measured, std, 0.0)
    slack = np.where(pattern.tolerant, tolerance, 0.0)
    row_scale = _row_scale(C, free, np.hypot.reduce(np.column_stack([C * spread, slack]), axis=1))
    solve = np.zeros((len(unmeasured), m))
    if not len(structure.solved):
        return Projection(row_scale, np.eye(m), solve)
    Q, inverse = _householder(free[:, structure.solved] / row_scale[:, None])
    variables = structure.solved < len(unmeasured)
    solve[structure.solved[variables]] = inverse[variables]
    return Projection(row_scale, Q[:, len(structure.solved) :], solve)  # R1


def _row_scale(C: Array, free: Array, spread: Array) -> Array:
    """Uncertainty of each balance; one without any weighs ten times the best other with the same free column."""
    scale = np.where(spread > 0, spread, 1.0)
    best = np.abs(free[spread > 0] / scale[spread > 0, None]).max(axis=0, initial=0.0)
    for k in np.flatnonzero(spread == 0):
        own = np.abs(free[k])
        shared = (own > 0) & (best > 0)
        scale[k] = (own[shared] / best[shared]).min() / 10 if shared.any() else np.abs(C[k]).max()
    return scale


def _householder(free: Array) -> tuple[Array, Array]:
    """All of the orthogonal factor of independent columns, and their left inverse.

    Rows are sorted and columns pivoted: rows of very different size then keep their own digits (Cox and Higham, 1998).
    """
    width = np.abs(free).max(axis=0)
    order = np.argsort(-np.abs(free / width).max(axis=1), kind="stable")
    Q, R, pivots = map(np.asarray, scipy.linalg.qr((free / width)[order], pivoting=True))
    rank = len(pivots)
    inverse = np.empty((rank, len(free)))
    inverse[pivots] = scipy.linalg.solve_triangular(R[:rank], Q[:, :rank].T)
    back = np.argsort(order)
    return Q[back], inverse[:, back] / width[:, None]
