"""Changes of units: data and balances together, forth and back."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from equipoise.balances.linear import LinearConstraint
from equipoise.data.scaling import Standardizer

EPS = np.finfo(float).eps
NAN = float("nan")


def random_table(seed, *, n=40, n_x=2, n_y=5, m=2, decades=0.0, means=1.0, known=1):
    """Rows of inputs and outputs that obey random balances, in units that differ by up to `decades` decades."""
    rng = np.random.default_rng(seed)
    s = 10.0 ** rng.uniform(-decades / 2, decades / 2, n_y)
    X = rng.normal(size=(n, n_x + known))
    Y = means * rng.normal(size=n_y) + rng.normal(size=(n, n_y))
    B, A = rng.uniform(0.5, 2.0, (m, n_y)), rng.normal(size=(m, n_x + known))
    b = rng.normal(size=m)
    missed = (b - X @ A.T - Y @ B.T) @ np.linalg.pinv(B).T
    c = LinearConstraint(B / s, A, b, known=[f"k{j}" for j in range(known)])
    return X, (Y + missed) * s, c


def test_outputs_are_shifted_by_their_means_and_divided_by_their_standard_deviations():
    X, Y = np.array([[1.0], [3.0]]), np.array([[10.0, -1.0], [30.0, -5.0]])
    s = Standardizer.fit(X, Y)
    np.testing.assert_array_equal(s.outputs(Y), [[-1.0, 1.0], [1.0, -1.0]])
    np.testing.assert_array_equal(s.inputs(X), [[-1.0], [1.0]])
    np.testing.assert_array_equal(s.y_std, [10.0, 2.0])


@given(seed=st.integers(0, 10**6), decades=st.sampled_from([0.0, 10.0]), means=st.sampled_from([1.0, 1e6]))
def test_an_output_obeys_a_balance_in_both_units_or_in_neither(seed, decades, means):
    """`c (B' y' − t') = A x + B y − b` for rows that obey and rows that do not, to the rounding of the terms."""
    X, Y, c = random_table(seed, decades=decades, means=means)
    s = Standardizer.fit(X, Y, c)
    rng = np.random.default_rng(seed + 1)
    for rows in (Y, Y + s.y_std * rng.normal(size=Y.shape)):
        ours = s.row_scale * (s.outputs(rows) @ s.B.T - s.target(X))
        terms = np.abs(X) @ np.abs(c.A).T + np.abs(rows) @ np.abs(c.B).T + np.abs(c.b)
        terms = terms + np.abs(s.y_mean) @ np.abs(c.B).T
        assert np.all(np.abs(ours - (X @ c.A.T + rows @ c.B.T - c.b)) <= 32 * EPS * terms)
    assert np.all(np.abs(s.outputs(Y) @ s.B.T - s.target(X)) <= 64 * EPS * terms / s.row_scale)


@given(seed=st.integers(0, 10**6), decades=st.sampled_from([0.0, 20.0]), means=st.sampled_from([1.0, 1e6]))
def test_there_and_back_is_the_identity_to_rounding(seed, decades, means):
    X, Y, c = random_table(seed, decades=decades, means=means)
    s = Standardizer.fit(X, Y, c)
    assert np.all(np.abs(s.outputs_to_user(s.outputs(Y)) - Y) <= 4 * EPS * (np.abs(Y) + np.abs(s.y_mean)))
    y = np.random.default_rng(seed).normal(size=Y.shape)
    lost = 4 * EPS * (np.abs(y) + np.abs(s.y_mean) / s.y_std)
    assert np.all(np.abs(s.outputs(s.outputs_to_user(y)) - y) <= lost)


def test_draws_on_leading_axes_go_back_to_the_users_units_one_by_one():
    X, Y, c = random_table(0)
    s, y = Standardizer.fit(X, Y, c), np.random.default_rng(0).normal(size=(3, 4, 5))
    for d, i, j in np.ndindex(y.shape):
        np.testing.assert_allclose(s.outputs_to_user(y)[d, i, j], s.y_mean[j] + s.y_std[j] * y[d, i, j], rtol=1e-13)


@given(seed=st.integers(0, 10**6), decades=st.sampled_from([0.0, 10.0, 20.0]))
def test_every_balance_has_coefficients_of_unit_length(seed, decades):
    X, Y, c = random_table(seed, decades=decades)
    s = Standardizer.fit(X, Y, c)
    np.testing.assert_allclose(np.linalg.norm(s.B, axis=1), 1.0, rtol=8 * EPS)
    for k in range(c.n_balances):
        by_hand = sum((c.B[k, j] * np.std(Y[:, j])) ** 2 for j in range(5)) ** 0.5  # Z2
        np.testing.assert_allclose(s.row_scale[k], by_hand, rtol=1e-12)


@given(seed=st.integers(0, 10**6), unit=st.sampled_from([1e-10, 1e-3, 1e10]))
def test_in_other_units_the_standardized_problem_is_the_same(seed, unit):
    X, Y, c = random_table(seed)
    other = np.ones(5)
    other[1] = unit
    first = Standardizer.fit(X, Y, c)
    second = Standardizer.fit(X, Y * other, LinearConstraint(c.B / other, c.A, c.b, known=c.known))
    np.testing.assert_allclose(second.B, first.B, rtol=1e-12)
    np.testing.assert_allclose(second.target(X), first.target(X), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(second.outputs(Y * other), first.outputs(Y), rtol=1e-12, atol=1e-12)


def test_known_columns_enter_targets_but_not_the_network():
    c = LinearConstraint([[1.0, 1.0]], [[2.0, -3.0]], inputs=["x"], known=["load"])
    X, Y = np.array([[1.0, 5.0], [2.0, 7.0], [6.0, 0.0]]), np.array([[1.0, 2.0], [4.0, 0.0], [1.0, 1.0]])
    s = Standardizer.fit(X, Y, c)
    assert s.x_mean.shape == (1,)
    np.testing.assert_allclose(s.inputs(X), (X[:, :1] - 3.0) / np.std([1.0, 2.0, 6.0]), rtol=1e-13)
    by_hand = (3.0 * X[:, 1] - 2.0 * X[:, 0] - Y.mean(0).sum()) / np.sqrt(Y.var(0).sum())
    np.testing.assert_allclose(s.target(X)[:, 0], by_hand, rtol=1e-13)


@pytest.mark.parametrize("constant", [0.0, 3.0, -0.1, 1e-300, 1e12])
def test_a_constant_output_is_not_divided_by_zero(constant):
    """Its standard deviation is a millionth of its size, so that it counts for nothing in its balance's scale."""
    rng = np.random.default_rng(0)
    Y = np.column_stack([rng.normal(size=30), rng.normal(size=30), np.full(30, constant)])
    c = LinearConstraint([[1.0, 1.0, 1.0], [0.0, 0.0, 1.0]])
    s = Standardizer.fit(np.zeros((30, 0)), Y, c)
    np.testing.assert_allclose(s.y_std[2], 1e-6 * (abs(constant) or 1.0))
    assert np.all(np.abs(s.outputs(Y)[:, 2]) <= 1e-9)
    np.testing.assert_allclose(s.outputs_to_user(s.outputs(Y))[:, 2], constant)
    assert np.all(np.isfinite(s.B))
    assert np.all(s.row_scale > 0)
    np.testing.assert_allclose(np.linalg.norm(s.B, axis=1), 1.0, rtol=1e-13)


