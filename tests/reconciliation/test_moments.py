"""Moments of pieces against NumPy's of the whole."""

import warnings

import numpy as np
import pytest

from equipoise.reconciliation.moments import Moments

RNG = np.random.default_rng(0)
VALUES = 1e6 + RNG.normal(size=(100, 3))
VALUES[RNG.random((100, 3)) < 0.2] = np.nan
VALUES[:, 2] = np.nan


@pytest.mark.parametrize("cuts", [[], [40], [1, 2, 50, 50, 99]])
def test_moments_of_pieces_are_those_of_the_whole(cuts):
    first, *others = map(Moments.of, np.split(VALUES, cuts))
    moments = sum(others, first)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's, of the column without values
        mean, std = np.nanmean(VALUES, axis=0), np.nanstd(VALUES, axis=0, ddof=1)
    count = (~np.isnan(VALUES)).sum(axis=0)
    np.testing.assert_array_equal(moments.count, count)
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-13)
    np.testing.assert_allclose(moments.std, std, rtol=1e-9)  # sums of squares would keep 4 digits of it
    np.testing.assert_allclose(moments.standard_error[:2], (std / np.sqrt(count))[:2], rtol=1e-9)


def test_one_value_has_a_mean_but_no_spread():
    one = Moments.of(np.array([[3.0, np.nan]]))
    np.testing.assert_array_equal(one.mean, [3.0, np.nan])
    np.testing.assert_array_equal(one.std, [np.nan, np.nan])
