import numpy as np
import pandas as pd
import polars as pl
import pytest

from equipoise.reconciliation import ReconciliationError
from equipoise.reconciliation.readings import readings

NAN = float("nan")
OUTPUTS = ("top [kg/s]", "bottom [kg/s]", "duty [kW]")


def read(measured, std=None, n_rows=2, **names):
    return readings(measured, std, OUTPUTS, n_rows, **names)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, dict])
def test_columns_are_taken_by_name_and_missing_ones_are_not_read(library):
    found = read(library({"duty [kW]": [5.0, None], "top [kg/s]": [1.0, 2.0]}))
    np.testing.assert_array_equal(found.values, [[1.0, NAN, 5.0], [2.0, NAN, NAN]])
    np.testing.assert_array_equal(found.measured, [[True, False, True], [True, False, False]])


def test_a_table_without_names_is_taken_in_the_order_of_the_outputs():
    np.testing.assert_array_equal(read([[1, 2, 3], [4, 5, NAN]]).values, [[1, 2, 3], [4, 5, NAN]])


def test_one_output_may_be_a_plain_list():
    np.testing.assert_array_equal(readings([1.0, 2.0], 0.1, ("a",), 2).values, [[1.0], [2.0]])


@pytest.mark.parametrize(
    ("std", "expected"),
    [
        (None, [[NAN] * 3] * 2),
        (0.5, [[0.5] * 3] * 2),
        ([1, 2, 3], [[1, 2, 3]] * 2),
        ([[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6]]),
        ({"duty [kW]": 0.2}, [[NAN, NAN, 0.2]] * 2),
        (pd.Series({"duty [kW]": 0.2}), [[NAN, NAN, 0.2]] * 2),
        (pd.DataFrame({"bottom [kg/s]": [1.0, 2.0]}), [[NAN, 1, NAN], [NAN, 2, NAN]]),
    ],
)
def test_standard_deviations_come_in_many_forms_and_what_is_not_said_is_the_models(std, expected):
    np.testing.assert_array_equal(read(np.ones((2, 3)), std).std, expected)


def test_an_infinite_standard_deviation_is_no_reading():
    np.testing.assert_array_equal(read(np.ones((2, 3)), [1.0, np.inf, NAN]).measured, [[True, False, True]] * 2)


def test_columns_of_inputs_may_stand_beside_the_readings():
    table = pd.DataFrame({"feed": [7.0, 8.0], "top [kg/s]": [1.0, 2.0]})
    np.testing.assert_array_equal(read(table, others=("feed",)).values[:, 0], [1.0, 2.0])


def test_rows_have_the_names_of_the_readings_or_else_of_the_inputs():
    table = pd.DataFrame({"top [kg/s]": [1.0, 2.0]}, index=["mon", "tue"])
    assert list(read(table).labels) == ["mon", "tue"]
    assert list(read(np.ones((2, 3)), labels=pd.Index(["a", "b"])).labels) == ["a", "b"]
    assert list(read(np.ones((2, 3))).labels) == [0, 1]


def test_instruments_can_be_left_out():
    found = read(np.ones((2, 3))).without(["bottom [kg/s]"])
    np.testing.assert_array_equal(found.measured, [[True, False, True]] * 2)


@pytest.mark.parametrize(
    ("measured", "std", "complaint"),
    [
        ({"top [kg/h]": [1, 2]}, None, r"measured must name outputs.*'top \[kg/h\]'.*mean 'top \[kg/s\]'"),
        (np.ones((2, 2)), None, r"2 rows, like X, and 3 columns \('top.*but got shape \(2, 2\)"),
        (np.ones((3, 3)), None, r"measured must have 2 rows.*but got shape \(3, 3\)"),
        ({"top [kg/s]": [1, 2, 3]}, None, r"measured must have 2 rows, like X, but got 3 for 'top \[kg/s\]'"),
        ({"top [kg/s]": [1, "on"]}, None, r"measured of 'top \[kg/s\]' must hold numbers, but got \[1, 'on'\]"),
        ([[1, 2, 3], [4, -np.inf, 6]], None, r"must be finite, but got -inf for 'bottom \[kg/s\]' in row 1"),
        (np.ones((2, 3)), -0.1, r"std must hold numbers ≥ 0, but got -0.1 for 'top \[kg/s\]'"),
        (np.ones((2, 3)), {"duty [kw]": 1.0}, r"std must name outputs.*'duty \[kw\]'.*'duty \[kW\]'"),
        (np.ones((2, 3)), [1.0, 2.0], r"std must have 2 rows.*but got shape \(2,\)"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(measured, std, complaint):
    with pytest.raises(ReconciliationError, match=complaint):
        read(measured, std)


def test_an_unknown_instrument_to_leave_out_is_refused():
    with pytest.raises(ReconciliationError, match=r"names of outputs, but got 'duty'.*'duty \[kW\]'"):
        read(np.ones((2, 3))).without(["duty"])
