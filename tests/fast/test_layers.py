"""Forward and backward passes of all layers in one call, against plain torch differentiated by autograd."""

import itertools

import numpy as np
import pytest
import torch

from equipoise.fast import layers

TORCH = {"silu": torch.nn.functional.silu, "tanh": torch.tanh, "relu": torch.relu}
SIZES = [(3, 4), (2, 5, 3), (1, 33, 17, 6), (3, 64, 64, 16)]


def problem(sizes, n, dtype, seed=0):
    rng = np.random.default_rng(seed)
    n_weights = sum(a * b + b for a, b in itertools.pairwise(sizes))
    loc, log_std = rng.normal(0, 0.5, n_weights), rng.normal(-1, 0.5, n_weights)
    x, noise = rng.normal(size=n * sizes[0]), rng.normal(size=n * sum(sizes[1:]))
    return [part.astype(dtype) for part in (loc, log_std, x, noise)]


def forward_by_torch(sizes, activation, loc, log_std, x, noise):
    """The last layer's units (V2), layer by layer."""
    h, start, used = x.reshape(-1, sizes[0]), 0, 0
    var = (2 * log_std).exp()
    for i, (fan_in, width) in enumerate(itertools.pairwise(sizes)):
        bias = start + fan_in * width
        W, V = (part[start:bias].reshape(fan_in, width) for part in (loc, var))
        m, u = (part[bias : bias + width] for part in (loc, var))
        xi = noise[used : used + len(h) * width].reshape(-1, width)
        h = h @ W + m + (h.square() @ V + u).sqrt() * xi
        h = TORCH[activation](h) if i < len(sizes) - 2 else h
        start, used = bias + width, used + len(h) * width
    return h


def compiled(sizes, activation, loc, log_std, x, noise, grad):
    sizes, kind = np.array(sizes), layers.ACTIVATIONS[activation]
    var, (units, squares, slopes, ratios) = np.empty_like(loc), (np.full_like(noise, np.nan) for _ in range(4))
    layers.forward(sizes, kind, loc, x, units, slopes, (log_std, noise, var, squares, ratios))
    grad_loc, grad_log_std = np.full_like(loc, np.nan), np.full_like(loc, np.nan)
    draws = var, squares, ratios, grad_log_std
    layers.backward(sizes, loc, x, units, slopes, grad.copy(), grad_loc, draws)
    return units[units.size - grad.size :], grad_loc, grad_log_std


