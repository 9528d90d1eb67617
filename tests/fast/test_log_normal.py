"""Log-normal draws and their gradients, against torch's own functions and autograd."""

import numpy as np
import torch
from torch.distributions import Normal, kl_divergence

from equipoise.fast import log_normal


def test_log_normal_draws_and_their_gradients_are_those_of_autograd():
    rng = np.random.default_rng(0)
    loc, log_std = (torch.tensor(rng.normal(size=4)).requires_grad_() for _ in range(2))
    floor, fixed = rng.uniform(size=4), rng.uniform(size=4)
    learned, noise = np.array([True, True, False, True]), rng.normal(size=(6, 4))
    prior_mean, prior_std = rng.normal(size=4), rng.uniform(0.5, 2.0, 4)
    posterior = (loc.detach().numpy(), log_std.detach().numpy(), floor, learned, fixed, prior_mean, prior_std)
    derivative, value = np.empty((6, 4)), np.empty((6, 4))
    log_normal.draw_log_normal(posterior, noise, derivative, value)
    mask = torch.tensor(learned)
    draws = torch.where(
        mask, (loc + log_std.exp() * torch.tensor(noise)).exp() + torch.tensor(floor), torch.tensor(fixed)
    )
    np.testing.assert_allclose(value, draws.detach(), rtol=1e-13)

    grad_value, gradients = rng.normal(size=(6, 4)), (np.full(4, np.nan), np.full(4, np.nan))
    log_normal.pull_log_normal(grad_value, derivative, noise, posterior, 0.3, gradients)
    kl = kl_divergence(Normal(loc, log_std.exp()), Normal(torch.tensor(prior_mean), torch.tensor(prior_std)))
    loss = (draws * torch.tensor(grad_value)).sum() + 0.3 * torch.where(mask, kl, 0.0).sum()
    for ours, naive in zip(gradients, torch.autograd.grad(loss, (loc, log_std)), strict=True):
        np.testing.assert_allclose(ours, naive, rtol=1e-11, atol=1e-13)
