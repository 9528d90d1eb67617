"""Outliers of one balance: rows whose residual is far from the residuals of the other rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.diagnosis.robust_statistics import MAX_OUTLIER_SHARE, Mask, outlier_mask

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
# Outliers are left out of the verdict up to this share of the rows. From there up to `MAX_OUTLIER_SHARE` they are
# listed, but are too many to be accidents and count in the verdict.
MAX_IGNORED_SHARE = 0.1


@dataclass(frozen=True)
class OutlyingRow:
    """One row with a large residual.

    Attributes:
        row: Its position in the table.
        residual: The residual of the balance in this row, in the balance's unit.
        relative: The residual divided by the sum of the absolute values of the balance's terms in this row.
    """

    row: int
    residual: float
    relative: float


def outlier_positions(residual: Array, limit: float) -> Rows:
    """Return the positions of outlying residuals; none where more than 20 % of the residuals stand out.

    Args:
        residual: Residuals of a balance, shape `(n,)`.
        limit: Deviations from the median up to this are rounding, in the balance's unit.
    Returns: Positions, ascending.
    """
    positions = np.flatnonzero(outlier_mask(residual, size=0.0, rounding=limit))
    return positions if len(positions) <= MAX_OUTLIER_SHARE * len(residual) else positions[:0]


def inlier_mask(residual: Array, limit: float) -> Mask:
    """Return which rows count in the verdict on a balance: all but its outliers, as long as these are few.

    Up to 10 % outlying rows (`MAX_IGNORED_SHARE`) are accidents and are left out. From 10 to 20 % of the rows
    (`MAX_OUTLIER_SHARE`) are still listed by `outlier_positions`, but all rows count. Beyond 20 % there are no outliers
    at all.

    Args:
        residual: Residuals of a balance, shape `(n,)`.
        limit: Deviations from the median up to this are rounding, in the balance's unit.
    Returns: Mask, shape `(n,)`.
    Example:
        >>> z = np.array([0.1, -0.2, 50.0, 0.2, -0.1, 0.3, 0.0, 0.1, -0.3, 0.1])
        >>> np.flatnonzero(~inlier_mask(z, limit=0.0))
        array([2])
    """
    inliers, outside = np.ones(len(residual), dtype=bool), outlier_positions(residual, limit)
    inliers[outside] = len(outside) > MAX_IGNORED_SHARE * len(residual)
    return inliers


def largest_residuals(
    residual: Array, magnitude: Array, rows: Rows, candidates: Rows, max_rows: int
) -> tuple[OutlyingRow, ...]:
    """List the rows with the largest nonzero residuals, largest first.

    Args:
        residual: Residuals of a balance in n rows, shape `(n,)`.
        magnitude: Sum of the absolute values of its terms in these rows, shape `(n,)`.
        rows: Positions of the n rows in the table.
        candidates: Which of the n rows to choose from, as positions from 0 to n - 1.
        max_rows: Largest number of rows in the list.
    """
    chosen = candidates[residual[candidates] != 0]
    if len(chosen) > max_rows:
        chosen = chosen[np.argpartition(np.abs(residual[chosen]), len(chosen) - max_rows)[-max_rows:]]
    chosen = chosen[np.argsort(-np.abs(residual[chosen]), kind="stable")]
    share = np.divide(residual[chosen], magnitude[chosen], out=np.zeros(len(chosen)), where=magnitude[chosen] > 0)
    records = zip(rows[chosen].tolist(), residual[chosen].tolist(), share.tolist(), strict=True)
    return tuple(OutlyingRow(*record) for record in records)
