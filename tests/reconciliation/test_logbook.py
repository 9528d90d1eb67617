"""A logbook says of each sensor and balance what the reconciliation it was made from says."""

import numpy as np
import pandas as pd
import pytest

from equipoise.balances.linear import LinearConstraint
from equipoise.reconciliation import reconcile

NAMES = ["a [kg/s]", "b [kg/s]", "c [kg/s]", "d [kg/s]", "lost"]
CHAIN = LinearConstraint.from_equations({"first": "a = b", "second": "b = c", "third": "c = d + lost"}, outputs=NAMES)
NAN = np.nan
TABLE = np.array(
    [
        [10.0, 10.2, 13.9, 13.0, NAN],
        [10.0, 10.1, 9.9, 9.5, NAN],
        [10.0, 10.1, 9.9, NAN, NAN],
        [10.1, 10.0, 14.2, NAN, NAN],
    ]
)


@pytest.fixture
def result():
    return reconcile(TABLE, 0.5, CHAIN, tolerance={"third": 0.2})


def test_variables_have_means_half_widths_classes_and_alarms(result):
    sensors = result.logbook().sensors()
    assert list(sensors.index) == NAMES
    assert list(sensors["unit"]) == ["kg/s", "kg/s", "kg/s", "kg/s", ""]
    assert sensors.loc["lost", "class"] in ("unmeasured observable", "unmeasured unobservable")
    assert list(sensors["class"])[:3] == ["measured redundant"] * 3
    np.testing.assert_allclose(sensors["measured"].iloc[:4], np.nanmean(TABLE[:, :4], axis=0))
    np.testing.assert_allclose(sensors["reconciled"].iloc[:3], result.values[:, :3].mean(axis=0))
    np.testing.assert_allclose(sensors["± before"].iloc[:4], 1.959964 * 0.5, rtol=1e-6)
    after = np.sqrt(np.nanmean(np.square(result.half_widths.after), axis=0))
    np.testing.assert_allclose(sensors["± after"], after)
    assert sensors.loc["c [kg/s]", ["alarms", "suspect"]].tolist() == [2, 2]
    sizes = result.likelihood_ratio_test().size[[0, 3], 2]
    np.testing.assert_allclose(sensors.loc["c [kg/s]", "error"], sizes.mean(), rtol=1e-4)  # far above the limit
    scatter = np.maximum(np.std(sizes, ddof=1), result.likelihood_ratio_test().std[[0, 3], 2].mean())
    np.testing.assert_allclose(sensors.loc["c [kg/s]", "± error"], 1.959964 * scatter / np.sqrt(2), rtol=1e-2)
    assert list(sensors["readings"]) == [4, 4, 4, 2, 0]


def test_balances_have_residuals_where_they_are_known_and_tolerances(result):
    balances = result.logbook().balances()
    assert list(balances["tolerance"]) == [0.0, 0.0, 0.2]
    assert list(balances["rows"]) == [4, 4, 0]
    np.testing.assert_allclose(balances["residual"].iloc[:2], result.residuals.before[:, :2].mean(axis=0))
    np.testing.assert_allclose(balances["residual std"].iloc[:2], result.residuals.before[:, :2].std(axis=0, ddof=1))
    assert np.isnan(balances.loc["third", "residual"])
    assert balances.loc["second", "nodal alarms"] == 2


def test_what_nothing_determines_and_what_is_calculated_is_listed(result):
    log = result.logbook()
    assert log.unobservable == ("d [kg/s]", "lost")
    assert log.calculated == ("lost",)


def test_those_that_would_explain_as_much_are_named():
    log = reconcile([[10.0, 14.0, 14.1, 9.0, 5.0]] * 3, 0.5, CHAIN).logbook()
    (suspect,) = [c for c, count in zip(log.candidates, log.tally.errors.count, strict=True) if count]
    assert suspect.name == "a [kg/s]"
    assert [other.name for other in log.alike(suspect)] == ["first"]


def test_logbooks_of_pieces_add_up_to_that_of_the_table(result):
    first, second = (reconcile(rows, 0.5, CHAIN, tolerance={"third": 0.2}) for rows in (TABLE[:1], TABLE[1:]))
    both, whole = first.logbook() + second.logbook(), result.logbook()
    pd.testing.assert_frame_equal(both.sensors(), whole.sensors(), rtol=1e-9)
    pd.testing.assert_frame_equal(both.balances(), whole.balances(), rtol=1e-9)
