"""Is a gross error in the data, and where: in which sensor, or in which balance?

The whitened residuals e of a row (R3) are independent standard normal numbers as long as nothing is wrong. A bias of
sensor j, or a leak of balance k, of size s moves their mean by `−s f`, with a direction f of its own (R7). So

- the *global test* asks whether e is too long;
- the *measurement test* asks for each sensor whether e is too long in its direction, which is the test of maximum power
  (Mah and Tamhane, AIChE J. 28, 828, 1982);
- the *likelihood ratio test* asks the same of sensors and leaks together (Narasimhan and Mah, AIChE J. 33, 1514, 1987);
- the *nodal test* looks at the residual of each balance by itself (Mah, Stanley and Downing, 1976).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from equipoise.reconciliation.alarms import BALANCE, SAME, SENSOR, Candidate, GrossErrorTest, worst_of
from equipoise.reconciliation.significance import critical_value
from equipoise.reconciliation.solution import Piece, Solution

Array = NDArray[np.float64]


def measurement_test(solution: Solution, level: float, correction: str | None) -> GrossErrorTest:
    """Is a sensor biased? One test of maximum power for each (R7)."""
    return _tested("Measurement test", solution, level, correction, leaks=False)


def likelihood_ratio_test(solution: Solution, level: float, correction: str | None) -> GrossErrorTest:
    """Is a sensor biased, or does a balance leak? One likelihood ratio for each (R7)."""
    return _tested("Likelihood ratio test", solution, level, correction, leaks=True)


def _tested(title: str, solution: Solution, level: float, correction: str | None, *, leaks: bool) -> GrossErrorTest:
    given = solution.measurements
    parts = (_part(piece, candidate_directions(solution, piece, leaks=leaks)) for piece in solution.pieces())
    terms = Terms(candidates_of(solution, leaks=leaks), level, correction, given.labels, given.single)
    return gross_error_test(title, parts, terms, alike=len(solution.groups) == 1 and given.std.ndim == 1)


def _part(piece: Piece, directions: Array) -> "Part":
    """Rows of a piece have the same balances, so that their directions are parallel in all of them or in none."""
    number = distinct(directions if directions.ndim == 2 else directions[0])
    return Part(piece.rows, piece.whitened, directions, number)


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows that are tested.

    Args:
        rows: Which.
        whitened: Their residuals as independent standard normal numbers, `(rows, f)`.
        directions: Of the candidates, `(f, c)`, or for each row.
        n_tests: How many of those are different, one number, or for each row.
    """

    rows: slice | NDArray[np.intp]
    whitened: Array
    directions: Array
    n_tests: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Terms:
    """What a test is about: its candidates, its level, the correction for many of them, and the names of the rows."""

    candidates: tuple[Candidate, ...]
    level: float
    correction: str | None
    labels: Any
    single: bool = False


def gross_error_test(title: str, parts: Iterable[Part], terms: Terms, *, alike: bool = False) -> GrossErrorTest:
    """One standard normal number for each candidate of each row (R7).

    Args:
        title: Which test.
        parts: All rows.
        terms: Candidates, level and rows.
        alike: Whether all parts have the same directions; then one row of standard deviations is enough.
    """
    n_rows, n_candidates = len(terms.labels), len(terms.candidates)
    z, (limit, least) = np.full((n_rows, n_candidates), np.nan), np.full((2, n_rows), np.nan)
    std = np.full((1 if alike else n_rows, n_candidates), np.nan)
    for part in parts:
        length = np.linalg.norm(part.directions, axis=-2)
        length = np.where(length > 0, length, np.nan)  # what nothing notices cannot be tested
        z[part.rows] = signed(part.whitened, part.directions) / length  # R7
        std[0 if alike else part.rows] = 1.0 / length  # R7
        limit[part.rows] = critical_value(terms.level, part.n_tests, terms.correction)
        least[part.rows] = least_to_win(z[part.rows], limit[part.rows], part.directions)
    std = np.broadcast_to(std, z.shape) if len(std) else std
    return GrossErrorTest(
        title, terms.candidates, z, std, limit, least, terms.level, terms.correction, terms.labels, terms.single
    )


def candidate_directions(solution: Solution, piece: Piece, *, leaks: bool = True) -> Array:
    """Directions of sensors that are reconciled, then of balances, shape `(..., f, c)` (R7)."""
    found, n = piece.adjuster.directions(piece.factor), piece.adjuster.C.shape[1]
    sensors = found[..., : solution.measurements.reported]
    return np.concatenate([sensors, found[..., n:]], axis=-1) if leaks else sensors


def signed(whitened: Array, directions: Array) -> Array:
    """`−f_jᵀ e` of each candidate, shape `(rows, c)`, with directions for all rows or for each."""
    return -(whitened @ directions) if directions.ndim == 2 else -(whitened[:, None, :] @ directions)[:, 0]


