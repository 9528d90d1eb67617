"""Numbers as people write them: right to their last digit, with unit and error."""

import math
import re

import numpy as np
import pytest

from equipoise.app.report import number, plus_minus, with_unit


def value_of(text: str) -> float:
    """The number that a reader sees."""
    mantissa, _, power = text.replace("−", "-").replace(",", "").partition("×10")
    return float(mantissa) * 10.0 ** int(power.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")) or 0)


def test_numbers_are_right_to_their_significant_digits():
    rng = np.random.default_rng(0)
    for value in rng.choice([-1, 1], 300) * 10 ** rng.uniform(-14, 9, 300):
        for digits in (2, 3, 5):
            text = number(value, digits)
            assert value_of(text) == pytest.approx(value, rel=0.5001 * 10 ** (1 - digits)), text
            assert len(text) <= digits + 9


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.9996, "1.00"), (9.996e-4, "0.00100"), (99_960.0, "100,000"), (174.82, "175"), (-0.0, "0"), (-math.inf, "−∞")],
)
def test_rounding_up_to_the_next_power_of_ten_keeps_the_digits(value, text):
    assert number(value) == text


def test_a_number_and_its_error_are_right_to_the_errors_digits():
    rng = np.random.default_rng(1)
    for mean, share in zip(
        rng.normal(size=300) * 10 ** rng.uniform(-12, 8, 300), 10 ** rng.uniform(-4, 1, 300), strict=True
    ):
        error = share * abs(mean)
        found = re.fullmatch(r"\(?(?P<mean>\S+) ± (?P<error>[^)×]+)\)?(?P<power>×10\S+)?", plus_minus(mean, error))
        assert found is not None
        shown = [value_of(found[name] + (found["power"] or "")) for name in ("mean", "error")]
        assert shown[1] == pytest.approx(error, rel=0.05, abs=0.5 if error > 1 else 0)
        assert shown[0] == pytest.approx(mean, abs=0.06 * error + (0.5 if error > 1 else 0))


def test_a_number_and_its_unit_stay_on_one_line():
    assert with_unit(0.01234, "kg/s") == "0.0123\N{NO-BREAK SPACE}kg/s"
    assert with_unit(12.34, None, 2) == "12"
    assert with_unit(math.nan, "V") == "–"


@pytest.mark.parametrize("error", [math.nan, math.inf, 0.0, 1e-12])
def test_an_error_that_is_unknown_or_none_is_not_written(error):
    assert plus_minus(0.0405, error) == "0.0405"
    assert plus_minus(math.inf, error) == "∞"
