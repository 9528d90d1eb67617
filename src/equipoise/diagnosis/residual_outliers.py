"""Rows whose residual in a balance stands out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.diagnosis.robust_statistics import MOST_GROSS, Mask, gross

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
FEW = 0.1  # of the rows may stand out without a say; up to `MOST_GROSS` are named, but no accident


@dataclass(frozen=True)
class OutlyingRow:
    """One row whose residual is large: its position, the residual, and that beside the sum of its terms' sizes."""

    row: int
    residual: float
    relative: float


def outlying(residual: Array, rounding: float) -> Rows:
    """Positions of residuals that lie far off the others, and by more than rounding."""
    found = np.flatnonzero(gross(residual, size=0.0, rounding=rounding))
    return found if len(found) <= MOST_GROSS * len(residual) else found[:0]


def settled(residual: Array, rounding: float) -> Mask:
    """Which residuals have a say: all but those that stand out, if these are few.

    Example:
        >>> z = np.array([0.1, -0.2, 50.0, 0.2, -0.1, 0.3, 0.0, 0.1, -0.3, 0.1])
        >>> np.flatnonzero(~settled(z, rounding=0.0))
        array([2])
    """
    having, outside = np.ones(len(residual), dtype=bool), outlying(residual, rounding)
    having[outside] = len(outside) > FEW * len(residual)
    return having


def largest(residual: Array, magnitude: Array, rows: Rows, which: Rows, most: int) -> tuple[OutlyingRow, ...]:
    """The largest residuals among some rows, largest first; none that are zero.

    Args:
        residual, magnitude: Of a balance, and the sum of its terms' sizes, shape `(n,)`.
        rows: Positions of these n rows in the table.
        which: Positions among these n.
        most: How many to list.
    """
    which = which[residual[which] != 0]
    if len(which) > most:
        which = which[np.argpartition(np.abs(residual[which]), len(which) - most)[-most:]]
    which = which[np.argsort(-np.abs(residual[which]), kind="stable")]
    share = np.divide(residual[which], magnitude[which], out=np.zeros(len(which)), where=magnitude[which] > 0)
    found = zip(rows[which].tolist(), residual[which].tolist(), share.tolist(), strict=True)
    return tuple(OutlyingRow(*row) for row in found)