def nodal_test(solution: Solution, level: float, correction: str | None) -> GrossErrorTest:
    """Does a balance leak, by its own residual alone::

        z_k = (C z − b)_k / sqrt((C V Cᵀ)_kk + r_k)        (R6)

    A balance with an unmeasured variable cannot be tested so; the likelihood ratio test can use it.
    """
    given = solution.measurements
    C, b = given.C, given.constraint.b
    candidates = candidates_of(solution, sensors=False)
    z, std = np.full((2, len(given), len(candidates)), np.nan)
    for piece in solution.pieces():
        pattern = piece.adjuster.pattern
        complete = ~(C[:, pattern.unmeasured] != 0).any(axis=1) & ~pattern.dropped
        spread = piece.adjuster.residual_std(piece.factor)
        spread = np.where(complete & (spread > 0), spread, np.nan)
        std[piece.rows] = spread
        z[piece.rows] = (piece.z @ C.T - b) / spread  # R6
    n_tests = np.count_nonzero(~np.isnan(z), axis=1)
    limit = critical_value(level, n_tests, correction)
    return GrossErrorTest("Nodal test", candidates, z, std, limit, limit, level, correction, given.labels, given.single)


def candidates_of(solution: Solution, *, sensors: bool = True, leaks: bool = True) -> tuple[Candidate, ...]:
    """All sensors that are reconciled, then all balances."""
    given = solution.measurements
    named = zip(given.names[: given.reported], given.units, strict=False)
    found = [Candidate(name, SENSOR, unit) for name, unit in named] if sensors else []
    balances = zip(given.constraint.names, given.constraint.units, strict=True)
    return (*found, *(Candidate(name, BALANCE, unit) for name, unit in balances if leaks))


NUMBERS = 2**21  # that are compared at once


def distinct(directions: Float[np.ndarray, "*rows f c"]) -> Int[np.ndarray, "*rows"]:
    """How many different tests candidates make: those with parallel directions have the same |z| and are one.

    Args:
        directions: Of the candidates; zero, or NaN, for what cannot be tested.
    Example:
        >>> int(distinct(np.array([[1.0, 0.0, -2.0, 0.0], [0.0, 3.0, 0.0, 0.0]])))
        2
    """
    if directions.ndim == 2:
        return np.asarray(_first_of_parallel(directions).sum(), np.intp)
    count, at_once = np.zeros(len(directions), np.intp), max(1, NUMBERS // max(1, directions.shape[-1] ** 2))
    for start in range(0, len(directions), at_once):
        rows = slice(start, start + at_once)
        count[rows] = _first_of_parallel(directions[rows]).sum(axis=-1)
    return count


def _first_of_parallel(directions: Float[np.ndarray, "*rows f c"]) -> Bool[np.ndarray, "*rows c"]:
    """Whether a candidate can be tested, and no earlier one is parallel."""
    unit = unit_directions(directions)
    parallel = np.abs(unit.mT @ unit) > 1 - SAME
    return (unit != 0).any(axis=-2) & ~np.tril(parallel, -1).any(axis=-1)


def unit_directions(directions: Float[np.ndarray, "*rows f c"]) -> Float[np.ndarray, "*rows f c"]:
    """Directions of length 1; zero for what cannot be tested."""
    length = np.linalg.norm(directions, axis=-2, keepdims=True)
    return np.divide(directions, length, out=np.zeros_like(directions), where=length > 0)


def least_to_win(
    z: Float[np.ndarray, "rows c"], limit: Float[np.ndarray, " rows"], directions: Float[np.ndarray, "..."]
) -> Float[np.ndarray, " rows"]:
    """What |z| of the suspect j of a row had to exceed for it to be the suspect; the limit where there is none.

    The others are `z_k = ρ_k z_j + u_k` with a part u_k that is independent of z_j, and with z_j > 0::

        z_j > |z_k|    ⇔    z_j > u_k/(1 − ρ_k)  and  z_j > −u_k/(1 + ρ_k)

    so that, given the u_k, z_j is a normal number of which all is known but its mean.

    Args:
        z: Of the candidates, NaN for what cannot be tested.
        limit: Of each row.
        directions: `(f, c)` for all rows, or `(rows, f, c)`.
    """
    least, worst = limit.copy(), worst_of(z, limit)
    rows = np.flatnonzero(worst >= 0)
    chosen = worst[rows]
    own = z[rows, chosen][:, None]
    correlation = _correlation(directions, rows, chosen)
    apart = np.sign(own) * (np.nan_to_num(z[rows]) - correlation * own)
    rival = np.abs(correlation) < 1 - SAME
    correlation = np.where(rival, correlation, 0.0)
    bound = np.where(rival, np.maximum(apart / (1 - correlation), -apart / (1 + correlation)), 0.0)
    least[rows] = np.clip(bound.max(axis=1, initial=0.0), limit[rows], np.abs(own[:, 0]))
    return least


def _correlation(directions: Array, rows: NDArray[np.intp], chosen: NDArray[np.intp]) -> Array:
    """Of the z of all candidates with that of the chosen one, shape `(rows, c)`."""
    if directions.ndim == 2:
        unit = unit_directions(directions)
        return (unit.T @ unit)[chosen]
    unit = unit_directions(directions[rows])
    return (unit[np.arange(len(rows)), :, chosen][:, None, :] @ unit)[:, 0]
