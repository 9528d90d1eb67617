"""A constraint as a value: what it holds and computes, against sums written out, null spaces and naive unions."""

import base64
import copy
import dataclasses
import itertools
import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from equipoise.balances.linear import ConstraintError, LinearConstraint, connected_rows

INPUTS = ["time [s]", "I [A]"]
KNOWN = ["R [Ohm]"]
OUTPUTS = ["V [V]", "V_ocv [V]", "eta [V]", "Q_tot [W]", "Q_rev [W]", "Q_irr [W]"]
TEXTS = {"voltage": "V = V_ocv - eta - 2*R + 0.5", "heat": "Q_tot + I = Q_rev + Q_irr"}


@pytest.fixture
def cell():
    return LinearConstraint.from_equations(TEXTS, inputs=INPUTS, outputs=OUTPUTS, known=KNOWN)


# What a constraint holds


def test_a_constraint_knows_its_names_and_sizes(cell):
    assert cell.names == ("voltage", "heat")
    assert (cell.inputs, cell.known, cell.outputs) == (tuple(INPUTS), tuple(KNOWN), tuple(OUTPUTS))
    assert cell.columns == (*INPUTS, *KNOWN)
    assert (cell.n_balances, cell.n_inputs, cell.n_columns, cell.n_outputs) == (2, 2, 3, 6)
    assert cell.equations == tuple(TEXTS.values())


def test_a_constraint_holds_what_its_texts_say(cell):
    np.testing.assert_array_equal(cell.A, [[0, 0, 2], [0, 1, 0]])
    np.testing.assert_array_equal(cell.B, [[1, -1, 1, 0, 0, 0], [0, 0, 0, 1, -1, -1]])
    np.testing.assert_array_equal(cell.b, [0.5, 0])


def test_units_are_those_of_the_columns(cell):
    assert cell.units == ("V", None)  # heat adds ampere to watt


def test_given_units_override_those_of_columns():
    balances = LinearConstraint([[1, 1], [1, -1]], outputs=["a [V]", "b [V]"], units=["mV", None])
    assert balances.units == ("mV", None)


@pytest.mark.parametrize("units", [["V", "V"], [5]])
def test_units_must_be_texts_one_for_each_balance(units):
    with pytest.raises(ConstraintError, match=r"one text or None for each of 'balance 0', but got \["):
        LinearConstraint([[1, 2]], units=units)


def test_given_equations_are_kept_beside_the_coefficients():
    texts = ["a + b = 0", "a = b"]
    balances = LinearConstraint([[1, 1], [1, -1]], outputs=["a", "b"], equations=texts)
    assert balances.equations == tuple(texts)
    assert balances.without(balances.names[0]).equations == ("a = b",)


@pytest.mark.parametrize("equations", [["a = b"], ["a = b", None], "a = b"])
def test_equations_must_be_texts_one_for_each_balance(equations):
    with pytest.raises(ConstraintError, match=r"one text for each of 'balance 0' and 'balance 1', but got "):
        LinearConstraint([[1, 2, 0], [0, 1, 1]], equations=equations)


def test_balances_that_are_not_usable_are_refused_in_numbers_and_in_text():
    with pytest.raises(ConstraintError, match="are duplicates, equal up to a factor"):
        LinearConstraint([[1, 1], [2, 2]])
    with pytest.raises(ConstraintError, match="are duplicates, equal up to a factor"):
        LinearConstraint.from_equations(["a = b", "2*a = 2*b"], outputs=["a", "b"])


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


# Pickled by a version whose constraints were filled through `__setstate__`.
PICKLED = """
gASV6gEAAAAAAACMGWVxdWlwb2lzZS5iYWxhbmNlcy5saW5lYXKUjBBMaW5lYXJDb25zdHJhaW50lJOUKYGUfZQojAFBlIwWbnVtcHkuX2Nv
cmUubXVsdGlhcnJheZSMDF9yZWNvbnN0cnVjdJSTlIwFbnVtcHmUjAduZGFycmF5lJOUSwCFlEMBYpSHlFKUKEsBSwJLAYaUaAmMBWR0eXBl
lJOUjAJmOJSJiIeUUpQoSwOMATyUTk5OSv////9K/////0sAdJRiiUMQAAAAAAAAAAAAAAAAAAAAwJR0lGKMAUKUaAhoC0sAhZRoDYeUUpQo
SwFLAksDhpRoFYlDMAAAAAAAAPC/AAAAAAAA8L8AAAAAAADwPwAAAAAAAPA/AAAAAAAAAAAAAAAAAAAAAJR0lGKMAWKUaAhoC0sAhZRoDYeU
UpQoSwFLAoWUaBWJQxAAAAAAAAAAAAAAAAAAAPA/lHSUYowFbmFtZXOUjANzdW2UjAVvdGhlcpSGlIwGaW5wdXRzlIwBeJSFlIwFa25vd26U
KYwHb3V0cHV0c5SMBWEgW1ZdlGghjAV0b3RhbJSHlIwFdW5pdHOUjAFWlGg1hpSMCWVxdWF0aW9uc5SMDXRvdGFsID0gYSArIGKUjA1hID0g
MiAqIHggKyAxlIaUdWIu
"""


def test_a_pickle_of_an_older_version_opens():
    opened = pickle.loads(base64.b64decode(PICKLED))
    balances = {"sum": "total = a + b", "other": "a = 2 * x + 1"}
    expected = LinearConstraint.from_equations(balances, inputs=["x"], outputs=["a [V]", "b", "total"])
    assert opened == expected
    assert opened.equations == tuple(balances.values())
    assert not any(array.flags.writeable for array in (opened.A, opened.B, opened.b))


def test_no_module_fills_an_object_by_hand_as_pickle_does():
    sources = (Path(__file__).parents[2] / "src").rglob("*.py")
    assert [path.name for path in sources if ".__setstate__(" in path.read_text("utf-8")] == []


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
    np.testing.assert_allclose(LinearConstraint(B).scale(std), np.sqrt(np.diag(B @ np.diag(std**2) @ B.T)), rtol=1e-13)


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


# Refused: data


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
