import copy
import dataclasses
import itertools
import pickle
from fractions import Fraction

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from equipoise.constraints import ConstraintError, LinearConstraint, connected_rows
from equipoise.equations import EquationError

INPUTS = ["time [s]", "I [A]"]
KNOWN = ["R [Ohm]"]
OUTPUTS = ["V [V]", "V_ocv [V]", "eta [V]", "Q_tot [W]", "Q_rev [W]", "Q_irr [W]"]
TEXTS = {"voltage": "V = V_ocv - eta - 2*R + 0.5", "heat": "Q_tot + I = Q_rev + Q_irr"}


@pytest.fixture
def cell():
    return LinearConstraint.from_equations(TEXTS, inputs=INPUTS, outputs=OUTPUTS, known=KNOWN)


def refusal(*args, **kwargs):
    with pytest.raises(ConstraintError) as caught:
        LinearConstraint(*args, **kwargs)
    return str(caught.value)


def text_refusal(equations, error=ConstraintError, **columns):
    with pytest.raises(error) as caught:
        LinearConstraint.from_equations(equations, **columns)
    return str(caught.value)


# What a constraint holds


def test_texts_become_matrices_with_inputs_then_known_columns(cell):
    np.testing.assert_array_equal(cell.A, [[0, 0, 2], [0, 1, 0]])
    np.testing.assert_array_equal(cell.B, [[1, -1, 1, 0, 0, 0], [0, 0, 0, 1, -1, -1]])
    np.testing.assert_array_equal(cell.b, [0.5, 0])


def test_a_constraint_knows_its_names_and_sizes(cell):
    assert cell.names == ("voltage", "heat")
    assert (cell.inputs, cell.known, cell.outputs) == (tuple(INPUTS), tuple(KNOWN), tuple(OUTPUTS))
    assert cell.columns == (*INPUTS, *KNOWN)
    assert (cell.n_balances, cell.n_inputs, cell.n_columns, cell.n_outputs) == (2, 2, 3, 6)
    assert cell.equations == tuple(TEXTS.values())


def test_balances_in_a_list_are_named_by_their_stripped_text():
    balances = LinearConstraint.from_equations([" a = b ", "b = c"], outputs=["a", "b", "c"])
    assert balances.names == balances.equations == ("a = b", "b = c")


def test_one_text_is_one_balance():
    assert LinearConstraint.from_equations("a = b + c", outputs=["a", "b", "c"]).names == ("a = b + c",)


def test_matrices_without_names_get_plain_ones():
    balances = LinearConstraint([[1, 0], [0, 1]], A=np.ones((2, 3)), known=["k"])
    assert balances.names == ("balance 0", "balance 1")
    assert (balances.inputs, balances.known, balances.outputs) == (("x0", "x1"), ("k",), ("y0", "y1"))


def test_missing_A_and_b_are_zero():
    balances = LinearConstraint([[1, 1]], inputs=["u", "v"], known=["k"])
    np.testing.assert_array_equal(balances.A, np.zeros((1, 3)))
    np.testing.assert_array_equal(balances.b, [0])
    assert LinearConstraint([[1, 1]]).A.shape == (1, 0)


@pytest.mark.parametrize(
    "B",
    [[[1, 2]], ((1.0, 2.0),), np.array([[1, 2]], np.int8), np.array([[Fraction(1), 2]], object), np.float32([[1, 2]])],
)
def test_lists_integers_and_objects_become_float64(B):
    balances = LinearConstraint(B, b=[True])
    assert balances.B.dtype == balances.b.dtype == np.float64
    np.testing.assert_array_equal(balances.B, [[1, 2]])
    np.testing.assert_array_equal(balances.b, [1])


