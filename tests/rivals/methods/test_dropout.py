"""Dropout against naive loops over layers and units."""

import numpy as np
import torch

from equipoise.network.members import starting_members
from equipoise.network.mlp import BayesianMLP
from equipoise.rivals.methods.dropout import Dropout, dropout_masks


def network(hidden=(5, 4)):
    return BayesianMLP(2, 3, hidden, "tanh", generator=torch.Generator().manual_seed(0))


def naive_unit_values(net, weights, x, keep=None):
    """One row, one member, unit by unit; `keep` multiplies hidden units."""
    values, start = list(map(float, x)), 0
    for i, (fan_in, fan_out) in enumerate(zip(net.sizes[:-1], net.sizes[1:], strict=True)):
        W = weights[start : start + fan_in * fan_out].reshape(fan_in, fan_out)
        bias = weights[start + fan_in * fan_out : start + (fan_in + 1) * fan_out]
        start += (fan_in + 1) * fan_out
        units = [sum(values[k] * float(W[k, j]) for k in range(fan_in)) + float(bias[j]) for j in range(fan_out)]
        if i < len(net.sizes) - 2:
            units = [np.tanh(u) * (1.0 if keep is None else float(keep[i][j])) for j, u in enumerate(units)]
        values = units
    return values


def naive(net, weights, x, keep=None):
    units = np.array(naive_unit_values(net, weights, x, keep))
    return units[:3], np.exp(20 * np.tanh(units[3:6] / 20))


def test_dropout_as_a_weight_vector_is_dropout_of_hidden_units():
    net, x = network(), torch.tensor([[0.3, -0.7]])
    weights = starting_members(net, [1])[0]
    drawn = Dropout(weights, net.sizes, 1.0, 0.4).draw_block(seed=5, block=2)
    output = net.at(drawn, x)
    for d in range(4):  # masks read off the weights: a row of the next matrix is 0 or 1 / (1 − p) of what it was
        keep = [
            (W_drawn[d, :, 0] / W[:, 0]).round(decimals=4)
            for (W_drawn, _), (W, _) in zip(net.layers(drawn)[1:], net.layers(weights)[1:], strict=True)
        ]
        assert set(torch.cat(keep).tolist()) <= {0.0, np.float32(1.6667).item()}
        mean, _ = naive(net, weights, x[0], keep)
        np.testing.assert_allclose(output.mean[d, 0], mean, atol=2e-4)


def test_dropout_leaves_units_out_as_often_as_it_says_and_keeps_the_mean():
    keep = dropout_masks((2, 200, 100, 6), (400,), 0.25, torch.Generator().manual_seed(0))
    values = torch.cat([part.flatten() for part in keep])
    share = float((values == 0).double().mean())
    assert abs(share - 0.25) < 5 * np.sqrt(0.25 * 0.75 / values.numel())
    assert set(values.tolist()) == {0.0, np.float32(1 / 0.75).item()}


def test_draws_depend_on_seed_and_block_alone():
    net = network()
    source, other = (Dropout(starting_members(net, [1])[0], net.sizes, 1.0, 0.4) for _ in range(2))
    other.draw_block(6, 2), other.draw_block(5, 7)  # whatever was drawn before
    assert torch.equal(source.draw_block(5, 2), other.draw_block(5, 2))
    assert not torch.equal(source.draw_block(5, 2), source.draw_block(5, 3))
    assert not torch.equal(source.draw_block(5, 2), source.draw_block(6, 2))
