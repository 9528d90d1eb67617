import numpy as np
import pytest
import sklearn.covariance
from hypothesis import given, settings, strategies as st

from equipoise.diagnosis.multivariate_outliers import consistent_rows
from equipoise.diagnosis.robust_statistics import outlier_mask


def plant(n=400, noise=0.01, seed=0):
    """a = b + c and d = b + e + f up to noise; g is unrelated."""
    rng = np.random.default_rng(seed)
    b, c, e, f, g = rng.uniform(1, 3, (5, n))
    table = np.column_stack([b + c, b, c, b + e + f, e, f, g])
    return table + noise * rng.standard_normal(table.shape)


def left_out(table):
    return set(np.flatnonzero(~consistent_rows(table)).tolist())


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.05])
@pytest.mark.parametrize("factor", [0.0, 2.0, -1.0, 1000.0])
@pytest.mark.parametrize("columns", [[1], [0, 2], [1, 3, 5]])
def test_the_rows_that_were_spoiled_are_the_rows_that_are_left_out(noise, factor, columns):
    table = plant(noise=noise)
    for i, j in enumerate(columns):
        table[i : 20 : len(columns), j] *= factor
    assert left_out(table) == set(range(20))


@pytest.mark.parametrize("n", [200, 1000])
@pytest.mark.parametrize("share", [0.05, 0.07, 0.15])
def test_a_meter_that_shows_zero_in_many_rows_is_seen_although_zero_is_not_far_off(n, share):
    """Zero is 3.5 standard deviations from the mean of a uniform variable between 1 and 3, which is 2."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        a, b = rng.uniform(1, 3, (2, n))
        table = np.column_stack([a, b, a + b]) + 0.01 * rng.standard_normal((n, 3))
        spoiled = rng.permutation(n)[: int(share * n)]
        table[spoiled, seed % 3] = 0.0
        assert left_out(table) == set(spoiled.tolist()), seed


def test_a_stuck_meter_is_seen_wherever_its_value_differs_from_what_the_balances_say():
    table = plant(noise=0.001)
    true = table[:20, 1].copy()
    table[:20, 1] = true[0]
    assert {i for i in range(20) if abs(true[i] - true[0]) > 0.05} <= left_out(table) <= set(range(20))


@pytest.mark.parametrize("seed", range(5))
def test_what_is_left_out_agrees_with_the_smallest_covariance_determinant(seed):
    """By scikit-learn, whose distances have a χ² distribution with 7 degrees of freedom: 1e-9 of it lies beyond 57."""
    table = plant(seed=seed)
    table[::50, 1] = 0.0
    robust = sklearn.covariance.MinCovDet(random_state=0).fit(table)
    assert left_out(table) == set(np.flatnonzero(robust.mahalanobis(table) > 200).tolist()) == set(range(0, 400, 50))


def test_unrelated_columns_keep_all_their_rows_whatever_their_tails():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        p = int(rng.integers(2, 9))
        for table in (rng.standard_normal((200, p)), rng.standard_cauchy((200, p)), np.exp(rng.normal(0, 2, (200, p)))):
            assert consistent_rows(table).all(), seed


def test_a_term_that_is_rarely_there_is_no_gross_error():
    rng = np.random.default_rng(0)
    base, purge = rng.uniform(1, 3, 1000), np.where(rng.random(1000) < 0.03, rng.exponential(1, 1000), 0.0)
    table = np.column_stack([base + purge, base, purge]) + 0.01 * rng.standard_normal((1000, 3))
    assert consistent_rows(table).all()
    table[:15, 1] = 0.0
    assert left_out(table) == set(range(15))


def test_what_a_third_of_the_rows_break_is_not_obeyed():
    table = plant()
    table[::3, 1] *= 2
    assert consistent_rows(table).all()


def test_with_few_rows_for_each_column_nothing_is_left_out():
    table = plant(n=34)
    table[3, 1] = 0.0
    assert consistent_rows(table).all()
    table = plant(n=35)
    table[3, 1] = 0.0
    assert left_out(table) == {3}


@settings(max_examples=20)
@given(st.permutations(range(7)), st.lists(st.sampled_from([1e-8, 1.0, 1e6]), min_size=7, max_size=7))
def test_neither_order_nor_units_of_columns_change_what_is_left_out(order, units):
    table = plant(n=150)
    table[:3, 1] = 0.0
    assert left_out(table[:, order] * units) == {0, 1, 2}


def test_rounded_numbers_have_no_gross_rows():
    """Three percentages with one digit add up to 100 in three rows of four, to 99.9 or 100.1 in the others."""
    shares = (100 * np.random.default_rng(0).dirichlet([3, 4, 5], 400)).round(1)
    missing = shares.sum(axis=1) - 100
    assert 0.2 < (np.abs(missing) > 0.05).mean() < 0.3
    assert consistent_rows(shares).all()
    assert not outlier_mask(missing, size=20.0).any()


def test_a_residual_stands_out_beyond_six_deviations_a_thousandth_of_its_terms_and_rounding():
    z = np.random.default_rng(0).standard_normal(100_000)
    z[:3] = [5.5, 6.5, -6.5]
    np.testing.assert_array_equal(np.flatnonzero(outlier_mask(z, size=1.0)), [1, 2])
    assert not outlier_mask(z, size=6600.0).any()
    assert not outlier_mask(z, size=1.0, rounding=6.6).any()
