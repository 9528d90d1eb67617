"""How finely numbers were written, and whether a residual is nothing but the rounding of its numbers.

A sum of k numbers that were all rounded to steps of h is off by k h / 2 at most, and by h sqrt(k / 12) typically.

Counts look like rounded numbers, but are exact. Where rounding could add up to more than a fifth of what the terms
vary by, it would excuse almost any numbers, and is not believed: a balance that closes no better than a fifth of its
terms is none either (see `balances`). Of three whole numbers that is so when their terms together vary by less than
7.5: counts up to 10 do, most percentages do not. Nor is it believed where residuals are larger than what is typical, as
those of counts that miss by one in half of all rows: rounding does that in a quarter.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from equipoise.diagnosis.robust_statistics import centred, thinned, typical

Array = NDArray[np.float64]
MOST_DIGITS = 9
MOSTLY = 0.75  # of the residuals must be within what rounding can do
ALIKE = 0.5  # of the typical size of rounding that a residual has at least; fewer are errors of exact numbers
LARGER = 1.25  # times that size which a residual has at most, but for chance: more are errors, too
CHANCE = 2.1  # standard errors of that size, times the root of the number of rows: three of three rounded terms
LARGEST_ROUNDING = 0.2  # share of what the terms vary by that rounding may add up to
_ROWS = 1000
_WHOLE = 1e-6  # distance from a whole number that is none
_LARGEST = 1e12  # beyond it too little of a float is left after the point


def step(values: Array) -> float:
    """The power of ten that all values are multiples of; 0 where they have more than 9 digits after the point.

    A column that does not vary is taken to be exact: its step is 0.

    Example:
        >>> step(np.array([1.25, 3.5, 2.0])), step(np.array([3.0, 12.0])), step(np.sqrt(np.arange(1.0, 9.0)))
        (0.01, 1.0, 0.0)
    """
    some = values[thinned(len(values), _ROWS)]
    if not len(some) or some.min() == some.max():
        return 0.0
    for digits in range(MOST_DIGITS + 1):
        scaled = some * 10.0**digits
        if np.abs(scaled).max() > _LARGEST:
            return 0.0
        if (np.abs(scaled - np.round(scaled)) <= _WHOLE + 4 * np.finfo(float).eps * np.abs(scaled)).all():
            return 10.0**-digits
    return 0.0


def written_rounding(terms: Sequence[tuple[float, Array]], residual: Array) -> float:
    """What the rounding of its numbers can add up to, if a residual looks like that; else 0.

    Args:
        terms: Coefficient and column of each term.
        residual: Of the balance, shape `(n,)`.
    Example:
        >>> a, b = np.random.default_rng(0).uniform(1, 3, (2, 200))
        >>> total, a, b = (a + b).round(1), a.round(1), b.round(1)
        >>> round(written_rounding([(1.0, total), (-1.0, a), (-1.0, b)], total - a - b), 3)
        0.15
        >>> written_rounding([(1.0, total), (-1.0, a), (-1.0, b)], 2 * total - a - b)
        0.0
    """
    steps = [abs(coefficient) * size for coefficient, column in terms if (size := step(column)) > 0]
    if not steps:
        return 0.0
    most, least = len(steps) * min(steps) / 2, ALIKE * min(steps) * math.sqrt(len(steps) / 12)
    largest = LARGER * (1 + CHANCE / math.sqrt(max(len(residual), 1))) * math.hypot(*steps) / math.sqrt(12)
    spreads = (c * typical(centred(column[thinned(len(column))])) for c, column in terms)
    if most > LARGEST_ROUNDING * math.hypot(*spreads):
        return 0.0
    most *= 1 + _WHOLE
    within = residual[np.abs(residual) <= most]
    alike = len(within) >= MOSTLY * len(residual) and least <= float(within.std()) <= largest
    return most if alike else 0.0
