"""Small models and rows to train on, for tests in this process and in others."""

import math

import torch

from equipoise.balances.linear import LinearConstraint
from equipoise.data.rows import Rows
from equipoise.gaussian.conditioning import ConditioningLayer
from equipoise.gaussian.tolerance import LogNormalVariance
from equipoise.network.likelihood import joint, marginal
from equipoise.network.mlp import BayesianMLP
from equipoise.network.model import ConstrainedBNN
from equipoise.training.plan import TrainingPlan

KILL_PLAN = TrainingPlan(max_epochs=40, mean_epochs=10, batch_size=16)


def data(n: int = 64, seed: int = 0) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 1, generator=generator) * 2 - 1
    parts = torch.cat([torch.sin(3 * x), x], 1).double()
    y = torch.cat([parts, parts.sum(1, keepdim=True)], 1)
    y = y + 0.1 * torch.randn(y.shape, generator=generator, dtype=torch.float64)
    return Rows(x, y, torch.zeros(n, 1, dtype=torch.float64))


def constrained_model() -> ConstrainedBNN:
    network = BayesianMLP(1, 3, (8,), "tanh", generator=torch.Generator().manual_seed(0))
    layer = ConditioningLayer(LinearConstraint([[-1.0, -1.0, 1.0]]), offset=True)
    sensor = LogNormalVariance(torch.full((3,), -6.0), torch.full((3,), 3.0), torch.full((3,), math.nan))
    return ConstrainedBNN(network, layer, joint, sensor)


def plain_model(n_outputs: int = 3, hidden=(8,)) -> ConstrainedBNN:
    network = BayesianMLP(1, n_outputs, hidden, "tanh", generator=torch.Generator().manual_seed(0))
    return ConstrainedBNN(network, likelihood=marginal)


def same_bits(one: ConstrainedBNN, other: ConstrainedBNN) -> bool:
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