def test_a_unit_is_what_the_columns_with_coefficient_one_agree_on(cell):
    assert cell.units == ("V", None)  # heat adds ampere to watt
    texts = ["`a [kg]` = 1000*`b [g]`", "`c [W]` = d - 2*`e [A]`", "`f` = 2*`g [V]`"]
    columns = ["a [kg]", "b [g]", "c [W]", "d", "e [A]", "f", "g [V]"]
    assert LinearConstraint.from_equations(texts, outputs=columns).units == ("kg", "W", None)


def test_given_units_override_those_of_columns():
    balances = LinearConstraint([[1, 1], [1, -1]], outputs=["a [V]", "b [V]"], units=["mV", None])
    assert balances.units == ("mV", None)


# It is a value


def test_a_constraint_cannot_be_changed(cell):
    with pytest.raises(dataclasses.FrozenInstanceError):
        cell.B = np.zeros((2, 6))
    for array in (cell.A, cell.B, cell.b):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_changing_the_given_matrix_afterwards_changes_nothing():
    B = np.array([[1.0, 1.0]])
    balances = LinearConstraint(B)
    B[0, 0] = 7
    assert balances.B[0, 0] == 1


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_copies_and_pickles_are_equal_and_read_only(cell, copied):
    twin = copied(cell)
    assert twin == cell
    assert hash(twin) == hash(cell)
    assert twin.equations == cell.equations
    assert not any(array.flags.writeable for array in (twin.A, twin.B, twin.b))


def test_equality_is_by_value():
    assert LinearConstraint([[1, 1]]) == LinearConstraint([[1.0, 1.0]], b=[-0.0])
    assert len({LinearConstraint([[1, 1]]), LinearConstraint([[1.0, 1.0]])}) == 1
    different = [
        LinearConstraint([[1, 2]]),
        LinearConstraint([[1, 1]], b=[1]),
        LinearConstraint([[1, 1]], names=["sum"]),
        LinearConstraint([[1, 1]], outputs=["a", "b"]),
        LinearConstraint([[1, 1]], inputs=["x"]),
        LinearConstraint([[1, 1]], known=["x"]),
        LinearConstraint([[1, 1]], units=["V"]),
        "y0 + y1 = 0",
    ]
    for one, other in itertools.combinations([LinearConstraint([[1, 1]]), *different], 2):
        assert one != other


def test_repr_shows_sizes_names_units_and_equations(cell):
    assert repr(cell) == (
        "LinearConstraint(2 balances, 2 inputs, 1 known, 6 outputs)\n"
        "  'voltage' [V]: V = V_ocv - eta - 2*R + 0.5\n"
        "  'heat': Q_tot + I = Q_rev + Q_irr"
    )
    assert repr(LinearConstraint.from_equations("a = b", outputs=["a", "b"])).endswith("\n  a = b")
    assert repr(LinearConstraint(np.eye(30))).endswith("... and 10 more")


# Text and matrices


def test_equations_of_matrices_are_readable():
    balances = LinearConstraint(
        [[1, -1, -1], [0, -2, 0.5]], A=[[0], [-1]], b=[3, 0], inputs=["feed [kg]"], outputs=["total", "top", "drain"]
    )
    assert balances.equations == ("total = top + drain + 3", "0.5*drain = 2*top + `feed [kg]`")


ODD = ["Voltage [V]", "η", "a`b", "x=y", "for", "Q̇", "c d", "1st", "_0", "`", "V"]


@st.composite
def independent_rows(draw):
    """Arguments whose rows are independent because each has an output of its own."""
    m, shared, n_x = draw(st.integers(1, 4)), draw(st.integers(0, 3)), draw(st.integers(0, 3))
    size = st.floats(1e-100, 1e100)
    number = st.one_of(size, size.map(lambda value: -value), st.just(0.0))
    own = np.diag(draw(hnp.arrays(float, m, elements=st.floats(1e-3, 1e3))))
    B = np.hstack([own, draw(hnp.arrays(float, (m, shared), elements=number))])
    A, b = draw(hnp.arrays(float, (m, n_x), elements=number)), draw(hnp.arrays(float, m, elements=number))
    names = draw(st.permutations(ODD))
    return {"B": B, "A": A, "b": b, "outputs": names[: m + shared], "inputs": names[m + shared :][:n_x]}


