import numpy as np
import pytest
import scipy.stats
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from equipoise.diagnosis.robust_statistics import (
    centred,
    evenly_spaced,
    fitted_step,
    robust_std,
    significantly_correlated,
    trimmed_rms,
)

finite = st.floats(-1e6, 1e6, allow_subnormal=False)
columns = hnp.arrays(float, st.integers(1, 300), elements=finite)


@given(columns)
def test_the_typical_size_is_the_rms_of_all_but_the_largest_two_percent(values):
    kept = np.sort(np.abs(values))[: len(values) - len(values) * 2 // 100]
    assert trimmed_rms(values) == pytest.approx(np.sqrt(np.mean(kept**2)), rel=1e-12, abs=1e-150)


@given(columns, st.sampled_from([1e-150, 1e-3, 1e150]))
def test_the_typical_size_has_the_unit_of_the_values(values, factor):
    assert trimmed_rms(factor * values) == pytest.approx(factor * trimmed_rms(values), rel=1e-9, abs=1e-300)


def test_nothing_has_no_size():
    assert trimmed_rms(np.zeros(0)) == trimmed_rms(np.zeros(9)) == 0.0


def test_centred_values_have_a_median_of_zero():
    assert np.median(centred(np.array([5.0, 1.0, 9.0, 7.0]))) == 0.0


def test_a_robust_deviation_is_the_standard_deviation_of_normal_values_and_hardly_minds_gross_ones():
    z = np.random.default_rng(0).standard_normal((20_000, 2)) * [1.0, 1e-3]
    assert robust_std(z) == pytest.approx(
        [1.0, 1e-3], rel=0.03
    )  # 3 standard errors of a quantile, sqrt(pq/n)/f, are 2.4 %
    z[:1000] = 1e9  # four fifths of all are then 84.2 % of the others: 1.41 deviations instead of 1.28
    assert robust_std(z) == pytest.approx([1.10, 1.10e-3], rel=0.03)
    z[:10_000] = 1e9
    assert (robust_std(z) > 1e6).all()


def test_a_fitted_step_is_that_of_least_squares_where_all_rows_are_kept():
    rng = np.random.default_rng(0)
    z, d = rng.standard_normal((2, 40))
    assert fitted_step(z, d) == pytest.approx(np.linalg.lstsq(d[:, None], -z, rcond=None)[0][0], rel=1e-12)


def test_sentinels_in_residual_and_direction_do_not_move_the_step():
    rng = np.random.default_rng(0)
    d = rng.uniform(1, 2, 1000)
    z = -3.0 * d + 0.01 * rng.standard_normal(1000)
    z[::200], d[5::250] = 1e6, -9999.0
    se = 0.01 / np.sqrt(1000 * np.mean(np.square(rng.uniform(1, 2, 1000))))
    assert abs(fitted_step(z, d) - 3.0) < 6 * se


def test_a_direction_of_zeros_gives_no_step():
    assert fitted_step(np.ones(5), np.zeros(5)) == 0.0


@pytest.mark.parametrize("n", [4, 10, 40])
@pytest.mark.parametrize("slope", [0.0, 0.5, 2.0, 20.0])
def test_certainty_of_a_correlation_is_that_of_pearson(n, slope):
    rng = np.random.default_rng(n)
    x = rng.standard_normal(n)
    y = slope * x + rng.standard_normal(n)
    expected = 7 * scipy.stats.pearsonr(x, y).pvalue / 2 < scipy.stats.norm.sf(4)
    assert significantly_correlated(x, y, n_tests=7) == expected


def test_constant_or_few_values_are_related_to_nothing():
    assert not significantly_correlated(np.ones(50), np.arange(50.0))
    assert not significantly_correlated(np.array([1.0, 2.0]), np.array([1.0, 2.0]))


@given(st.integers(1, 10_000), st.integers(1, 500))
def test_evenly_spaced_rows_are_distinct_in_order_and_reach_from_end_to_end(n_rows, most):
    rows = evenly_spaced(n_rows, most)
    assert len(rows) == min(n_rows, most)
    assert rows[0] == 0
    assert (np.diff(rows) > 0).all()
    assert rows[-1] == (n_rows - 1 if most > 1 else 0)
