import math
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from equipoise.diagnosis.simple_factors import (
    CONVERSIONS,
    SIMPLE,
    complexity,
    nearest_factor,
    recurring_divisor,
    shortest_rounding,
)


@pytest.mark.parametrize("factor", [2, 0.5, 10, 100, 1000, 60, 3600, 1e-3, 24, 3.6, 1.8])
def test_forgotten_factors_are_conversions_and_so_are_their_inverses(factor):
    assert factor in map(float, CONVERSIONS)
    assert any(math.isclose(1 / factor, float(other)) for other in CONVERSIONS)
    assert set(CONVERSIONS) <= set(SIMPLE)


def test_one_is_no_forgotten_factor():
    assert 1 not in CONVERSIONS
    assert 1 in SIMPLE


@given(st.sampled_from(CONVERSIONS), st.floats(0.96, 1.04), st.sampled_from([-1, 1]))
def test_a_value_near_a_conversion_finds_it(factor, error, sign):
    assert nearest_factor(sign * error * float(factor), CONVERSIONS) == sign * factor


def test_zero_finds_some_factor():
    assert nearest_factor(0.0, SIMPLE) in SIMPLE


def test_what_is_written_shorter_is_less_complex():
    ordered = [Fraction(1000), Fraction(1, 2), Fraction(9, 5), Fraction(1, 3), Fraction(18, 5)]
    assert [complexity(factor) for factor in ordered] == [1, 2, 2, 3, 3]


@given(st.fractions(max_denominator=500))
def test_a_fraction_times_its_endless_part_is_a_finite_decimal(factor):
    whole = (factor * recurring_divisor(factor)).denominator
    while whole % 2 == 0 or whole % 5 == 0:
        whole //= 2 if whole % 2 == 0 else 5
    assert whole == 1


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 0.1))
def test_the_shortest_number_is_good_and_one_digit_less_is_not(value, tolerance):
    def good(rounded):
        return abs(rounded - value) <= tolerance * value

    found = shortest_rounding(value, good)
    assert good(found)
    digits = next(d for d in range(1, 13) if float(f"{value:.{d}g}") == found)
    assert digits == 1 or not good(float(f"{value:.{digits - 1}g}"))


def test_a_number_that_is_never_good_enough_keeps_its_digits():
    assert shortest_rounding(math.pi, lambda rounded: False, max_digits=4) == 3.142