@given(independent_rows())
def test_equations_of_matrices_read_back_exactly(arguments):
    balances = LinearConstraint(**arguments)
    texts = dict(zip(balances.names, balances.equations, strict=True))
    again = LinearConstraint.from_equations(texts, inputs=balances.inputs, outputs=balances.outputs)
    assert again == balances


# What it computes


def test_target_residual_and_magnitude_are_the_sums_in_their_definitions(cell):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(5, 3)), rng.normal(size=(5, 6))
    for i, k in itertools.product(range(5), range(2)):
        a = [cell.A[k, j] * X[i, j] for j in range(3)]
        y = [cell.B[k, j] * Y[i, j] for j in range(6)]
        assert cell.target(X)[i, k] == pytest.approx(cell.b[k] - sum(a))
        assert cell.residual(X, Y)[i, k] == pytest.approx(sum(a) + sum(y) - cell.b[k])
        assert cell.magnitude(X, Y)[i, k] == pytest.approx(sum(map(abs, a + y)) + abs(cell.b[k]))


def test_leading_axes_are_kept_and_broadcast(cell):
    X, Y = np.ones((4, 3)), np.ones((7, 4, 6))
    assert cell.target(X[0]).shape == (2,)
    assert cell.residual(X, Y).shape == cell.magnitude(X, Y).shape == (7, 4, 2)
    np.testing.assert_array_equal(cell.residual(X, Y)[3, 1], cell.residual(X[1], Y[3, 1]))


def test_a_missing_value_spoils_only_the_balances_it_enters(cell):
    X, Y = np.ones((2, 3)), np.ones((2, 6))
    Y[0, 0] = np.nan
    X[1, 0] = np.inf  # time enters no balance
    np.testing.assert_array_equal(np.isnan(cell.residual(X, Y)), [[True, False], [False, False]])
    np.testing.assert_array_equal(np.isnan(cell.magnitude(X, Y)), [[True, False], [False, False]])
    np.testing.assert_array_equal(cell.residual(X, Y)[1], cell.residual(np.ones(3), np.ones(6)))


@given(m=st.integers(1, 4), extra=st.integers(1, 4), n_x=st.integers(0, 3), seed=st.integers(0, 2**32 - 1))
def test_residual_is_rounding_on_solutions_from_the_null_space(m, extra, n_x, seed):
    rng = np.random.default_rng(seed)
    B, A, b = rng.normal(size=(m, m + extra)), rng.normal(size=(m, n_x)), rng.normal(size=m)
    balances = LinearConstraint(B, A, b)
    X = rng.normal(size=(6, n_x))
    free = rng.normal(size=(6, extra)) @ scipy.linalg.null_space(B).T
    Y = (b - X @ A.T) @ np.linalg.pinv(B).T + free
    rounding = 1e-13 * np.linalg.cond(B)
    assert np.all(np.abs(balances.residual(X, Y)) <= rounding * balances.magnitude(X, Y))
    assert np.all(np.abs(balances.residual(X, Y + rng.normal(size=Y.shape))) > rounding)


def test_scale_is_the_spread_of_independent_outputs():
    rng = np.random.default_rng(0)
    B, std = rng.normal(size=(3, 5)), rng.uniform(0.1, 10, size=5)
    np.testing.assert_allclose(LinearConstraint(B).scale(std), np.sqrt(np.diag(B @ np.diag(std**2) @ B.T)), rtol=1e-14)


def test_scale_of_a_balance_of_constant_outputs_is_the_norm_of_its_row():
    np.testing.assert_allclose(LinearConstraint([[3, 4, 0], [0, 0, 2]]).scale([0, 0, 5]), [5, 10])


