"""Sums over rows against those of the tests they are made of, and of a whole table against those of its pieces."""

import numpy as np
import pytest
import scipy.stats

from equipoise.balances.linear import LinearConstraint
from equipoise.reconciliation import reconcile
from equipoise.reconciliation.totals import LISTED, equally_suspect

NAMES = ["feed [kg/s]", "top [kg/s]", "bottom [kg/s]", "gas [kg/s]", "oil [kg/s]"]
FLOWS = LinearConstraint.from_equations({"column": "feed = top + bottom", "still": "bottom = gas + oil"}, outputs=NAMES)
FEED, TOP, BOTTOM, GAS, OIL = range(5)


def readings(rows=400, seed=0):
    rng = np.random.default_rng(seed)
    top, gas, oil = rng.uniform(2, 5, (3, rows))
    values = np.column_stack([top + gas + oil, top, gas + oil, gas, oil]) + 0.1 * rng.normal(size=(rows, 5))
    values[rows // 2 :, BOTTOM] += 1.0
    values[::7, OIL] = np.nan
    values[::50, [GAS, OIL]] = np.nan
    return values


def totals_of(values, time=None):
    return reconcile(values, 0.1, FLOWS).logbook(time).totals


def test_totals_of_pieces_are_those_of_the_whole():
    values = readings()
    whole = totals_of(values)
    pieces = totals_of(values[:150]) + totals_of(values[150:151]) + totals_of(values[151:])
    assert (
        (pieces.rows, pieces.tested, pieces.alarms)
        == (whole.rows, whole.tested, whole.alarms)
        == (400, 400, whole.alarms)
    )
    for name in ("classes", "candidate_alarms", "alike", "nodal_alarms"):
        np.testing.assert_array_equal(getattr(pieces, name), getattr(whole, name))
    for name in ("measured", "reconciled", "adjustments", "var_before", "var_after", "residuals"):
        for moment in ("count", "mean", "std"):
            expected = getattr(getattr(whole, name), moment)
            np.testing.assert_allclose(getattr(getattr(pieces, name), moment), expected, rtol=1e-9, atol=1e-12)
    for name in ("count", "size", "standard_error", "typical"):
        np.testing.assert_allclose(getattr(pieces.errors, name), getattr(whole.errors, name), rtol=1e-9)
    np.testing.assert_allclose(pieces.expected_alarms, whole.expected_alarms)
    assert pieces.worst_rows.incidents == whole.worst_rows.incidents


def test_counts_are_those_of_the_tests_they_are_made_of():
    result = reconcile(readings(), 0.1, FLOWS)
    test, nodal = result.likelihood_ratio_test(), result.nodal_test()
    found, summary = result.logbook().totals, test.summary()
    assert found.alarms == result.global_test().alarm.sum()
    np.testing.assert_array_equal(found.candidate_alarms, summary["alarms"])
    np.testing.assert_array_equal(found.errors.count, summary["worst"])
    np.testing.assert_array_equal(found.nodal_alarms, nodal.summary()["alarms"])
    np.testing.assert_allclose(found.residuals.mean, np.nanmean(result.residuals.before, axis=0))
    suspected = result.likelihood_ratio_test().suspect == "bottom [kg/s]"
    np.testing.assert_allclose(found.errors.sizes.mean[BOTTOM], test.size[suspected, BOTTOM].mean())
    assert abs(found.errors.size[BOTTOM] - 1.0) < 0.05
    alone = scipy.stats.norm.sf(test.limit) * 2
    np.testing.assert_allclose(found.expected_alarms, (~np.isnan(test.z) * alone[:, None]).sum(axis=0))


def test_classes_count_the_rows_of_each_pattern():
    classes = totals_of(readings()).classes
    both, one = 8, 58 - 2  # every 50th row lacks gas and oil; of every 7th, 2 are among them
    np.testing.assert_array_equal(classes[OIL], [400 - both - one, 0, one, both])
    np.testing.assert_array_equal(classes[GAS], [400 - both - one, one, 0, both])
    np.testing.assert_array_equal(classes[FEED], [400, 0, 0, 0])


def test_candidates_that_no_balance_tells_apart_are_equally_suspect():
    result = reconcile([[12.0, 4.0, 5.0, 2.0, 3.0], [9.0, 4.0, 5.0, 2.0, 3.0]], 0.1, FLOWS)
    test = result.likelihood_ratio_test()
    names = np.array([candidate.name for candidate in test.candidates])
    same = equally_suspect(test)
    assert list(names[same[0]]) == ["feed [kg/s]", "top [kg/s]", "column"]
    assert not same[1].any()
    alike = result.logbook().totals.alike
    np.testing.assert_array_equal(alike[FEED], [1, 1, 0, 0, 0, 1, 0])
    assert alike.sum() == 3


@pytest.mark.parametrize("cut", [1, 200, 399])
def test_the_worst_rows_are_those_that_miss_their_threshold_by_most(cut):
    values = readings()
    when = np.datetime64("2026-03-01") + np.arange(400) * np.timedelta64(1, "h")
    result = reconcile(values, 0.1, FLOWS)
    excess = result.statistic / result.threshold
    incidents = (totals_of(values[:cut], when[:cut]) + totals_of(values[cut:], when[cut:])).worst_rows.incidents
    rows = [incident.row for incident in incidents]
    assert rows == list(np.argsort(-excess, kind="stable")[:LISTED])
    assert [incident.time for incident in incidents] == list(when[rows])
    test = result.likelihood_ratio_test()
    assert [getattr(incident.suspect, "name", None) for incident in incidents] == list(test.suspect[rows])
    assert "bottom [kg/s]" in test.suspect[rows]
    for incident in incidents:
        assert incident.suspect is not None
        j = test.candidates.index(incident.suspect)
        assert (incident.size, incident.size_std) == pytest.approx(
            (test.size[incident.row, j], test.size_std[incident.row, j])
        )


def test_a_row_that_fails_without_a_suspect_is_listed_without_one():
    pairs = LinearConstraint.from_equations({"x": "a = b", "y": "c = d", "z": "e = f"}, outputs=list("abcdef"))
    result = reconcile([[0.0, 2.6, 0.0, 2.6, 0.0, 2.6]], 1.0, pairs)  # each is missed a little: 3 × 2.6²/2 > 7.81
    (incident,) = result.logbook().totals.worst_rows.incidents
    assert incident.statistic == pytest.approx(3 * 2.6**2 / 2)
    assert incident.suspect is None
    assert np.isnan(incident.size)
