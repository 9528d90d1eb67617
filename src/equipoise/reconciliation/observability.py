"""Observability and redundancy: which unmeasured variables the balances determine, which measured ones they check.

Both depend on the coefficients and on which variables are measured, not on units or standard deviations. The classes
come from a projection matrix (Crowe, Garcia Campos and Hrymak, AIChE J. 29, 881, 1983) by QR factors (Swartz, 1989;
Sánchez and Romagnoli, Comput. Chem. Eng. 20, 493, 1996). The same projection eliminates the unmeasured variables from
the balances before the measured ones are adjusted.
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
    """Redundancy and observability of variables and balances in the rows of one measurement pattern.

    Args:
        unmeasured: Whether a variable has no value, shape `(n,)`.
        exact: Whether a variable has a value without error, shape `(n,)`.
        tolerant: Whether a balance holds only up to a tolerance, shape `(m,)`.
        dropped: Whether a balance is not imposed at all, shape `(m,)`.
    """

    unmeasured: Bool[np.ndarray, " n"]
    exact: Bool[np.ndarray, " n"]
    tolerant: Bool[np.ndarray, " m"]
    dropped: Bool[np.ndarray, " m"]

    @property
    def measured(self) -> Bool[np.ndarray, " n"]:
        """Whether a variable has a value with an error, shape `(n,)`."""
        return ~(self.unmeasured | self.exact)


@dataclass(frozen=True, eq=False)
class Structure:
    """Observability and redundancy of the variables of one measurement pattern.

    Args:
        redundant: Measured and exact variables that the balances would determine if they were not measured, `(n,)`.
        observable: Unmeasured variables that the balances determine, `(n,)`.
        checked: Balances that restrict measured variables, alone or combined with other balances, `(m,)`.
        solved: Positions of linearly independent columns among the free ones (those of unmeasured variables, then one
            for each dropped balance).
        rank: Rank of the columns of all variables that are not exact.
    """

    redundant: Bool[np.ndarray, " n"]
    observable: Bool[np.ndarray, " n"]
    checked: Bool[np.ndarray, " m"]
    solved: Int[np.ndarray, " p"]
    rank: int

    @property
    def degrees_of_freedom(self) -> int:
        """Number of independent balances between measured variables alone."""
        return self.rank - len(self.solved)

    def classes(self, unmeasured: Bool[np.ndarray, " n"]) -> NDArray[np.object_]:
        """Return the class of each variable in words, shape `(n,)`.

        Args:
            unmeasured: Whether a variable has no value, shape `(n,)`.
        """
        measured = np.where(self.redundant, REDUNDANT, NON_REDUNDANT)
        return np.where(unmeasured, np.where(self.observable, OBSERVABLE, UNOBSERVABLE), measured).astype(object)


def classify(scaled: Float[np.ndarray, "m n"], pattern: Pattern, n_outputs: int = 0) -> Structure:
    """Determine which measured variables are redundant, and which unmeasured ones are observable.

    With `C_U` the free columns (of unmeasured variables and dropped balances), `C_U Π = Q R`, and `P` the columns of
    `Q` beyond its rank::

        Pᵀ C_U = 0                                          (R1)

    so `Pᵀ C` are balances without unmeasured variables. A measured variable is redundant if its column of `Pᵀ C` is not
    zero; an unmeasured one is observable if it is zero in every vector of the null space of `C_U`.

    Args:
        scaled: Coefficients with rows of unit length and columns of comparable size, shape `(m, n)`.
        pattern: Which variables are measured, and which balances hold.
        n_outputs: Number of leading columns in which all balances are linearly independent, as they are in the outputs
            of a `LinearConstraint`; 0 if that is not known.
    Returns: Classes and rank.
    Example:
        >>> flows = np.array([[1.0, -1.0, -1.0, 0.0], [0.0, 0.0, 1.0, -1.0]])  # a = b + c, c = d
        >>> no_variable, no_balance = np.zeros(4, bool), np.zeros(2, bool)
        >>> unmeasured = np.array([False, True, True, False])
        >>> structure = classify(flows, Pattern(unmeasured, no_variable, no_balance, no_balance))
        >>> list(structure.classes(unmeasured))
        ['measured non-redundant', 'unmeasured observable', 'unmeasured observable', 'measured non-redundant']
    """
    unit = np.eye(len(scaled))
    free = np.hstack([scaled[:, pattern.unmeasured], unit[:, pattern.dropped]])
    combinations, solved, undetermined = _eliminate(free)
    size = np.linalg.norm(scaled, axis=0)
    redundant = np.linalg.norm(combinations.T @ scaled, axis=0) > CANCELLED * size
    observable = np.zeros(len(size), bool)
    observable[pattern.unmeasured] = ~undetermined[: int(pattern.unmeasured.sum())]
    checked = np.linalg.norm(combinations, axis=1) > CANCELLED
    if n_outputs and not pattern.exact[:n_outputs].any():
        return Structure(redundant, observable, checked, solved, len(scaled))
    reduced = combinations.T @ np.hstack([scaled[:, pattern.measured], unit[:, pattern.tolerant]])
    return Structure(redundant, observable, checked, solved, len(solved) + _rank(reduced))


def _eliminate(free: Array) -> tuple[Array, NDArray[np.intp], NDArray[np.bool_]]:
    """Eliminate the free columns from the balances (R1).

    Args:
        free: Columns of unmeasured variables and dropped balances, shape `(m, p)`.
    Returns: An orthonormal basis of the combinations of balances without free columns, `(m, m − rank)`; positions of
        linearly independent free columns; and whether the balances leave a free column undetermined, `(p,)`.
    """
    m, p = free.shape
    if p == 0:
        return np.eye(m), np.zeros(0, np.intp), np.zeros(0, bool)
    Q, R, pivots = map(np.asarray, scipy.linalg.qr(free, pivoting=True))
    rank = int(np.count_nonzero(np.abs(np.diagonal(R)) > RANK_TOLERANCE))
    dependence = scipy.linalg.solve_triangular(R[:rank, :rank], R[:rank, rank:]) if rank < p else np.zeros((rank, 0))
    undetermined = np.ones(p, bool)  # a column without a pivot of its own may have any value
    undetermined[pivots[:rank]] = (np.abs(dependence) > CANCELLED).any(axis=1)
    return Q[:, rank:], np.sort(pivots[:rank]).astype(np.intp), undetermined


def _rank(rows: Array) -> int:
    """Return the rank of a matrix by QR factors with column pivoting."""
    R, _ = map(np.asarray, scipy.linalg.qr(rows.T, mode="r", pivoting=True)) if rows.size else (rows, None)
    return int(np.count_nonzero(np.abs(np.diagonal(R)) > RANK_TOLERANCE))


@dataclass(frozen=True, eq=False)
class Projection:
    """The balances of one measurement pattern without its unmeasured variables, and their solution for those.

    In exact arithmetic the scale of the rows would not matter. Divided by its own uncertainty, a balance of precise
    meters outweighs one of coarse meters with the same unmeasured variable, so that no digits are lost.

    Args:
        row_scale: Uncertainty `c` of each balance, shape `(m,)`.
        combinations: `P` of (R1), for rows divided by `row_scale`; orthonormal, shape `(m, m − rank)`.
        left_inverse: `D` of (R4), which turns scaled residuals into unmeasured variables, shape `(u, m)`; rows of
            variables that the balances do not determine are 0.
    """

    row_scale: Float[np.ndarray, " m"]
    combinations: Float[np.ndarray, "m r"]
    left_inverse: Float[np.ndarray, "u m"]


def project(
    C: Float[np.ndarray, "m n"],
    std: Float[np.ndarray, " n"],
    tolerance: Float[np.ndarray, " m"],
    pattern: Pattern,
    structure: Structure,
) -> Projection:
    """Eliminate the unmeasured variables of a measurement pattern from the balances.

    Args:
        C: Coefficients of the balances, shape `(m, n)`.
        std: Typical standard deviations of the measured values, shape `(n,)`.
        tolerance: Standard deviations of the balances, shape `(m,)`; those of dropped balances are ignored.
        pattern: Which variables are measured.
        structure: Classes of the variables, from `classify`.
    Returns: Combinations of balances between measured variables, and the solution for the unmeasured ones.
    Example:
        >>> C, no_balance = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]]), np.zeros(2, bool)  # a = b, b = c
        >>> pattern = Pattern(np.array([False, True, False]), np.zeros(3, bool), no_balance, no_balance)
        >>> projection = project(C, np.ones(3), np.zeros(2), pattern, classify(C, pattern))
        >>> np.abs(projection.combinations.T @ C).round(6)  # a = c
        array([[0.707107, 0.      , 0.707107]])
    """
    m, unmeasured = len(C), np.flatnonzero(pattern.unmeasured)
    free = np.hstack([C[:, unmeasured], np.eye(m)[:, pattern.dropped]])
    spread = np.where(pattern.measured, std, 0.0)
    slack = np.where(pattern.tolerant, tolerance, 0.0)
    row_scale = _row_scale(C, free, np.hypot.reduce(np.column_stack([C * spread, slack]), axis=1))
    left_inverse = np.zeros((len(unmeasured), m))
    if not len(structure.solved):
        return Projection(row_scale, np.eye(m), left_inverse)
    Q, inverse = _householder(free[:, structure.solved] / row_scale[:, None])
    variables = structure.solved < len(unmeasured)
    left_inverse[structure.solved[variables]] = inverse[variables]
    return Projection(row_scale, Q[:, len(structure.solved) :], left_inverse)  # R1


def _row_scale(C: Array, free: Array, spread: Array) -> Array:
    """Return the uncertainty of each balance, shape `(m,)`.

    A balance without any uncertainty gets a tenth of the smallest scale that another balance with the same free column
    would need for the same coefficient: it then outweighs the others.

    Args:
        C: Coefficients, shape `(m, n)`.
        free: Columns of unmeasured variables and dropped balances, shape `(m, p)`.
        spread: Standard deviation of the residual of each balance, shape `(m,)`.
    """
    scale = np.where(spread > 0, spread, 1.0)
    best = np.abs(free[spread > 0] / scale[spread > 0, None]).max(axis=0, initial=0.0)
    for k in np.flatnonzero(spread == 0):
        coefficients = np.abs(free[k])
        shared = (coefficients > 0) & (best > 0)
        scale[k] = (coefficients[shared] / best[shared]).min() / 10 if shared.any() else np.abs(C[k]).max()
    return scale


def _householder(free: Array) -> tuple[Array, Array]:
    """Factorise linearly independent columns into an orthogonal matrix and a triangle.

    Rows are sorted and columns pivoted, so that rows of very different size keep their own digits (Cox and Higham,
    1998).

    Returns: The full orthogonal factor `(m, m)`, and the left inverse of the columns `(p, m)`.
    """
    width = np.abs(free).max(axis=0)
    order = np.argsort(-np.abs(free / width).max(axis=1), kind="stable")
    Q, R, pivots = map(np.asarray, scipy.linalg.qr((free / width)[order], pivoting=True))
    rank = len(pivots)
    inverse = np.empty((rank, len(free)))
    inverse[pivots] = scipy.linalg.solve_triangular(R[:rank], Q[:, :rank].T)
    back = np.argsort(order)
    return Q[back], inverse[:, back] / width[:, None]
