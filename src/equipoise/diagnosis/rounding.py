"""Rounding of written numbers: to which decimal a column was rounded, and whether this explains a residual.

A sum of k numbers that were all rounded to steps of h is off by at most k h / 2, and typically by h sqrt(k / 12).

Counts look like rounded numbers, but are exact. So rounding is accepted as the explanation of a residual only if

- it can add up to no more than a fifth of the spread of the terms. More would excuse almost any numbers, and a balance
  that closes no better than to a fifth of its terms is refused anyway (see `balance_diagnosis`). For a sum of three
  whole numbers the terms together must vary by 7.5 or more: most percentages do, counts up to 10 do not;
- the residuals are no larger than is typical of rounding. Counts that miss by one in half of the rows are too large:
  rounding makes such sums miss by one in a quarter of the rows.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from equipoise.diagnosis.robust_statistics import centred, evenly_spaced, trimmed_rms

Array = NDArray[np.float64]
MAX_DIGITS = 9  # after the point
MIN_SHARE_WITHIN = 0.75  # share of the residuals that must be within the limit of rounding
MIN_RATIO = 0.5  # of a residual's standard deviation to that of rounding; below it they are errors of exact numbers
MAX_RATIO = 1.25  # the largest such ratio, apart from chance; above it they are errors, too
CHANCE = 2.1  # by chance the ratio is larger by up to CHANCE / √n: 3 standard errors for three rounded terms
LARGEST_ROUNDING = 0.2  # share of the spread of the terms that rounding may add up to
_ROWS = 1000
_WHOLE = 1e-6  # distance from a whole number up to which a scaled value counts as whole
_LARGEST = 1e12  # larger values leave too few digits of a float after the point


def decimal_step(values: Array) -> float:
    """Return the power of ten of which all values are multiples; 0 where they have more than 9 digits after the point.

    A column that does not vary is assumed to be exact: its step is 0. Of long columns, 1000 evenly spaced values are
    used.

    Example:
        >>> [decimal_step(np.array(values)) for values in ([1.25, 3.5, 2.0], [3.0, 12.0], [2**0.5, 3**0.5])]
        [0.01, 1.0, 0.0]
    """
    sample = values[evenly_spaced(len(values), _ROWS)]
    if not len(sample) or sample.min() == sample.max():
        return 0.0
    for digits in range(MAX_DIGITS + 1):
        scaled = sample * 10.0**digits
        if np.abs(scaled).max() > _LARGEST:
            return 0.0
        if (np.abs(scaled - np.round(scaled)) <= _WHOLE + 4 * np.finfo(float).eps * np.abs(scaled)).all():
            return 10.0**-digits
    return 0.0


def rounding_limit(terms: Sequence[tuple[float, Array]], residual: Array) -> float:
    """Return the largest residual that the rounding of the columns explains; 0 where it does not explain the residuals.

    Args:
        terms: Coefficient and column, shape `(n,)`, of each term of the balance.
        residual: Residuals of the balance, shape `(n,)`.
    Returns: The limit in the balance's unit.
    Example:
        >>> a, b = np.random.default_rng(0).uniform(1, 3, (2, 200))
        >>> total, a, b = (a + b).round(1), a.round(1), b.round(1)
        >>> round(rounding_limit([(1.0, total), (-1.0, a), (-1.0, b)], total - a - b), 3)
        0.15
        >>> rounding_limit([(1.0, total), (-1.0, a), (-1.0, b)], 2 * total - a - b)
        0.0
    """
    steps = [abs(coefficient) * step for coefficient, column in terms if (step := decimal_step(column)) > 0]
    if not steps:
        return 0.0
    limit, least = len(steps) * min(steps) / 2, MIN_RATIO * min(steps) * math.sqrt(len(steps) / 12)
    largest = MAX_RATIO * (1 + CHANCE / math.sqrt(max(len(residual), 1))) * math.hypot(*steps) / math.sqrt(12)
    spreads = (c * trimmed_rms(centred(column[evenly_spaced(len(column))])) for c, column in terms)
    if limit > LARGEST_ROUNDING * math.hypot(*spreads):
        return 0.0
    limit *= 1 + _WHOLE
    within = residual[np.abs(residual) <= limit]
    alike = len(within) >= MIN_SHARE_WITHIN * len(residual) and least <= float(within.std()) <= largest
    return limit if alike else 0.0
