"""Draws of outputs from given noise, by hand, and noise that belongs to a row's place."""

import numpy as np
import pytest
import torch

from equipoise.gaussian.conditioning import condition
from equipoise.gaussian.distributions import DiagonalGaussian
from equipoise.prediction.sampling import ROW_BLOCK, noise_width, row_noise, sample

B = torch.tensor([[1.0, -1.0, 0.5]], dtype=torch.float64)


def gaussian(n_draws=2, n=3):
    generator = torch.Generator().manual_seed(0)
    mean, var = (torch.randn(n_draws, n, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    return DiagonalGaussian(mean, var.exp())


def noise_for(conditioned, seed=1):
    shape = (*conditioned.mean.shape[:2], noise_width(conditioned))
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_joint_draws_are_those_of_matherons_rule_with_dense_matrices():
    prior, target, r, w = gaussian(), torch.tensor([[0.7]]), torch.tensor([0.2], dtype=torch.float64), 0.3
    conditioned = condition(prior, B, target.double(), r)
    noise = noise_for(conditioned)
    got = sample(conditioned, w, noise, joint=True)
    for d, i in np.ndindex(2, 3):
        v, of_y, of_sensor, of_balance = prior.var[d, i].numpy(), *np.split(noise[d, i].numpy(), [3, 6])
        y0 = prior.mean[d, i].numpy() + np.sqrt(v) * of_y
        K = np.diag(v) @ B.numpy().T @ np.linalg.inv(B.numpy() @ np.diag(v) @ B.numpy().T + np.diag(r))
        y = y0 + K @ (target[0].numpy() - B.numpy() @ y0 - np.sqrt(0.2) * of_balance)
        np.testing.assert_allclose(got[d, i], y + np.sqrt(0.3) * of_sensor, rtol=1e-12)


@pytest.mark.parametrize("joint", [True, False])
def test_independent_draws_scatter_by_the_diagonal_alone(joint):
    """Without balances joint draws are the same."""
    prior = gaussian()
    conditioned = condition(prior, B, torch.zeros(1, dtype=torch.float64), 0.1)
    this = prior if joint else conditioned
    noise = noise_for(this)
    w = torch.tensor([0.0, 0.4, 0.1], dtype=torch.float64)
    expected = this.mean + this.var.sqrt() * noise[..., :3] + w.sqrt() * noise[..., 3:6]
    np.testing.assert_allclose(sample(this, w, noise, joint), expected, rtol=1e-13)


def test_noise_belongs_to_the_row_and_not_to_the_chunk():
    whole = row_noise(7, 2, slice(0, 150), 4)
    assert whole.shape == (32, 150, 4)
    for start, stop in ((0, 64), (64, 128), (64, 150), (128, 131)):
        assert torch.equal(row_noise(7, 2, slice(start, stop), 4), whole[:, start:stop])


def test_noise_of_other_seeds_and_blocks_is_another():
    """In 32 × 64 standard normals: means within five standard errors of 0, no number twice."""
    parts = [row_noise(*key, slice(row, row + ROW_BLOCK), 1) for key in ((0, 0), (0, 1), (1, 0)) for row in (0, 64)]
    values = torch.stack(parts)
    assert len(values.unique()) == values.numel()
    assert bool((values.mean((1, 2, 3)).abs() < 5 / np.sqrt(32 * 64)).all())
