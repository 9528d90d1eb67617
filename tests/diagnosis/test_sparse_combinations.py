import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from equipoise.diagnosis.sparse_combinations import (
    LARGEST_SIGNED,
    MATERIAL,
    MAX_FITS,
    MAX_SIGNED_TRIALS,
    Combination,
    NewSupports,
    affordable_terms,
    fitted_sums,
    is_implied,
    is_incomplete,
    is_known,
    signed_sums,
    smallest_remaining,
)


def everything(supports):
    return np.ones(len(supports), dtype=bool)


def cov_of(table):
    return np.cov(table, rowvar=False, bias=True)


def table_with_balances(seed, n=400, p=7, noise=0.01):
    """Columns with c0 = c1 + c2 and c3 = c4 - c5 up to noise; c6 is unrelated."""
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((n, p))
    table[:, 0] = table[:, 1] + table[:, 2]
    table[:, 3] = table[:, 4] - table[:, 5]
    return table + noise * rng.standard_normal(table.shape)


def slow_signed_sums(table, n_terms):
    """The definition, one support and one pattern of signs at a time, from the columns themselves."""

    def std(columns):
        return sum(columns).std() if columns else 0.0

    found = {}
    for support in itertools.combinations(range(table.shape[1]), n_terms):
        for rest in itertools.product((1.0, -1.0), repeat=n_terms - 1):
            signs = (1.0, *rest)
            terms = [s * table[:, j] for s, j in zip(signs, support, strict=True)]
            size = math.sqrt(sum(term.var() for term in terms))
            others = [s * table[:, j] for j in range(table.shape[1]) if j not in support for s in (1, -1)]
            smaller = min((std([*terms, other]) for other in others), default=math.inf)
            without = min(std(terms[:i] + terms[i + 1 :]) for i in range(n_terms))
            if (
                std(terms) <= LARGEST_SIGNED * size
                and without >= MATERIAL * std(terms)
                and MATERIAL * smaller >= std(terms)
            ):
                found[support, signs] = std(terms) / size
    return found


@settings(max_examples=10)
@given(st.integers(0, 1000), st.integers(2, 4), st.sampled_from([0.01, 0.05, 0.1]))
def test_signed_sums_are_those_of_a_slow_search(seed, n_terms, noise):
    table = table_with_balances(seed, noise=noise)
    expected = slow_signed_sums(table, n_terms)
    found = {
        (each.support, each.coefficients): each.relative
        for each in signed_sums(cov_of(table), n_terms, everything, everything)
    }
    assert found == pytest.approx(expected, rel=1e-6)
    assert list(found.values()) == sorted(found.values())


def test_only_admitted_supports_are_tried_and_only_exact_ones_where_nothing_is_fresh():
    table = table_with_balances(0)
    found = signed_sums(cov_of(table), 3, lambda supports: (supports == 4).any(1), everything)
    assert [each.support for each in found] == [(3, 4, 5)]
    nothing = lambda supports: np.zeros(len(supports), dtype=bool)  # noqa: E731
    assert signed_sums(cov_of(table), 3, everything, nothing) == []
    exact = signed_sums(cov_of(table_with_balances(0, noise=0.0)), 3, everything, nothing)
    assert {each.support for each in exact} == {(0, 1, 2), (3, 4, 5)}
    assert all(each.exact for each in exact)


def test_a_sum_that_another_column_would_improve_waits_for_it():
    rng = np.random.default_rng(0)
    a, b, small = rng.standard_normal(500), rng.standard_normal(500), 0.05 * rng.standard_normal(500)
    cov = cov_of(np.column_stack([a + b + small, a, b, small]))
    assert signed_sums(cov, 3, everything, everything) == []
    assert [each.support for each in signed_sums(cov, 4, everything, everything)] == [(0, 1, 2, 3)]


@pytest.mark.parametrize(
    ("true", "noise"),
    [
        ((1.0, -2.0, -0.5), 0.002),
        ((1.0, -1000.0, -1.0), 0.002),
        ((60.0, -1.0, 1.0), 0.002),
        ((3.0, -1.0, -2.0), 0.002),
        ((1.0, -1.37, -0.25), 0.0),
        ((1.0, -1.8, 1e-3), 0.0),
    ],
)
def test_coefficients_that_people_write_are_found_again(true, noise):
    rng = np.random.default_rng(0)
    parts = rng.standard_normal((3000, 3))
    parts[:, 0] = -(parts[:, 1] + parts[:, 2])
    parts += noise * rng.standard_normal(parts.shape)
    table = np.column_stack([parts / true, rng.standard_normal(3000)])
    (found,) = fitted_sums(cov_of(table), 3, everything)
    assert found.support == (0, 1, 2)
    ratio = np.array(found.coefficients) / true
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-9)


