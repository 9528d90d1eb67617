"""Sizes of errors that were seen because they were large, against the truth they were made with."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from equipoise.balances.linear import LinearConstraint
from equipoise.reconciliation import reconcile
from equipoise.reconciliation.error_sizes import SuspectErrors

NAMES = ["feed", "charge", "effluent", "product", "bottoms", "recycle", "purge"]
TEXTS = ["feed + recycle = charge", "charge = effluent", "effluent = product + bottoms", "bottoms = recycle + purge"]
PLANT = LinearConstraint.from_equations(TEXTS, outputs=NAMES)
STD = np.array([0.1, 0.12, 0.12, 0.08, 0.05, 0.04, 0.03])
TRUTH = np.array([10.0, 15.0, 15.0, 9.2, 5.8, 5.0, 0.8])
PRODUCT, RECYCLE = 3, 5
SIZE_STD = reconcile(TRUTH, STD, PLANT).measurement_test().size_std  # of the estimate of one row
TABLES, ROWS = 20, 4000


@pytest.fixture(scope="module")
def honest():
    """Readings with no more than their errors."""
    noise = [np.random.default_rng(seed).normal(size=(ROWS, 7)) for seed in range(TABLES)]
    return TRUTH + STD * np.stack(noise)


def errors(honest, j, lie, lying=slice(None)):
    """Of tables in some rows of which a meter lies; reconciled together, and looked at one by one."""
    values, rows = honest.copy(), honest.shape[1]
    values[:, lying, j] += lie
    test = reconcile(values.reshape(-1, 7), STD, PLANT).likelihood_ratio_test()
    return [SuspectErrors.of(test.of_rows(slice(k * rows, (k + 1) * rows))) for k in range(len(values))]


def missed(found, j, lie):
    """By how many of its standard errors each estimate misses the lie."""
    return np.array([(one.size[j] - lie) / one.standard_error[j] for one in found])


@pytest.mark.parametrize(
    ("sigmas", "j"), [(1.5, PRODUCT), (1.5, RECYCLE), (2.0, RECYCLE), (3.0, RECYCLE), (5.0, RECYCLE)]
)
def test_a_steady_bias_is_estimated_without_the_winners_curse_and_with_an_honest_interval(
    honest, long_training, sigmas, j
):
    lie = sigmas * SIZE_STD[j]
    found = errors(honest[:, :2000], j, lie)
    z, seen = missed(found, j, lie), [one.sizes.mean[j] / lie for one in found]
    assert abs(np.mean(z)) < scipy.stats.norm.isf(0.5e-3) / np.sqrt(TABLES)
    assert np.mean(np.abs(z) < 1.96) >= scipy.stats.binom.ppf(1e-3, TABLES, 0.95) / TABLES
    assert np.std(z) < np.sqrt(scipy.stats.chi2.isf(1e-3, TABLES - 1) / (TABLES - 1))
    if sigmas < 2.5:
        assert min(seen) > 1.5  # times the truth is what the rows show that were chosen


def test_false_alarms_among_the_rows_of_an_error_that_comes_and_goes_do_not_dilute_it(honest, long_training):
    lie = 5 * SIZE_STD[RECYCLE]
    found = errors(honest, RECYCLE, lie, slice(100))
    z = missed(found, RECYCLE, lie)
    assert np.mean([one.sizes.mean[RECYCLE] / lie for one in found]) < 0.9
    assert abs(np.mean(z)) < scipy.stats.norm.isf(0.5e-3) / np.sqrt(TABLES)
    assert np.mean(np.abs(z) < 1.96) >= scipy.stats.binom.ppf(1e-3, TABLES, 0.95) / TABLES


def test_a_bias_that_is_far_above_the_limit_is_the_mean_of_its_rows(honest):
    lie = 20 * SIZE_STD[RECYCLE]
    (found,) = errors(honest[:1, :2000], RECYCLE, lie)
    assert found.size[RECYCLE] == pytest.approx(found.sizes.mean[RECYCLE], rel=1e-3)
    assert found.standard_error[RECYCLE] == pytest.approx(found.sizes.std[RECYCLE] / np.sqrt(2000), rel=0.05)
    assert found.size[RECYCLE] == pytest.approx(lie, abs=4 * found.standard_error[RECYCLE])


def test_without_a_bias_the_sign_is_not_told(honest):
    values = TRUTH + STD * np.random.default_rng(1).normal(size=(5000, 7))
    found = reconcile(values, STD / 3, PLANT).logbook().totals.errors
    named = found.count > 100
    assert named.sum() >= 7
    assert found.both_signs[named].mean() > 0.8
    (found,) = errors(honest[:1, :2000], PRODUCT, 3 * SIZE_STD[PRODUCT])
    assert not found.both_signs[PRODUCT]


def test_the_estimate_is_the_maximum_of_the_likelihood_of_a_truncated_normal():
    """With one balance nothing competes: |z| had to exceed 1.96 in every row."""
    flows = LinearConstraint.from_equations("a = b", outputs=["a", "b"])
    values = np.random.default_rng(2).normal([1.5, 0.0], 1.0, (300, 2))
    result = reconcile(values, 1.0, flows)
    found, z = result.logbook().totals.errors, result.measurement_test().statistic[:, 0]
    z = z[np.abs(z) > 1.959963984540054]
    grid = np.linspace(0, 3, 30_001)
    kept = scipy.stats.norm.sf(1.959963984540054 - grid) + scipy.stats.norm.cdf(-1.959963984540054 - grid)
    likelihood = grid * z.sum() - len(z) * (np.square(grid) / 2 + np.log(kept))
    assert found.count[0] == len(z)
    assert found.size[0] == pytest.approx(np.sqrt(2) * grid[likelihood.argmax()], abs=2e-4)


def test_one_row_alone_has_an_interval_too():
    flows = LinearConstraint.from_equations("a = b", outputs=["a", "b"])
    found = reconcile([[30.0, 10.0]], 1.0, flows).logbook().totals.errors
    assert found.size[0] == pytest.approx(20.0, rel=1e-6)
    assert found.standard_error[0] == pytest.approx(np.sqrt(2), rel=1e-3)
    assert np.isnan(found.size[1])


@pytest.mark.parametrize("z", [2.2, 3.0, 5.0])
def test_one_row_close_to_its_limit_has_the_error_of_the_curvature_of_its_likelihood(z):
    """`log φ(z − δ) − log P(|z| > t)`: its maximum, and one over the root of its second derivative there."""
    flows, t, step = LinearConstraint.from_equations("a = b", outputs=["a", "b"]), 1.959963984540054, 1e-4

    def log_likelihood(d):
        kept = scipy.stats.norm.sf(t - d) + scipy.stats.norm.cdf(-t - d)
        return scipy.stats.norm.logpdf(z - d) - np.log(kept)

    found = reconcile([[np.sqrt(2) * z, 0.0]], 1.0, flows).logbook().totals.errors
    best = scipy.optimize.minimize_scalar(lambda d: -log_likelihood(d), bounds=(0, z), options={"xatol": 1e-10}).x
    left, middle, right = (log_likelihood(best + k * step) for k in (-1, 0, 1))
    curvature = (2 * middle - left - right) / step**2
    assert found.size[0] == pytest.approx(np.sqrt(2) * best, abs=1e-5)
    assert found.standard_error[0] == pytest.approx(np.sqrt(2 / curvature), rel=1e-5)


def test_a_meter_that_stands_still_errs_in_both_directions_and_its_mean_is_not_doubled():
    """It shows one value while the flow goes up and down: errors of either sign, none of them a false alarm."""
    rng = np.random.default_rng(3)
    flow = 10 + rng.normal(0, 2, 2000)
    values = np.stack([np.full(2000, 10.8), flow, flow, flow], axis=1) + rng.normal(0, 0.1, (2000, 4)) * [0, 1, 1, 1]
    line = LinearConstraint.from_equations(["a = b", "b = c", "c = d"], outputs=["a", "b", "c", "d"])
    found = reconcile(values, 0.1, line).logbook().totals.errors
    assert found.count[0] > 1500
    assert found.both_signs[0]
    assert found.size[0] == pytest.approx(0.8, abs=0.2)
    assert found.typical[0] == pytest.approx(np.sqrt(4 + 0.64), rel=0.1)
