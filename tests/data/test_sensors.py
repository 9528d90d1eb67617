"""What users say of their sensors, and the posterior it becomes."""

import math

import numpy as np
import pytest

from equipoise.data.scaling import Standardizer
from equipoise.data.sensors import parse_sensor_std, sensor_posterior

OUTPUTS = ("V", "I", "Q")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (None, [0.0, 0.0, 0.0]),
        ("learn", [math.nan] * 3),
        ({"I": 0.5}, [math.nan, 0.5, math.nan]),
        ({"I": 0, "V": "learn", "Q": np.float32(2.0)}, [math.nan, 0.0, 2.0]),
        ([1, 2, 3], [1.0, 2.0, 3.0]),
        (np.ones((4, 3)), np.ones((4, 3))),
    ],
)
def test_every_way_to_say_it_becomes_numbers_with_nan_for_learned(said, expected):
    np.testing.assert_array_equal(parse_sensor_std(said, OUTPUTS, n_rows=4), expected)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"U": 1.0}, "sensor_std names outputs, but got 'U'. The outputs are 'V', 'I', 'Q'"),
        ({"V": -1.0}, "sensor_std of 'V' must be a number ≥ 0 or 'learn', but got -1.0"),
        ({"V": "exact"}, "must be a number ≥ 0 or 'learn', but got 'exact'"),
        ({"V": math.inf}, "must be a number ≥ 0 or 'learn', but got inf"),
        ([1.0, 2.0], r"shape \(3,\), one per output, or \(4, 3\), one per row and output, but got \(2,\)"),
        ([1.0, -2.0, 3.0], "finite standard deviations ≥ 0, but got -2.0"),
        ([1.0, math.nan, 3.0], "finite standard deviations ≥ 0, but got nan"),
    ],
)
def test_what_cannot_be_a_sensor_is_refused_by_name_and_value(said, message):
    with pytest.raises(ValueError, match=message):
        parse_sensor_std(said, OUTPUTS, n_rows=4)


def test_given_variances_change_units_with_the_outputs_and_learned_ones_start_at_the_prior():
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(50, 3)) * [1.0, 10.0, 1e4]
    standardizer = Standardizer.fit(rng.normal(size=(50, 1)), Y)
    q = sensor_posterior(np.array([0.1, math.nan, 100.0]), Y, standardizer, precision=1e-16)
    variances = q.median().detach().numpy() * standardizer.y_std**2
    np.testing.assert_allclose(variances[[0, 2]], [0.01, 1e4], rtol=1e-12)
    assert variances[1] == pytest.approx(math.exp(-6) * standardizer.y_std[1] ** 2, rel=1e-9)
    assert float(q.kl_terms().detach().abs().max()) < 1e-12
