"""A logbook says of each sensor and balance what the reconciliation it was made from says."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from equipoise.balances.linear import LinearConstraint
from equipoise.reconciliation import reconcile, summary_sentences
from equipoise.reconciliation.logbook import alarms_exceed_chance, significant_suspects

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
    (suspect,) = [c for c, count in zip(log.candidates, log.totals.errors.count, strict=True) if count]
    assert suspect.name == "a [kg/s]"
    assert [other.name for other in log.alike(suspect)] == ["first"]


def test_logbooks_of_pieces_add_up_to_that_of_the_table(result):
    first, second = (reconcile(rows, 0.5, CHAIN, tolerance={"third": 0.2}) for rows in (TABLE[:1], TABLE[1:]))
    both, whole = first.logbook() + second.logbook(), result.logbook()
    pd.testing.assert_frame_equal(both.sensors(), whole.sensors(), rtol=1e-9)
    pd.testing.assert_frame_equal(both.balances(), whole.balances(), rtol=1e-9)


METERS = ["a [kg/s]", "b [kg/s]", "c [kg/s]", "d [kg/s]"]
METER_CHAIN = LinearConstraint.from_equations({"first": "a = b", "second": "b = c", "third": "c = d"}, outputs=METERS)
ROWS = 2000


def log(bias=None, leak=False, missing=(), rows=ROWS, seed=0):
    """A logbook of one flow through four meters, with a biased meter, or a leak before the last two."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(5, 9, (rows, 1)) + 0.1 * rng.normal(size=(rows, 4))
    if bias is not None:
        values[: rows // 4, bias] -= 1.0
    if leak:
        values[: rows // 4, 2:] -= 1.0
    values[:, list(missing)] = np.nan
    return reconcile(values, 0.1, METER_CHAIN).logbook()


@pytest.mark.parametrize("seed", range(5))
def test_without_gross_errors_alarms_are_called_chance_and_nobody_is_named(seed):
    found = log(seed=seed)
    assert 0 < found.totals.alarms < 0.07 * ROWS
    (sentence,) = summary_sentences(found)
    assert sentence.endswith("fail the global test at 95 %: no more than chance gives.")
    assert not alarms_exceed_chance(found)


def test_a_lying_sensor_is_named_with_rows_sign_size_and_unit():
    found = log(bias=1)
    first, second = summary_sentences(found)
    assert first.startswith(f"{found.totals.alarms:,} of 2,000 rows (")
    assert first.endswith("chance would give 100.")
    assert [candidate.name for candidate in significant_suspects(found)] == ["b [kg/s]"]
    count = found.totals.errors.count[1]
    assert 490 <= count <= 560
    assert second.startswith(f"Sensor 'b [kg/s]' is the suspect in {count} rows: it shows ")
    assert second.endswith(" kg/s too little.")
    assert abs(float(second.split("it shows ")[1].split()[0]) - 1.0) < 0.05


def test_a_steady_bias_of_one_sigma_is_named_alone_with_its_size():
    values = np.random.default_rng(1).normal(0.0, 0.1, (5000, 4)) + 7.0
    values[:, 1] += 0.1
    found = reconcile(values, 0.1, METER_CHAIN).logbook()
    assert found.totals.errors.count[1] < 0.05 * 5000 + 3 * np.sqrt(0.05 * 0.95 * 5000)  # what chance gives to all
    assert [candidate.name for candidate in significant_suspects(found)] == ["b [kg/s]"]
    (sentence,) = summary_sentences(found)[1:]
    size, half = (float(sentence.split(word)[1].split()[0]) for word in ("it shows ", "± "))
    assert abs(size - 0.1) < 1.5 * half < 0.1


def test_without_gross_errors_hardly_any_table_names_somebody(long_training):
    named = [bool(significant_suspects(log(rows=300, seed=seed))) for seed in range(100)]
    assert sum(named) <= 2  # 0.00135 of them, and twice that for the grain of small counts


@pytest.mark.parametrize("expected", [0.5, 4.0, 30.0])
def test_a_count_stands_out_where_its_poisson_tail_is_that_of_three_sigma_shared_by_all_candidates(expected):
    quiet = log(rows=300)
    n = len(quiet.candidates)
    tail = stats.poisson.sf(np.arange(100) - 1, expected)  # of as many, or more
    least = int(np.argmax(tail < stats.norm.sf(3) / n))
    for count, named in ((least - 1, []), (least, [quiet.candidates[1]])):
        counts = np.where(np.arange(n) == 1, count, 0)
        errors = replace(quiet.totals.errors, sizes=replace(quiet.totals.errors.sizes, count=counts))
        totals = replace(quiet.totals, expected_alarms=np.full(n, expected), errors=errors)
        assert significant_suspects(replace(quiet, totals=totals)) == named


def test_errors_without_a_direction_are_not_given_one_and_standard_deviations_are_doubted():
    values = np.random.default_rng(2).normal(7.0, 0.3, (2000, 4))
    first, *others = summary_sentences(reconcile(values, 0.1, METER_CHAIN).logbook())
    assert "chance would give 100" in first
    assert not any("too much" in sentence or "too little" in sentence for sentence in others)
    assert re.search(r"rows, with errors of both signs, typically 0\.\d+ kg/s", others[0])
    assert others[-1] == "Errors of both signs may mean that the standard deviations given are too small."
    assert "too small" not in " ".join(summary_sentences(log(bias=1)))


def test_if_most_stand_out_standard_deviations_are_doubted_whatever_the_signs():
    values = np.random.default_rng(3).normal(7.0, 0.3, (2000, 4)) + np.array([0.0, 0.3, 0.0, 0.0])
    *_, last = summary_sentences(reconcile(values, 0.1, METER_CHAIN).logbook())
    assert last == "Errors in most sensors and balances may mean that the standard deviations given are too small."


def test_a_leak_is_named_with_the_side_that_has_more():
    found = log(leak=True)
    _, second = summary_sentences(found)
    assert second.startswith("Balance 'second' is the suspect in ")
    assert second.endswith(" kg/s more than its right side.")


def test_what_cannot_be_told_apart_is_said():
    _, second, *_ = summary_sentences(log(bias=0))
    assert second.startswith("Sensor 'a [kg/s]' is the suspect")
    assert second.endswith("; balance 'first' would explain it as well.")


def test_what_is_not_checked_calculated_or_unknown_is_said():
    pair = LinearConstraint.from_equations({"sum": "a = b + c"}, outputs=["a", "b", "c", "idle"])
    unknown = reconcile([[3.0, np.nan, np.nan, 1.0]], 0.1, pair).logbook()
    assert summary_sentences(unknown) == [
        "None of 1 rows can be tested: too little is measured, and every value would be believed.",
        "No balance checks 'a' and 'idle': an error there cannot be seen.",
        "Nothing determines 'b' and 'c' in up to 1 rows: no number is given there. Measure more.",
    ]
    calculated = reconcile([[3.0, 1.0, np.nan, 1.0], [3.0, 1.0, 2.0, 1.0]], 0.1, pair).logbook()
    assert summary_sentences(calculated)[0] == (
        "0 of 1 rows fail the global test at 95 %: no more than chance gives. "
        "1 more cannot be tested: too little is measured there."
    )
    assert "Calculated from the others where not measured: 'c'." in summary_sentences(calculated)
