"""The linearised Laplace posterior: means against derivatives, draws in turn, members in their shares."""

import pytest
import torch

from equipoise.errors import InputError
from equipoise.network import DRAW_BLOCK, BayesianMLP, Laplace, LinearisedLaplace, as_posterior, spread_over_members


def _posterior(n_members=2, sensor_head=False, activation="tanh"):
    generator = torch.Generator().manual_seed(1)
    network = BayesianMLP(2, 3, (4, 3), activation, sensor_head=sensor_head, generator=generator).double()
    P, n_kept = len(network.posterior.loc), 50
    points, changes = (0.5 * torch.randn(n, P, dtype=torch.float64, generator=generator) for n in (n_members, n_kept))
    q = LinearisedLaplace(points, changes, torch.arange(n_kept) % n_members)
    return network.with_posterior(q), q


@pytest.mark.parametrize("n_members", [1, 2])
@pytest.mark.parametrize("sensor_head", [False, True])
@pytest.mark.parametrize("activation", ["tanh", "silu", "relu", "gelu"])
def test_the_mean_moves_along_its_derivative_and_heads_by_their_biases_alone(n_members, sensor_head, activation):
    network, q = _posterior(n_members, sensor_head, activation)
    x = torch.linspace(-1, 1, 10, dtype=torch.float64).reshape(5, 2)
    draws = q.draw_block(0, 1)[5:12]
    gaussian = network.at_draws(draws, x)
    for d, draw in enumerate(draws):
        point = q.points[int(draw[-1])]
        at_point = network.at(point[None], x)
        J = torch.func.jacrev(lambda theta: network.at(theta[None], x).mean[0])(point)
        torch.testing.assert_close(gaussian.mean[d], at_point.mean[0] + J @ draw[:-1], rtol=1e-11, atol=1e-11)
        moved = point.clone()
        network.layers(moved)[-1][1][3:] += network.layers(draw[:-1])[-1][1][3:]
        with_biases = network.at(moved[None], x)
        torch.testing.assert_close(gaussian.var[d], with_biases.var[0], rtol=1e-11, atol=0)
        if sensor_head:
            torch.testing.assert_close(gaussian.sensor_factor[d], with_biases.sensor_factor[0], rtol=1e-11, atol=0)


def test_kept_draws_come_in_turn_and_survive_being_saved():
    _, q = _posterior()
    first, second = (q.draw_block(seed, block) for seed, block in ((3, 0), (4, 1)))
    together = torch.cat([first, second])
    assert together.shape == (2 * DRAW_BLOCK, q.points.shape[1] + 1)
    torch.testing.assert_close(together[:50, :-1], q.changes, rtol=0, atol=0)
    torch.testing.assert_close(together[50:64], together[:14], rtol=0, atol=0)
    again = LinearisedLaplace.blank((2, 4, 3, 6), 1.0, **q.settings()).double()
    again.load_state_dict(q.state_dict())
    torch.testing.assert_close(again.draw_block(0, 1), second, rtol=0, atol=0)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.8, 0.2), (1.0, 0.0)])
def test_the_first_draws_have_nearly_the_shares_of_the_members(shares):
    member = spread_over_members(torch.tensor(shares), 256)
    for n in (16, 64, 256):
        assert float((member[:n] == 0).double().mean()) == pytest.approx(shares[0], abs=2 / n)


def test_the_choice_of_a_laplace_posterior_is_a_name_or_an_object():
    assert as_posterior("laplace") == Laplace(n_members=3)
    assert as_posterior(Laplace(1)).n_members == 1
    with pytest.raises(InputError, match=r"n_members.*0"):
        Laplace(0)
