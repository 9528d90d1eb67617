"""Members against a naive loop over layers and units."""

import numpy as np
import torch

from equipoise.network.members import Members, member_seeds, starting_members
from equipoise.network.mlp import BayesianMLP


def network(hidden=(5, 4)):
    return BayesianMLP(2, 3, hidden, "tanh", generator=torch.Generator().manual_seed(0))


def naive(net, weights, x):
    """One row, one member, unit by unit."""
    values, start = list(map(float, x)), 0
    for i, (fan_in, fan_out) in enumerate(zip(net.sizes[:-1], net.sizes[1:], strict=True)):
        W = weights[start : start + fan_in * fan_out].reshape(fan_in, fan_out)
        bias = weights[start + fan_in * fan_out : start + (fan_in + 1) * fan_out]
        start += (fan_in + 1) * fan_out
        units = [sum(values[k] * float(W[k, j]) for k in range(fan_in)) + float(bias[j]) for j in range(fan_out)]
        values = [np.tanh(u) for u in units] if i < len(net.sizes) - 2 else units
    units = np.array(values)
    return units[:3], np.exp(20 * np.tanh(units[3:6] / 20))


def test_members_in_one_pass_are_members_one_by_one():
    net = network()
    weights, x = starting_members(net, [1, 2, 3]), torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(1))
    together = Members(weights).at_own_rows(net, x)
    for member in range(3):
        for row in range(4):
            mean, var = naive(net, weights[member], x[member, row])
            np.testing.assert_allclose(together.mean[member, row].detach(), mean, atol=1e-6)
            np.testing.assert_allclose(together.var[member, row].detach(), var, rtol=1e-5)


def test_members_take_turns_across_blocks():
    members = Members(torch.arange(5.0)[:, None])
    drawn = torch.cat([members.draw_block(0, block)[:, 0] for block in range(5)])
    assert drawn.tolist() == [float(d % 5) for d in range(160)]
    assert members.n_distinct == len(members) == 5


def test_the_first_member_starts_as_the_network_of_the_same_seed_alone():
    assert member_seeds(7, 1) == member_seeds(7, 3)[:1] == [7]
    assert len(set(member_seeds(7, 3) + member_seeds(8, 3))) == 6


def test_members_of_a_file_have_their_numbers_of_weights():
    members = Members(starting_members(network(), [1, 2]), 0.4)
    again = Members.blank(network().sizes, 0.4, **members.settings())
    again.load_state_dict(members.state_dict())
    assert torch.equal(again.weights, members.weights)
    assert again.prior_std == 0.4


def test_a_network_with_other_draws_leaves_the_first_as_it_is():
    net = network()
    members = Members(starting_members(net, [1]))
    other = net.with_posterior(members)
    assert other.posterior is members
    assert list(other.parameters()) == [members.weights]
    assert net.posterior is not members
    assert all(a is b for a, b in zip(net.parameters(), net.posterior.parameters(), strict=True))


class Shifted(Members):
    """Means are shifted by 1 in a way of their own."""

    def evaluate(self, network, weights, x, forward):
        plain = forward(weights, x)
        return type(plain)(plain.mean + 1.0, plain.var, plain.sensor_factor)


def test_draws_may_be_evaluated_in_a_way_of_their_own():
    net, x = network(), torch.randn(4, 2, generator=torch.Generator().manual_seed(1))
    weights = starting_members(net, [1, 2])
    plain, shifted = (net.with_posterior(kind(weights)).at_draws(weights, x).mean for kind in (Members, Shifted))
    torch.testing.assert_close(shifted, plain + 1.0)