@pytest.mark.parametrize("activation", layers.ACTIVATIONS)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("n", [1, 13, 70])
def test_units_and_gradients_are_those_of_autograd(sizes, activation, n):
    parts = problem(sizes, n, np.float64)
    grad = np.random.default_rng(1).normal(size=n * sizes[-1])
    units, *gradients = compiled(sizes, activation, *parts, grad)
    loc, log_std, x, noise = map(torch.tensor, parts)
    expected = forward_by_torch(sizes, activation, loc.requires_grad_(), log_std.requires_grad_(), x, noise).flatten()
    np.testing.assert_allclose(units, expected.detach(), rtol=1e-12, atol=1e-13)
    for gradient, naive in zip(
        gradients, torch.autograd.grad(expected, (loc, log_std), torch.tensor(grad)), strict=True
    ):
        np.testing.assert_allclose(gradient, naive, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("activation", layers.ACTIVATIONS)
def test_single_precision_is_as_good_as_that_of_torch(activation):
    """Both off from double precision; ours by at most twice as much as the operators of torch."""
    sizes, n = (3, 64, 64, 16), 512
    parts, grad = problem(sizes, n, np.float32), np.random.default_rng(1).normal(size=n * 16).astype(np.float32)
    ours = compiled(sizes, activation, *parts, grad)
    results = []
    for dtype in (torch.float32, torch.float64):
        loc, log_std, x, noise = (torch.tensor(part).to(dtype) for part in parts)
        units = forward_by_torch(sizes, activation, loc.requires_grad_(), log_std.requires_grad_(), x, noise).flatten()
        gradients = torch.autograd.grad(units, (loc, log_std), torch.tensor(grad).to(dtype))
        results.append([part.detach().numpy() for part in (units, *gradients)])
    for mine, theirs, exact in zip(ours, *results, strict=True):
        assert np.linalg.norm(mine - exact) <= 2 * np.linalg.norm(theirs - exact)


def test_sums_over_many_rows_keep_their_digits():
    """The gradient of a bias is a sum over rows: 200,000 equal terms that single precision cannot add up one by one."""
    n, sizes = 200_000, (1, 1)
    loc, log_std, x, noise = problem(sizes, n, np.float32)
    _, grad_loc, _ = compiled(sizes, "silu", loc, log_std, x, noise, np.full(n, 0.1, np.float32))
    assert grad_loc[1] == pytest.approx(n * float(np.float32(0.1)), rel=1e-6)


def test_weights_without_spread_have_finite_gradients():
    loc, log_std, x, noise = problem((2, 3, 2), 5, np.float32)
    log_std[:] = -200.0
    for part in compiled((2, 3, 2), "silu", loc, log_std, x, noise, np.ones(10, np.float32)):
        assert np.isfinite(part).all()


def test_the_divergence_is_that_of_torch():
    rng = np.random.default_rng(0)
    loc, log_std = torch.tensor(rng.normal(size=7)).requires_grad_(), torch.tensor(rng.normal(size=7)).requires_grad_()
    q, p = (
        torch.distributions.Normal(loc, log_std.exp()),
        torch.distributions.Normal(*torch.tensor([0.0, 0.7], dtype=torch.float64)),
    )
    expected = torch.autograd.grad(0.3 * torch.distributions.kl_divergence(q, p).sum(), (loc, log_std))
    added = np.full(7, 2.0), np.full(7, 3.0)
    layers.add_divergence(*added, loc.detach().numpy(), log_std.detach().numpy(), 0.3, 0.7**-2)
    np.testing.assert_allclose(added[0] - 2.0, expected[0], rtol=1e-12)
    np.testing.assert_allclose(added[1] - 3.0, expected[1], rtol=1e-12)


@pytest.mark.parametrize("activation", layers.ACTIVATIONS)
@pytest.mark.parametrize("sizes", SIZES)
def test_means_and_their_gradient_are_those_of_autograd(sizes, activation):
    loc, _, x, noise = problem(sizes, 13, np.float64)
    grad = np.random.default_rng(1).normal(size=13 * sizes[-1])
    units, slopes, grad_loc = np.full_like(noise, np.nan), np.full_like(noise, np.nan), np.full_like(loc, np.nan)
    layers.forward(np.array(sizes), layers.ACTIVATIONS[activation], loc, x, units, slopes, None)
    layers.backward(np.array(sizes), loc, x, units, slopes, grad, grad_loc, None)
    weights = torch.tensor(loc).requires_grad_()
    zeros = torch.zeros(noise.size, dtype=torch.float64)
    expected = forward_by_torch(sizes, activation, weights, torch.zeros_like(weights), torch.tensor(x), zeros).flatten()
    np.testing.assert_allclose(units[units.size - grad.size :], expected.detach(), rtol=1e-12, atol=1e-13)
    naive = torch.autograd.grad(expected, weights, torch.tensor(grad))[0]
    np.testing.assert_allclose(grad_loc, naive, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("activation", layers.ACTIVATIONS)
@pytest.mark.parametrize(("n", "n_heads"), [(5, 2), (300, 3)])
def test_draws_are_evaluated_one_by_one(activation, n, n_heads):
    sizes, rng = (2, 9, 6, n_heads * 2), np.random.default_rng(0)
    weights = rng.normal(size=(4, sum(a * b + b for a, b in itertools.pairwise(sizes))))
    x, values = rng.normal(size=(n, 2)), np.full((2, 4, n, 2), np.nan)
    layers.evaluate(np.array(sizes), layers.ACTIVATIONS[activation], (20.0, 4.0), weights, 1, 3, x, values)
    assert np.isnan(values[:, [0, 3]]).all()
    zeros = torch.zeros(n * sum(sizes[1:]), dtype=torch.float64)
    for draw in (1, 2):
        flat = torch.tensor(weights[draw])
        units = forward_by_torch(
            sizes, activation, flat, torch.zeros_like(flat), torch.tensor(x.ravel()), zeros
        ).numpy()
        np.testing.assert_allclose(values[0, draw], units[:, :2], rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(values[1, draw], np.exp(20 * np.tanh(units[:, 2:4] / 20)), rtol=1e-11)
