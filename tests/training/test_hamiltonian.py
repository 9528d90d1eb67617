"""Hamiltonian Monte Carlo: moments and marginals of densities that are known."""

import numpy as np
import torch

from equipoise.training.hamiltonian import ACCEPTANCE, HamiltonianChains

CHAINS = 200


def _run(log_density, d, n=10, start=0.0, step=0.3):
    """Warm up, then return the chains after each trajectory, `(n, CHAINS, d)`."""

    def differentiated(position):
        leaf = position.detach().requires_grad_()
        value = log_density(leaf)
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
        return value.detach(), gradient

    position = torch.full((CHAINS, d), start, dtype=torch.float64)
    chains = HamiltonianChains(position, torch.Generator().manual_seed(3), step)
    chains.run(differentiated, 12, adapt=True)
    positions = []
    for _ in range(n):
        chains.run(differentiated)
        positions.append(chains.position)
    return torch.stack(positions), chains


def test_a_gaussian_with_a_narrow_direction_has_its_moments():
    covariance = torch.tensor([[1.0, 0.95], [0.95, 1.0]], dtype=torch.float64)
    precision = torch.linalg.inv(covariance)
    positions, chains = _run(lambda x: -0.5 * ((x @ precision) * x).sum(-1), 2, start=2.0)
    flat = positions.flatten(0, 1)
    # at least 200 independent chains: five standard errors of a mean and of a covariance
    assert float(flat.mean(0).abs().max()) < 5 / CHAINS**0.5
    assert float((flat.mT.cov() - covariance).abs().max()) < 5 * (2 / CHAINS) ** 0.5
    assert abs(chains.acceptance - ACCEPTANCE) < 0.2


def test_a_curved_ridge_has_the_marginal_of_quadrature():
    def log_density(x):  # only the sum of two variances is known, each has a wide prior
        total = torch.logaddexp(x[:, 0], x[:, 1])
        return -0.5 * (total / 0.1).square() - 0.5 * ((x + 2.0) / 2.0).square().sum(-1)

    grid = np.linspace(-12, 2, 1401)
    mesh = torch.as_tensor(np.stack(np.meshgrid(grid, grid), -1).reshape(-1, 2))
    marginal = log_density(mesh).exp().view(1401, 1401).sum(0).numpy()
    cdf = np.cumsum(marginal) / marginal.sum()
    positions, _ = _run(log_density, 2, step=0.1)
    first = positions[..., 0].flatten().numpy()
    for probability in (0.1, 0.3, 0.5, 0.7, 0.9):
        quantile = grid[np.searchsorted(cdf, probability)]
        error = np.mean(first < quantile) - probability
        assert abs(error) < 5 * (probability * (1 - probability) / CHAINS) ** 0.5


def test_a_chain_that_would_leave_the_support_stays_where_it_is():
    positions, _ = _run(lambda x: torch.where(x[:, 0] > 0, -x[:, 0], torch.nan), 1, start=0.5)
    assert float(positions.min()) > 0.0
