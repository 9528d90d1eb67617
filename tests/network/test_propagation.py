"""The network's pass without a graph, against autograd over the definition in `network.py`."""

import pytest
import torch
from compiled_loops import loops_called

from equipoise.network import propagation
from equipoise.network.mlp import BayesianMLP
from equipoise.network.propagation import ACTIVATIONS, layers

COMPILED, TORCH = "compiled", "operators of torch"
WAYS = [
    (activation, way)
    for activation in ACTIVATIONS
    for way in (COMPILED, TORCH)
    if (activation, way) != ("gelu", COMPILED)
]


@pytest.fixture(params=[COMPILED, TORCH])
def way(request, monkeypatch):
    """Both ways that rows take through the layers; a test must have gone the one that it says."""
    if request.param == TORCH:
        monkeypatch.setattr(propagation, "WIDEST", 0)
    with loops_called() as called:
        yield
    assert bool(called) == (request.param == COMPILED)


each_way = pytest.mark.parametrize(("activation", "way"), WAYS, indirect=["way"])


def network(activation="silu", hidden=(5, 4), *, sensor_head=True):
    rng = torch.Generator().manual_seed(0)
    net = BayesianMLP(3, 2, hidden, activation, sensor_head=sensor_head, generator=rng).double()
    net.posterior.loc.data += 0.3 * torch.randn(net.posterior.loc.shape, dtype=torch.float64, generator=rng)
    net.posterior.log_std.data += torch.rand(net.posterior.loc.shape, dtype=torch.float64, generator=rng)
    return net


def values(*shape, seed=1):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_layers_are_views_of_the_flat_vector_in_order():
    flat = torch.arange(9.0)
    (W, bias), (W_out, bias_out) = layers(flat, (2, 2, 1))
    assert W.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert bias.tolist() == [4.0, 5.0]
    assert W_out.tolist() == [[6.0], [7.0]]
    assert bias_out.tolist() == [8.0]
    W[0, 1] = 70.0
    assert flat[1] == 70.0


@each_way
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("hidden", [(), (5,), (5, 4)])
def test_draws_and_their_gradients_are_those_of_autograd(activation, hidden):
    net, x = network(activation, hidden), values(6, 3)
    said, pull = net.propagate(x, torch.Generator().manual_seed(4))
    naive = net(x, torch.Generator().manual_seed(4))
    parts = (naive.mean, naive.var, naive.sensor_factor)
    of = [values(6, 2, seed=seed) for seed in (5, 6, 7)]
    expected = torch.autograd.grad(parts, [net.posterior.loc, net.posterior.log_std], of)
    for ours, theirs in zip((said.mean, said.var, said.sensor_factor), parts, strict=True):
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-12, atol=1e-14)
    for ours, theirs in zip(pull(*of), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@each_way
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("hidden", [(), (5, 4)])
def test_means_and_their_gradients_are_those_of_autograd(activation, hidden):
    net, x, of = network(activation, hidden), values(6, 3), values(6, 2, seed=5)
    mean, pull = net.propagate_means(x)
    naive = net.at_means(x).mean
    torch.testing.assert_close(mean, naive.detach(), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(pull(of), *torch.autograd.grad(naive, [net.posterior.loc], of), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("width", "compiled"), [(256, True), (257, False)])
def test_wide_layers_are_left_to_operators_of_torch_which_have_threads(width, compiled):
    assert propagation.is_compiled(torch.empty(0), (3, width, 4), "silu") == compiled
    net, x, of = network(hidden=(width,)), values(6, 3), values(6, 2, seed=5)
    naive = net.at_means(x).mean
    expected = torch.autograd.grad(naive, [net.posterior.loc], of)[0]
    with loops_called() as called:
        torch.testing.assert_close(net.propagate_means(x)[1](of), expected, rtol=1e-9, atol=1e-12)
    assert called == ["forward_means", "backward_means"] * compiled


def test_compiled_code_can_be_switched_off(monkeypatch):
    assert propagation.is_compiled(torch.empty(0), (3, 4), "silu")
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert not propagation.is_compiled(torch.empty(0), (3, 4), "silu")


@pytest.mark.usefixtures("way")
def test_a_network_without_inputs_says_the_same_of_all_rows():
    net = BayesianMLP(0, 2, (4,), generator=torch.Generator().manual_seed(0)).double()
    net.posterior.loc.data.normal_(generator=torch.Generator().manual_seed(1))
    x = torch.zeros(5, 0, dtype=torch.float64)
    torch.testing.assert_close(net.propagate_means(x)[0], net.at_means(x).mean.detach())


@pytest.mark.usefixtures("way")
def test_strided_inputs_and_gradients_are_read_as_they_are():
    net, x = network(), values(3, 6).T
    mean, pull = net.propagate_means(x)
    of = torch.ones(1, 1, dtype=torch.float64).expand(6, 2)
    torch.testing.assert_close(mean, net.at_means(x.contiguous()).mean.detach())
    torch.testing.assert_close(pull(of), pull(of.contiguous()))
