"""Post-hoc conditioning: one tolerance for all balances, the one that explains held-out rows best."""

import numpy as np
import pytest
import scipy.stats
import torch

from equipoise.balances.linear import LinearConstraint
from equipoise.data.rows import Rows
from equipoise.gaussian.conditioning import ConditioningLayer
from equipoise.network.likelihood import joint
from equipoise.network.mlp import BayesianMLP
from equipoise.network.model import ConstrainedBNN
from equipoise.rivals.methods.imposed_network import ImposedBNN
from equipoise.rivals.methods.members import Members
from equipoise.rivals.methods.posthoc import set_scalar_tolerance


def exact_nll(r, y):
    """Of `y ~ N(0, I)` in two outputs whose sum is observed to be 0 with variance r, by the dense formula."""
    b = np.ones((2, 1)) / np.sqrt(2)
    cov = np.eye(2) - b @ b.T / (1 + r)
    return -scipy.stats.multivariate_normal(cov=cov).logpdf(y).mean()


@pytest.mark.parametrize("std", [0.05, 0.5])
def test_the_tolerance_is_the_most_likely_one(std):
    rng = np.random.default_rng(0)
    across, along = std * rng.standard_normal((2000, 1)), rng.standard_normal((2000, 1))
    y = np.hstack([across + along, across - along]) / np.sqrt(2)
    network = BayesianMLP(1, 2, (), generator=torch.Generator().manual_seed(0))
    layer = ConditioningLayer(LinearConstraint(np.ones((1, 2)) / np.sqrt(2)), 0.0)
    model = ImposedBNN(ConstrainedBNN(network, layer, joint))
    model.source = Members(torch.zeros(1, network.posterior.loc.numel()))  # says N(0, 1) of everything
    rows = Rows(torch.zeros(2000, 1), torch.as_tensor(y), torch.zeros(2000, 1).double())
    found = set_scalar_tolerance(model, rows, seed=0)
    grid = np.exp(np.linspace(np.log(std**2) - 1, np.log(std**2) + 1.5, 501))
    best = min(grid, key=lambda r: exact_nll(r, y))
    assert abs(np.log(found / best)) < 0.03
    assert float(layer.tolerance.fixed[0]) == pytest.approx(found)
