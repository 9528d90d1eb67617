from dataclasses import replace

import mpmath
import numpy as np
import plants
import pytest

from equipoise.reconciliation.adjustment import Adjuster, Whitening
from equipoise.reconciliation.observability import Pattern, classify


def adjuster(plant, *, correlated=False, dropped=()):
    unmeasured, m = np.isnan(plant.values), len(plant.C)
    gone = np.isin(np.arange(m), list(dropped))
    pattern = Pattern(unmeasured, (plant.std == 0) & ~unmeasured, (plant.tolerance > 0) & ~gone, gone)
    V = plant.V if correlated else None
    return Adjuster(plant.C, plant.b, plant.std, plant.tolerance, pattern, classify(plant.C, pattern), V)


def solved(plant, **kwargs):
    own = adjuster(plant, **kwargs)
    z = np.nan_to_num(plant.values)[None]
    e = own.whitened(z, own.whitening)
    return own, own.reconciled(z, e, own.whitening)[0], e[0]


def test_values_and_covariances_are_those_of_the_lagrange_equations():
    for seed in range(15):
        plant = plants.random_plant(seed, n=6, m=3, missing=seed % 2, tolerant=seed % 3, correlated=seed % 2 == 1)
        if not plants.fitted(plant).observable.all():
            continue
        own, values, e = solved(plant, correlated=True)
        expected, var, statistic = plants.in_fifty_digits(plant)
        np.testing.assert_allclose(values, expected, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(np.square(own.std_after(own.whitening)), var, rtol=1e-8, atol=1e-13)
        np.testing.assert_allclose(np.diagonal(own.covariance_after(own.whitening)), var, rtol=1e-8, atol=1e-13)
        assert e @ e == pytest.approx(statistic, rel=1e-10, abs=1e-13)


def test_sensors_of_twelve_decades_in_the_same_unit_are_reconciled_to_a_fraction_of_their_errors():
    checked = 0
    for seed in range(25):
        plant = plants.random_plant(seed, missing=2, tolerant=seed % 2)
        fit, rng = plants.fitted(plant), np.random.default_rng(seed)
        std = 10.0 ** rng.uniform(-6, 6, 9)
        values = np.where(np.isnan(plant.values), np.nan, np.nan_to_num(fit.values) + std * rng.standard_normal(9))
        plant = replace(plant, values=values, V=np.diag(std**2))
        if not fit.observable.all():
            continue
        own, found, e = solved(plant)
        expected, var, statistic = plants.in_fifty_digits(plant)
        known = var > 1e-40
        assert (np.abs(found - expected) / np.sqrt(np.maximum(var, 1e-40)))[known].max() < 1e-3
        np.testing.assert_allclose(own.std_after(own.whitening)[known], np.sqrt(var[known]), rtol=1e-4)
        assert e @ e == pytest.approx(statistic, rel=1e-6)
        checked += 1
    assert checked > 8


def test_nearly_dependent_balances_are_still_obeyed_to_rounding():
    plant = plants.random_plant(3, n=7, m=3, missing=1)
    C = plant.C.copy()
    C[2] = C[1]
    C[2, np.flatnonzero(C[1])[0]] *= 1 + 1e-7
    truth = np.arange(7.0)
    noise = 0.1 * np.random.default_rng(0).standard_normal(7)
    plant = replace(plant, C=C, b=C @ truth, values=np.where(np.isnan(plant.values), np.nan, truth + noise))
    _, values, e = solved(plant)
    expected, _, statistic = plants.in_fifty_digits(plant)
    assert np.abs(C @ values - plant.b).max() < 1e-13
    np.testing.assert_allclose(values, expected, atol=1e-6)  # what two balances 1e-7 apart can say of a variable
    assert e @ e == pytest.approx(statistic, rel=1e-5)


def test_dependent_reduced_balances_are_used_once_and_the_rest_must_vanish():
    C = np.array([[1.0, -1.0, 0.0], [1.0, -1.0, 1.0]])  # a = b, and a = b + c with c exactly 0
    plant = plants.Plant(C, np.zeros(2), np.array([3.0, 5.0, 0.0]), np.diag([1.0, 1.0, 0.0]), np.zeros(2))
    own, values, e = solved(plant)
    np.testing.assert_allclose(values, [4, 4, 0], atol=1e-13)
    assert e @ e == pytest.approx(2.0)
    assert own.reduced.G.shape[0] == 1
    assert own.reduced.exact_combinations.shape[1] == 1
    z = np.array([[3.0, 5.0, 0.0], [3.0, 5.0, 1e-3]])
    np.testing.assert_array_equal(own.contradictions(z) != 0, [[False], [True]])


def test_directions_are_zero_where_no_balance_would_notice():
    C = np.array([[1.0, -1.0, -1.0, 0.0], [0.0, 0.0, 1.0, -1.0]])
    plant = plants.Plant(C, np.zeros(2), np.array([3.0, np.nan, 1.0, 1.2]), np.eye(4), np.zeros(2))
    own = adjuster(plant)
    length = np.linalg.norm(own.directions(own.whitening), axis=0)
    np.testing.assert_allclose(length, [0, 0, np.sqrt(0.5), np.sqrt(0.5), 0, np.sqrt(0.5)], atol=1e-13)


def test_a_dropped_balance_neither_corrects_nor_notices():
    C = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]])
    plant = plants.Plant(C, np.zeros(2), np.array([1.0, 2.0, 9.0]), np.eye(3), np.zeros(2))
    own, values, _ = solved(plant, dropped=[1])
    np.testing.assert_allclose(values, [1.5, 1.5, 9.0])
    length = np.linalg.norm(own.directions(own.whitening), axis=0)
    np.testing.assert_allclose(length[[2, 4]], 0)


def test_the_spread_of_residuals_is_that_of_what_is_measured():
    for seed in range(6):
        plant = plants.random_plant(seed, tolerant=2, exact=1, correlated=seed % 2 == 1)
        own = adjuster(plant, correlated=True)
        var = np.diagonal(plant.C @ plant.V @ plant.C.T) + np.square(plant.tolerance)
        np.testing.assert_allclose(np.square(own.residual_std(own.whitening)), var)
        own = adjuster(replace(plant, V=np.diag(np.diagonal(plant.V))))
        var = np.square(plant.C) @ np.diagonal(plant.V) + np.square(plant.tolerance)
        np.testing.assert_allclose(np.square(own.residual_std(own.whitening)), var)


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
