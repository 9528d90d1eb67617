"""Balances as they are handed over: what numbers, names and texts become, and what is refused."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from equipoise.balances.coefficients import Coefficients, ConstraintError, check_rows, read_equations
from equipoise.balances.equations import EquationError


def refusal(*args, **kwargs):
    with pytest.raises(ConstraintError) as caught:
        Coefficients.from_arrays(*args, **kwargs)
    return str(caught.value)


def text_refusal(equations, error=ConstraintError, **columns):
    with pytest.raises(error) as caught:
        read_equations(equations, **columns)
    return str(caught.value)


# What they become


def test_texts_become_matrices_with_inputs_then_known_columns():
    texts = {"voltage": "V = V_ocv - eta - 2*R + 0.5", "heat": "Q_tot + I = Q_rev + Q_irr"}
    outputs = ["V [V]", "V_ocv [V]", "eta [V]", "Q_tot [W]", "Q_rev [W]", "Q_irr [W]"]
    cell, read = read_equations(texts, inputs=["time [s]", "I [A]"], outputs=outputs, known=["R [Ohm]"])
    np.testing.assert_array_equal(cell.A, [[0, 0, 2], [0, 1, 0]])
    np.testing.assert_array_equal(cell.B, [[1, -1, 1, 0, 0, 0], [0, 0, 0, 1, -1, -1]])
    np.testing.assert_array_equal(cell.b, [0.5, 0])
    assert cell.names == ("voltage", "heat")
    assert read == tuple(texts.values())


def test_balances_in_a_list_are_named_by_their_stripped_text():
    balances, texts = read_equations([" a = b ", "b = c"], outputs=["a", "b", "c"])
    assert balances.names == texts == ("a = b", "b = c")


def test_one_text_is_one_balance():
    assert read_equations("a = b + c", outputs=["a", "b", "c"])[0].names == ("a = b + c",)


def test_matrices_without_names_get_plain_ones():
    balances = Coefficients.from_arrays([[1, 0], [0, 1]], A=np.ones((2, 3)), known=["k"])
    assert balances.names == ("balance 0", "balance 1")
    assert (balances.inputs, balances.known, balances.outputs) == (("x0", "x1"), ("k",), ("y0", "y1"))


def test_missing_A_and_b_are_zero():
    balances = Coefficients.from_arrays([[1, 1]], inputs=["u", "v"], known=["k"])
    np.testing.assert_array_equal(balances.A, np.zeros((1, 3)))
    np.testing.assert_array_equal(balances.b, [0])
    assert Coefficients.from_arrays([[1, 1]]).A.shape == (1, 0)


@pytest.mark.parametrize(
    "B",
    [[[1, 2]], ((1.0, 2.0),), np.array([[1, 2]], np.int8), np.array([[Fraction(1), 2]], object), np.float32([[1, 2]])],
)
def test_lists_integers_and_objects_become_float64(B):
    balances = Coefficients.from_arrays(B, b=[True])
    assert balances.B.dtype == balances.b.dtype == np.float64
    np.testing.assert_array_equal(balances.B, [[1, 2]])
    np.testing.assert_array_equal(balances.b, [1])


def test_equations_of_matrices_are_readable():
    balances = Coefficients.from_arrays(
        [[1, -1, -1], [0, -2, 0.5]], A=[[0], [-1]], b=[3, 0], inputs=["feed [kg]"], outputs=["total", "top", "drain"]
    )
    assert [balances.text(row) for row in (0, 1)] == ["total = top + drain + 3", "0.5*drain = 2*top + `feed [kg]`"]


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("`a [kg]` = 1000*`b [g]`", "kg"),
        ("`c [W]` = d - 2*`e [A]`", "W"),
        ("d = 2*`e [A]`", None),
        ("`c [W]` = `e [A]`", None),
    ],
)
def test_a_unit_is_what_the_columns_with_coefficient_one_agree_on(text, unit):
    balances, _ = read_equations(text, outputs=["a [kg]", "b [g]", "c [W]", "d", "e [A]"])
    assert balances.unit(0) == unit


# Refused


@pytest.mark.parametrize(
    ("columns", "informative"),
    [
        ({"outputs": ["a", "b", "a"]}, "'a' twice in outputs"),
        ({"inputs": ["a"], "outputs": ["a", "b"]}, "'a' in inputs and in outputs"),
        ({"inputs": ["x", "x"], "outputs": ["a", "b"]}, "'x' twice in inputs"),
        ({"inputs": ["x"], "known": ["x"], "outputs": ["a", "b"]}, "'x' in inputs and in known"),
        ({"known": ["b"], "outputs": ["a", "b"]}, "'b' in known and in outputs"),
        ({"outputs": "ab"}, "outputs must be a list of names, but got the text 'ab'"),
        ({"outputs": ["a", "b"], "inputs": "x"}, "inputs must be a list of names, but got the text 'x'. Write ['x']"),
        ({"outputs": ["a", "b"], "known": "k"}, "known must be a list of names"),
        ({"outputs": ["a", 5]}, "outputs must hold non-empty text only, but got 5"),
        ({"outputs": ["a", " "]}, "outputs must hold non-empty text only, but got ' '"),
    ],
)
def test_columns_are_texts_with_one_place_each(columns, informative):
    assert informative in text_refusal("a = b", **columns)


def test_names_may_come_as_arrays():
    balances = Coefficients.from_arrays([[1, 1]], inputs=np.array(["u", "v"]), outputs=np.array(["a", "b"]))
    assert balances.inputs == ("u", "v")
    assert type(balances.outputs[0]) is str


@pytest.mark.parametrize("equations", [[], {}, ()])
def test_no_balances_are_refused(equations):
    assert "at least one balance, but got none. Use None" in text_refusal(equations, outputs=["a"])


def test_a_balance_that_is_not_text_is_refused_by_name():
    assert "must hold text, but got ['a = b'] for 'sum'" in text_refusal({"sum": ["a = b"]}, outputs=["a", "b"])
    assert "must hold text, but got 5" in text_refusal([5], outputs=["a", "b"])
    assert "non-empty text only, but got 5" in text_refusal({5: "a = b"}, outputs=["a", "b"])


def test_text_that_cannot_be_read_names_its_balance():
    message = text_refusal({"sum": "a = bb"}, EquationError, outputs=["a", "b"])
    assert message.startswith("Balance 'sum': Equation 'a = bb' must use known columns only, but got 'bb'.")
    assert text_refusal(["a = bb"], EquationError, outputs=["a", "b"]).startswith("Equation 'a = bb'")


@pytest.mark.parametrize(
    ("B", "got"),
    [
        ([["1", "2"]], "list"),
        ([[1, 2], [3]], "list"),
        ([[1, 2j]], "list"),
        ([[{}, 1]], "list"),
        (np.array([["a", 1]], object), "ndarray"),
        (np.array([["2020-01-01"]], "datetime64[D]"), "ndarray"),
    ],
)
def test_what_is_not_an_array_of_real_numbers_is_refused(B, got):
    assert f"B must be a dense array of real numbers, but got {got} " in refusal(B)


@pytest.mark.parametrize(
    ("arguments", "informative"),
    [
        ({"B": [1, 2]}, "B must have shape (balances, outputs), but got shape (2,). Write B=[[...]]"),
        ({"B": [[1, 2]], "A": [1]}, "A must have shape (balances, inputs and known columns), but got shape (1,)"),
        ({"B": [[1, 2]], "names": "ab"}, "names must be a list of names"),
        ({"B": [[1, 2]], "inputs": "x"}, "inputs must be a list of names"),
    ],
)
def test_matrices_have_two_axes_and_names_are_lists(arguments, informative):
    assert informative in refusal(**arguments)


def test_rows_have_a_number_for_each_column():
    np.testing.assert_array_equal(check_rows("X", [[1, 2], [3, None]], ("u", "v")), [[1, 2], [3, np.nan]])
    with pytest.raises(ConstraintError, match=r"X must have 2 columns \('u' and 'v'\), but got shape \(1, 3\)"):
        check_rows("X", [[1, 2, 3]], ("u", "v"))


def test_a_frame_in_another_order_of_columns_is_refused_and_other_names_go_by_position():
    frame = pd.DataFrame({"v": [2.0], "u": [1.0]})
    with pytest.raises(ConstraintError, match="X must have the columns 'u' and 'v' in this order, but got 'v' and 'u'"):
        check_rows("X", frame, ("u", "v"))
    np.testing.assert_array_equal(check_rows("X", frame[["u", "v"]], ("u", "v")), [[1.0, 2.0]])
    np.testing.assert_array_equal(check_rows("X", frame, ("x0", "x1")), [[2.0, 1.0]])
