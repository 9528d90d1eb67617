import numpy as np
import pytest
import scipy.stats

from equipoise.reconciliation.measurements import ReconciliationError
from equipoise.reconciliation.significance import (
    checked_correction,
    checked_level,
    chi_square_p,
    chi_square_threshold,
    critical_value,
    half_width,
    normal_p,
)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.9999])
def test_quantiles_and_tails_are_those_of_scipy(level):
    freedom = np.array([1, 3, 11, 370])
    np.testing.assert_allclose(chi_square_threshold(level, freedom), scipy.stats.chi2.ppf(level, freedom), rtol=1e-10)
    np.testing.assert_allclose(
        chi_square_p(freedom * 1.5, freedom), scipy.stats.chi2.sf(freedom * 1.5, freedom), rtol=1e-10
    )
    assert half_width(level) == pytest.approx(scipy.stats.norm.ppf((1 + level) / 2), rel=1e-12)
    np.testing.assert_allclose(
        normal_p(np.array([-3.0, 0.0, 8.0])), 2 * scipy.stats.norm.sf([3.0, 0.0, 8.0]), rtol=1e-12
    )


@pytest.mark.parametrize("n", [1, 4, 28, 1000])
def test_corrections_keep_the_level_of_all_tests_together(n):
    inside = 1 - normal_p(critical_value(0.95, n, "sidak"))
    assert inside**n == pytest.approx(0.95, rel=1e-12)
    assert n * normal_p(critical_value(0.95, n, "bonferroni")) == pytest.approx(0.05, rel=1e-12)
    assert critical_value(0.95, n, None) == pytest.approx(1.959963984540054, rel=1e-12)
    assert critical_value(0.95, n, "sidak") <= critical_value(0.95, n, "bonferroni") + 1e-15


def test_nothing_to_test_has_no_threshold():
    assert np.isnan(chi_square_threshold(0.95, 0))
    assert np.isnan(chi_square_p(np.array(0.0), 0))
    np.testing.assert_array_equal(np.isnan(critical_value(0.95, [0, 1])), [True, False])


def test_levels_and_corrections_are_checked():
    assert checked_level(np.float32(0.5)) == 0.5
    assert checked_correction(None) is None
    with pytest.raises(ReconciliationError, match=r"level must lie between 0 and 1, but got 95\. Use 0\.95 for 95 %"):
        checked_level(95)
    with pytest.raises(ReconciliationError, match=r"'bonferroni' or None, but got 'sidac'\. Did you mean 'sidak'"):
        checked_correction("sidac")
