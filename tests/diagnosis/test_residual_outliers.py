import numpy as np
import pytest

from equipoise.diagnosis.residual_outliers import largest_residuals, outlier_positions
from equipoise.diagnosis.robust_statistics import robust_std


def test_outliers_lie_six_robust_deviations_off_the_median():
    z = np.random.default_rng(0).normal(3.0, 2.0, 1000)
    z[:4] = [3 + 11, 3 + 13, 3 - 13, 40]
    off = np.abs(z - np.median(z)) / robust_std(z)
    np.testing.assert_array_equal(outlier_positions(z, 0.0), np.flatnonzero(off > 6))
    assert {1, 2, 3} == set(outlier_positions(z, 0.0).tolist())
    assert outlier_positions(z, 20.0).tolist() == [3]


def test_more_than_a_fifth_of_the_rows_are_no_outliers():
    z = np.zeros(100)
    z[:20] = 1.0
    assert len(outlier_positions(z, 1e-9)) == 20
    z[:21] = 1.0
    assert len(outlier_positions(z, 1e-9)) == 0


def test_one_step_of_rounding_in_a_quarter_of_the_rows_does_not_stand_out():
    """The median of such residuals is 0, and so is that of their distances from it."""
    z = np.tile([0.0, 0.0, 0.0, 1.0], 25)
    assert len(outlier_positions(z[:99], 0.0)) == 0


def test_the_largest_come_first_with_their_place_and_their_share():
    z, magnitude, rows = np.array([1.0, -5.0, 3.0, 0.5]), np.array([10.0, 10.0, 30.0, 0.0]), np.array([2, 4, 6, 9])
    found = largest_residuals(z, magnitude, rows, np.arange(4), 2)
    assert [(row.row, row.residual, row.relative) for row in found] == [(4, -5.0, -0.5), (6, 3.0, pytest.approx(0.1))]
    assert largest_residuals(np.zeros(4), magnitude, rows, np.arange(4), 2) == ()
    (last,) = largest_residuals(z, magnitude, rows, np.array([3]), 2)
    assert (last.row, last.relative) == (9, 0.0)
