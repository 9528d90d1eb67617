"""What data say before training: against residuals by hand, and the standardizer's own arithmetic."""

import math

import numpy as np
import pytest
import torch

from equipoise.balances.linear import LinearConstraint
from equipoise.data import table_passes
from equipoise.data.preparation import TrainingData, obeyed_to_rounding, resolve_sensor_std, tolerance_by_balance
from equipoise.data.scaling import Standardizer
from equipoise.gaussian.tolerance import TolerancePrior

EPS = 2.0**-52
OUTPUTS = ("a", "b", "total", "c")
BALANCES = LinearConstraint.from_equations(
    {"sum": "total = a + b", "same": "c = a"}, inputs=["x"], outputs=[f"{name} [kg]" for name in OUTPUTS]
)


def table(miss: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Rows that obey the first balance to rounding, all but one of them; the second is missed by far."""
    rng = np.random.default_rng(0)
    x, a, b, c = rng.normal(size=(4, 30))
    total = a + b
    total[4] += miss
    return x[:, None], np.stack([a, b, total, c], 1)


def prepared(sensor_std=None, miss: float = 0.0, constraint=BALANCES, obeyed=(True, False)) -> TrainingData:
    X, Y = table(miss)
    standardizer = Standardizer.fit(X, Y, constraint)
    return TrainingData(X, Y, EPS, standardizer, np.array(obeyed, dtype=bool), sensor_std)


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_the_unit_does_not_decide_whether_a_balance_is_obeyed(unit):
    for miss, obeyed in ((0.0, True), (1e-9, False)):
        X, Y = table(miss)
        assert obeyed_to_rounding(BALANCES, X, unit * Y, EPS).tolist() == [obeyed, False]


def test_a_balance_is_obeyed_only_if_every_row_obeys_it_to_rounding():
    assert obeyed_to_rounding(BALANCES, *table(), EPS).tolist() == [True, False]
    assert obeyed_to_rounding(BALANCES, *table(miss=1e-9), EPS).tolist() == [False, False]
    assert obeyed_to_rounding(BALANCES, *table(miss=1e-9), 2.0**-23).tolist() == [True, False]  # single precision
    assert obeyed_to_rounding(None, *table(), EPS).shape == (0,)


@pytest.mark.parametrize("miss", [0.0, 1e-9])
def test_a_long_table_says_of_balances_what_a_short_one_says(monkeypatch, miss):
    whole, rounding = obeyed_to_rounding(BALANCES, *table(miss), EPS), prepared(miss=miss).rounding()
    monkeypatch.setattr(table_passes, "PIECE", 4)
    assert obeyed_to_rounding(BALANCES, *table(miss), EPS).tolist() == whole.tolist()
    assert prepared(miss=miss).rounding().tolist() == pytest.approx(rounding.tolist(), rel=1e-12)


@pytest.mark.parametrize(("n_measured", "obeyed"), [(3, True), (2, False)])
def test_three_rows_at_least_must_say_so(n_measured, obeyed):
    X, Y = table()
    Y[n_measured:, 0] = np.nan
    assert obeyed_to_rounding(BALANCES, X, Y, EPS)[0] == obeyed


def test_a_balance_to_be_learned_that_is_obeyed_is_exact_and_others_are_as_said():
    prior, names, obeyed = TolerancePrior(), ("one", "two", "three"), np.array([True, True, False])
    assert tolerance_by_balance(None, names, obeyed) == {"one": 0.0, "two": 0.0, "three": None}
    assert tolerance_by_balance(prior, names, obeyed) == {"one": 0.0, "two": 0.0, "three": prior}
    assert tolerance_by_balance(0.3, names, obeyed) == dict.fromkeys(names, 0.3)
    tolerance = {"one": 0.3, "three": prior}
    assert tolerance_by_balance(tolerance, names, obeyed) == {"one": 0.3, "two": 0.0, "three": prior}
    assert tolerance == {"one": 0.3, "three": prior}


def sensors(said, likelihood="joint", constraint=BALANCES, obeyed=(True, False)):
    return resolve_sensor_std(said, OUTPUTS, 30, constraint, likelihood == "joint", np.array(obeyed, dtype=bool))


def test_sensors_are_learned_where_balances_tell_of_them_and_none_is_obeyed_to_rounding():
    np.testing.assert_array_equal(sensors("learn"), [0, 0, 0, np.nan])  # a is in a balance that is obeyed, too
    np.testing.assert_array_equal(sensors("learn", obeyed=(False, False)), [np.nan] * 4)
    lone = LinearConstraint([[1, -1, 0, 0]])
    np.testing.assert_array_equal(sensors("learn", constraint=lone, obeyed=(False,)), [np.nan, np.nan, 0, 0])
    np.testing.assert_array_equal(sensors({"a": 0.1}, obeyed=(False, False)), [0.1, np.nan, np.nan, np.nan])


def test_nothing_is_learned_of_sensors_without_balances_or_where_measurements_are_the_truth():
    assert sensors("learn", constraint=None, obeyed=()) is None
    assert sensors("learn", likelihood="marginal") is None
    assert sensors(None) is None
    np.testing.assert_array_equal(sensors(0.1, constraint=None, obeyed=()), [0.1] * 4)
    with pytest.raises(ValueError, match=r"must be None or 'learn' with likelihood='marginal'.*but got 0.1\. Use"):
        sensors(0.1, likelihood="marginal")


def test_rows_are_the_data_in_standardized_units():
    data = prepared(sensor_std=np.full((30, 4), 0.2))
    rows, s = data.rows(np.arange(30)), data.standardizer
    np.testing.assert_allclose(rows.x.numpy(), (data.X - data.X.mean(0)) / data.X.std(0), rtol=1e-5)
    np.testing.assert_allclose(rows.y.numpy(), (data.Y - data.Y.mean(0)) / data.Y.std(0), rtol=1e-12)
    assert rows.target is not None
    np.testing.assert_allclose(rows.y.numpy()[:, :3] @ s.B[0, :3], rows.target[:, 0].numpy(), atol=1e-12)
    assert rows.sensor_var is not None
    np.testing.assert_allclose(rows.sensor_var[3].numpy(), 0.04 / data.Y.var(0), rtol=1e-12)
    assert data.sensor() is None  # known for each row


def test_sensors_that_are_the_same_for_all_rows_are_no_part_of_the_rows():
    data = prepared(sensor_std=np.array([0.1, 0.0, 0.0, np.nan]))
    assert data.rows(np.arange(30)).sensor_var is None
    sensor = data.sensor()
    assert sensor is not None
    assert sensor.learned.tolist() == [False, False, False, True]
    np.testing.assert_allclose(sensor.median()[0].item(), 0.01 / data.Y[:, 0].var(), rtol=1e-12)


def test_without_balances_there_is_nothing_to_condition_on():
    data = prepared(constraint=None, obeyed=())
    assert data.conditioning({}, True) is None
    assert data.rounding() is None
    assert data.rows(np.arange(30)).target is None


def test_a_balance_that_is_a_fact_gets_no_offset():
    layer = prepared().conditioning({"sum": 0.0, "same": 0.0}, True)
    assert layer is not None
    assert layer.tolerance.median().tolist() == [0.0, 0.0]
    assert layer.offset is not None
    assert layer.offset.learned.tolist() == [False, True]


def test_a_tolerance_is_in_the_balances_own_unit():
    data = prepared()
    layer = data.conditioning({"sum": 0.5, "same": None}, False)
    assert layer is not None
    scale = math.sqrt(data.Y[:, :3].var(0).sum())
    assert layer.tolerance.median()[0].item() == pytest.approx((0.5 / scale) ** 2)
    assert layer.tolerance.learned.tolist() == [False, True]


def test_rounding_is_measured_against_the_terms_of_a_balance():
    data = prepared()
    terms = np.abs(data.Y[:, :3]).sum(1).max()
    rounding = data.rounding()
    assert rounding is not None
    assert rounding[0].item() == pytest.approx(1e-9 * terms / math.sqrt(data.Y[:, :3].var(0).sum()))
    assert data.relative_rounding == 64 * EPS


def test_noise_free_sensors_that_contradict_an_exact_balance_are_refused_by_its_name():
    exact = prepared(obeyed=(False, False)).conditioning({"sum": 0.0, "same": 0.5}, False)
    assert exact is not None
    refused = prepared(miss=0.25, obeyed=(False, False))
    with pytest.raises(ValueError, match=r"'sum' is exact .* but the data miss it by up to 0.25 kg. Give its outputs"):
        refused.check_exact(exact.tolerance)
    for sensor_std in ([0, 0.1, 0, 0], [0, 0, np.nan, 0]):  # one of its sensors may be off
        prepared(np.array(sensor_std), miss=0.25, obeyed=(False, False)).check_exact(exact.tolerance)
    prepared(miss=1e-10, obeyed=(False, False)).check_exact(exact.tolerance)
    with pytest.raises(ValueError, match="'sum' is exact"):
        prepared(np.array([0, 0, 0, 0.1]), miss=0.25, obeyed=(False, False)).check_exact(exact.tolerance)


def test_rows_are_in_the_precision_that_their_use_wants():
    rows = prepared().rows(np.arange(30))
    assert (rows.x.dtype, rows.y.dtype) == (torch.float32, torch.float64)
