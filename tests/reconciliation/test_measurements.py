import numpy as np
import pandas as pd
import polars as pl
import pytest
from plants import NAN

from equipoise.balances.linear import LinearConstraint
from equipoise.reconciliation import ReconciliationError, reconcile
from equipoise.reconciliation.measurements import measurements

FLOWS = LinearConstraint.from_equations(
    {"mass": "feed + make_up = top + bottom"},
    inputs=["feed [kg/s]"],
    known=["make_up [kg/s]"],
    outputs=["top [kg/s]", "bottom [kg/s]"],
)
PLAIN = LinearConstraint.from_equations("a = b + c", outputs=["a", "b", "c"])


def refusal(*args, **kwargs):
    with pytest.raises(ReconciliationError) as caught:
        reconcile(*args, **kwargs)
    return str(caught.value)


def test_outputs_come_before_inputs_and_known_columns():
    given = measurements([6.0, 4.0], 1.0, FLOWS, [9.0, 1.0])
    assert given.names == ("top [kg/s]", "bottom [kg/s]", "feed [kg/s]", "make_up [kg/s]")
    np.testing.assert_array_equal(given.C, [[-1, -1, 1, 1]])
    np.testing.assert_array_equal(given.values, [[6, 4, 9, 1]])
    np.testing.assert_array_equal(given.std, [1, 1, 0, 0])
    assert given.reported == 2
    assert measurements([6.0, 4.0], 1.0, FLOWS, [9.0, 1.0], [1.0, 0.0]).reported == 4
    assert given.units == ("kg/s",) * 4


@pytest.mark.parametrize(
    "values",
    [
        {"bottom [kg/s]": 4.0, "top [kg/s]": 6.0},
        pd.Series({"bottom [kg/s]": 4.0, "top [kg/s]": 6.0}),
        (6, 4),
        np.array([6, 4], dtype=np.float32),
    ],
)
def test_one_row_may_be_given_by_name_or_in_order(values):
    given = measurements(values, 1.0, FLOWS, {"make_up [kg/s]": 1.0, "feed [kg/s]": 9.0})
    np.testing.assert_array_equal(given.values, [[6, 4, 9, 1]])
    assert given.single


def test_tables_are_taken_by_name_and_missing_values_are_nan():
    frame = pd.DataFrame({"b": [1.0, None], "a": [3.0, 4.0], "c": [2.0, 2.0], "note": ["x", "y"]}, index=[7, 9])
    given = measurements(frame, {"a": 1, "b": 2, "c": 3}, PLAIN)
    np.testing.assert_array_equal(given.values, [[3, 1, 2], [4, NAN, 2]])
    assert list(given.labels) == [7, 9]
    assert not given.single
    polars = measurements(
        pl.DataFrame({"c": [2.0], "b": [None], "a": [3.0]}, schema_overrides={"b": pl.Float64}), 1, PLAIN
    )
    np.testing.assert_array_equal(polars.values, [[3, NAN, 2]])


