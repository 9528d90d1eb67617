"""Multivariate outliers: rows that break linear relations which nearly all rows of a table obey.

In such rows a meter was stuck, off, or wrong by a factor; they change the covariances so much that a balance may not be
found. Outliers can be recognised only with the relations that the others obey. So both are determined in turns, as in
least trimmed squares:

1. Start with weighted rows: a row is shrunk, as a whole, until no value lies more than 3 robust standard deviations
   from its median. A shrunk row still obeys a relation about the weighted mean, and no row dominates.
2. Compute the principal components of the correlations and keep those that vary little: balances lie in their span.
3. Leave out the rows that stand out in one of these components and compute the components again, until the same rows
   stand out.
4. Repeat this from rows that are not shrunk: a quantity that occurs in few rows only, such as a purge, may be a term of
   a balance and does not show in shrunk rows. This result replaces the first if it leaves out fewer rows and has as
   many components that vary about as little.
5. A meter that shows 0 in more than a few per cent of the rows is not far off and tilts the components, so that its
   rows do not stand out. Therefore repeat this once more from the four fifths of the rows that vary least along the
   components, which again are determined in turns. This result counts if its components vary less by half, and no more
   than noise does: unrelated columns with heavy tails can be trimmed until some component varies somewhat less.

Where no component varies little there is no balance and no outlier. At most a fifth of the rows may be outliers: more
of them are data and no errors. In trials with a meter that shows 0, up to 15 % of such rows were found in a table with
one balance, and 7 %, often 10 %, with two balances that share a column. With fewer than 5 rows for each column some
component of unrelated columns varies little by chance (the smallest variance of many is `(1 − sqrt(p / n))²`), so that
no row is left out.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.diagnosis.robust_statistics import (
    MAX_OUTLIER_SHARE,
    NEGLIGIBLE_SHARE,
    Mask,
    median_and_std,
    outlier_mask,
)

Array = NDArray[np.float64]
REACH = 3.0  # robust standard deviations beyond which a row is shrunk at the start
MAX_COMPONENT_STD = 0.5  # of a component that may be a balance, where that of unrelated columns is 1
MAX_NOISE_STD = 0.1  # of the smallest component after trimming; `LARGEST_SIGNED` is the same limit for sums
MIN_ROWS_PER_COLUMN = 5
_MAX_STEPS = 10
_TRIMMINGS = 6


def consistent_rows(sample: Array) -> Mask:
    """Return which rows obey the linear relations that nearly all rows obey; all rows where there is no such relation.

    Args:
        sample: Columns that vary, shape `(n, p)`, without missing values.
    Returns: A mask of shape `(n,)`.
    Example:
        >>> top, bottom = np.random.default_rng(0).uniform(1, 3, (2, 100))
        >>> feed = top + bottom
        >>> feed[[7, 30]] = 0.0
        >>> np.flatnonzero(~consistent_rows(np.column_stack([feed, top, bottom])))
        array([ 7, 30])
    """
    all_rows = np.ones(len(sample), dtype=bool)
    if len(sample) < MIN_ROWS_PER_COLUMN * sample.shape[1]:
        return all_rows
    z = _standardized(sample)
    shrunk = np.square(REACH / np.maximum(np.abs(z).max(axis=1), REACH))
    split = _concentrated(z, shrunk)
    if split.broken.any():
        split = _with_fewer_broken(split, _concentrated(z, np.ones(len(z))))
    split = _much_finer(split, _concentrated(z, _trimmed(z, shrunk)))
    return ~split.broken if split.broken.mean() <= MAX_OUTLIER_SHARE else all_rows


@dataclass(frozen=True)
class _Split:
    """Rows that break the relations of the others, and the components that stand for these relations.

    Attributes:
        broken: Which rows break them, shape `(n,)`.
        spreads: Robust standard deviations of the components, smallest first, shape `(k,)`.
    """

    broken: Mask
    spreads: Array

    @property
    def fineness(self) -> float:
        """Sum over the components of minus the logarithm of their standard deviation: large where they vary little."""
        return float(-np.log(np.clip(self.spreads / MAX_COMPONENT_STD, NEGLIGIBLE_SHARE, 1.0)).sum())


def _concentrated(z: Array, weights: Array) -> _Split:
    """Determine the components that vary little and the rows that break them, in turns, starting from weighted rows."""
    broken, spreads = np.zeros(len(z), dtype=bool), np.zeros(0)
    for _ in range(_MAX_STEPS):
        residuals = z @ _small_components(z, weights)
        before, broken = broken, np.asarray(outlier_mask(residuals, size=1.0).any(axis=1))
        spreads = median_and_std(residuals)[1]
        if (broken == before).all() or not len(spreads) or broken.mean() > MAX_OUTLIER_SHARE:
            break
        weights = np.where(broken, 0.0, 1.0)
    return _Split(broken, np.sort(spreads))


def _with_fewer_broken(one: _Split, other: _Split) -> _Split:
    """Choose the other split if it breaks fewer rows and has as many components that vary about as little."""
    n = len(one.spreads)
    if len(other.spreads) < n or other.broken.sum() >= one.broken.sum():
        return one
    sizes = [np.log(np.maximum(split.spreads[:n], NEGLIGIBLE_SHARE)).mean() for split in (one, other)]
    return other if sizes[1] < sizes[0] + np.log(2) else one


def _much_finer(one: _Split, trimmed: _Split) -> _Split:
    """Choose the split of trimmed rows if its components vary less by half and the smallest no more than noise."""
    is_noise = trimmed.spreads[:1] <= MAX_NOISE_STD
    good = is_noise.any() and trimmed.broken.mean() <= MAX_OUTLIER_SHARE
    return trimmed if good and trimmed.fineness > one.fineness + np.log(2) else one


def _trimmed(z: Array, weights: Array) -> Array:
    """Return weights of 1 for the four fifths of the rows that vary least along the small components, else 0."""
    for _ in range(_TRIMMINGS):
        residuals = z @ _small_components(z, weights, fewest=1)
        deviation = residuals - weights @ residuals / weights.sum()
        var = weights @ np.square(deviation) / weights.sum()
        distance = (np.square(deviation) / np.where(var > 0, var, 1.0)).max(axis=1)
        weights = (distance <= np.quantile(distance, 1 - MAX_OUTLIER_SHARE)).astype(float)
    return weights


def _standardized(sample: Array) -> Array:
    """Subtract medians and divide by robust standard deviations, or by plain ones where most values are the same."""
    centre, spread = median_and_std(sample)
    return (sample - centre) / np.where(spread > 0, spread, sample.std(axis=0))


def _small_components(z: Array, weights: Array, fewest: int = 0) -> Array:
    """Compute the components of the weighted rows that vary little.

    Args:
        z: Standardized columns, shape `(n, p)`.
        weights: Weights of the rows, shape `(n,)`.
        fewest: Smallest number of components, even if they vary more.
    Returns: Coefficients of the columns, shape `(p, k)`, `k ≥ fewest`.
    """
    centred = z - weights @ z / weights.sum()
    cov = (weights[:, None] * centred).T @ centred / weights.sum()
    std = np.sqrt(np.diagonal(cov))
    std = np.where(std > 0, std, np.inf)  # a column that does not vary in these rows is in no balance
    var, components = np.linalg.eigh(cov / np.outer(std, std))
    return components[:, : max(int((var <= MAX_COMPONENT_STD**2).sum()), fewest)] / std[:, None]
