"""Checks of single parameters: at their borders, with name and value in the message."""

import math

import numpy as np
import pytest

from equipoise.errors import check_choice, check_count, check_counts, check_fraction, check_positive


@pytest.mark.parametrize(
    ("check", "good"),
    [
        (check_count, [1, 10**9, np.int8(1)]),
        (check_counts, [(), (1, 2), [3], np.array([64, 64])]),
        (check_positive, [1e-300, 3, np.float32(0.5)]),
        (check_fraction, [0, 0.0, 0.999, np.float64(0.1)]),
    ],
)
def test_what_is_within_its_borders_is_accepted(check, good):
    for value in good:
        check("parameter", value)


@pytest.mark.parametrize(
    ("check", "rule", "bad"),
    [
        (check_count, "must be a whole number of at least 1", [0, -1, 1.0, "1", None]),
        (check_counts, "must hold positive whole numbers", [8, (0,), (4, 2.5), "44", None]),
        (check_positive, "must be a positive number", [0, -1.0, math.inf, math.nan, "1", None]),
        (check_fraction, r"must be in \[0, 1\)", [1, -1e-9, math.nan, "0.1", None]),
    ],
)
def test_what_is_not_is_refused_with_its_name_and_value(check, rule, bad):
    for value in bad:
        with pytest.raises(ValueError, match=f"^width {rule}, but got ") as caught:
            check("width", value)
        assert repr(value) in str(caught.value)


def test_a_choice_that_is_none_is_refused_with_those_there_are():
    check_choice("color", "red", {"red": 1, "green": 2})
    with pytest.raises(ValueError, match="color must be one of 'red', 'green', but got 'blue'"):
        check_choice("color", "blue", {"red": 1, "green": 2})
