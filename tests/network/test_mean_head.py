"""Derivatives of the mean head against those of the whole network by torch.func."""

import pytest
import torch

from equipoise.network import BayesianMLP
from equipoise.network.mean_head import MeanHead


def _network(hidden=(5, 4), activation="silu", sensor_head=False):
    generator = torch.Generator().manual_seed(3)
    network = BayesianMLP(3, 2, hidden, activation, sensor_head=sensor_head, generator=generator)
    network.double()
    x = torch.randn(6, 3, dtype=torch.float64, generator=generator)
    point = network.posterior.loc.detach() + 0.1 * torch.randn(
        len(network.posterior.loc), dtype=torch.float64, generator=generator
    )
    return network, point, x


def _jacobian(network, point, x):
    """The derivative of all means with respect to all weights, (n, n_y, P), by reverse-mode differentiation."""
    return torch.func.jacrev(lambda weights: network.at(weights[None], x).mean[0])(point)


CASES = [((5, 4), "silu", False), ((5,), "tanh", True), ((), "silu", False), ((4, 4, 3), "gelu", False)]


@pytest.mark.parametrize(("hidden", "activation", "sensor_head"), CASES)
def test_tangents_and_pull_back_multiply_by_the_jacobian(hidden, activation, sensor_head):
    network, point, x = _network(hidden, activation, sensor_head)
    head = MeanHead.at(point, x, network.sizes, 2, activation)
    J = _jacobian(network, point, x)
    generator = torch.Generator().manual_seed(4)
    changes = torch.randn(7, len(point), dtype=torch.float64, generator=generator)
    cotangents = torch.randn(7, 6, 2, dtype=torch.float64, generator=generator)
    torch.testing.assert_close(head.mean, network.at(point[None], x).mean[0], rtol=0, atol=1e-13)
    torch.testing.assert_close(head.tangents(changes), torch.einsum("njp,kp->knj", J, changes), rtol=0, atol=1e-12)
    torch.testing.assert_close(
        head.pull_back(cotangents), torch.einsum("njp,knj->kp", J, cotangents), rtol=0, atol=1e-12
    )