def test_scale_neither_overflows_nor_underflows():
    rows = np.array([[3, 4], [4, -3]])
    np.testing.assert_allclose(LinearConstraint(1e99 * rows).scale([1e99, 1e99]), [5e198, 5e198])
    np.testing.assert_allclose(LinearConstraint(1e-99 * rows).scale([1e-99, 1e-99]), [5e-198, 5e-198])


# Blocks


def naive_groups(pattern):
    groups = [{k} for k in range(len(pattern))]
    for j in range(pattern.shape[1]):
        touched = [group for group in groups if any(pattern[k, j] for k in group)]
        rest = [group for group in groups if group not in touched]
        groups = rest + ([set().union(*touched)] if touched else [])
    return tuple(sorted(tuple(sorted(group)) for group in groups))


@given(hnp.arrays(bool, st.tuples(st.integers(1, 7), st.integers(1, 9))))
def test_connected_rows_are_those_of_a_naive_union(pattern):
    assert connected_rows(pattern) == naive_groups(pattern)


@given(independent_rows(), st.lists(st.booleans(), min_size=3, max_size=3))
def test_blocks_join_rows_that_share_an_output_or_an_uncertain_input(arguments, uncertain):
    balances = LinearConstraint(**arguments)
    mask = np.array(uncertain[: balances.n_columns], dtype=bool)
    assert balances.blocks() == naive_groups(balances.B != 0)
    assert balances.blocks(mask) == naive_groups(np.hstack([balances.B, balances.A[:, mask]]) != 0)


def test_an_uncertain_input_joins_balances_and_a_certain_one_does_not():
    balances = LinearConstraint(np.eye(3), A=[[1, 0], [0, 1], [2, 0]])
    assert balances.blocks() == balances.blocks([False, True]) == ((0,), (1,), (2,))
    assert balances.blocks([True, False]) == ((0, 2), (1,))


@pytest.mark.parametrize("mask", [[True], [[True, False]], [0, 1], ["x0"]])
def test_uncertain_inputs_must_be_a_mask_over_the_columns(mask):
    balances = LinearConstraint(np.eye(2), A=np.eye(2))
    with pytest.raises(ConstraintError, match="must be 2 booleans, one for each of 'x0' and 'x1', but got"):
        balances.blocks(mask)


# One balance of many


def test_without_drops_one_balance_and_keeps_the_rest(cell):
    smaller = cell.without("voltage")
    expected = LinearConstraint.from_equations({"heat": TEXTS["heat"]}, inputs=INPUTS, outputs=OUTPUTS, known=KNOWN)
    assert smaller == expected
    assert smaller.equations == expected.equations
    assert not smaller.B.flags.writeable
    assert cell.n_balances == 2


def test_without_the_only_balance_is_refused(cell):
    with pytest.raises(ConstraintError, match=r"at least one balance, but got 'heat', the only one\. Use None"):
        cell.without("voltage").without("heat")


def test_index_finds_a_balance_or_suggests_the_closest(cell):
    assert cell.index("heat") == 1
    for method in (cell.index, cell.without):
        with pytest.raises(ConstraintError, match=r"but got 'voltge'\. Did you mean 'voltage'\?"):
            method("voltge")


# Refused: columns and names


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


def test_columns_of_matrices_are_checked_too():
    assert "'a' in inputs and in outputs" in refusal([[1, 1]], inputs=["a"], outputs=["a", "b"])
    assert "inputs must be a list of names" in refusal([[1, 1]], inputs="x")


def test_names_may_come_as_arrays():
    balances = LinearConstraint([[1, 1]], inputs=np.array(["u", "v"]), outputs=np.array(["a", "b"]))
    assert balances.inputs == ("u", "v")
    assert type(balances.outputs[0]) is str


def test_balances_have_different_names():
    assert "must be unique, but got 'sum' twice" in refusal(np.eye(2), names=["sum", "sum"])
    assert "must be unique, but got 'a = b' twice" in text_refusal(["a = b", " a = b "], outputs=["a", "b"])


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


