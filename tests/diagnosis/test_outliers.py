import numpy as np
import pytest
import scipy.stats

from equipoise.diagnosis.outliers import largest, outlying


def test_outliers_lie_six_median_deviations_off_the_median():
    z = np.random.default_rng(0).normal(3.0, 2.0, 1000)
    z[:4] = [3 + 11, 3 + 13, 3 - 13, 40]
    off = np.abs(z - np.median(z)) / scipy.stats.median_abs_deviation(z, scale="normal")
    np.testing.assert_array_equal(outlying(z, 0.0), np.flatnonzero(off > 6))
    assert {1, 2, 3} == set(outlying(z, 0.0).tolist())
    assert outlying(z, 20.0).tolist() == [3]


def test_more_than_a_quarter_of_the_rows_are_no_outliers():
    z = np.zeros(100)
    z[:25] = 1.0
    assert len(outlying(z, 1e-9)) == 25
    z[:26] = 1.0
    assert len(outlying(z, 1e-9)) == 0


def test_the_largest_come_first_with_their_place_and_their_share():
    z, magnitude, rows = np.array([1.0, -5.0, 3.0, 0.5]), np.array([10.0, 10.0, 30.0, 0.0]), np.array([2, 4, 6, 9])
    found = largest(z, magnitude, rows, np.arange(4), 2)
    assert [(row.row, row.residual, row.relative) for row in found] == [(4, -5.0, -0.5), (6, 3.0, pytest.approx(0.1))]
    (last,) = largest(z, magnitude, rows, np.array([3]), 2)
    assert (last.row, last.relative) == (9, 0.0)