def test_standard_deviations_may_be_given_for_all_for_each_or_for_each_row():
    table = np.ones((2, 3))
    np.testing.assert_array_equal(measurements(table, 2, PLAIN).std, [2, 2, 2])
    np.testing.assert_array_equal(measurements(table, [1, 2, 3], PLAIN).std, [1, 2, 3])
    own = [[1, 2, 3], [4, 5, 6]]
    np.testing.assert_array_equal(measurements(table, own, PLAIN).std, own)
    np.testing.assert_array_equal(
        measurements(table, pd.DataFrame(own, columns=list("abc"))[list("cba")], PLAIN).std, own
    )
    mixed = measurements(np.ones((2, 2)), 1.0, FLOWS, np.ones((2, 2)), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(mixed.std, [[1, 1, 1, 2], [1, 1, 3, 4]])


def test_what_is_not_measured_needs_no_standard_deviation():
    assert np.isinf(measurements([1.0, NAN, 1.0], [1.0, NAN, 1.0], PLAIN).std[1])


def test_tolerances_are_given_for_all_for_each_or_by_name():
    assert measurements([1, 1, 1], 1, PLAIN).tolerance == [0]
    assert measurements([1, 1, 1], 1, PLAIN, tolerance=0.5).tolerance == [0.5]
    assert measurements([1, 1, 1], 1, PLAIN, tolerance={"a = b + c": 0.5}).tolerance == [0.5]


def test_inputs_and_balances_that_are_not_named_are_exact():
    given = measurements([1, 1], 1, FLOWS, [1, 1], {"feed [kg/s]": 2.0})
    np.testing.assert_array_equal(given.std, [1, 1, 2, 0])
    assert measurements([1, 1], 1, FLOWS, [1, 1], tolerance={}).tolerance == [0]


def test_what_the_user_does_to_a_table_afterwards_changes_nothing():
    table = np.ones((2, 3))
    result = reconcile(table, 1.0, PLAIN)
    before = result.measurement_test().statistic
    table[:] = 99.0
    np.testing.assert_array_equal(result.measurement_test().statistic, before)
    np.testing.assert_array_equal(result.adjustments, result.values - 1)


def test_a_covariance_is_taken_by_name_in_rows_and_columns():
    V = np.array([[1.0, 0.5, 0.2], [0.5, 2.0, 0.1], [0.2, 0.1, 3.0]])
    frame = pd.DataFrame(V, index=list("abc"), columns=list("abc"))
    for text in (
        V,
        frame,
        frame.loc[list("cab"), list("bca")],
        frame.loc[list("cab"), list("cab")].reset_index(drop=True),
    ):
        given = measurements([1, 1, 1], None, PLAIN, covariance=text)
        np.testing.assert_allclose(given.covariance, V)
        np.testing.assert_allclose(given.std, np.sqrt([1, 2, 3]))
    assert measurements([1, 1, 1], np.sqrt([1, 2, 3]), PLAIN, covariance=V).covariance is not None
    with_inputs = measurements([1, 1], None, FLOWS, [1, 1], [2.0, 0.0], covariance=np.eye(2))
    np.testing.assert_allclose(with_inputs.covariance, np.diag([1, 1, 4, 0]))


def test_inputs_that_no_balance_uses_may_be_left_out():
    idle = LinearConstraint([[1, -1]], inputs=["u"], outputs=["a", "b"])
    np.testing.assert_allclose(reconcile([1.0, 2.0], 1.0, idle).values, [1.5, 1.5])


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        (([1, 1], 1, None), {}, "constraint must be a LinearConstraint with at least one balance, but got None"),
        (([1, 1], 1, PLAIN), {}, "values must have 3 columns ('a', 'b' and 'c'), but got shape (2,)"),
        ((np.ones((1, 1, 3)), 1, PLAIN), {}, "but got shape (1, 1, 3)"),
        (([1, np.inf, 1], 1, PLAIN), {}, "values must be finite, but got inf for 'b' in row 0. Use NaN"),
        (([1, 1e300, 1], 1, PLAIN), {}, "values must be below 1e+100 in size, but got 1e+300 for 'b' in row 0"),
        (([1, "x", 1], 1, PLAIN), {}, "values must hold numbers, but got [1, 'x', 1]"),
        (({"a": 1, "b": 1, "d": 1}, 1, PLAIN), {}, "values must name 'a', 'b' and 'c', but got 'd'"),
        (({"a": 1, "b": 1}, 1, PLAIN), {}, "values must name all variables, but got nothing for 'c'"),
        ((pd.DataFrame({"a": [1.0], "bb": [1.0], "c": [1.0]}), 1, PLAIN), {}, "none called 'b' (did you mean 'bb'?)"),
        ((pd.DataFrame({"a": [1.0], "b": ["?"], "c": [1.0]}), 1, PLAIN), {}, "but got '?' in column 'b', row 0"),
        (([1, 1, 1], None, PLAIN), {}, "std must hold standard deviations, but got None"),
        (([1, 1, 1], [1, 1], PLAIN), {}, "one for each of 'a', 'b' and 'c', for all rows or for each of them"),
        (([1, 1, 1], np.ones((2, 3)), PLAIN), {}, "but got shape (2, 3)"),
        (
            ([1, 1, 1], [1, -2, 1], PLAIN),
            {},
            "std must hold numbers ≥ 0, but got -2.0 for 'b'. Use 0 for what is exact",
        ),
        (([1, 1, 1], [1, 1, NAN], PLAIN), {}, "but got nan for 'c'"),
        ((np.ones((2, 3)), [[1, 1, 1], [1, NAN, 1]], PLAIN), {}, "but got nan for 'b' in row 1"),
        (
            ([1, 1, 1], {"a": 1, "b": 1, "C": 1}, PLAIN),
            {},
            "std must name 'a', 'b' and 'c', but got 'C'. Did you mean 'c'?",
        ),
        (([1, 1, 1], 1, PLAIN), {"tolerance": -1}, "tolerance must hold numbers ≥ 0, but got -1.0 for 'a = b + c'"),
        (([1, 1, 1], 1, PLAIN), {"tolerance": [1, 2]}, "tolerance must be one number, or one for each of 'a = b + c'"),
        (
            ([1, 1], 1, FLOWS),
            {},
            "inputs must hold 'feed [kg/s]' and 'make_up [kg/s]', which balances use, but got None",
        ),
        (([1, 1], 1, FLOWS, [1]), {}, "inputs must have 2 columns"),
        ((np.ones((3, 2)), 1, FLOWS, np.ones((2, 2))), {}, "inputs must have 3 rows, like values, but got 2"),
        (([1, 1], 1, FLOWS, [1, NAN]), {}, "but got NaN for 'make_up [kg/s]' in row 0. Give inputs_std"),
        (
            ([1, 1], 1, FLOWS, [1, 1], [1, -1]),
            {},
            "inputs_std must hold numbers ≥ 0, but got -1.0 for 'make_up [kg/s]'",
        ),
        (
            ([1, 1, 1], None, PLAIN),
            {"covariance": np.eye(2)},
            "covariance must have shape (3, 3), for 'a', 'b' and 'c'",
        ),
        (([1, 1, 1], None, PLAIN), {"covariance": np.triu(np.ones((3, 3)))}, "covariance must be symmetric and finite"),
        (([1, 1, 1], None, PLAIN), {"covariance": np.ones((3, 3))}, "covariance must be positive definite"),
        (([1, 1, 1], None, PLAIN), {"covariance": np.diag([1, 1, -1])}, "covariance must be positive definite"),
        (
            ([1, 1, 1], 2.0, PLAIN),
            {"covariance": np.eye(3)},
            "std must be None, or the root of the diagonal of covariance",
        ),
        (
            ([1, 1], None, FLOWS, [1, 1], [[1, 1]]),
            {"covariance": np.eye(2)},
            "inputs_std must be the same for all rows",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(args, kwargs, said):
    assert said in refusal(*args, **kwargs)


def test_units_of_covariances_do_not_decide_whether_they_are_positive_definite():
    V = np.diag([1e-20, 1.0, 1e20])
    V[0, 1] = V[1, 0] = 0.5e-10
    assert measurements([1, 1, 1], None, PLAIN, covariance=V).covariance is not None