# Refused: numbers and shapes


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
        ({"B": np.zeros((0, 2))}, "B must have a balance and an output, but got shape (0, 2). Use None"),
        ({"B": np.zeros((2, 0))}, "B must have a balance and an output, but got shape (2, 0)"),
        ({"B": [[1, 2]], "A": [1]}, "A must have shape (balances, inputs and known columns), but got shape (1,)"),
        ({"B": [[1, 2]], "A": [[1], [2]]}, "A must have shape (1, 1) for 1 balances"),
        ({"B": [[1, 2]], "A": [[1]], "inputs": ["u", "v"]}, "A must have shape (1, 2)"),
        ({"B": [[1, 2]], "A": [[1]], "known": ["u", "v"]}, "A must have shape (1, 2)"),
        ({"B": [[1, 2]], "b": [1, 2]}, "b must have shape (1,)"),
        ({"B": [[1, 2]], "b": 1.0}, "b must have shape (1,) for 1 balances, 0 inputs and known columns, 2 outputs"),
        ({"B": [[1, 2]], "outputs": ["a"]}, "B must have shape (1, 1)"),
        ({"B": [[1, 2]], "names": ["a", "b"]}, "names must have shape (1,)"),
        ({"B": [[1, 2]], "names": "ab"}, "names must be a list of names"),
        ({"B": [[1, 2]], "units": ["V", "V"]}, "units must hold one text or None for each of 'balance 0'"),
        ({"B": [[1, 2]], "units": [5]}, "but got [5]"),
    ],
)
def test_shapes_must_fit(arguments, informative):
    assert informative in refusal(**arguments)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e101, -1e-101])
def test_a_coefficient_that_is_not_finite_or_of_absurd_size_is_named(bad):
    named = {"names": ["one", "two"], "inputs": ["feed"], "outputs": ["top", "drain"]}
    rule = "must have finite coefficients, of size 1e-100 to 1e100, but got"
    assert f"Balance 'two' {rule} {bad} for 'top'" in refusal([[1, 1], [bad, 1]], **named)
    assert f"Balance 'one' {rule} {bad} for 'feed'" in refusal(np.eye(2), [[bad], [0]], **named)
    assert f"Balance 'two' {rule} {bad} for 'its constant b'" in refusal(np.eye(2), b=[0, bad], **named)


def test_nothing_in_place_of_a_number_is_named():
    assert "but got nan for 'y1'" in refusal([[1, None], [0, 1]])


def test_a_balance_without_output_is_refused_by_name():
    columns = {"inputs": ["u", "v"], "outputs": ["a", "b"]}
    message = text_refusal({"good": "a = u", "feeds": "u = 2*v"}, **columns)
    assert "Balance 'feeds' must involve an output, but got only 'u' and 'v'." in message
    assert "'loop' must involve an output, but got only 'u'" in text_refusal({"loop": "a + u = a"}, **columns)
    assert "got no column at all (0 = 0)" in text_refusal({"nil": "a = a"}, **columns)
    assert "got no column at all (0 = 3)" in text_refusal({"nil": "0.1*a + 0.2*a = 0.3*a + 3"}, **columns)


def test_data_of_the_wrong_width_are_refused_with_the_expected_columns(cell):
    expected = r"X must have 3 columns \('time \[s\]', 'I \[A\]' and 'R \[Ohm\]'\), but got shape \(5, 2\)"
    with pytest.raises(ConstraintError, match=expected):
        cell.target(np.ones((5, 2)))
    with pytest.raises(ConstraintError, match=r"Y must have 6 columns .*, but got shape \(5, 7\)"):
        cell.residual(np.ones((5, 3)), np.ones((5, 7)))
    with pytest.raises(ConstraintError, match=r"X must have 3 columns .*, but got shape \(\)"):
        cell.magnitude(1.0, np.ones(6))
    with pytest.raises(ConstraintError, match=r"same rows, but got shapes \(5, 3\) and \(4, 6\)"):
        cell.residual(np.ones((5, 3)), np.ones((4, 6)))


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_a_bad_standard_deviation_is_named(cell, bad):
    with pytest.raises(ConstraintError, match=rf"≥ 0 per output, but got {bad} for 'V_ocv \[V\]'"):
        cell.scale([1, bad, 1, 1, 1, 1])


