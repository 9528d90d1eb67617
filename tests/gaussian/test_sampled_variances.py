"""Kept draws of variances: numbers, quantiles, moments, and what a posterior of variances has to answer."""

import math

import numpy as np
import pytest
import torch

from equipoise.gaussian import LogNormalVariance, SampledVariances

FIXED = torch.tensor([math.nan, 0.25, math.nan])


def _sampled(n=40, floor=0.0):
    base = LogNormalVariance(torch.tensor([-1.0, 0.0, -2.0]), torch.ones(3), FIXED, floor)
    generator = torch.Generator().manual_seed(1)
    rho, again = (torch.randn(n, 3, dtype=torch.float64, generator=generator) for _ in range(2))
    return SampledVariances(base, rho, again), rho, again


def test_draws_come_by_number_in_turn_and_fixed_variances_stay():
    q, rho, again = _sampled(floor=0.1)
    number = torch.arange(32, 64)
    draws, second = (q.numbered(number, torch.zeros(32, 1, 3), each) for each in (False, True))
    expected = rho[number % 40].exp() + 0.1
    torch.testing.assert_close(draws[:, 0, ::2], expected[:, ::2], rtol=1e-14, atol=0)
    torch.testing.assert_close(second[:, 0, ::2], (again[number % 40].exp() + 0.1)[:, ::2], rtol=1e-14, atol=0)
    assert (draws[..., 1] == 0.25).all()


@pytest.mark.parametrize("z", [-1.96, -0.5, 0.0, 1.2])
def test_quantiles_and_moments_are_those_of_the_draws(z):
    q, rho, _ = _sampled()
    probability = 0.5 * (1 + math.erf(z / math.sqrt(2)))
    expected = np.exp(np.quantile(rho.numpy(), probability, axis=0))
    quantiles = q.from_normal(torch.full((2, 3), z, dtype=torch.float64))
    np.testing.assert_allclose(quantiles[1, ::2], expected[::2], rtol=1e-12)
    mean, std = q.moments()
    np.testing.assert_allclose(mean[::2], rho.exp().numpy().mean(0)[::2], rtol=1e-12)
    np.testing.assert_allclose(std[::2], rho.exp().numpy().std(0, ddof=1)[::2], rtol=1e-12)
    assert mean[1] == 0.25
    log_mean, log_std = q.log_moments()
    np.testing.assert_allclose(log_mean, rho.mean(0), rtol=1e-12)
    np.testing.assert_allclose(log_std, rho.std(0), rtol=1e-12)


def test_a_summary_shows_the_interval_of_the_draws_in_the_unit():
    q, rho, _ = _sampled()
    summary = q.summary(2, scale=3.0)
    lower, upper = np.quantile(rho[:, 2].numpy(), [0.02499790, 0.97500210])
    assert summary["tol_std_lower"] == pytest.approx(3.0 * math.exp(0.5 * lower), rel=1e-6)
    assert summary["tol_std_upper"] == pytest.approx(3.0 * math.exp(0.5 * upper), rel=1e-6)
    assert q.summary(1, scale=3.0)["tol_std"] == pytest.approx(1.5)
    normal = 0.5 * (rho[:, 2].var() + (rho[:, 2].mean() + 2.0) ** 2 - 1.0) - rho[:, 2].std().log()  # K2, prior N(−2, 1)
    assert summary["kl"] == pytest.approx(float(normal), rel=1e-9)


def test_kept_draws_survive_being_saved_and_cannot_be_trained():
    q, rho, _ = _sampled()
    other, *_ = _sampled(n=40)
    other.rho.zero_()
    other.load_state_dict(q.state_dict())
    torch.testing.assert_close(other.rho, rho, rtol=0, atol=0)
    with pytest.raises(NotImplementedError, match="cannot be moved"):
        q.start_at(torch.ones(3))
    with pytest.raises(NotImplementedError, match="cannot be moved"):
        q.set_log_moments(torch.zeros(3), torch.ones(3))
