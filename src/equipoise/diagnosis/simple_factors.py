"""Factors that people write: small rationals, powers of ten, units of time; and decimals with few digits."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

_UNITS = {Fraction(2), Fraction(24), Fraction(60), Fraction(3600), Fraction(86400), Fraction(18, 5), Fraction(9, 5)}
_TENS = {Fraction(10) ** power for power in range(-12, 13)} - {Fraction(1)}
CONVERSIONS = tuple(sorted(_TENS | _UNITS | {1 / unit for unit in _UNITS}))  # what a forgotten factor looks like
SIMPLE = tuple(sorted({*CONVERSIONS, *(Fraction(p, q) for p in range(1, 7) for q in range(1, 7))}))


def nearest(value: float, among: Sequence[Fraction]) -> Fraction:
    """The factor nearest to a value on a logarithmic scale, with the value's sign.

    Example:
        >>> nearest(-0.00101, SIMPLE), nearest(59.0, SIMPLE)
        (Fraction(-1, 1000), Fraction(60, 1))
    """
    size = math.log(abs(value)) if value else -math.inf
    closest = min(among, key=lambda factor: abs(math.log(factor) - size))
    return -closest if value < 0 else closest


def endless(factor: Fraction) -> int:
    """The part of a denominator that makes decimals endless.

    Example:
        >>> endless(Fraction(9, 5)), endless(Fraction(5, 6))
        (1, 3)
    """
    rest = factor.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest


def complexity(factor: Fraction) -> int:
    """How much there is to write: significant digits, whole numbers first, endless decimals last.

    Example:
        >>> [complexity(Fraction(text)) for text in ("1", "1000", "1/1000", "2/3")]
        [1, 1, 2, 3]
    """
    digits = len(str(abs(factor.numerator)).rstrip("0"))
    below = len(str(factor.denominator).rstrip("0")) if factor.denominator > 1 else 0
    return digits + below + (endless(factor) > 1)


def shortest(value: float, good: Callable[[float], bool], most: int = 12) -> float:
    """The value rounded to as few significant digits as are good enough; at most `most`.

    Example:
        >>> shortest(273.15004, lambda rounded: abs(rounded - 273.15) < 0.01)
        273.15
    """
    rounded = (float(f"{value:.{digits}g}") for digits in range(1, most + 1))
    return next((number for number in rounded if good(number)), float(f"{value:.{most}g}"))
