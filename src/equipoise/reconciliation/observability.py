"""What balances can say of each variable: which measured ones they check, which unmeasured ones they determine.

This is a matter of the coefficients and of what is measured, not of how well: nothing here depends on units or
standard deviations. The answer comes from a projection matrix (Crowe, Garcia Campos and Hrymak, AIChE J. 29, 881, 1983)
by QR factors (Swartz, 1989; Sánchez and Romagnoli, Comput. Chem. Eng. 20, 493, 1996).
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from equipoise.balances import CANCELLED, RANK_TOLERANCE

Array = NDArray[np.float64]
REDUNDANT, NON_REDUNDANT = "measured redundant", "measured non-redundant"
OBSERVABLE, UNOBSERVABLE = "unmeasured observable", "unmeasured unobservable"
CLASSES = (REDUNDANT, NON_REDUNDANT, OBSERVABLE, UNOBSERVABLE)


@dataclass(frozen=True, eq=False)
class Pattern:
    """What is known in some rows of a table.

    Args:
        unmeasured: Variables without a value, shape `(n,)`.
        exact: Variables whose value has no error, shape `(n,)`.
        tolerant: Balances that hold up to a tolerance, shape `(m,)`.
        dropped: Balances that do not hold at all, shape `(m,)`.
    """

    unmeasured: Bool[np.ndarray, " n"]
    exact: Bool[np.ndarray, " n"]
    tolerant: Bool[np.ndarray, " m"]
    dropped: Bool[np.ndarray, " m"]

    @property
    def measured(self) -> Bool[np.ndarray, " n"]:
        """Variables with a value that has an error, shape `(n,)`."""
        return ~(self.unmeasured | self.exact)


@dataclass(frozen=True, eq=False)
class Structure:
    """What the balances say of the variables of one pattern.

    Args:
        redundant: Measured and exact variables that the balances would determine if they were not measured, `(n,)`.
        observable: Unmeasured variables that the balances determine, `(n,)`.
        checked: Balances that say something about measured variables, alone or with others, `(m,)`.
        solved: Independent columns among the free ones (the unmeasured variables, then the dropped balances).
        rank: Of all columns but those of exact variables.
    """

    redundant: Bool[np.ndarray, " n"]
    observable: Bool[np.ndarray, " n"]
    checked: Bool[np.ndarray, " m"]
    solved: Int[np.ndarray, " p"]
    rank: int

    @property
    def degrees_of_freedom(self) -> int:
        """Independent balances between measured variables alone."""
        return self.rank - len(self.solved)

    def classes(self, unmeasured: Bool[np.ndarray, " n"]) -> NDArray[np.object_]:
        """The class of each variable in words, shape `(n,)`."""
        measured = np.where(self.redundant, REDUNDANT, NON_REDUNDANT)
        return np.where(unmeasured, np.where(self.observable, OBSERVABLE, UNOBSERVABLE), measured).astype(object)


def examine(scaled: Float[np.ndarray, "m n"], pattern: Pattern, n_outputs: int = 0) -> Structure:
    """Classify the variables of one pattern.

    With `C_U` the columns of what is free, `C_U Π = Q R`, and `P` the columns of `Q` beyond its rank::

        Pᵀ C_U = 0                                          (R1)

    so `Pᵀ C` are balances in which nothing unmeasured is left. A measured variable is redundant if its column of `Pᵀ C`
    is not zero; an unmeasured one is observable if it is zero in every direction in which `C_U` has none.

    Args:
        scaled: Coefficients with rows of unit length and columns of comparable size.
        pattern: What is measured.
        n_outputs: Leading columns that make the balances independent, as the outputs of a `LinearConstraint` do.
    Example:
        >>> flows = np.array([[1.0, -1.0, -1.0, 0.0], [0.0, 0.0, 1.0, -1.0]])  # a = b + c, c = d
        >>> nothing, no_balance = np.zeros(4, bool), np.zeros(2, bool)
        >>> known = examine(flows, Pattern(np.array([False, True, True, False]), nothing, no_balance, no_balance))
        >>> list(known.classes(np.array([False, True, True, False])))
        ['measured non-redundant', 'unmeasured observable', 'unmeasured observable', 'measured non-redundant']
    """
    unit = np.eye(len(scaled))
    free = np.hstack([scaled[:, pattern.unmeasured], unit[:, pattern.dropped]])
    onto, solved, loose = _without(free)
    size = np.linalg.norm(scaled, axis=0)
    redundant = np.linalg.norm(onto.T @ scaled, axis=0) > CANCELLED * size
    observable = np.zeros(len(size), bool)
    observable[pattern.unmeasured] = ~loose[: int(pattern.unmeasured.sum())]
    checked = np.linalg.norm(onto, axis=1) > CANCELLED
    if n_outputs and not pattern.exact[:n_outputs].any():
        return Structure(redundant, observable, checked, solved, len(scaled))
    rest = onto.T @ np.hstack([scaled[:, pattern.measured], unit[:, pattern.tolerant]])
    return Structure(redundant, observable, checked, solved, len(solved) + _rank(rest))


def _without(free: Array) -> tuple[Array, NDArray[np.intp], NDArray[np.bool_]]:
    """A basis of the combinations of balances that no free column enters, independent free columns, undetermined ones.

    Args:
        free: Columns of what is free, shape `(m, p)`.
    """
    m, p = free.shape
    if p == 0:
        return np.eye(m), np.zeros(0, np.intp), np.zeros(0, bool)
    Q, R, pivots = map(np.asarray, scipy.linalg.qr(free, pivoting=True))
    rank = int(np.count_nonzero(np.abs(np.diagonal(R)) > RANK_TOLERANCE))
    moves = scipy.linalg.solve_triangular(R[:rank, :rank], R[:rank, rank:]) if rank < p else np.zeros((rank, 0))
    loose = np.ones(p, bool)  # whatever has no pivot of its own may be anything
    loose[pivots[:rank]] = (np.abs(moves) > CANCELLED).any(axis=1)
    return Q[:, rank:], np.sort(pivots[:rank]).astype(np.intp), loose


def _rank(rows: Array) -> int:
    """Rank, by QR with column pivoting."""
    R, _ = map(np.asarray, scipy.linalg.qr(rows.T, mode="r", pivoting=True)) if rows.size else (rows, None)
    return int(np.count_nonzero(np.abs(np.diagonal(R)) > RANK_TOLERANCE))


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