@pytest.mark.parametrize("constant", [0.0, 3.0, 0.1])
def test_a_constant_input_is_not_divided_by_zero(constant):
    X = np.column_stack([np.full(7, constant), np.arange(7.0)])
    s = Standardizer.fit(X, np.arange(7.0)[:, None])
    assert np.all(np.abs(s.inputs(X)[:, 0]) <= 1e-9)
    np.testing.assert_allclose(s.inputs(X)[:, 1].std(), 1.0)


def test_a_column_whose_sum_rounds_is_still_constant():
    """The mean of three times 0.1 is not 0.1: what is left must not be taken for a spread."""
    for n in range(2, 200):
        s = Standardizer.fit(np.zeros((n, 0)), np.full((n, 1), 0.1))
        np.testing.assert_allclose(s.y_std, 1e-7)


@pytest.mark.parametrize("mean", [1e3, 1e6, 1e9])
def test_a_spread_far_smaller_than_the_mean_is_found(mean):
    noise = np.random.default_rng(0).normal(size=1000)
    s = Standardizer.fit(np.zeros((1000, 0)), (mean + noise)[:, None])
    np.testing.assert_allclose(s.y_std, noise.std(), rtol=4 * EPS * mean)


def test_outputs_that_were_not_measured_are_left_out_of_means_and_spreads():
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(50, 3)) * [1.0, 1e5, 1e-5]
    missing = rng.random(Y.shape) < 0.4
    s = Standardizer.fit(np.zeros((50, 0)), np.where(missing, NAN, Y))
    for j in range(3):
        np.testing.assert_allclose(s.y_mean[j], Y[~missing[:, j], j].mean(), rtol=1e-13)
        np.testing.assert_allclose(s.y_std[j], Y[~missing[:, j], j].std(), rtol=1e-13)
    np.testing.assert_array_equal(np.isnan(s.outputs(np.where(missing, NAN, Y))), missing)


