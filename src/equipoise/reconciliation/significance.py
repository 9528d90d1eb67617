"""Significance: confidence levels, critical values, p values, and corrections for many tests at once."""

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
    """Return a confidence level as a number between 0 and 1, such as 0.95.

    Raises: ReconciliationError, if it is not between 0 and 1.
    """
    if isinstance(level, numbers.Real) and 0 < float(level) < 1:
        return float(level)
    raise ReconciliationError(f"level must lie between 0 and 1, but got {level!r}. Use 0.95 for 95 %.")


def checked_correction(correction: Any) -> str | None:
    """Return a correction for many tests: "sidak", "bonferroni", or None for none.

    Raises: ReconciliationError, if it is anything else.
    """
    if correction is None or correction in CORRECTIONS:
        return correction
    advice = did_you_mean(str(correction), CORRECTIONS)
    raise ReconciliationError(f"correction must be 'sidak', 'bonferroni' or None, but got {correction!r}. {advice}")


def half_width(level: float) -> float:
    """Return half the width of the interval that holds a standard normal number with probability `level`.

    Example:
        >>> round(half_width(0.95), 6)
        1.959964
    """
    return float(-ndtri((1.0 - level) / 2.0))


def chi_square_threshold(level: float, degrees_of_freedom: Any) -> Array:
    """Return the value below which a χ² number stays with probability `level`; NaN without degrees of freedom.

    Args:
        level: The probability.
        degrees_of_freedom: Degrees of freedom, of any shape.
    Example:
        >>> chi_square_threshold(0.95, [3, 0]).round(4)
        array([7.8147,    nan])
    """
    count = np.asarray(degrees_of_freedom)
    thresholds = np.full(
        int(count.max(initial=0)) + 1, np.nan
    )  # one for each number of degrees of freedom: far fewer than rows
    thresholds[1:] = chdtri(np.arange(1.0, len(thresholds)), 1.0 - level)
    return np.asarray(thresholds[count])


def chi_square_p(statistic: Any, degrees_of_freedom: Any) -> Array:
    """Return the probability of a χ² number at least this large; NaN without degrees of freedom.

    Args:
        statistic: The number, of any shape.
        degrees_of_freedom: Degrees of freedom, of that shape or a scalar.
    """
    count = np.asarray(degrees_of_freedom, float)
    return np.where(count > 0, chdtrc(np.where(count > 0, count, 1.0), statistic), np.nan)


def critical_value(level: float, n_tests: Any, correction: str | None = "sidak") -> Array:
    """Return the value that n standard normal numbers all stay below in size, with at least the probability `level`.

    ::

        α₁ = 1 − (1 − α)^(1/n)    (Šidák),    α₁ = α/n    (Bonferroni),    |z| ≤ Φ⁻¹(1 − α₁/2)        (R8)

    Šidák's correction is exact for independent numbers and conservative for dependent ones.

    Args:
        level: Confidence level `1 − α`.
        n_tests: Number n of tests, an integer or an array; NaN is returned where it is 0.
        correction: "sidak", "bonferroni", or None for a level that holds for each test by itself.

    Example:
        >>> critical_value(0.95, [1, 4, 0]).round(4)
        array([1.96 , 2.4909,    nan])
    """
    n = np.asarray(n_tests, float)
    alpha = 1.0 - level
    corrected = {"sidak": -np.expm1(math.log1p(-alpha) / np.maximum(n, 1)), "bonferroni": alpha / np.maximum(n, 1)}
    alpha_one = np.full(n.shape, alpha) if correction is None else corrected[correction]
    return np.where(n > 0, -ndtri(alpha_one / 2.0), np.nan)  # R8


def normal_p(z: Any) -> Any:
    """Return the probability that a standard normal number is at least this large in size."""
    return 2.0 * ndtr(-np.abs(z))
