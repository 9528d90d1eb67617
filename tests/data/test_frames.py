"""Tables in, tables out in kind."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from equipoise.data import frames

VALUES = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
NAMES = ["Voltage [V]", "heat", "load"]
KINDS = {
    "pandas": lambda values, names: pd.DataFrame(values, columns=names),
    "polars": lambda values, names: pl.DataFrame(dict(zip(names, values.T, strict=True))),
    "pyarrow": lambda values, names: pa.table(dict(zip(names, values.T, strict=True))),
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def numbers(frame):
    return np.column_stack([np.asarray(frame[name]) for name in column_names(frame)])


def column_names(frame):
    return list(frame.column_names if isinstance(frame, pa.Table) else frame.columns)


@every_kind
def test_a_table_is_told_from_an_array(kind):
    assert frames.is_frame(kind(VALUES, NAMES))
    assert frames.columns_of(kind(VALUES, NAMES)) == tuple(NAMES)


@pytest.mark.parametrize("data", [VALUES, VALUES.tolist(), pd.Series([1.0, 2.0]), pl.Series([1.0]), None, "text", 3.0])
def test_what_is_no_table_has_no_columns(data):
    assert not frames.is_frame(data)
    assert frames.columns_of(data) == ()


@every_kind
def test_columns_are_selected_by_name_in_the_order_asked_for(kind):
    selected = frames.select(kind(VALUES, NAMES), ["load", "Voltage [V]"], "X")
    assert type(selected) is type(kind(VALUES, NAMES))
    assert column_names(selected) == ["load", "Voltage [V]"]
    np.testing.assert_array_equal(numbers(selected), VALUES[:, [2, 0]])


def test_selected_columns_keep_the_index():
    table = pd.DataFrame(VALUES, columns=NAMES, index=pd.Index(["b", "a"], name="row"))
    pd.testing.assert_index_equal(frames.select(table, ["heat"], "X").index, table.index)


@pytest.mark.parametrize("data", [VALUES, VALUES.tolist(), None])
def test_arrays_pass_through_untouched(data):
    assert frames.select(data, ["load"], "X") is data


@every_kind
def test_a_table_passes_through_if_nothing_is_named(kind):
    table = kind(VALUES, NAMES)
    assert frames.select(table, [], "X") is table


@every_kind
def test_made_up_names_take_columns_by_position(kind):
    table = kind(VALUES, NAMES)
    assert frames.select(table, ["x0", "x1", "x2"], "X") is table


@every_kind
def test_columns_that_bear_the_made_up_names_are_taken_by_name(kind):
    selected = frames.select(kind(VALUES, ["y1", "y0", "y2"]), ["y0", "y1", "y2"], "y")
    np.testing.assert_array_equal(numbers(selected), VALUES[:, [1, 0, 2]])


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        (NAMES, ["x0", "x1"]),  # another number of columns
        (["x0", "heat", "load"], ["x0", "x1", "x2"]),  # some by name, some not: a position would be a guess
        (NAMES, ["xenon", "y0", "y1"]),  # not made up
    ],
)
@every_kind
def test_names_are_not_taken_by_position_if_in_doubt(kind, columns, names):
    with pytest.raises(ValueError, match="none called"):
        frames.select(kind(VALUES, columns), names, "X")


@every_kind
def test_a_missing_column_is_named_with_the_closest_match(kind):
    message = (
        "y must have every column that the balances name, but got none called "
        "'Voltage' (did you mean 'Voltage [V]'?), 'pressure'."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        frames.select(kind(VALUES, NAMES), ["Voltage", "heat", "pressure"], "y")


def test_columns_labelled_by_numbers_are_taken_by_position():
    """What `pd.DataFrame(array)` gives: labels 0, 1, 2, which no balance can name."""
    table = pd.DataFrame(VALUES)
    assert frames.columns_of(table) == ("0", "1", "2")
    assert frames.select(table, ["x0", "x1", "x2"], "X") is table
    with pytest.raises(ValueError, match="none called 'load'"):
        frames.select(table, ["load"], "X")


def test_columns_labelled_by_numbers_are_found_by_the_text_of_the_number():
    table = pd.DataFrame(VALUES)
    np.testing.assert_array_equal(numbers(frames.select(table, ["2", "0"], "X")), VALUES[:, [2, 0]])


@every_kind
def test_results_come_back_in_the_kind_and_with_the_names_given(kind):
    like = kind(VALUES, NAMES)
    made = frames.frame_builder(like, ["a", "b"])(VALUES[:, :2] ** 2)
    assert type(made) is type(like)
    assert column_names(made) == ["a", "b"]
    np.testing.assert_array_equal(numbers(made), VALUES[:, :2] ** 2)


@pytest.mark.parametrize(
    "index",
    [
        pd.Index([7, 3]),
        pd.Index(["b", "a"], name="cell"),
        pd.date_range("2024-01-01", periods=2, name="time"),
        pd.MultiIndex.from_tuples([(1, "x"), (1, "x")], names=["run", "kind"]),
    ],
    ids=["numbers", "text", "times", "two levels, repeated"],
)
def test_results_in_pandas_keep_the_index(index):
    made = frames.frame_builder(pd.DataFrame(VALUES, index=index), ["a"])(VALUES[:, :1])
    pd.testing.assert_frame_equal(made, pd.DataFrame({"a": VALUES[:, 0]}, index=index))


def test_the_table_whose_kind_is_taken_stays_as_it_was():
    like = pd.DataFrame(VALUES, columns=NAMES, index=[7, 3])
    before = like.copy()
    made = frames.frame_builder(like, ["a"])(VALUES[:, :1])
    made.iloc[0, 0] = 99.0
    made.index = [1, 2]
    pd.testing.assert_frame_equal(like, before)


def test_for_arrays_results_stay_arrays():
    assert frames.frame_builder(VALUES, ["a", "b", "c"])(VALUES) is VALUES


@every_kind
def test_the_first_column_is_one_dimensional_and_of_the_same_kind(kind):
    table = kind(VALUES, NAMES)
    column = frames.first_column(table)
    assert type(column).__module__.split(".")[0] == type(table).__module__.split(".")[0]
    np.testing.assert_array_equal(np.asarray(column), VALUES[:, 0])


def test_the_first_column_of_an_array_is_one_dimensional():
    np.testing.assert_array_equal(frames.first_column(VALUES), [1.0, 4.0])


def test_the_first_column_of_a_pandas_table_keeps_index_and_name():
    column = frames.first_column(pd.DataFrame(VALUES, columns=NAMES, index=["b", "a"]))
    pd.testing.assert_series_equal(column, pd.Series([1.0, 4.0], index=["b", "a"], name="Voltage [V]"))