def test_the_rounding_level_is_that_of_the_largest_terms_of_each_balance():
    X, Y, c = random_table(3, means=1e6)
    s = Standardizer.fit(X, Y, c)
    terms = [np.abs(X[i]) @ np.abs(c.A).T + np.abs(Y[i]) @ np.abs(c.B).T + np.abs(c.b) for i in range(len(X))]
    np.testing.assert_allclose(s.rounding(X, Y, 1e-9), 1e-9 * np.max(terms, axis=0) / s.row_scale, rtol=1e-12)
    actual = np.abs(s.outputs(Y) @ s.B.T - s.target(X))
    assert np.all(actual <= s.rounding(X, Y, 64 * EPS))


def test_missing_outputs_do_not_spoil_the_rounding_level():
    X, Y, c = random_table(4)
    s = Standardizer.fit(X, Y, c)
    for i, j in np.ndindex(3, Y.shape[1]):
        seen, zero = Y.copy(), Y.copy()
        seen[i, j], zero[i, j] = NAN, 0.0
        np.testing.assert_array_equal(s.rounding(X, seen, 1e-9), s.rounding(X, zero, 1e-9))


def test_without_balances_there_are_no_targets():
    X, Y, c = random_table(0)
    s = replace(Standardizer.fit(X, Y, c), constraint=None)
    with pytest.raises(ValueError, match="fitted without balances"):
        s.target(X)


def test_inputs_lie_beyond_if_they_exceed_the_range_by_more_than_a_twentieth_of_it():
    X, Y = np.array([[0.0, 7.0], [10.0, 7.0]]), np.array([[1.0], [2.0]])
    s = Standardizer.fit(X, Y)
    new = np.array([[-0.6, 7.0], [-0.4, 7.0], [10.4, 7.0], [10.6, 7.0], [5.0, 7.1]])
    beyond = [[True, False], [False, False], [False, False], [True, False], [False, True]]
    assert s.beyond(new).tolist() == beyond


def test_only_rows_trained_on_count_and_only_columns_that_the_network_sees():
    c = LinearConstraint.from_equations("y = 2*k", inputs=["x"], known=["k"], outputs=["y"])
    X, Y = np.array([[0.0, 1.0], [1.0, 2.0], [9.0, 3.0]]), np.array([[2.0], [4.0], [6.0]])
    s = Standardizer.fit(X, Y, c, np.array([0, 1]))
    assert s.beyond(np.array([[0.5, 99.0], [9.0, 1.0]])).tolist() == [[False], [True]]


def test_nothing_lies_beyond_a_range_that_is_not_known():
    s = Standardizer(np.zeros(1), np.ones(1), np.zeros(1), np.ones(1))
    assert not s.beyond(np.array([[1e9]])).any()
