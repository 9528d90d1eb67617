"""The split into rows to train on and held-out rows, which decide when training stops."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.data.table_checks import LEAST_MEASURED
from equipoise.data.table_passes import Array, Positions, Table, pieces
from equipoise.errors import InputError

RARE = 10  # rows: those with an output that is measured in fewer rows are not held out
MOST_STREAMED = 100_000  # held-out rows of a table that stays in its file: they are kept in memory


def random_split(Y: Table, fraction: float, seed: int, most: int | None = None) -> tuple[Positions, Positions]:
    """Hold out rows at random; rows without outputs or with a rarely measured one are never held out.

    Args:
        Y: Outputs, NaN where not measured, shape `(n, n_y)`.
        fraction: Fraction of the eligible rows to hold out.
        seed: Seed of the choice.
        most: Largest number of rows to hold out.
    Returns: Positions of the rows to train on and of those held out, both ascending.
    Example:
        >>> trained, held_out = random_split(np.ones((20, 1)), 0.1, seed=0)
        >>> len(trained), len(held_out)
        (18, 2)
    """
    rare = _counts(Y) < min(RARE, len(Y))
    eligible = np.flatnonzero(np.concatenate([_may_be_held_out(y, rare) for (y,) in pieces(Y)]))
    n_held_out = int(fraction * len(eligible))
    n_held_out = n_held_out if most is None else min(n_held_out, most)
    held_out = np.sort(np.random.default_rng(seed).permutation(eligible)[:n_held_out])
    return _others(held_out, len(Y)), held_out


def split_at(held_out: ArrayLike, n: int) -> tuple[Positions, Positions]:
    """Hold out the rows at given positions.

    Args:
        held_out: Positions of the rows to hold out, shape `(k,)`; duplicates count once.
        n: Number of rows.
    Returns: Positions of the rows to train on and of those held out, both ascending.
    Raises: InputError, if a position is out of range or too few rows are left to train on.
    Example:
        >>> split_at([4, 1], 5)
        (array([0, 2, 3]), array([1, 4]))
    """
    chosen = np.unique(np.asarray(held_out))
    whole = chosen.dtype.kind in "iu" and chosen.ndim == 1
    if len(chosen) and not (whole and chosen[0] >= 0 and chosen[-1] < n and len(chosen) <= n - LEAST_MEASURED):
        raise InputError(
            f"held_out must hold positions of rows, 0 to {n - 1}, and leave {LEAST_MEASURED} rows at least to train "
            f"on, but got {held_out!r}."
        )
    chosen = chosen.astype(np.intp)
    return _others(chosen, n), chosen


def check_measured(Y: Table, outputs: Sequence[str], rows: Positions | None = None) -> None:
    """Raise unless every output is measured in at least three of the rows to train on.

    Args:
        Y: Outputs, NaN where not measured, shape `(n, n_y)`.
        outputs: Names of the outputs.
        rows: Positions of the rows to train on, ascending; all if None.
    Raises: InputError, with the name of the output.
    """
    for name, n_measured in zip(outputs, _counts(Y, rows), strict=True):
        if n_measured < LEAST_MEASURED:
            raise InputError(
                f"Every output must be measured in {LEAST_MEASURED} rows at least that are trained on, but got "
                f"{n_measured} for {name!r}. Drop it, or add rows that have it."
            )


def _counts(Y: Table, rows: Positions | None = None) -> NDArray[np.int64]:
    """Count the rows in which each output is measured, shape `(n_y,)`."""
    return np.sum([(~np.isnan(y)).sum(0) for (y,) in pieces(Y, rows=rows)], axis=0)


def _may_be_held_out(Y: Array, rare: NDArray[np.bool_]) -> NDArray[np.bool_]:
    measured = ~np.isnan(Y)
    return np.any(measured, axis=1) & ~np.any(measured & rare, axis=1)


def _others(chosen: Positions, n: int) -> Positions:
    """Return the positions among `n` that were not chosen, ascending."""
    mask = np.ones(n, dtype=bool)
    mask[chosen] = False
    return np.flatnonzero(mask)
