"""Tables on their way in: what is taken from them, and what is refused by column and row."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest

from equipoise.balances.linear import LinearConstraint
from equipoise.data.scaling import Standardizer
from equipoise.data.table_checks import (
    InputRangeError,
    check_inputs,
    check_outputs,
    check_range,
    match_constraint,
    output_names,
)
from equipoise.estimator import ConstrainedBNNRegressor

SUM = LinearConstraint.from_equations("total = a + b + feed", inputs=["x"], known=["feed"], outputs=["a", "b", "total"])


def taken(X, columns=()):
    return check_inputs(ConstrainedBNNRegressor(), X, columns, reset=True)


def test_named_columns_are_taken_in_their_order_from_frames_of_any_kind():
    table = pd.DataFrame({"z": [1.0, 2.0, 5.0], "other": [0.0, 0.0, 0.0], "x": [3, 4, 6]})
    for frame in (table, pl.from_pandas(table)):
        np.testing.assert_array_equal(taken(frame, ["x", "z"]), [[3, 1], [4, 2], [6, 5]])


def test_arrays_are_taken_as_they_are():
    np.testing.assert_array_equal(taken([[1, 2], [3, 4], [5, 6]], ["x", "z"]), [[1, 2], [3, 4], [5, 6]])


@pytest.mark.parametrize(
    ("value", "got"), [("Bad", "'Bad' in column 'z', row 1"), (np.nan, "nan in column 'z', row 1")]
)
def test_an_input_that_is_no_finite_number_is_named_with_its_column_and_row(value, got):
    with pytest.raises(ValueError, match=f"X must hold finite numbers only, but got {got}. Drop it or fill it in"):
        taken(pd.DataFrame({"x": [1.0, 2.0], "z": [3.0, value]}))


def test_a_number_beyond_all_measure_is_named_in_memory_as_in_a_file(tmp_path):
    values = np.array([[1.0, 2.0], [3.0, -1e160], [5.0, 6.0]])
    np.save(tmp_path / "values.npy", values)
    for table in (values, np.load(tmp_path / "values.npy", mmap_mode="r"), pd.DataFrame(values, columns=["x", "z"])):
        got = rf"-1e\+160 in column '{'z' if isinstance(table, pd.DataFrame) else '[xy]1'}', row 1"
        with pytest.raises(ValueError, match=rf"X must hold numbers below 1e\+100 in size, but got {got}"):
            taken(table)
        with pytest.raises(ValueError, match=rf"y must hold numbers below 1e\+100 in size, but got {got}"):
            check_outputs(table)


def test_one_row_can_be_predicted_for_and_three_learned_from(tmp_path):
    model = ConstrainedBNNRegressor()
    np.save(tmp_path / "two.npy", np.ones((2, 1)))
    for two in ([[1.0], [2.0]], np.load(tmp_path / "two.npy", mmap_mode="r")):
        with pytest.raises(ValueError, match="minimum of 3 is required"):
            check_inputs(model, two, (), reset=True)
    check_inputs(model, [[1.0], [2.0], [3.0]], (), reset=True)
    assert check_inputs(model, [[1.0]], (), reset=False).shape == (1, 1)
    with pytest.raises(ValueError, match="X has 2 features"):
        check_inputs(model, [[1.0, 2.0]], (), reset=False)


@pytest.mark.parametrize(
    ("kind", "rounding"), [("float32", 2.0**-23), ("float64", 2.0**-52), ("int64", 2.0**-52), ("float16", 2.0**-10)]
)
def test_outputs_keep_the_rounding_they_came_with(kind, rounding):
    Y, precision = check_outputs(np.array([[1, 2], [3, 4]], dtype=kind))
    assert Y.dtype == np.float64
    assert precision == rounding


def test_outputs_that_were_not_measured_stay_open_and_text_is_named():
    Y, _ = check_outputs(pd.DataFrame({"a": [1.0, np.nan]}))
    np.testing.assert_array_equal(Y, [[1], [np.nan]])
    assert check_outputs([1.0, 2.0])[0].shape == (2,)
    with pytest.raises(
        ValueError, match="y must hold numbers, NaN where not measured, but got 'No' in column 'a', row"
    ):
        check_outputs(pd.DataFrame({"a": [1.0, "No"]}))


def test_names_are_those_of_columns_or_of_a_series():
    assert output_names(pd.DataFrame({"a": [1], "b": [2]})) == ("a", "b")
    assert output_names(pd.Series([1], name="a")) == ("a",)
    assert output_names(pd.Series([1])) == output_names(np.ones(1)) == ()


def test_a_constraint_without_inputs_takes_those_of_the_data():
    balance = LinearConstraint([[1.0, -1.0]], names=["same"], units=["V"])
    X, Y = np.ones((4, 2)), np.ones((4, 2))
    for inputs, expected in ((None, ("x0", "x1")), (("u", "v"), ("u", "v"))):
        fitting = match_constraint(balance, X, Y, inputs)
        assert fitting is not None
        assert fitting.inputs == expected
        assert (fitting.names, fitting.units, fitting.known) == (("same",), ("V",), ())
        np.testing.assert_array_equal(fitting.target(X), np.zeros((4, 1)))
    assert match_constraint(SUM, X, np.ones((4, 3)), None) is SUM
    assert match_constraint(None, X, Y, None) is None


def test_data_of_other_shapes_than_the_balances_are_refused_with_their_names():
    with pytest.raises(ValueError, match=r"one column per output of the balances \('a', 'b', 'total'\), but got 2"):
        match_constraint(SUM, np.ones((4, 2)), np.ones((4, 2)), None)
    with pytest.raises(
        ValueError, match=r"each input and known column of the balances \('x', 'feed'\).* got 3 columns"
    ):
        match_constraint(SUM, np.ones((4, 3)), np.ones((4, 3)), None)


@pytest.mark.parametrize(("names", "column"), [(("speed", "load"), "load"), (None, "x1")])
def test_an_input_that_single_precision_cannot_hold_is_named(names, column):
    X = np.random.default_rng(0).normal(size=(30, 2))
    far = X[:4].copy()
    check_range(far, standardizer := Standardizer.fit(X, X), names)
    far[2, 1] = -1e39
    with pytest.raises(
        InputRangeError, match=rf"within 1e\+30 standard .* but got -1e\+39 in column '{column}', row 2\."
    ):
        check_range(far, standardizer, names)


def test_a_known_column_may_not_outgrow_its_balance_either():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 2)), rng.normal(size=(30, 3))
    standardizer = Standardizer.fit(X, Y, SUM)
    check_range(X, standardizer, None)
    X[7, 1] = 1e32
    with pytest.raises(InputRangeError) as caught:
        check_range(X, standardizer, None)
    assert (caught.value.column, caught.value.row, caught.value.value) == ("feed", 7, 1e32)


def test_an_error_comes_out_of_another_process_as_it_went_in():
    error = InputRangeError("x", 3, 1e40)
    twin = pickle.loads(pickle.dumps(error))
    assert (type(twin), str(twin), twin.column, twin.row, twin.value) == (InputRangeError, str(error), "x", 3, 1e40)
