"""Heads of a network and log-normal draws, with their gradients, against torch's own functions and autograd."""

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence

from equipoise.fast import log_normal as spreads

BOUNDS = (20.0, 4.0)


def spoken(units: torch.Tensor, n_y: int) -> torch.Tensor:
    mean, *raw = units.split(n_y, -1)
    positive = [(bound * torch.tanh(part / bound)).exp() for part, bound in zip(raw, BOUNDS, strict=False)]
    return torch.stack([mean, *positive])


@pytest.mark.parametrize("n_heads", [2, 3])
def test_heads_and_their_gradients_are_those_of_autograd(n_heads):
    rng = np.random.default_rng(0)
    units = torch.tensor(rng.normal(0, 5, (7, n_heads * 3))).requires_grad_()
    said, slopes = np.empty((n_heads, 7, 3)), np.empty((n_heads - 1, 7, 3))
    spreads.heads(units.detach().numpy(), BOUNDS, said, slopes)
    expected = spoken(units, 3)
    np.testing.assert_allclose(said, expected.detach(), rtol=1e-13)
    of_said, of_units = rng.normal(size=said.shape), np.full((7, n_heads * 3), np.nan)
    spreads.pull_heads(of_said, slopes, of_units)
    naive = torch.autograd.grad(expected, units, torch.tensor(of_said))[0]
    np.testing.assert_allclose(of_units, naive, rtol=1e-11, atol=1e-13)


def test_heads_of_single_precision_are_those_of_double_to_its_rounding():
    """An exponential of up to 20 multiplies roundings by as much."""
    units = np.random.default_rng(0).normal(0, 5, (50, 9)).astype(np.float32)
    said, slopes = np.empty((3, 50, 3)), np.empty((2, 50, 3))
    spreads.heads(units, BOUNDS, said, slopes)
    expected = spoken(torch.tensor(units).double(), 3).numpy()
    np.testing.assert_allclose(said, expected, rtol=40 * np.finfo(np.float32).eps)


def test_log_normal_draws_and_their_gradients_are_those_of_autograd():
    rng = np.random.default_rng(0)
    loc, log_std = (torch.tensor(rng.normal(size=4)).requires_grad_() for _ in range(2))
    floor, fixed = rng.uniform(size=4), rng.uniform(size=4)
    learned, noise = np.array([True, True, False, True]), rng.normal(size=(6, 4))
    prior_mean, prior_std = rng.normal(size=4), rng.uniform(0.5, 2.0, 4)
    posterior = (loc.detach().numpy(), log_std.detach().numpy(), floor, learned, fixed, prior_mean, prior_std)
    growth, value = np.empty((6, 4)), np.empty((6, 4))
    spreads.draw_log_normal(posterior, noise, growth, value)
    mask = torch.tensor(learned)
    draws = torch.where(
        mask, (loc + log_std.exp() * torch.tensor(noise)).exp() + torch.tensor(floor), torch.tensor(fixed)
    )
    np.testing.assert_allclose(value, draws.detach(), rtol=1e-13)

    of_value, found = rng.normal(size=(6, 4)), (np.full(4, np.nan), np.full(4, np.nan))
    spreads.pull_log_normal(of_value, growth, noise, posterior, 0.3, found)
    kl = kl_divergence(Normal(loc, log_std.exp()), Normal(torch.tensor(prior_mean), torch.tensor(prior_std)))
    loss = (draws * torch.tensor(of_value)).sum() + 0.3 * torch.where(mask, kl, 0.0).sum()
    for ours, naive in zip(found, torch.autograd.grad(loss, (loc, log_std)), strict=True):
        np.testing.assert_allclose(ours, naive, rtol=1e-11, atol=1e-13)
