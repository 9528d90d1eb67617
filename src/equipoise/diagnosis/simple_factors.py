"""Simple factors: small rationals, powers of ten and units of time; numbers rounded to few digits."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

_UNITS = {Fraction(2), Fraction(24), Fraction(60), Fraction(3600), Fraction(86400), Fraction(18, 5), Fraction(9, 5)}
_TENS = {Fraction(10) ** power for power in range(-12, 13)} - {Fraction(1)}
# Factors between units, which an equation may lack by mistake.
CONVERSIONS = tuple(sorted(_TENS | _UNITS | {1 / unit for unit in _UNITS}))
SIMPLE = tuple(sorted({*CONVERSIONS, *(Fraction(p, q) for p in range(1, 7) for q in range(1, 7))}))


def nearest_factor(value: float, factors: Sequence[Fraction]) -> Fraction:
    """Return the factor nearest to a value on a logarithmic scale, with the value's sign.

    Args:
        value: The value to approximate.
        factors: The factors to choose from, all positive.
    Example:
        >>> nearest_factor(-0.00101, SIMPLE), nearest_factor(59.0, SIMPLE)
        (Fraction(-1, 1000), Fraction(60, 1))
    """
    size = math.log(abs(value)) if value else -math.inf
    closest = min(factors, key=lambda factor: abs(math.log(factor) - size))
    return -closest if value < 0 else closest


def recurring_divisor(factor: Fraction) -> int:
    """Return the largest divisor of a denominator that is prime to 10: above 1 the decimals of the factor recur.

    Example:
        >>> recurring_divisor(Fraction(9, 5)), recurring_divisor(Fraction(5, 6))
        (1, 3)
    """
    rest = factor.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest


def complexity(factor: Fraction) -> int:
    """Count the significant digits of numerator and denominator; recurring decimals count as one more.

    Example:
        >>> [complexity(Fraction(text)) for text in ("1", "1000", "1/1000", "2/3")]
        [1, 1, 2, 3]
    """
    digits = len(str(abs(factor.numerator)).rstrip("0"))
    below = len(str(factor.denominator).rstrip("0")) if factor.denominator > 1 else 0
    return digits + below + (recurring_divisor(factor) > 1)


def shortest_rounding(value: float, good: Callable[[float], bool], max_digits: int = 12) -> float:
    """Round a value to the fewest significant digits that pass a test; to `max_digits` digits where none pass it.

    Args:
        value: The value.
        good: The test of a rounded value.
        max_digits: The largest number of significant digits.
    Example:
        >>> shortest_rounding(273.15004, lambda rounded: abs(rounded - 273.15) < 0.01)
        273.15
    """
    rounded = (float(f"{value:.{digits}g}") for digits in range(1, max_digits + 1))
    return next((number for number in rounded if good(number)), float(f"{value:.{max_digits}g}"))
