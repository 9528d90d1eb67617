"""The bulk of a table: its rows without the few in which a meter was stuck, off, or wrong by a factor.

Gross rows hide a balance from covariances. Which rows are gross shows only beside what the others obey, so both are
found in turns, as in least trimmed squares:

1. Start with rows that are shrunk, each as a whole, until no value lies more than 3 robust standard deviations from its
   median. What a row obeys it still obeys, about the weighted mean, and no row pulls hard.
2. Take the principal components of the correlations that vary little: balances lie in their span.
3. Rows that stand out in one of them are left out, and the components are found again, until the same rows stand out.
4. The same is done with rows as they are: what happens in few rows only, such as a purge, may be a term of a balance,
   and shrunk rows do not show it. This counts if it leaves out fewer rows and finds as much.
5. A meter that shows 0 in more than a few per cent of the rows is not far off and tilts the components, so that its
   rows do not stand out. So the same is done once more from the four fifths of the rows that vary least along the
   components, again found in turns. This counts if what it finds varies less by half, and no more than noise does:
   heavy tails of unrelated columns can be trimmed until something varies somewhat less.

Where no component varies little there is no balance, and no row is gross. At most a fifth of the rows may be gross:
more than that are no errors, but the data. In trials with a meter that shows 0, as many as 15 % were found in a table
with one balance, and 7 %, often 10 %, with two that share a column. With fewer than 5 rows for each column some
component of unrelated columns varies little by chance (the smallest variance of many is `(1 − sqrt(p / n))²`), so that
nothing is left out.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.diagnosis.robust_statistics import MOST_GROSS, NEGLIGIBLE, Mask, gross, middle

Array = NDArray[np.float64]
REACH = 3.0  # robust standard deviations beyond which a row is shrunk to begin with
LITTLE = 0.5  # standard deviation of a component, beside that of unrelated columns, up to which it may be a balance
NOISE = 0.1  # the same up to which trimmed rows are believed; the noise of sums that are found, `LARGEST_SIGNED`
FEWEST_PER_COLUMN = 5  # rows
_MOST_STEPS = 10
_TRIMMINGS = 6


def bulk(sample: Array) -> Mask:
    """Which rows obey what nearly all rows obey, shape `(n,)`; all of them where there is nothing to obey.

    Args:
        sample: Columns that vary, shape `(n, p)`, without missing values.
    Example:
        >>> top, bottom = np.random.default_rng(0).uniform(1, 3, (2, 100))
        >>> feed = top + bottom
        >>> feed[[7, 30]] = 0.0
        >>> np.flatnonzero(~bulk(np.column_stack([feed, top, bottom])))
        array([ 7, 30])
    """
    everything = np.ones(len(sample), dtype=bool)
    if len(sample) < FEWEST_PER_COLUMN * sample.shape[1]:
        return everything
    z = _standardized(sample)
    shrunk = np.square(REACH / np.maximum(np.abs(z).max(axis=1), REACH))
    found = _concentrated(z, shrunk)
    if found.broken.any():
        found = _better(found, _concentrated(z, np.ones(len(z))))
    found = _much_finer(found, _concentrated(z, _trimmed(z, shrunk)))
    return ~found.broken if found.broken.mean() <= MOST_GROSS else everything


@dataclass(frozen=True)
class _Split:
    """Rows that break what the others obey, and the robust standard deviations of what these obey, smallest first."""

    broken: Mask
    spreads: Array

    @property
    def fineness(self) -> float:
        """How little the components vary, all together, in logarithms; one that is missing does not add to it."""
        return float(-np.log(np.clip(self.spreads / LITTLE, NEGLIGIBLE, 1.0)).sum())


def _concentrated(z: Array, weights: Array) -> _Split:
    """Components and the rows that break them, found in turns, from weighted rows on."""
    broken, spreads = np.zeros(len(z), dtype=bool), np.zeros(0)
    for _ in range(_MOST_STEPS):
        residuals = z @ _hardly_varying(z, weights)
        before, broken, spreads = broken, np.asarray(gross(residuals, size=1.0).any(axis=1)), middle(residuals)[1]
        if (broken == before).all() or not len(spreads) or broken.mean() > MOST_GROSS:
            break
        weights = np.where(broken, 0.0, 1.0)
    return _Split(broken, np.sort(spreads))


def _better(one: _Split, other: _Split) -> _Split:
    """The other if it breaks fewer rows with as many components that vary about as little."""
    n = len(one.spreads)
    if len(other.spreads) < n or other.broken.sum() >= one.broken.sum():
        return one
    sizes = [np.log(np.maximum(each.spreads[:n], NEGLIGIBLE)).mean() for each in (one, other)]
    return other if sizes[1] < sizes[0] + np.log(2) else one


def _much_finer(one: _Split, trimmed: _Split) -> _Split:
    """The split of trimmed rows if its components vary less by half, and one of them no more than noise."""
    noise = trimmed.spreads[:1] <= NOISE
    good = noise.any() and trimmed.broken.mean() <= MOST_GROSS
    return trimmed if good and trimmed.fineness > one.fineness + np.log(2) else one


def _trimmed(z: Array, weights: Array) -> Array:
    """Weights of 1 for the four fifths of the rows that are nearest to each other along what varies little, else 0."""
    for _ in range(_TRIMMINGS):
        residuals = z @ _hardly_varying(z, weights, fewest=1)
        off = residuals - weights @ residuals / weights.sum()
        var = weights @ np.square(off) / weights.sum()
        distance = (np.square(off) / np.where(var > 0, var, 1.0)).max(axis=1)
        weights = (distance <= np.quantile(distance, 1 - MOST_GROSS)).astype(float)
    return weights


def _standardized(sample: Array) -> Array:
    """Columns minus their medians, by their robust standard deviations; by the plain ones where most values are one."""
    centre, spread = middle(sample)
    return (sample - centre) / np.where(spread > 0, spread, sample.std(axis=0))


def _hardly_varying(z: Array, weights: Array, fewest: int = 0) -> Array:
    """Components of the weighted rows that vary little, in coefficients of the columns, `(p, k)`, `k ≥ fewest`."""
    centred = z - weights @ z / weights.sum()
    cov = (weights[:, None] * centred).T @ centred / weights.sum()
    std = np.sqrt(np.diagonal(cov))
    std = np.where(std > 0, std, np.inf)  # a column that does not vary any more is in no balance
    var, components = np.linalg.eigh(cov / np.outer(std, std))
    return components[:, : max(int((var <= LITTLE**2).sum()), fewest)] / std[:, None]
