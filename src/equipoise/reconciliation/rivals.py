"""Candidates beside each other: which are the same test, and how large the suspect's number had to be to win."""

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from equipoise.reconciliation.alarms import SAME, worst_of

Array = NDArray[np.float64]
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
