"""Hard balances by a constant gain: against the KKT equations, a direct solve, and sampling."""

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch

from equipoise.gaussian.conditioning import condition
from equipoise.gaussian.distributions import DiagonalGaussian
from equipoise.rivals.methods.gains import GainGaussian, completed_outputs, completing_gain, orthogonal_gain

RULES = [orthogonal_gain, completing_gain]


def problem(seed=0, n=6, m=3):
    rng = np.random.default_rng(seed)
    parts = rng.standard_normal(n), rng.uniform(0.1, 2.0, n), rng.standard_normal((m, n)), rng.standard_normal(m)
    return tuple(torch.as_tensor(part) for part in parts)


def met(rule, seed=0):
    mean, var, B, target = problem(seed)
    return GainGaussian.of(condition(DiagonalGaussian(mean, var), B, target), rule)


def test_projection_solves_the_kkt_equations():
    mean, _, B, target = problem()
    kkt = np.block([[np.eye(6), B.numpy().T], [B.numpy(), np.zeros((3, 3))]])
    nearest = np.linalg.solve(kkt, np.concatenate([mean, target]))[:6]
    np.testing.assert_allclose(met(orthogonal_gain).mean, nearest, atol=1e-12)


def test_projection_is_conditioning_at_unit_variance():
    mean, _, B, target = problem()
    by_core = condition(DiagonalGaussian(mean, torch.ones(6, dtype=torch.float64)), B, target)
    np.testing.assert_allclose(GainGaussian.of(by_core, orthogonal_gain).mean, by_core.mean, atol=1e-12)
    np.testing.assert_allclose(GainGaussian.of(by_core, orthogonal_gain).covariance(), by_core.covariance(), atol=1e-12)


def test_completion_keeps_what_the_network_says_and_solves_for_the_rest():
    mean, _, B, target = problem()
    chosen = completed_outputs(B)
    kept = [j for j in range(6) if j not in chosen]
    rest = np.linalg.solve(B[:, chosen], target - B[:, kept] @ mean[kept])
    np.testing.assert_array_equal(met(completing_gain).mean[kept], mean[kept])
    np.testing.assert_allclose(met(completing_gain).mean[chosen], rest, atol=1e-12)


def test_completion_solves_for_well_conditioned_outputs():
    B = torch.tensor([[1e-9, 1.0, 0.5], [1.0, 1.0, 1e-9]], dtype=torch.float64)
    chosen = completed_outputs(B)
    every = [[j, k] for j in range(3) for k in range(j + 1, 3)]
    assert np.linalg.cond(B[:, chosen]) <= 3 * min(np.linalg.cond(B[:, pair]) for pair in every)


@pytest.mark.parametrize("rule", RULES)
def test_draws_obey_to_rounding_and_have_the_stated_moments(rule):
    g = met(rule)
    draws = g.sample(200_000, torch.Generator().manual_seed(0))
    assert float((draws @ g.operator.B.mT - g.target).abs().max()) < 1e-12
    assert float(((draws.mean(0) - g.mean) / g.var.sqrt().clamp_min(1e-9)).abs().max()) < 5 / np.sqrt(200_000)
    cov, stated = np.cov(draws.numpy().T), g.covariance().numpy()
    std = np.sqrt(np.outer(np.diag(stated), np.diag(stated)))
    assert np.abs((cov - stated) / std).max() < 5 * np.sqrt(2 / 200_000)
    np.testing.assert_allclose(g.var, np.diag(stated), atol=1e-13)


@pytest.mark.parametrize("rule", RULES)
def test_the_reduction_and_what_is_left_make_the_networks_variance(rule):
    g = met(rule)
    np.testing.assert_allclose(g.reduction + g.var, g.prior.var, atol=1e-13)
    mean, var, B, target = problem()
    for k in range(3):
        rest = [j for j in range(3) if j != k]
        without = GainGaussian.of(condition(DiagonalGaussian(mean, var), B[rest], target[rest]), rule)
        np.testing.assert_allclose(g.reduction_lost_without()[k], without.var - g.var, atol=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_the_density_on_the_subspace_is_that_of_coordinates_in_it(rule):
    g = met(rule)
    y = g.sample(1, torch.Generator().manual_seed(1))[0]
    N = scipy.linalg.null_space(g.operator.B.numpy())
    flat = scipy.stats.multivariate_normal(N.T @ g.mean.numpy(), N.T @ g.covariance().numpy() @ N)
    np.testing.assert_allclose(g.log_prob(y), flat.logpdf(N.T @ y.numpy()), rtol=1e-10)
    assert g.log_prob(y + 0.01) == -torch.inf


def test_the_density_of_noisy_measurements_is_a_dense_normal():
    g, w = met(orthogonal_gain), torch.full((6,), 0.3, dtype=torch.float64)
    y = g.mean + 0.2
    dense = scipy.stats.multivariate_normal(g.mean.numpy(), g.covariance().numpy() + np.diag(w))
    np.testing.assert_allclose(g.log_prob(y, w), dense.logpdf(y.numpy()), rtol=1e-10)
    assert g.log_prob(torch.where(torch.arange(6) == 2, torch.nan, y), w).isnan()
