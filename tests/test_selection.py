"""Sizes of errors that were seen because they were large, against the truth they were made with."""

import numpy as np
import pytest
import scipy.stats

from equipoise.constraints import LinearConstraint
from equipoise.reconciliation import reconcile

NAMES = ["feed", "charge", "effluent", "product", "bottoms", "recycle", "purge"]
TEXTS = ["feed + recycle = charge", "charge = effluent", "effluent = product + bottoms", "bottoms = recycle + purge"]
PLANT = LinearConstraint.from_equations(TEXTS, outputs=NAMES)
STD = np.array([0.1, 0.12, 0.12, 0.08, 0.05, 0.04, 0.03])
TRUTH = np.array([10.0, 15.0, 15.0, 9.2, 5.8, 5.0, 0.8])
PRODUCT, RECYCLE = 3, 5
TABLES = 20


def errors(j, sigmas, rows=2000, seed=0):
    """Of readings in which a meter always lies, by so many standard deviations of the estimate of one row."""
    values = TRUTH + STD * np.random.default_rng(seed).normal(size=(rows, 7))
    lie = sigmas * reconcile(TRUTH, STD, PLANT).measurement_test().size_std[j]
    values[:, j] += lie
    return lie, reconcile(values, STD, PLANT).logbook().tally.errors


@pytest.mark.parametrize(
    ("sigmas", "j"), [(1.5, PRODUCT), (1.5, RECYCLE), (2.0, RECYCLE), (3.0, RECYCLE), (5.0, RECYCLE)]
)
def test_a_steady_bias_is_estimated_without_the_winners_curse_and_with_an_honest_interval(sigmas, j):
    z, seen = [], []
    for seed in range(TABLES):
        lie, found = errors(j, sigmas, seed=seed)
        z.append((found.size[j] - lie) / found.standard_error[j])
        seen.append(found.sizes.mean[j] / lie)
    assert abs(np.mean(z)) < scipy.stats.norm.isf(0.5e-3) / np.sqrt(TABLES)
    assert np.mean(np.abs(z) < 1.96) >= scipy.stats.binom.ppf(1e-3, TABLES, 0.95) / TABLES
    assert np.std(z) < np.sqrt(scipy.stats.chi2.isf(1e-3, TABLES - 1) / (TABLES - 1))
    if sigmas < 2.5:
        assert min(seen) > 1.5  # times the truth is what the rows show that were chosen


def test_false_alarms_among_the_rows_of_an_error_that_comes_and_goes_do_not_dilute_it():
    z, raw = [], []
    lie = 5 * reconcile(TRUTH, STD, PLANT).measurement_test().size_std[RECYCLE]
    for seed in range(TABLES):
        values = TRUTH + STD * np.random.default_rng(seed).normal(size=(4000, 7))
        values[:100, RECYCLE] += lie
        found = reconcile(values, STD, PLANT).logbook().tally.errors
        z.append((found.size[RECYCLE] - lie) / found.standard_error[RECYCLE])
        raw.append(found.sizes.mean[RECYCLE] / lie)
    assert np.mean(raw) < 0.9
    assert abs(np.mean(z)) < scipy.stats.norm.isf(0.5e-3) / np.sqrt(TABLES)
    assert np.mean(np.abs(z) < 1.96) >= scipy.stats.binom.ppf(1e-3, TABLES, 0.95) / TABLES


def test_a_bias_that_is_far_above_the_limit_is_the_mean_of_its_rows():
    lie, found = errors(RECYCLE, 20.0)
    assert found.size[RECYCLE] == pytest.approx(found.sizes.mean[RECYCLE], rel=1e-3)
    assert found.standard_error[RECYCLE] == pytest.approx(found.sizes.std[RECYCLE] / np.sqrt(2000), rel=0.05)
    assert found.size[RECYCLE] == pytest.approx(lie, abs=4 * found.standard_error[RECYCLE])


def test_without_a_bias_the_sign_is_not_told():
    values = TRUTH + STD * np.random.default_rng(1).normal(size=(5000, 7))
    found = reconcile(values, STD / 3, PLANT).logbook().tally.errors
    named = found.count > 100
    assert named.sum() >= 7
    assert found.both_signs[named].mean() > 0.8
    assert not errors(PRODUCT, 3.0)[1].both_signs[PRODUCT]


def test_the_estimate_is_the_maximum_of_the_likelihood_of_a_truncated_normal():
    """With one balance nothing competes: |z| had to exceed 1.96 in every row."""
    flows = LinearConstraint.from_equations("a = b", outputs=["a", "b"])
    values = np.random.default_rng(2).normal([1.5, 0.0], 1.0, (300, 2))
    result = reconcile(values, 1.0, flows)
    found, z = result.logbook().tally.errors, result.measurement_test().statistic[:, 0]
    z = z[np.abs(z) > 1.959963984540054]
    grid = np.linspace(0, 3, 30_001)
    kept = scipy.stats.norm.sf(1.959963984540054 - grid) + scipy.stats.norm.cdf(-1.959963984540054 - grid)
    likelihood = grid * z.sum() - len(z) * (np.square(grid) / 2 + np.log(kept))
    assert found.count[0] == len(z)
    assert found.size[0] == pytest.approx(np.sqrt(2) * grid[likelihood.argmax()], abs=2e-4)


def test_one_row_alone_has_an_interval_too():
    flows = LinearConstraint.from_equations("a = b", outputs=["a", "b"])
    found = reconcile([[30.0, 10.0]], 1.0, flows).logbook().tally.errors
    assert found.size[0] == pytest.approx(20.0, rel=1e-6)
    assert found.standard_error[0] == pytest.approx(np.sqrt(2), rel=1e-3)
    assert np.isnan(found.size[1])
