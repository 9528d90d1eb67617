"""Dependent balances: found exactly as often as exact arithmetic finds them, whatever the units."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from equipoise.balances.dependence import Dependence, combine, find_dependence


def exact_rank(B):
    """Rank of a matrix of whole numbers by Gaussian elimination in fractions."""
    rows, rank = [[Fraction(int(entry)) for entry in row] for row in B], 0
    for j in range(len(rows[0])):
        pivot = next((k for k in range(rank, len(rows)) if rows[k][j]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for k in range(rank + 1, len(rows)):
            factor = rows[k][j] / rows[rank][j]
            rows[k] = [a - factor * b for a, b in zip(rows[k], rows[rank], strict=True)]
        rank += 1
    return rank


def whole_numbers(seed, m, n, density, dependent):
    """Random coefficients from −3 to 3, no empty row; the last row is a combination of others if `dependent`."""
    rng = np.random.default_rng(seed)
    B = rng.integers(-3, 4, (m, n)) * (rng.random((m, n)) < density)
    if dependent and m > 1:
        B[-1] = rng.integers(-2, 3, m - 1) @ B[:-1]
    B[np.flatnonzero(~B.any(axis=1)), rng.integers(n)] = 1
    return rng.permutation(B)


def assert_cancels(B, found):
    """`λᵀ B = 0`, column by column, to rounding of its own terms, with a λ that is not zero."""
    assert found.weights.any()
    terms = np.abs(found.weights) @ np.abs(B)
    assert np.all(np.abs(found.weights @ B) <= 1e-10 * terms)


sizes = {
    "seed": st.integers(0, 10**6),
    "m": st.integers(1, 6),
    "n": st.integers(1, 7),
    "density": st.sampled_from([0.3, 0.6, 1.0]),
    "dependent": st.booleans(),
}


@given(**sizes)
def test_dependence_is_found_exactly_when_fractions_find_it(seed, m, n, density, dependent):
    B = whole_numbers(seed, m, n, density, dependent)
    found, rank = find_dependence(B.astype(float)), exact_rank(B)
    if rank == m:
        assert found is None
    else:
        assert found.rank == rank
        assert_cancels(B, found)


@given(**sizes, decades=st.sampled_from([6.0, 12.0, 24.0]))
def test_units_of_rows_and_columns_change_nothing(seed, m, n, density, dependent, decades):
    B, rng = whole_numbers(seed, m, n, density, dependent), np.random.default_rng(seed)
    rows, columns = (10.0 ** rng.uniform(-decades / 2, decades / 2, size) for size in (m, n))
    scaled = rows[:, None] * B * columns
    found, rank = find_dependence(scaled), exact_rank(B)
    if rank == m:
        assert found is None
    else:
        assert found.rank == rank
        assert_cancels(scaled, found)


@given(**sizes)
def test_weights_follow_the_units_of_the_rows(seed, m, n, density, dependent):
    B, rng = whole_numbers(seed, m, n, density, dependent), np.random.default_rng(seed)
    assume(exact_rank(B) < m)
    rows = 10.0 ** rng.uniform(-6, 6, m)
    first, second = find_dependence(B.astype(float)), find_dependence(rows[:, None] * B)
    ours, theirs = first.weights, second.weights * rows
    k = np.abs(ours).argmax()
    np.testing.assert_allclose(theirs / theirs[k], ours / ours[k], atol=1e-9)


@given(**sizes)
def test_the_combination_involves_only_rows_that_it_needs(seed, m, n, density, dependent):
    """Each row left out of the involved ones leaves independent rows: the circuit is minimal."""
    B = whole_numbers(seed, m, n, density, dependent)
    assume(exact_rank(B) < m)
    involved = np.flatnonzero(find_dependence(B.astype(float)).weights)
    assert exact_rank(B[involved]) == len(involved) - 1
    for k in involved:
        kept = [row for row in involved if row != k]
        assert not kept or exact_rank(B[kept]) == len(kept)


def test_the_first_of_several_dependent_rows_is_the_one_that_is_told():
    B = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0], [2.0, 4.0, 1.0], [1.0, 1.0, 0.0]])
    found = find_dependence(B)
    assert isinstance(found, Dependence)
    np.testing.assert_allclose(found.weights / found.weights[2], [-2.0, -1.0, 1.0, 0.0], atol=1e-12)
    assert found.rank == 2


@pytest.mark.parametrize("difference", [1e-3, 1e-5, 1e-7])
def test_rows_that_differ_measurably_are_independent(difference):
    assert find_dependence(np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0 + difference]])) is None


def test_a_small_coefficient_is_no_rounding_error():
    """In the unit of its column the tiny coefficient is as good as any."""
    assert find_dependence(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1e-12]])) is None


def test_more_rows_than_outputs_are_dependent_even_if_rounding_hides_how():
    rng = np.random.default_rng(0)
    found = find_dependence(rng.normal(size=(4, 3)))
    assert found is not None
    assert found.rank == 3


def test_what_cancels_to_rounding_is_left_out_and_what_does_not_is_kept():
    weights = np.array([1.0, -1.0, 3.0])
    values = np.array([[0.1, 1.0, 1e-20], [0.4, 1.0 + 1e-6, 0.0], [0.1, 0.0, 0.0]])
    left = combine(weights, values)
    assert left[0] == 0.0  # 0.1 − 0.4 + 0.3 is 5.6e-17
    np.testing.assert_allclose(left[1:], [-1e-6, 1e-20], rtol=1e-9)
