import numpy as np
import pytest
from hypothesis import given, strategies as st

from equipoise.diagnosis.rounding import decimal_step, rounding_limit


@given(st.integers(0, 7), st.floats(0.1, 1e3), st.integers(0, 100))
def test_a_rounded_column_has_the_step_it_was_rounded_to(digits, size, seed):
    values = (size * np.random.default_rng(seed).standard_normal(500)).round(digits)
    written = {len(f"{value:.9f}".rstrip("0").partition(".")[2]) for value in values}
    assert decimal_step(values) == pytest.approx(10.0 ** -max(written) if len(set(values)) > 1 else 0.0)


@pytest.mark.parametrize("values", [np.full(9, 5.0), np.zeros(0), np.sqrt(np.arange(1.0, 50)), 1e15 * np.arange(9.0)])
def test_constants_and_numbers_that_were_not_rounded_have_no_step(values):
    assert decimal_step(values) == 0.0


def summed(digits, n=500, seed=0):
    """Terms of total = 2 a + b, each rounded, and their residual."""
    a, b = np.random.default_rng(seed).uniform(1, 30, (2, n))
    columns = [(2 * a + b).round(digits), a.round(digits), b.round(digits)]
    terms = list(zip([1.0, -2.0, -1.0], columns, strict=True))
    return terms, sum(c * column for c, column in terms)


@pytest.mark.parametrize("digits", [0, 1, 4])
def test_rounding_adds_up_to_half_a_step_for_each_number(digits):
    terms, _ = summed(digits)
    _, a, b = (column for _, column in terms)
    total = np.round(a + b + np.random.default_rng(1).choice([-1, 0, 0, 0, 1], len(a)) * 10.0**-digits, digits)
    plain = [(1.0, total), (-1.0, a), (-1.0, b)]
    assert rounding_limit(plain, total - a - b) == pytest.approx(1.5 * 10.0**-digits, rel=1e-5)


def test_the_finest_column_decides():
    terms, z = summed(3)
    rough = [*terms[:2], (-1.0, terms[2][1].round(1))]
    assert rounding_limit(rough, z) == pytest.approx(1.5e-3, rel=1e-5)


def test_few_errors_of_whole_numbers_are_no_rounding():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 50, (2, 500)).astype(float)
    error = np.where(np.arange(500) < 5, 1.0, 0.0)
    assert rounding_limit([(1.0, a + b + error), (-1.0, a), (-1.0, b)], error) == 0.0


def test_counts_that_miss_by_much_of_what_they_vary_by_are_not_rounded():
    """Three numbers in whole steps are off by 1.5 at most: a fifth of what the terms vary by when that is 7.5."""
    rng = np.random.default_rng(0)
    error = rng.choice([-1.0, 0.0, 1.0], 3000, p=[1 / 8, 3 / 4, 1 / 8])  # as rounding does
    for most, expected in ((3, 0.0), (10, 0.0), (14, 1.5)):
        a, b = rng.integers(0, most + 1, (2, 3000)).astype(float)
        terms = [(1.0, a + b + error), (-1.0, a), (-1.0, b)]
        assert (np.hypot.reduce([column.std() for _, column in terms]) > 7.5) == (expected > 0)
        assert rounding_limit(terms, error) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("most", [20, 100, 10_000])
@pytest.mark.parametrize("rows", [60, 3000])
def test_counts_that_miss_by_one_more_often_than_rounding_does_are_not_rounded(most, rows):
    """Rounding of three terms misses by one in a quarter of the rows: the sum of two errors is beyond ±½."""
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0, most, (2, rows))
    rounded = np.round(a + b) - np.round(a) - np.round(b)
    for error, expected in ((rounded, 1.5), (rng.integers(-1, 2, rows).astype(float), 0.0)):
        total = np.round(a) + np.round(b) + error
        terms = [(1.0, total), (-1.0, np.round(a)), (-1.0, np.round(b))]
        assert rounding_limit(terms, error) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("n_terms", [2, 6])
@pytest.mark.parametrize("rows", [3, 12, 100])
def test_rounded_numbers_are_hardly_ever_taken_for_errors(n_terms, rows):
    """By chance residuals are larger than typical: beyond three standard errors in one of a thousand tables, or so."""
    rng = np.random.default_rng(0)
    parts = rng.uniform(0, 50, (300, n_terms, rows))
    total, rounded = np.round(parts.sum(1), 1), np.round(parts, 1)
    unlike = 0
    for whole, some in zip(total, rounded, strict=True):
        z = whole - some.sum(0)
        spread = float(z.std())
        terms = [(1.0, whole), *((-1.0, part) for part in some)]
        unlike += rounding_limit(terms, z) == 0 and spread > 0.05 * np.sqrt((n_terms + 1) / 12)
    assert unlike <= 3


def test_whole_percentages_are_rounded():
    shares = (100 * np.random.default_rng(0).dirichlet([3, 4, 5], 300)).round()
    missing = shares.sum(axis=1) - 100
    assert set(missing) == {-1, 0, 1}
    assert rounding_limit([(1.0, column) for column in shares.T], missing) == pytest.approx(1.5, rel=1e-5)


def test_residuals_larger_than_rounding_are_none():
    terms, z = summed(2)
    assert rounding_limit(terms, z + 0.05 * np.random.default_rng(0).standard_normal(len(z))) == 0.0
    assert rounding_limit([(1.0, np.sqrt(np.arange(9.0)))], np.zeros(9)) == 0.0