def test_standard_deviations_of_the_wrong_shape_are_refused(cell):
    with pytest.raises(ConstraintError, match=r"but got shape \(2, 6\)\. Give shape \(6,\)"):
        cell.scale(np.ones((2, 6)))
    with pytest.raises(ConstraintError, match=r"output_std must have 6 columns .*, but got shape \(3,\)"):
        cell.scale(np.ones(3))


# Refused: dependence

PLANT = {"inputs": ["feed", "makeup"], "outputs": ["top", "drain", "recycle", "loss"]}


def test_dependent_balances_are_named_and_others_are_not():
    message = text_refusal(
        {
            "overall mass": "feed = top + drain",
            "component sum": "top = recycle + loss",
            "other": "loss = 2*drain + makeup",
            "recycle": "feed = recycle + loss + drain",
        },
        **PLANT,
    )
    assert message == (
        "Balances 'overall mass', 'component sum' and 'recycle' are linearly dependent (rank 3 of 4 rows). "
        "Drop one of: 'overall mass', 'component sum', 'recycle'."
    )


def test_a_balance_that_repeats_another_up_to_a_factor_is_a_duplicate():
    message = text_refusal(
        {"one": "feed = top + drain", "two": "top = loss", "three": "2*top + 2*drain = 2*feed"}, **PLANT
    )
    assert message == (
        "Balances 'one' and 'three' are duplicates, equal up to a factor (rank 2 of 3 rows). "
        "Drop one of: 'one', 'three'."
    )


def test_contradictory_balances_are_named_with_the_amount():
    message = text_refusal({"one": "top + drain = 1", "two": "2*top + 2*drain = 8"}, **PLANT)
    assert message == (
        "Balances 'one' and 'two' contradict each other by 3 in the unit of 'one' (rank 1 of 2 rows). "
        "Correct or drop one of: 'one', 'two'."
    )


def test_balances_that_fix_inputs_only_name_these_inputs():
    message = text_refusal({"one": "top = feed + 1", "two": "drain = loss", "three": "top = 3*makeup"}, **PLANT)
    assert message == (
        "Balances 'one' and 'three' together fix a relation among inputs only, 'feed' and 'makeup', and leave no "
        "output (rank 2 of 3 rows). Drop one of: 'one', 'three', or make one of these inputs an output."
    )


def test_more_balances_than_outputs_are_always_refused():
    assert "(rank 2 of 3 rows)" in refusal([[1, 0], [0, 1], [1, 1]])
    assert "contradict" in refusal([[1.0], [1.0]], b=[0, 1])
    assert "'x0' and 'x1'" in refusal([[1.0], [1.0]], A=np.eye(2))


def test_too_few_outputs_are_refused_where_rounding_hides_the_combination():
    B = [[-4e7, 0, 0], [2e5, -5e-7, 0], [1e-5, -1, 5e2], [0, 1e-8, -1e-2]]
    assert "are linearly dependent (rank 3 of 4 rows). Drop one of" in refusal(B)


def test_of_several_dependences_the_first_in_order_is_named():
    B = np.array([[0, 0, 0, 1], [1, 1, 0, 0], [0, 0, 0, 3], [0, 1, 1, 0], [1, 2, 1, 0]])
    assert "'balance 0' and 'balance 2' are duplicates, equal up to a factor (rank 3 of 5 rows)" in refusal(B)
    assert "'balance 0', 'balance 1' and 'balance 2' are linearly dependent" in refusal(B[[1, 3, 4, 0, 2]])


