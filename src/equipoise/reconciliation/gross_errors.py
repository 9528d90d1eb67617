"""Tests for gross errors: is there one, and in which sensor or balance?

Without gross errors, the whitened residuals e of a row (R3) are independent standard normal numbers. A bias of sensor
j, or a leak of balance k, of size s shifts their mean by `−s f`, with a direction f of its own (R7).

- The *global test* asks whether e is too long. It is not in this file: its statistic is in `Solution.estimates` (with a
  model, in `ModelReconciliation.statistic`), its threshold in `gross_error_results.GlobalTest`.
- The *measurement test* asks for each sensor whether e is too long in its direction, which is the test of maximum power
  (Mah and Tamhane, AIChE J. 28, 828, 1982).
- The *likelihood ratio test* asks the same for sensors and leaks together (Narasimhan and Mah, AIChE J. 33, 1514,
  1987).
- The *nodal test* looks at the residual of each balance by itself (Mah, Stanley and Downing, 1976).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from equipoise.reconciliation.gross_error_results import (
    BALANCE,
    EQUAL_WITHIN,
    SENSOR,
    Candidate,
    GrossErrorTest,
    worst_candidates,
)
from equipoise.reconciliation.significance import critical_value
from equipoise.reconciliation.solution import Piece, Solution

Array = NDArray[np.float64]
NUMBERS_AT_ONCE = 2**21  # numbers that are compared at once


def measurement_test(solution: Solution, level: float, correction: str | None) -> GrossErrorTest:
    """Test each sensor for a bias, with maximum power (R7).

    Args:
        solution: The reconciled measurements.
        level: Confidence level of the test of a row.
        correction: Correction for several candidates; None for none.
    """
    return _directional_test("Measurement test", solution, level, correction, leaks=False)


def likelihood_ratio_test(solution: Solution, level: float, correction: str | None) -> GrossErrorTest:
    """Test each sensor for a bias and each balance for a leak by the likelihood ratio (R7).

    Args:
        solution: The reconciled measurements.
        level: Confidence level of the test of a row.
        correction: Correction for several candidates; None for none.
    """
    return _directional_test("Likelihood ratio test", solution, level, correction, leaks=True)


def _directional_test(
    title: str, solution: Solution, level: float, correction: str | None, *, leaks: bool
) -> GrossErrorTest:
    """Test each candidate along its direction in the whitened residuals of all pieces of a table."""
    table = solution.measurements
    blocks = (_residual_block(piece, candidate_directions(solution, piece, leaks=leaks)) for piece in solution.pieces())
    settings = GrossErrorSettings(candidates_of(solution, leaks=leaks), level, correction, table.labels, table.single)
    return gross_error_test(
        title, blocks, settings, shared_directions=len(solution.groups) == 1 and table.std.ndim == 1
    )


def _residual_block(piece: Piece, directions: Array) -> "ResidualBlock":
    """Return the rows of a piece with their directions.

    The rows of a piece have the same balances, so that two directions are parallel in all of them or in none.
    """
    number = count_distinct(directions if directions.ndim == 2 else directions[0])
    return ResidualBlock(piece.rows, piece.whitened, directions, number)


@dataclass(frozen=True, eq=False)
class ResidualBlock:
    """Rows of a table with their whitened residuals and the directions of the candidates.

    Args:
        rows: Positions of the rows in the table.
        whitened: Whitened residuals: independent standard normal numbers without gross errors, shape `(rows, f)`.
        directions: Directions of the candidates, shape `(f, c)` for all rows, or `(rows, f, c)`.
        n_tests: Number of different directions, one for all rows or one each.
    """

    rows: slice | NDArray[np.intp]
    whitened: Array
    directions: Array
    n_tests: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class GrossErrorSettings:
    """The candidates of a test, its confidence level and correction for many tests, and the names of the rows.

    Args:
        candidates: Sensors or balances, c of them.
        level: Confidence level.
        correction: "sidak", "bonferroni" or None.
        labels: Name of each row.
        single: Whether one row was given on its own.
    """

    candidates: tuple[Candidate, ...]
    level: float
    correction: str | None
    labels: Any
    single: bool = False


def gross_error_test(
    title: str, blocks: Iterable[ResidualBlock], settings: GrossErrorSettings, *, shared_directions: bool = False
) -> GrossErrorTest:
    """Test each candidate of each row along its direction in the whitened residuals (R7).

    Args:
        title: Name of the test.
        blocks: All rows of the table, in blocks.
        settings: Candidates, level and rows.
        shared_directions: Whether all blocks have the same directions; then one row of standard deviations is enough.
    """
    n_rows, n_candidates = len(settings.labels), len(settings.candidates)
    z, (limit, limits_of_suspects) = np.full((n_rows, n_candidates), np.nan), np.full((2, n_rows), np.nan)
    std = np.full((1 if shared_directions else n_rows, n_candidates), np.nan)
    for block in blocks:
        length = np.linalg.norm(block.directions, axis=-2)
        length = np.where(length > 0, length, np.nan)  # what no balance detects cannot be tested
        z[block.rows] = scores(block.whitened, block.directions) / length  # R7
        std[0 if shared_directions else block.rows] = 1.0 / length  # R7
        limit[block.rows] = critical_value(settings.level, block.n_tests, settings.correction)
        limits_of_suspects[block.rows] = selection_limit(z[block.rows], limit[block.rows], block.directions)
    std = np.broadcast_to(std, z.shape) if len(std) else std
    return GrossErrorTest(
        title,
        settings.candidates,
        z,
        std,
        limit,
        limits_of_suspects,
        settings.level,
        settings.correction,
        settings.labels,
        settings.single,
    )


def candidate_directions(solution: Solution, piece: Piece, *, leaks: bool = True) -> Array:
    """Return the directions of the reconciled sensors, then of the balances, shape `(..., f, c)` (R7).

    Args:
        solution: The solution of the table.
        piece: Rows with one measurement pattern.
        leaks: Whether balances are candidates too.
    """
    directions, n = piece.adjuster.directions(piece.factor), piece.adjuster.C.shape[1]
    sensors = directions[..., : solution.measurements.reported]
    return np.concatenate([sensors, directions[..., n:]], axis=-1) if leaks else sensors


def scores(whitened: Array, directions: Array) -> Array:
    """Return `−f_jᵀ e` of each candidate, shape `(rows, c)`.

    Args:
        whitened: Whitened residuals e, shape `(rows, f)`.
        directions: Directions f_j, shape `(f, c)` for all rows, or `(rows, f, c)`.
    """
    return -(whitened @ directions) if directions.ndim == 2 else -(whitened[:, None, :] @ directions)[:, 0]


def nodal_test(solution: Solution, level: float, correction: str | None) -> GrossErrorTest:
    """Test each balance by its own residual alone::

        z_k = (C z − b)_k / sqrt((C V Cᵀ)_kk + r_k)        (R6)

    A balance with an unmeasured variable cannot be tested in this way; the likelihood ratio test can use it.

    Args:
        solution: The reconciled measurements.
        level: Confidence level of the test of a row.
        correction: Correction for several candidates; None for none.
    """
    table = solution.measurements
    C, b = table.C, table.constraint.b
    candidates = candidates_of(solution, sensors=False)
    z, std = np.full((2, len(table), len(candidates)), np.nan)
    for piece in solution.pieces():
        pattern = piece.adjuster.pattern
        complete = ~(C[:, pattern.unmeasured] != 0).any(axis=1) & ~pattern.dropped
        residual_std = piece.adjuster.residual_std(piece.factor)
        residual_std = np.where(complete & (residual_std > 0), residual_std, np.nan)
        std[piece.rows] = residual_std
        z[piece.rows] = (piece.z @ C.T - b) / residual_std  # R6
    n_tests = np.count_nonzero(~np.isnan(z), axis=1)
    limit = critical_value(level, n_tests, correction)
    return GrossErrorTest("Nodal test", candidates, z, std, limit, limit, level, correction, table.labels, table.single)


def candidates_of(solution: Solution, *, sensors: bool = True, leaks: bool = True) -> tuple[Candidate, ...]:
    """List the candidates for gross errors: the sensors that are reconciled, then the balances.

    Args:
        solution: The reconciled measurements.
        sensors: Whether sensors are candidates.
        leaks: Whether balances are candidates.
    """
    table = solution.measurements
    named = zip(table.names[: table.reported], table.units, strict=False)
    candidates = [Candidate(name, SENSOR, unit) for name, unit in named] if sensors else []
    balances = zip(table.constraint.names, table.constraint.units, strict=True)
    return (*candidates, *(Candidate(name, BALANCE, unit) for name, unit in balances if leaks))


def count_distinct(directions: Float[np.ndarray, "*rows f c"]) -> Int[np.ndarray, "*rows"]:
    """Count the candidates with different directions: those with parallel ones have the same |z| and are one test.

    Args:
        directions: Of the candidates, shape `(f, c)` or `(rows, f, c)`; 0 or NaN for those that cannot be tested.
    Example:
        >>> int(count_distinct(np.array([[1.0, 0.0, -2.0, 0.0], [0.0, 3.0, 0.0, 0.0]])))
        2
    """
    if directions.ndim == 2:
        return np.asarray(_first_of_parallel(directions).sum(), np.intp)
    count, at_once = np.zeros(len(directions), np.intp), max(1, NUMBERS_AT_ONCE // max(1, directions.shape[-1] ** 2))
    for start in range(0, len(directions), at_once):
        rows = slice(start, start + at_once)
        count[rows] = _first_of_parallel(directions[rows]).sum(axis=-1)
    return count


def _first_of_parallel(directions: Float[np.ndarray, "*rows f c"]) -> Bool[np.ndarray, "*rows c"]:
    """Mark the candidates that can be tested and have no earlier one with a parallel direction."""
    unit = unit_directions(directions)
    parallel = np.abs(unit.mT @ unit) > 1 - EQUAL_WITHIN
    return (unit != 0).any(axis=-2) & ~np.tril(parallel, -1).any(axis=-1)


def unit_directions(directions: Float[np.ndarray, "*rows f c"]) -> Float[np.ndarray, "*rows f c"]:
    """Scale directions to length 1; zero for candidates that cannot be tested."""
    length = np.linalg.norm(directions, axis=-2, keepdims=True)
    return np.divide(directions, length, out=np.zeros_like(directions), where=length > 0)


def selection_limit(
    z: Float[np.ndarray, "rows c"], limit: Float[np.ndarray, " rows"], directions: Float[np.ndarray, "..."]
) -> Float[np.ndarray, " rows"]:
    """Return the value that |z| of the suspect j of a row had to exceed for j to be the suspect, shape `(rows,)`.

    The other candidates have `z_k = ρ_k z_j + u_k` with u_k independent of z_j, and with z_j > 0::

        z_j > |z_k|    ⇔    z_j > u_k/(1 − ρ_k)  and  z_j > −u_k/(1 + ρ_k)

    so that, given the u_k, only the mean of the normal number z_j is unknown. In rows without a suspect it is the
    limit.

    Args:
        z: Of the candidates, shape `(rows, c)`; NaN for those that cannot be tested.
        limit: Critical value of each row.
        directions: `(f, c)` for all rows, or `(rows, f, c)`.
    """
    limits, worst = limit.copy(), worst_candidates(z, limit)
    rows = np.flatnonzero(worst >= 0)
    suspects = worst[rows]
    suspect_z = z[rows, suspects][:, None]
    correlation = _correlation(directions, rows, suspects)
    independent = np.sign(suspect_z) * (np.nan_to_num(z[rows]) - correlation * suspect_z)
    rival = np.abs(correlation) < 1 - EQUAL_WITHIN
    correlation = np.where(rival, correlation, 0.0)
    bound = np.where(rival, np.maximum(independent / (1 - correlation), -independent / (1 + correlation)), 0.0)
    limits[rows] = np.clip(bound.max(axis=1, initial=0.0), limit[rows], np.abs(suspect_z[:, 0]))
    return limits


def _correlation(directions: Array, rows: NDArray[np.intp], suspects: NDArray[np.intp]) -> Array:
    """Return the correlation of the z of all candidates with that of the suspect of each row, shape `(rows, c)`."""
    if directions.ndim == 2:
        unit = unit_directions(directions)
        return (unit.T @ unit)[suspects]
    unit = unit_directions(directions[rows])
    return (unit[np.arange(len(rows)), :, suspects][:, None, :] @ unit)[:, 0]
