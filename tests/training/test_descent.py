"""Descent to a mode: losses and gradients against autograd, a linear network against ridge regression."""

import numpy as np
import pytest
import torch

from equipoise.network import BayesianMLP
from equipoise.training.descent import density_loss, descend, normal_loss

N, N_X, N_Y = 30, 3, 2


def _normal(*shape, seed):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def outputs():
    y = _normal(N, N_Y, seed=1)
    y[3, 1] = torch.nan
    return y


def test_the_normal_loss_is_the_sum_of_the_measured_terms(outputs):
    var, mean = torch.tensor([0.3, 2.0], dtype=torch.float64), _normal(N, N_Y, seed=2).requires_grad_()
    value, gradient = normal_loss(outputs, var, weight=1.5)(mean.detach())
    terms = 0.5 * ((outputs.nan_to_num(0.0) - mean).square() / var + var.log())
    expected = 1.5 * torch.where(outputs.isnan(), 0.0, terms).sum()
    (exact,) = torch.autograd.grad(expected, mean)
    assert value == pytest.approx(expected.item(), rel=1e-12)
    torch.testing.assert_close(gradient.detach(), exact, rtol=1e-12, atol=1e-12)


def test_the_loss_of_a_density_is_its_negative_with_the_weight_of_the_rows():
    mean = _normal(N, N_Y, seed=2)
    value, gradient = density_loss(lambda mean: -mean.abs().sum(-1), weight=2.0)(mean)
    assert value == pytest.approx(2.0 * float(mean.abs().sum()), rel=1e-12)
    torch.testing.assert_close(gradient, 2.0 * mean.sign(), rtol=0, atol=0)


def test_a_network_without_hidden_layers_descends_to_ridge_regression(outputs):
    network = BayesianMLP(N_X, N_Y, (), generator=torch.Generator().manual_seed(0)).double()
    start, x = network.posterior.loc.detach(), _normal(N, N_X, seed=3)
    precision, var = torch.full_like(start, 0.7), torch.tensor([0.3, 2.0], dtype=torch.float64)
    head = network.layers(torch.arange(len(start)).double())
    precision[torch.cat([head[0][0][:, N_Y:].flatten(), head[0][1][N_Y:]]).long()] = 0.0  # variance head
    weights, loss = descend(network, start, x, normal_loss(outputs, var), precision, iterations=500)
    (W, bias), design = network.layers(weights)[0], np.column_stack([x.numpy(), np.ones(N)])
    for j in range(N_Y):
        rows = ~outputs[:, j].isnan().numpy()
        A = design[rows].T @ design[rows] / float(var[j]) + 0.7 * np.eye(N_X + 1)
        expected = np.linalg.solve(A, design[rows].T @ outputs[rows, j].numpy() / float(var[j]))
        np.testing.assert_allclose([*W[:, j].tolist(), float(bias[j])], expected, rtol=0, atol=3e-4)
    (first_W, first_bias), (W, bias) = network.layers(start)[0], network.layers(weights)[0]
    assert torch.equal(W[:, N_Y:], first_W[:, N_Y:])  # without a prior a weight stays
    assert torch.equal(bias[N_Y:], first_bias[N_Y:])
    assert loss < normal_loss(outputs, var)(network.at(start[None], x).mean[0].detach())[0]
