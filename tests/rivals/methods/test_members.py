"""Members, ensembles and dropout against naive loops over layers and units."""

import numpy as np
import torch

from equipoise.network.mlp import BayesianMLP
from equipoise.rivals.methods.members import (
    Dropout,
    Members,
    dropout_masks,
    member_rmse,
    spread_mask,
    starting_weights,
)


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


def test_members_in_one_pass_are_members_one_by_one():
    net = network()
    weights, x = starting_weights(net, [1, 2, 3]), torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(1))
    output = net.at(weights, x)
    for member in range(3):
        for row in range(4):
            mean, var = naive(net, weights[member], x[member, row])
            np.testing.assert_allclose(output.mean[member, row], mean, atol=1e-6)
            np.testing.assert_allclose(output.var[member, row], var, rtol=1e-5)


def test_dropout_as_a_weight_vector_is_dropout_of_hidden_units():
    net, x = network(), torch.tensor([[0.3, -0.7]])
    weights = starting_weights(net, [1])[0]
    drawn = Dropout(net, weights, 0.4).draw(seed=5, block=2)
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
    keep = dropout_masks(network((200, 100)), (400,), 0.25, torch.Generator().manual_seed(0))
    values = torch.cat([part.flatten() for part in keep])
    share = float((values == 0).double().mean())
    assert abs(share - 0.25) < 5 * np.sqrt(0.25 * 0.75 / values.numel())
    assert set(values.tolist()) == {0.0, np.float32(1 / 0.75).item()}


def test_draws_depend_on_seed_and_block_alone():
    net = network()
    source, other = (Dropout(net, starting_weights(net, [1])[0], 0.4) for _ in range(2))
    other.draw(6, 2), other.draw(5, 7)  # whatever was drawn before
    assert torch.equal(source.draw(5, 2), other.draw(5, 2))
    assert not torch.equal(source.draw(5, 2), source.draw(5, 3))
    assert not torch.equal(source.draw(5, 2), source.draw(6, 2))


def test_members_take_turns_across_blocks():
    members = Members(torch.arange(5.0)[:, None])
    drawn = torch.cat([members.draw(0, block)[:, 0] for block in range(5)])
    assert drawn.tolist() == [float(d % 5) for d in range(160)]


def test_the_heads_of_noise_are_what_is_left_when_means_are_held():
    net = network()
    net.posterior.loc.grad = torch.ones_like(net.posterior.loc)
    net.hold_means()
    assert torch.equal(spread_mask(net), net.posterior.loc.grad)


def test_errors_are_averaged_over_what_was_measured():
    mean, y = torch.zeros(2, 3, 2), torch.ones(2, 3, 2) * torch.tensor([3.0, 5.0])
    y[1, :2, 0] = torch.nan
    y[1, 2, 0] = 7.0
    np.testing.assert_allclose(member_rmse(mean, y), [4.0, 6.0])
