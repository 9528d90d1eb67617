import math

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence

from equipoise.network.posterior import MeanFieldGaussian


def posterior(n=7, prior_std=1.0, dtype=torch.float64, seed=0):
    """Unequal means and standard deviations."""
    rng = torch.Generator().manual_seed(seed)
    q = MeanFieldGaussian(torch.randn(n, dtype=dtype, generator=rng), (n - 1, 1), prior_std)
    q.log_std.data = torch.randn(n, dtype=dtype, generator=rng) - 1.0
    return q


@pytest.mark.parametrize("prior_std", [0.1, 1.0, 3.0])
def test_the_kl_is_the_sum_over_weights_of_that_of_two_normals(prior_std):
    q = posterior(prior_std=prior_std)
    terms = kl_divergence(Normal(q.loc, q.log_std.exp()), Normal(0.0, torch.tensor(prior_std, dtype=torch.float64)))
    np.testing.assert_allclose(q.kl().detach(), terms.sum().detach(), rtol=1e-12)


def test_twice_the_weights_have_twice_the_kl():
    q, twice = posterior(), posterior(14)
    twice.loc.data, twice.log_std.data = q.loc.data.repeat(2), q.log_std.data.repeat(2)
    np.testing.assert_allclose(twice.kl().detach(), 2 * q.kl().detach(), rtol=1e-13)


@pytest.mark.parametrize("prior_std", [0.5, 2.0])
def test_a_posterior_equal_to_its_prior_has_no_kl(prior_std):
    q = MeanFieldGaussian(torch.zeros(5, dtype=torch.float64), (4, 1), prior_std, init_std=prior_std)
    np.testing.assert_allclose(q.kl().detach(), 0.0, atol=1e-13)


def test_a_posterior_starts_at_the_given_means_and_spread():
    loc = torch.arange(3, dtype=torch.float64)
    q = MeanFieldGaussian(loc, (2, 1), init_std=0.02)
    np.testing.assert_array_equal(q.loc.detach(), [0.0, 1.0, 2.0])
    np.testing.assert_allclose(q.std.detach(), [0.02] * 3, rtol=1e-13)
    q.loc.data += 1.0
    np.testing.assert_array_equal(loc, [0.0, 1.0, 2.0])


def test_the_kl_of_many_float32_weights_is_summed_in_float64():
    single = posterior(100_000, dtype=torch.float32)
    terms = kl_divergence(Normal(single.loc.double(), single.log_std.double().exp()), Normal(0.0, 1.0))
    np.testing.assert_allclose(single.kl().detach(), terms.sum().detach(), rtol=1e-12)


def test_draws_have_the_means_and_standard_deviations_of_the_posterior():
    q, N = posterior(), 20_000
    draws, std = q.draw(N, torch.Generator().manual_seed(1)).detach().numpy(), q.log_std.detach().exp().numpy()
    # 5 standard errors: std / √N of a mean, std / √(2 N) of a standard deviation, 1 / √N of a correlation.
    assert np.all(abs(draws.mean(0) - q.loc.detach().numpy()) <= 5 * std / math.sqrt(N))
    assert np.all(abs(draws.std(0, ddof=1) - std) <= 5 * std / math.sqrt(2 * N))
    assert np.all(abs(np.corrcoef(draws.T) - np.eye(7)) <= 5 / math.sqrt(N))


def test_gradients_of_kl_and_draws_are_right():
    q = posterior()

    def kl_and_draws(loc, log_std):
        parameters = {"loc": loc, "log_std": log_std}
        results = [
            torch.func.functional_call(Call(q, method), {f"q.{k}": v for k, v in parameters.items()}, arguments)
            for method, arguments in [("kl", ()), ("draw", (3, torch.Generator().manual_seed(1)))]
        ]
        return tuple(results)

    parameters = [part.detach().clone().requires_grad_() for part in (q.loc, q.log_std)]
    assert torch.autograd.gradcheck(kl_and_draws, parameters)


class Call(torch.nn.Module):
    """A module whose `forward` is a method of another."""

    def __init__(self, q, method):
        super().__init__()
        self.q, self.method = q, method

    def forward(self, *arguments):
        return getattr(self.q, self.method)(*arguments)
