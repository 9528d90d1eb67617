"""Whether balances are usable: every refusal by name, dependence as numpy's rank sees it and whatever the units."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from equipoise.balances.coefficients import Coefficients, ConstraintError, read_equations
from equipoise.balances.soundness import check_balances


def refusal(*args, **kwargs):
    with pytest.raises(ConstraintError) as caught:
        check_balances(Coefficients.from_arrays(*args, **kwargs))
    return str(caught.value)


def text_refusal(equations, **columns):
    with pytest.raises(ConstraintError) as caught:
        check_balances(read_equations(equations, **columns)[0])
    return str(caught.value)


# Parts that do not fit together


def test_balances_have_different_names():
    assert "must be unique, but got 'sum' twice" in refusal(np.eye(2), names=["sum", "sum"])
    assert "must be unique, but got 'a = b' twice" in text_refusal(["a = b", " a = b "], outputs=["a", "b"])


def test_a_column_has_one_place():
    assert "'a' in inputs and in outputs" in refusal([[1, 1]], inputs=["a"], outputs=["a", "b"])


@pytest.mark.parametrize(
    ("arguments", "informative"),
    [
        ({"B": np.zeros((0, 2))}, "B must have a balance and an output, but got shape (0, 2). Use None"),
        ({"B": np.zeros((2, 0))}, "B must have a balance and an output, but got shape (2, 0)"),
        ({"B": [[1, 2]], "A": [[1], [2]]}, "A must have shape (1, 1) for 1 balances"),
        ({"B": [[1, 2]], "A": [[1]], "inputs": ["u", "v"]}, "A must have shape (1, 2)"),
        ({"B": [[1, 2]], "A": [[1]], "known": ["u", "v"]}, "A must have shape (1, 2)"),
        ({"B": [[1, 2]], "b": [1, 2]}, "b must have shape (1,)"),
        ({"B": [[1, 2]], "b": 1.0}, "b must have shape (1,) for 1 balances, 0 inputs and known columns, 2 outputs"),
        ({"B": [[1, 2]], "outputs": ["a"]}, "B must have shape (1, 1)"),
        ({"B": [[1, 2]], "names": ["a", "b"]}, "names must have shape (1,)"),
    ],
)
def test_shapes_must_fit(arguments, informative):
    assert informative in refusal(**arguments)


# Single balances


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


# Dependence

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
    check_balances(Coefficients.from_arrays(B))


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
        check_balances(Coefficients.from_arrays(B, A, b))
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
