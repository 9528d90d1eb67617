"""The network in memory that serves again, against `BayesianMLP.at`."""

import numpy as np
import pytest
import torch
from compiled_loops import loops_called

from equipoise import compiled
from equipoise.network import layers
from equipoise.network.mlp import BayesianMLP
from equipoise.network.model import ConstrainedBNN, PosteriorDraws
from equipoise.prediction.weight_draws import NetworkEvaluator, draws_between

COMPILED, TORCH = "compiled", "operators of torch"
WAYS = [*((activation, way) for activation in ("silu", "tanh", "relu") for way in (COMPILED, TORCH)), ("gelu", TORCH)]


@pytest.fixture(params=[COMPILED, TORCH])
def way(request, monkeypatch):
    """Both ways that draws are evaluated; a test must have gone the one that it says."""
    if request.param == TORCH:
        monkeypatch.setattr(layers, "WIDEST", 0)
    if not compiled.is_available() and request.param == TORCH:
        yield
        return
    with loops_called() as called:  # without compiled code the other way is skipped
        yield
    assert bool(called) == (request.param == COMPILED)


either_way = pytest.mark.usefixtures("way")


def network(activation="silu", hidden=(7, 5), sensor_head=False, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    made = BayesianMLP(3, 4, hidden, activation, sensor_head=sensor_head, init_std=0.3, generator=generator)
    return made.to(dtype)


def drawn_from(net, n=6, seed=0):
    with torch.no_grad():
        draws = ConstrainedBNN(net).draw(seed, 0)
    return PosteriorDraws(draws.weights[:n])


def inputs(n=9, dtype=torch.float64, seed=1):
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@either_way
@pytest.mark.parametrize(("activation", "way"), WAYS, indirect=["way"])
@pytest.mark.parametrize("hidden", [(), (7,), (7, 5), (5, 5, 5)], ids=str)
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-13), (torch.float32, 2e-5)], ids=["double", "single"])
def test_heads_are_those_of_the_network(activation, hidden, dtype, rtol):
    net, x = network(activation, hidden, dtype=dtype), inputs(dtype=dtype)
    drawn = drawn_from(net)
    (mean, var), expected = NetworkEvaluator(net).heads(drawn, x), net.at(drawn.weights, x)
    assert mean.dtype == var.dtype == dtype
    np.testing.assert_allclose(mean, expected.mean, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(var, expected.var, rtol=rtol)


@either_way
def test_the_sensor_head_is_evaluated_where_it_is_asked_for():
    net, x = network(sensor_head=True), inputs()
    drawn = drawn_from(net)
    expected = net.at(drawn.weights, x)
    np.testing.assert_allclose(NetworkEvaluator(net).heads(drawn, x)[2], expected.sensor_factor, rtol=1e-13)
    _, var = NetworkEvaluator(net, sensor_factor=False).heads(drawn, x)
    np.testing.assert_allclose(var, expected.var, rtol=1e-13)


@either_way
def test_blocks_of_different_shapes_do_not_disturb_each_other():
    net = network()
    evaluated, blocks = NetworkEvaluator(net), [(drawn_from(net, n), inputs(k)) for n in (6, 2) for k in (9, 4)]
    together = [evaluated.heads(drawn, x) for drawn, x in blocks]
    for (mean, _), (drawn, x) in zip(together, blocks, strict=True):
        np.testing.assert_allclose(mean, net.at(drawn.weights, x).mean, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("way", [COMPILED], indirect=True)  # the other way has no buffers
@either_way
def test_buffers_are_overwritten_by_the_next_block_of_their_shape():
    """As the docstring of `heads` says; the components of a mixture are copies of them."""
    net, x = network(), inputs()
    evaluated, first, second = NetworkEvaluator(net), drawn_from(net), drawn_from(net, seed=1)
    mean, _ = evaluated.heads(first, x)
    assert evaluated.heads(second, x)[0].data_ptr() == mean.data_ptr()
    np.testing.assert_allclose(mean, net.at(second.weights, x).mean, rtol=1e-12, atol=1e-14)


@either_way
def test_the_inputs_and_the_draws_are_left_as_they_were():
    net, x = network(), inputs()
    drawn = drawn_from(net)
    before = x.clone(), drawn.weights.clone()
    NetworkEvaluator(net).heads(drawn, x)
    assert torch.equal(x, before[0])
    assert torch.equal(drawn.weights, before[1])


def test_draws_between_two_numbers_are_those_of_all_their_parts():
    weights, shape = torch.zeros(5, 3, dtype=torch.float64), (5, 1, 2)
    r, again, offset = (torch.arange(10.0).reshape(shape) + start for start in (0.0, 10.0, 20.0))
    part = draws_between(PosteriorDraws(weights, r, again, offset, log_weight=torch.arange(5.0)[:, None]), 1, 3)
    assert torch.equal(part.tol_var, r[1:3])
    assert torch.equal(part.log_weight, torch.tensor([[1.0], [2.0]]))
    assert part.sensor_var is None


@pytest.mark.parametrize("way", [COMPILED], indirect=True)
@either_way
def test_threads_share_the_draws_and_change_no_bit():
    net, x = network(), inputs(300)
    drawn = drawn_from(net, 5)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = NetworkEvaluator(net).heads(drawn, x)
        torch.set_num_threads(3)
        together = NetworkEvaluator(net).heads(drawn, x)
    finally:
        torch.set_num_threads(before)
    assert all(map(torch.equal, alone, together))


@either_way
def test_draws_that_are_strided_are_read_as_they_are():
    net, x = network(), inputs()
    weights = torch.randn(len(net.posterior.loc), 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).T
    mean, _ = NetworkEvaluator(net).heads(PosteriorDraws(weights), x)
    torch.testing.assert_close(mean, net.at(weights, x).mean.detach())
