import numpy as np
import pytest
import readings_by_hand as by_hand
import torch

import references
from equipoise.gaussian.conditioning import condition
from equipoise.gaussian.distributions import DiagonalGaussian
from equipoise.prediction.running_moments import MixtureMoments
from equipoise.reconciliation.assimilation import MatchedGaussian, assimilate

NAN, INF = float("nan"), float("inf")


def tensor(values):
    return torch.as_tensor(np.asarray(values, dtype=float))


def problem(seed):
    """A random problem as a block of one draw and one row, readings of it, and their variances."""
    one = references.random_problem(seed)
    rng = np.random.default_rng(seed)
    y = one.mean + rng.normal(size=6)
    y[seed % 6] = NAN
    w = rng.uniform(0.05, 1.0, 6)
    w[(seed + 2) % 6] = INF
    block = DiagonalGaussian(tensor(one.mean)[None, None], tensor(one.var)[None, None])
    return one, condition(block, tensor(one.B), tensor(one.target)[None], tensor(one.tol_var)), y, w


@pytest.mark.parametrize("seed", range(12))
def test_readings_first_and_balances_then_is_bayes_rule_with_dense_matrices(seed):
    one, gaussian, y, w = problem(seed)
    mean, cov, log_evidence = by_hand.conditioned(*references.conditioned(*one), y, w)
    found = assimilate(gaussian, tensor(y)[None], tensor(w)[None])
    np.testing.assert_allclose(found.after.mean[0, 0], mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.after.covariance()[0, 0], cov, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.log_evidence.item(), log_evidence, rtol=1e-10)


def test_an_exact_reading_is_taken_and_the_balance_gives_the_rest():
    prior = DiagonalGaussian(torch.zeros(1, 1, 2).double(), torch.ones(1, 1, 2).double())
    gaussian = condition(prior, tensor([[1.0, 1.0]]), tensor([[5.0]]))
    found = assimilate(gaussian, tensor([[2.0, NAN]]), tensor([[0.0, 0.0]]))
    np.testing.assert_allclose(found.after.mean[0, 0], [2.0, 3.0], atol=1e-12)
    np.testing.assert_allclose(found.after.var[0, 0], [0.0, 0.0], atol=1e-12)


def test_without_readings_nothing_changes_and_all_draws_are_alike():
    _, gaussian, _, w = problem(3)
    found = assimilate(gaussian, torch.full((1, 6), NAN, dtype=torch.float64), tensor(w)[None])
    np.testing.assert_allclose(found.after.mean, gaussian.mean, atol=1e-12)
    np.testing.assert_allclose(found.log_evidence.item(), 0.0, atol=1e-12)
    assert bool((found.sensor_var == INF).all())


def test_weighted_draws_of_a_linear_gaussian_model_have_its_closed_form():
    """θ ~ N(0, 1), z | θ ~ N(θ, v), a reading y = z + e: z | y is normal; bands are 5 standard errors."""
    v, w, y, n = 0.2, 0.3, 1.5, 200_000
    theta = torch.randn(n, 1, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = assimilate(DiagonalGaussian(theta, torch.full_like(theta, v)), tensor([[y]]), tensor([[w]]))
    running = MixtureMoments()
    running.add(found.updated_log_weight, found.after)
    gain = (1 + v) / (1 + v + w)
    mean, var, effective = gain * y, (1 + v) * (1 - gain), running.weights.effective.item()
    assert abs(running.mean.item() - mean) < 5 * np.sqrt(var / effective)
    assert abs(running.second.item() - var) < 5 * var * np.sqrt(2 / effective)
    equal = found.after.mean.mean().item()  # what equal weights would say is something else
    assert abs(equal - mean) > 50 * np.sqrt(var / effective)


@pytest.fixture
def rows():
    """Three rows with covariances of rank 3 of 4, and gaps that differ: mean, cov, y, w."""
    rng = np.random.default_rng(0)
    half = rng.normal(size=(3, 4, 3)) * np.array([[[1.0], [10.0], [0.1], [1.0]]])
    y = rng.normal(size=(3, 4)) * [1, 10, 0.1, 1]
    y[1, 2], y[2] = NAN, [NAN, 5.0, NAN, NAN]
    w = np.array([0.1, 2.0, 1e-3, 0.2]) * rng.uniform(0.5, 1.5, (3, 4))
    w[0, 3] = INF
    return rng.normal(size=(3, 4)), half @ half.mT, y, w


def test_the_answer_is_bayes_rule_row_by_row(rows):
    found = MatchedGaussian(*rows)
    for i, row in enumerate(zip(*rows, strict=True)):
        mean, cov, _ = by_hand.conditioned(*row)
        np.testing.assert_allclose(found.conditioned_mean[i], mean, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(found.conditioned_cov[i], cov, rtol=1e-10, atol=1e-10)


def test_the_whitened_innovations_have_the_length_of_the_readings_distance(rows):
    mean, cov, y, w = rows
    found = MatchedGaussian(*rows)
    for i in range(3):
        seen = ~np.isnan(y[i]) & np.isfinite(w[i])
        residual = (y[i] - mean[i])[seen]
        S = cov[i][np.ix_(seen, seen)] + np.diag(w[i][seen])
        np.testing.assert_allclose(
            np.square(found.whitened[i]).sum(), residual @ np.linalg.solve(S, residual), rtol=1e-10
        )
        assert not found.whitener[i][:, ~seen].any()


def test_what_the_readings_add_is_the_difference_that_they_make(rows):
    found = MatchedGaussian(*rows)
    np.testing.assert_allclose(found.contributions().sum(1), found.conditioned_mean - found.mean, atol=1e-11)
    mean, cov, y, w = (part[0] for part in rows)
    bent, step = y.copy(), 0.01
    bent[1] += step  # linear in the reading: the slope times the innovation is the move
    slope = (by_hand.conditioned(mean, cov, bent, w)[0] - by_hand.conditioned(mean, cov, y, w)[0]) / step
    np.testing.assert_allclose(found.contributions()[0, 1], slope * (y - mean)[1], rtol=1e-8)


def test_draws_have_the_mean_and_the_covariance(rows):
    """5 standard errors of 20 000 draws; a covariance's is at most √(2/n) of the two standard deviations."""
    found, n = MatchedGaussian(*rows), 20_000
    drawn = found.sample(np.random.default_rng(1).standard_normal((n, 3, 4)))
    for i in range(3):
        std = np.sqrt(np.clip(np.diagonal(found.conditioned_cov[i]), 1e-16, None))
        assert (np.abs(drawn[:, i].mean(0) - found.conditioned_mean[i]) < 5 * std / np.sqrt(n)).all()
        gap = np.abs(np.cov(drawn[:, i].T) - found.conditioned_cov[i]) / np.outer(std, std)
        assert gap.max() < 5 * np.sqrt(2 / n)


def test_perfect_instruments_of_what_a_balance_ties_together_do_no_harm():
    cov = np.array([[[1.0, -1.0], [-1.0, 1.0]]])  # z₁ + z₂ = 0, exactly
    found = MatchedGaussian(np.zeros((1, 2)), cov, np.array([[0.5, -0.5]]), np.full((1, 2), 1e-30))
    np.testing.assert_allclose(found.conditioned_mean, [[0.5, -0.5]], rtol=1e-12)
