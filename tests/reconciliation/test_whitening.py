import mpmath
import numpy as np
import pytest

from equipoise.reconciliation.whitening import Whitening


def problem(seed, n=7, f=3):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((f, n)), np.exp(rng.standard_normal(n)), rng.standard_normal((20, f))


def triangle(seed, n=7):
    rng = np.random.default_rng(seed)
    return np.tril(rng.standard_normal((n, n)) / 3) + np.diag(1 + rng.random(n))


@pytest.mark.parametrize("correlated", [False, True])
def test_adjustments_and_statistic_are_those_of_the_textbook(correlated):
    G, std, missed = problem(1)
    F = triangle(2) if correlated else np.diag(std)
    V = F @ F.T
    S = G @ V @ G.T
    factor = Whitening.of(G, F if correlated else std, triangular=correlated)
    e = factor.whiten(missed)
    np.testing.assert_allclose(np.square(e).sum(axis=1), [r @ np.linalg.solve(S, r) for r in missed])
    np.testing.assert_allclose(factor.adjustments(e), [V @ G.T @ np.linalg.solve(S, r) for r in missed])
    left = V - V @ G.T @ np.linalg.solve(S, G @ V)
    np.testing.assert_allclose(factor.var_left(F), np.diagonal(left))
    if not correlated:
        np.testing.assert_allclose(factor.var_share() * std**2, np.diagonal(left))


@pytest.mark.parametrize("correlated", [False, True])
def test_directions_are_whitened_columns(correlated):
    G, std, _ = problem(3)
    F = triangle(4) if correlated else np.diag(std)
    S = G @ F @ F.T @ G.T
    factor = Whitening.of(G, F if correlated else std, triangular=correlated)
    np.testing.assert_allclose(factor.biases().T @ factor.biases(), G.T @ np.linalg.solve(S, G))
    unit = np.random.default_rng(5).standard_normal((3, 4))
    np.testing.assert_allclose(factor.leaks(unit).T @ factor.leaks(unit), unit.T @ np.linalg.solve(S, unit))
    np.testing.assert_allclose(factor.biases(), factor.leaks(G))


def test_a_factor_for_each_row_is_the_factor_of_that_row():
    G, std, missed = problem(6)
    stds = std * np.exp(0.3 * np.random.default_rng(7).standard_normal((20, 7)))
    many = Whitening.of(G, stds)
    e, unit = many.whiten(missed), np.eye(3)
    moves = np.random.default_rng(8).standard_normal((20, 2, 7))
    for i in range(20):
        one = Whitening.of(G, stds[i])
        np.testing.assert_allclose(np.abs(e[i]), np.abs(one.whiten(missed[i : i + 1])[0]))
        np.testing.assert_allclose(many.adjustments(e)[i], one.adjustments(one.whiten(missed[i : i + 1]))[0])
        np.testing.assert_allclose(many.var_share()[i], one.var_share())
        np.testing.assert_allclose(many.var_left(moves)[i], one.var_left(moves[i]))
        for name in ("biases", "leaks"):
            found, expected = (getattr(f, name)(*([unit] if name == "leaks" else [])) for f in (many, one))
            np.testing.assert_allclose(found[i].T @ found[i], expected.T @ expected)


def test_no_balances_leave_everything_as_it_is():
    factor = Whitening.of(np.zeros((0, 3)), np.array([1.0, 2.0, 3.0]))
    e = factor.whiten(np.zeros((2, 0)))
    assert e.shape == (2, 0)
    np.testing.assert_array_equal(factor.adjustments(e), np.zeros((2, 3)))
    np.testing.assert_array_equal(factor.var_share(), np.ones(3))
    assert factor.biases().shape == (0, 3)
    assert Whitening.of(np.zeros((0, 3)), np.ones((4, 3))).whiten(np.zeros((4, 0))).shape == (4, 0)


@pytest.mark.parametrize("batched", [False, True])
def test_small_variances_keep_half_of_their_digits(batched):
    G, std = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, -1.0]]), np.array([1e-6, 1.0, 3.0])
    with mpmath.workdps(60):
        V = mpmath.diag([mpmath.mpf(float(s)) ** 2 for s in std])
        M = mpmath.matrix(G.tolist())
        left = V - V * M.T * (M * V * M.T) ** -1 * M * V
        expected = np.array([float(left[j, j]) for j in range(3)])
    factor = Whitening.of(G, np.tile(std, (2, 1)) if batched else std)
    share = factor.var_share()[0] if batched else factor.var_share()
    np.testing.assert_allclose(share * std**2, expected, rtol=1e-8)  # 1 − 1e-12 has 4 digits left
    moves = np.array([np.diag(std)] * 2) if batched else np.diag(std)
    left = factor.var_left(moves)
    np.testing.assert_allclose(left[0] if batched else left, expected, rtol=1e-8)


def test_balances_that_nearly_agree_lose_half_as_many_digits_as_their_covariance():
    G, std = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0 + 1e-8]]), np.array([1.0, 2.0, 1.0])
    missed = np.array([[0.3, 0.3 + 1e-8]])
    with mpmath.workdps(60):
        M, V = mpmath.matrix(G.tolist()), mpmath.diag([1, 4, 1])
        r = mpmath.matrix(missed[0].tolist())
        solved = mpmath.lu_solve(M * V * M.T, r)
        expected = np.array([float(x) for x in V * M.T * solved])
        statistic = float((r.T * solved)[0])
    factor = Whitening.of(G, std)
    e = factor.whiten(missed)
    np.testing.assert_allclose(factor.adjustments(e)[0], expected, rtol=1e-5)
    assert np.square(e).sum() == pytest.approx(statistic, rel=1e-5)  # cond(S) is 1e17: by a Cholesky factor, nothing