@pytest.mark.parametrize(
    "B",
    [
        [[1, 1e-12], [1, 2e-12]],
        [[1, 1, 1e-14], [1, 1, 3e-14]],
        [[1e15, 1, 1e-15], [1e15, 2, 1e-15], [1e15, 1, -1e-15]],
        [[1, 1e-12, 0], [0, 1, 1e-12], [1e-12, 0, 1]],
        [[1e99, 1e-99], [1e-99, 1e99]],
        [[1, 0, 0, 1e-97, 1], [0, 1, 0, 1, 1], [0, 0, 1, 1, 1]],
        [[1, 1e-99], [1e-99, 1]],
        [[1e-11, 1, 1, 0], [0, 1, 1, 1e-11], [0, 1, 2, 0]],
    ],
)
def test_independent_rows_with_coefficients_over_many_decades_are_accepted(B):
    assert LinearConstraint(B).n_balances == len(B)


def test_dependence_that_rounding_hides_is_found():
    thirds = np.array([[1 / 3, 0.1, 0.0], [0.0, 0.2, 0.7], [0.0, 0.0, 0.0]])
    thirds[2] = 0.3 * thirds[0] - 1e7 * thirds[1]
    assert "linearly dependent (rank 2 of 3 rows)" in refusal(thirds)
    assert "contradict" in refusal(thirds, b=[0, 0, 1])
    b = np.array([0.1, 0.7, 0.3 * 0.1 - 1e7 * 0.7])
    assert "linearly dependent" in refusal(thirds, b=b)


def verdict(B, A, b):
    """Kind of dependence and what to drop."""
    try:
        LinearConstraint(B, A, b)
    except ConstraintError as error:
        message = str(error)
        kinds = ("duplicates", "linearly dependent", "contradict", "relation among inputs")
        return next(kind for kind in kinds if kind in message), message.partition("rows). ")[2]
    return "independent", ""


@given(
    m=st.integers(1, 5),
    n_y=st.integers(2, 6),
    kind=st.sampled_from(["free", "dependent", "contradictory", "inputs"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_verdict_on_dependence_does_not_depend_on_units(m, n_y, kind, seed):
    rng = np.random.default_rng(seed)
    B, A, b = (rng.integers(-3, 4, size=size).astype(float) for size in ((m, n_y), (m, 2), m))
    B[~B.any(axis=1), 0] = 1.0
    if kind != "free" and m > 1:
        mix = rng.choice([-2.0, 0.5, 1.0], size=m - 1) * (rng.random(m - 1) < 0.7)
        mix[0] = 1.0
        B[-1], A[-1], b[-1] = mix @ B[:-1], mix @ A[:-1], mix @ b[:-1]
        b[-1] += kind == "contradictory"
        A[-1, 0] += kind == "inputs"
    if not B.any(axis=1).all():
        return
    rows, columns = 10.0 ** rng.uniform(-6, 6, size=m), 10.0 ** rng.uniform(-6, 6, size=n_y)
    inputs = 10.0 ** rng.uniform(-6, 6, size=2)
    found = verdict(B, A, b)
    assert verdict(rows[:, None] * B * columns, rows[:, None] * A * inputs, rows * b) == found
    assert (found[0] == "independent") == (np.linalg.matrix_rank(B) == m)


@given(m=st.integers(2, 6), extra=st.integers(0, 4), seed=st.integers(0, 2**32 - 1))
def test_exactly_the_balances_of_a_planted_dependence_are_named(m, extra, seed):
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(m, m + extra))
    chosen = rng.random(m) < 0.5
    chosen[:2] = True
    B[0] = (rng.uniform(1, 2, size=m) * chosen)[1:] @ B[1:]
    B *= 10.0 ** rng.uniform(-6, 6, size=(m, 1))
    order = rng.permutation(m)
    named = [f"n{k}" for k in order if chosen[k]]
    message = refusal(B[order], names=[f"n{k}" for k in order])
    assert message.endswith(f"one of: {', '.join(map(repr, named))}.")
    assert ("duplicates" if len(named) == 2 else "linearly dependent") in message
