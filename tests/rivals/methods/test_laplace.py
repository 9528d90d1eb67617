"""Last-layer Laplace against the exact posterior and evidence of a linear model."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import torch

from equipoise.data.rows import Rows
from equipoise.network.mlp import BayesianMLP
from equipoise.network.posterior import DRAW_BLOCK
from equipoise.rivals.methods.laplace import LastLayerLaplace, features, gauss_newton, prior_precision

NOISE_VAR = 0.3


def linear():
    """A linear network of constant variance at the ridge solution, and its data."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 2))
    phi = np.hstack([x, np.ones((40, 1))])
    y = phi @ [[1.0], [-2.0], [0.5]] + np.sqrt(NOISE_VAR) * rng.standard_normal((40, 1))
    network = BayesianMLP(2, 1, (), generator=torch.Generator().manual_seed(0))
    network.set_variance_head(torch.tensor([NOISE_VAR]))
    return network, phi, y


def test_the_mean_head_has_the_exact_posterior_covariance():
    network, phi, y = linear()
    rows = Rows(torch.as_tensor(phi[:, :2], dtype=torch.float32), torch.as_tensor(y), None)
    laplace = LastLayerLaplace(network, network.posterior.loc.detach(), rows)
    exact = np.linalg.inv(phi.T @ phi / NOISE_VAR + laplace.precision * np.eye(3))
    np.testing.assert_allclose(laplace.covariance()[0], exact, rtol=1e-5)


def test_the_log_variance_head_has_the_fisher_information_of_a_log_variance():
    network, phi, y = linear()
    rows = Rows(torch.as_tensor(phi[:, :2], dtype=torch.float32), torch.as_tensor(y), None)
    laplace = LastLayerLaplace(network, network.posterior.loc.detach(), rows)
    slope = 1 - (np.log(NOISE_VAR) / 20) ** 2
    exact = np.linalg.inv(0.5 * slope**2 * phi.T @ phi + laplace.precision * np.eye(3))
    np.testing.assert_allclose(laplace.covariance()[1], exact, rtol=1e-5)


def test_fisher_information_is_the_mean_squared_score():
    rng = np.random.default_rng(3)
    log_var, y = 0.4, np.exp(0.2) * rng.standard_normal(400_000)
    scores = 0.5 * (y**2 * np.exp(-log_var) - 1)
    by_rule = gauss_newton(torch.ones(1, 1), torch.ones(1, 1), torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool))
    assert abs(np.mean(scores**2) - float(by_rule[1, 0, 0])) < 5 * np.std(scores**2) / np.sqrt(len(y))


def test_the_prior_precision_maximises_the_exact_evidence_of_a_linear_model():
    _, phi, y = linear()

    def evidence(delta):
        return scipy.stats.multivariate_normal(cov=phi @ phi.T / delta + NOISE_VAR * np.eye(40)).logpdf(y[:, 0])

    def ridge(delta):
        return np.linalg.solve(phi.T @ phi / NOISE_VAR + delta * np.eye(3), phi.T @ y[:, 0] / NOISE_VAR)

    best = np.exp(scipy.optimize.minimize_scalar(lambda log: -evidence(np.exp(log)), bounds=(-4, 4)).x)
    eigenvalues = np.linalg.eigvalsh(phi.T @ phi / NOISE_VAR)
    found = prior_precision(torch.as_tensor(eigenvalues)[None], torch.as_tensor(ridge(best))[None])
    np.testing.assert_allclose(found, best, rtol=2e-3)  # at its own ridge solution the best δ is a fixed point


def test_draws_have_the_stated_moments_and_leave_other_layers_alone():
    network = BayesianMLP(2, 1, (3,), generator=torch.Generator().manual_seed(0))
    x, y = torch.randn(30, 2, generator=torch.Generator().manual_seed(1)), torch.zeros(30, 1).double()
    laplace = LastLayerLaplace(network, network.posterior.loc.detach(), Rows(x, y, None))
    drawn = torch.cat([laplace.draw(5, block) for block in range(400)]).double()
    (W0, b0), (W, bias) = network.layers(drawn)
    assert float(W0.std(0).max()) == float(b0.std(0).max()) == 0.0
    units = torch.cat([W[..., 0], bias[..., :1]], -1)
    stated = laplace.covariance()[0]
    error = (torch.cov(units.T) - stated) / torch.outer(stated.diag(), stated.diag()).sqrt()
    assert float(error.abs().max()) < 5 * np.sqrt(2 / len(units))
    again = LastLayerLaplace(network, network.posterior.loc.detach(), Rows(x, y, None))
    assert torch.equal(again.draw(5, 3), drawn[3 * DRAW_BLOCK : 4 * DRAW_BLOCK].float())  # whatever was drawn before


def test_features_are_the_last_hidden_layer_and_a_one():
    network = BayesianMLP(2, 1, (3,), "tanh", generator=torch.Generator().manual_seed(0))
    x = torch.tensor([[0.2, -0.4]])
    W, bias = network.layers(network.posterior.loc.detach())[0]
    expected = [*torch.tanh(x @ W + bias)[0].tolist(), 1.0]
    assert features(network, network.posterior.loc.detach(), x)[0].tolist() == pytest.approx(expected)


def test_what_was_not_measured_says_nothing():
    phi, ones = torch.ones(3, 1).double(), torch.ones(3, 1).double()
    seen = torch.tensor([[True], [False], [True]])
    assert gauss_newton(phi, 0.5 * ones, ones, seen).flatten().tolist() == [4.0, 1.0]
