import numpy as np
import pandas as pd
import pytest
import scipy.stats

from equipoise.balances.linear import LinearConstraint
from equipoise.reconciliation import Candidate, reconcile

NAMES = ["a [kg/s]", "b [kg/s]", "c [kg/s]", "idle"]
CHAIN = LinearConstraint.from_equations({"first": "a = b", "second": "b = c"}, outputs=NAMES)
TABLE = [[10.0, 10.2, 14.2, 1.0], [10.0, 10.1, 9.9, 1.0], [15.5, 10.1, 9.9, 1.0]]


def test_a_candidate_says_what_and_in_which_unit():
    assert str(Candidate("a [kg/s]", "sensor", "kg/s")) == "sensor 'a [kg/s]'"
    assert str(Candidate("mass", "balance", "kg/s")) == "balance 'mass' [kg/s]"
    assert str(Candidate("split", "balance", None)) == "balance 'split'"


def test_the_global_test_says_number_threshold_and_verdict():
    quiet, loud = (reconcile(TABLE[i], 1.0, CHAIN).global_test() for i in (1, 0))
    assert repr(quiet) == "Global test at 0.95: 0.0200 ≤ 5.9915 (χ², 2 degrees of freedom): no alarm"
    assert "11.2267 > 5.9915" in repr(loud)
    assert loud.alarm
    assert loud.p_value == pytest.approx(np.exp(-loud.statistic / 2))  # χ² with 2 degrees of freedom
    assert not reconcile(TABLE[0], 1.0, CHAIN).global_test(0.9999).alarm


def test_a_row_with_nothing_to_test_says_so():
    alone = reconcile([10.0, np.nan, np.nan, 1.0], 1.0, CHAIN)
    assert repr(alone.global_test()) == "Global test at 0.95: nothing to test"
    assert repr(alone.measurement_test()) == "Measurement test at 0.95 together, by Šidák: nothing to test"


def test_the_global_test_of_a_table_has_a_line_for_each_row():
    frame = pd.DataFrame(TABLE, columns=NAMES, index=["mon", "tue", "wed"])
    test = reconcile(frame, 1.0, CHAIN).global_test()
    assert repr(test) == "Global test at 0.95: alarm in 2 of 3 rows"
    lines = test.to_frame()
    assert list(lines.index) == ["mon", "tue", "wed"]
    assert list(lines["alarm"]) == [True, False, True]
    assert list(lines["degrees of freedom"]) == [2, 2, 2]


def test_one_row_has_a_line_for_each_candidate_with_name_and_unit():
    test = reconcile(TABLE[0], 1.0, CHAIN).likelihood_ratio_test()
    lines = test.to_frame()
    assert list(lines["name"]) == [*NAMES, "first", "second"]
    assert list(lines["kind"]) == ["sensor"] * 4 + ["balance"] * 2
    assert list(lines["unit"]) == ["kg/s"] * 3 + [""] + ["kg/s"] * 2
    assert list(lines["alarm"]) == [False, False, True, False, False, True]
    np.testing.assert_allclose(lines["size"], test.size)
    text = repr(test)
    assert "sensor 'c [kg/s]': z = 3.348, bias 4.1 ± 2.4 kg/s, ALARM" in text
    assert "sensor 'idle': cannot be tested" in text
    assert "balance 'second' [kg/s]: z = -3.348, leak -4.1 ± 2.4 kg/s, ALARM" in text
    assert scipy.stats.norm.isf((1 - 0.95 ** (1 / 3)) / 2) == pytest.approx(
        2.388, abs=5e-4
    )  # a, b, c; leaks are a and c
    assert "at 0.95 together, by Šidák: |z| ≤ 2.388; ± half of the 95 % interval" in text
    assert 1.959964 * test.size_std[2] == pytest.approx(2.4, abs=5e-4)
    assert "each" in repr(reconcile(TABLE[0], 1.0, CHAIN).measurement_test(correction=None))


def test_a_table_has_a_line_for_each_alarm_and_one_for_each_sensor():
    frame = pd.DataFrame(TABLE, columns=NAMES, index=["mon", "tue", "wed"])
    test = reconcile(frame, 1.0, CHAIN).measurement_test()
    lines = test.to_frame()
    assert list(lines.index) == ["mon", "wed"]
    assert list(lines["name"]) == ["c [kg/s]", "a [kg/s]"]
    assert list(test.suspect) == ["c [kg/s]", None, "a [kg/s]"]
    summary = test.summary()
    assert list(summary.index) == NAMES
    assert list(summary["alarms"]) == list(summary["worst"]) == [1, 0, 1, 0]
    assert list(summary["rows"]) == [3, 3, 3, 0]
    np.testing.assert_allclose(summary["size at alarms"], [5.5, np.nan, 4.1, np.nan])
    expected = np.array(TABLE)[:, 0] - np.array(TABLE)[:, 1:3].mean(axis=1)
    assert summary.loc["a [kg/s]", "size"] == pytest.approx(expected.mean())
    assert summary.loc["a [kg/s]", "size std"] == pytest.approx(expected.std(ddof=1) / np.sqrt(3))
    assert np.isnan(summary.loc["idle", "size"])
    assert "sensor 'a [kg/s]': alarm in 1 of 3 rows" in repr(test)


def test_p_values_are_two_sided_tails():
    test = reconcile(TABLE[0], 1.0, CHAIN).measurement_test()
    assert test.p_value[2] == pytest.approx(2 * scipy.stats.norm.sf(test.statistic[2]))
    assert np.isnan(test.p_value[3])


def test_rows_keep_the_index_of_their_table():
    index = pd.MultiIndex.from_tuples([("mon", 1), ("mon", 2), ("tue", 1)], names=["day", "shift"])
    result = reconcile(pd.DataFrame(TABLE, columns=NAMES, index=index), 1.0, CHAIN)
    assert list(result.measurement_test().to_frame().index) == [("mon", 1), ("tue", 1)]
    assert list(result.serial_elimination().to_frame().index.names) == ["day", "shift"]
    days = pd.DataFrame(TABLE, columns=NAMES, index=pd.date_range("2024-01-01", periods=3, name="day"))
    assert reconcile(days, 1.0, CHAIN).global_test().to_frame().index.name == "day"
    assert reconcile(TABLE, 1.0, CHAIN).global_test().to_frame().index.name == "row"
