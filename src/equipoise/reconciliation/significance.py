"""When a statistic is too large: levels of confidence, and corrections for many tests at once."""

import math
import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, chdtri, ndtr, ndtri

from equipoise.balances import did_you_mean
from equipoise.reconciliation.measurements import ReconciliationError

Array = NDArray[np.float64]
CORRECTIONS = ("sidak", "bonferroni")


def checked_level(level: Any) -> float:
    """A level of confidence between 0 and 1, such as 0.95."""
    if isinstance(level, numbers.Real) and 0 < float(level) < 1:
        return float(level)
    raise ReconciliationError(f"level must lie between 0 and 1, but got {level!r}. Use 0.95 for 95 %.")


def checked_correction(correction: Any) -> str | None:
    """A correction for many tests: "sidak", "bonferroni", or None for none."""
    if correction is None or correction in CORRECTIONS:
        return correction
    advice = did_you_mean(str(correction), CORRECTIONS)
    raise ReconciliationError(f"correction must be 'sidak', 'bonferroni' or None, but got {correction!r}. {advice}")


def half_width(level: float) -> float:
    """Half of the interval that holds a standard normal number with this probability.

    Example:
        >>> round(half_width(0.95), 6)
        1.959964
    """
    return float(-ndtri((1.0 - level) / 2.0))


def chi_square_threshold(level: float, degrees_of_freedom: Any) -> Array:
    """What a χ² stays below with this probability; NaN without degrees of freedom.

    Example:
        >>> chi_square_threshold(0.95, [3, 0]).round(4)
        array([7.8147,    nan])
    """
    count = np.asarray(degrees_of_freedom)
    known = np.full(int(count.max(initial=0)) + 1, np.nan)  # one for each number there may be: rows are many
    known[1:] = chdtri(np.arange(1.0, len(known)), 1.0 - level)
    return np.asarray(known[count])


def chi_square_p(statistic: Any, degrees_of_freedom: Any) -> Array:
    """Probability of a χ² at least this large; NaN without degrees of freedom."""
    count = np.asarray(degrees_of_freedom, float)
    return np.where(count > 0, chdtrc(np.where(count > 0, count, 1.0), statistic), np.nan)


def critical_value(level: float, n_tests: Any, correction: str | None = "sidak") -> Array:
    """What the largest of n standard normal numbers stays below in size, with at least the probability `level`.

    ::

        α₁ = 1 − (1 − α)^(1/n)    (Šidák),    α₁ = α/n    (Bonferroni),    |z| ≤ Φ⁻¹(1 − α₁/2)        (R8)

    Šidák's is exact for independent numbers and on the safe side for all others.

    Example:
        >>> critical_value(0.95, [1, 4, 0]).round(4)
        array([1.96 , 2.4909,    nan])
    """
    n = np.asarray(n_tests, float)
    alpha = 1.0 - level
    one = {"sidak": -np.expm1(math.log1p(-alpha) / np.maximum(n, 1)), "bonferroni": alpha / np.maximum(n, 1)}
    single = np.full(n.shape, alpha) if correction is None else one[correction]
    return np.where(n > 0, -ndtri(single / 2.0), np.nan)  # R8


def normal_p(z: Any) -> Any:
    """Probability that a standard normal number is at least this large in size."""
    return 2.0 * ndtr(-np.abs(z))
