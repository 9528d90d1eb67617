"""Rows to train on, and rows held out that decide when to stop."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Positions = NDArray[np.intp]
LEAST_MEASURED = 3  # rows in which every output must be measured
RARE = 10  # rows: an output that is measured in fewer is not held out


def random_split(Y: Array, fraction: float, seed: int) -> tuple[Positions, Positions]:
    """Rows to train on and rows held out; a row that is empty or has a rarely measured output is not held out.

    Args:
        Y: Outputs, NaN where not measured, shape `(n, n_y)`.
        fraction: Share of the rows that may be held out which is.
        seed: The same seed holds out the same rows.
    Example:
        >>> trained, held_out = random_split(np.ones((20, 1)), 0.1, seed=0)
        >>> len(trained), len(held_out)
        (18, 2)
    """
    measured = ~np.isnan(Y)
    rare = measured.sum(0) < min(RARE, len(Y))
    eligible = np.flatnonzero(measured.any(1) & ~(measured & rare).any(1))
    n_held_out = int(fraction * len(eligible))
    held_out = np.sort(np.random.default_rng(seed).permutation(eligible)[:n_held_out])
    return np.setdiff1d(np.arange(len(Y)), held_out), held_out


def given_split(held_out: ArrayLike, n: int) -> tuple[Positions, Positions]:
    """Rows to train on and rows held out, of `n` rows, from the positions of the latter.

    Example:
        >>> given_split([4, 1], 5)
        (array([0, 2, 3]), array([1, 4]))
    """
    chosen = np.unique(np.asarray(held_out))
    whole = chosen.dtype.kind in "iu" and chosen.ndim == 1
    if len(chosen) and not (whole and chosen[0] >= 0 and chosen[-1] < n and len(chosen) < n - 1):
        raise ValueError(
            f"held_out must hold positions of rows, 0 to {n - 1}, and leave two rows at least to train on, "
            f"but got {held_out!r}."
        )
    return np.setdiff1d(np.arange(n), chosen), chosen.astype(np.intp)


def check_measured(Y: Array, outputs: Sequence[str]) -> None:
    """Raise unless the rows that are trained on, shape `(n, n_y)`, have something of every output."""
    for name, n_measured in zip(outputs, (~np.isnan(Y)).sum(0), strict=True):
        if n_measured < min(LEAST_MEASURED, len(Y)):
            raise ValueError(
                f"Every output must be measured in {LEAST_MEASURED} rows at least that are trained on, but got "
                f"{n_measured} for {name!r}. Drop it."
            )