def test_odd_numbers_are_not_believed_where_there_is_noise():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(3000)
    table = np.column_stack([x, 1.3719 * x + 0.008 * rng.standard_normal(3000)])
    assert list(fitted_sums(cov_of(table), 2, everything)) == []
    table[:, 1] = 1.3719 * x + 0.0005 * rng.standard_normal(3000)
    (found,) = fitted_sums(cov_of(table), 2, everything)
    assert found.coefficients[0] / found.coefficients[1] == pytest.approx(-1.3719, rel=1e-3)


def test_what_is_left_over_is_the_smallest_component_beyond_what_is_known():
    table = table_with_balances(0, noise=1e-3)
    cov = cov_of(table)
    correlation = np.corrcoef(table, rowvar=False)
    assert smallest_remaining(cov, []) == pytest.approx(np.sqrt(np.linalg.eigvalsh(correlation)[0]), rel=1e-6)
    first = Combination((0, 1, 2), (1.0, -1.0, -1.0), 1e-3)
    second = Combination((3, 4, 5), (1.0, -1.0, 1.0), 1e-3)
    assert smallest_remaining(cov, [first]) < 0.01
    assert smallest_remaining(cov, [first, second]) > 0.5
    whole = Combination((0,), (1.0,), 0.1), Combination((1,), (1.0,), 0.1)
    assert smallest_remaining(np.eye(2), list(whole)) == math.inf


def test_what_follows_from_others_is_known():
    std = np.ones(4)
    ab, bc, ac = (Combination(s, (1.0, -1.0), 0.01) for s in ((0, 1), (1, 2), (0, 2)))
    assert is_known(ac, [ab, bc], std)
    assert not is_known(ac, [ab], std)
    longer = Combination((0, 1, 3), (1.0, -1.0, 1.0), 0.01)
    assert is_known(longer, [ab], std)  # it contains a support
    assert is_implied(ac, [ab, bc], std)
    assert not is_implied(longer, [ab], std)


def test_an_exact_balance_does_not_follow_from_noisy_ones():
    noisy = [Combination((0, 1), (1.0, -1.0), 0.01), Combination((1, 2), (1.0, -1.0), 0.01)]
    assert not is_known(Combination((0, 2), (1.0, -1.0), 1e-7), noisy, np.ones(3))


def test_unknown_supports_hold_what_is_needed_and_nothing_known():
    unknown = NewSupports(np.array([True, False, False, True]), [Combination((0, 1), (1.0, -1.0), 0.0)])
    supports = np.array([[0, 1, 2], [0, 2, 3], [1, 2, 3]])
    assert unknown(supports).tolist() == [False, True, True]
    assert unknown(np.array([[1, 2]])).tolist() == [False]


@pytest.mark.parametrize(("columns", "terms"), [(6, 6), (20, 6), (30, 6), (40, 5), (100, 3), (500, 2), (3, 3)])
def test_the_number_of_terms_is_what_the_work_allows(columns, terms):
    found = affordable_terms(columns, 6, lambda k: 2 ** (k - 1), MAX_SIGNED_TRIALS)
    work = [sum(math.comb(columns, j) * 2 ** (j - 1) for j in range(2, k + 1)) for k in range(2, 7)]
    assert found == terms == min(columns, 1 + sum(w <= MAX_SIGNED_TRIALS for w in work))


def test_fits_are_fewer():
    assert affordable_terms(30, 6, lambda k: 1, MAX_FITS) == 5


def test_a_sum_is_left_out_if_another_column_with_a_factor_leaves_nearly_nothing_of_it():
    rng = np.random.default_rng(0)
    b, c = rng.standard_normal((2, 400))
    table = np.column_stack([b + 0.05 * c, b, c])
    assert signed_sums(cov_of(table), 2, everything, everything) == []
    table[:, 2] += 0.1 * rng.standard_normal(400)  # then a tenth of the sum is left: the column explains it no longer
    (found,) = signed_sums(cov_of(table), 2, everything, everything)
    assert found.support == (0, 1)


def test_a_combination_is_incomplete_beside_one_with_further_terms_that_varies_less():
    whole = Combination((0, 1, 2), (2.0, -2.0, -1.0), 0.01)
    var = np.array([1.0, 1.0, 0.01])
    assert is_incomplete(Combination((0, 1), (1.0, -1.0), 0.05), [whole], var)
    assert not is_incomplete(Combination((0, 1), (1.0, -1.0), 0.01), [whole], var)  # as small as that
    assert not is_incomplete(Combination((0, 1), (1.0, 1.0), 0.05), [whole], var)  # another sum
    assert not is_incomplete(whole, [whole], var)
