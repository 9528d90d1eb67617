"""Heads of a network and their gradients, against torch's own functions and autograd."""

import numpy as np
import pytest
import torch

from equipoise.fast.heads import evaluate_heads, pull_heads

BOUNDS = (20.0, 4.0)


def heads_by_torch(units: torch.Tensor, n_y: int) -> torch.Tensor:
    mean, *raw = units.split(n_y, -1)
    positive = [(bound * torch.tanh(part / bound)).exp() for part, bound in zip(raw, BOUNDS, strict=False)]
    return torch.stack([mean, *positive])


@pytest.mark.parametrize("n_heads", [2, 3])
def test_heads_and_their_gradients_are_those_of_autograd(n_heads):
    rng = np.random.default_rng(0)
    units = torch.tensor(rng.normal(0, 5, (7, n_heads * 3))).requires_grad_()
    values, slopes = np.empty((n_heads, 7, 3)), np.empty((n_heads - 1, 7, 3))
    evaluate_heads(units.detach().numpy(), BOUNDS, values, slopes)
    expected = heads_by_torch(units, 3)
    np.testing.assert_allclose(values, expected.detach(), rtol=1e-13)
    grad_values, grad_units = rng.normal(size=values.shape), np.full((7, n_heads * 3), np.nan)
    pull_heads(grad_values, slopes, grad_units)
    naive = torch.autograd.grad(expected, units, torch.tensor(grad_values))[0]
    np.testing.assert_allclose(grad_units, naive, rtol=1e-11, atol=1e-13)


def test_heads_of_single_precision_are_those_of_double_to_its_rounding():
    """An exponential of up to 20 multiplies roundings by as much."""
    units = np.random.default_rng(0).normal(0, 5, (50, 9)).astype(np.float32)
    values, slopes = np.empty((3, 50, 3)), np.empty((2, 50, 3))
    evaluate_heads(units, BOUNDS, values, slopes)
    expected = heads_by_torch(torch.tensor(units).double(), 3).numpy()
    np.testing.assert_allclose(values, expected, rtol=40 * np.finfo(np.float32).eps)
