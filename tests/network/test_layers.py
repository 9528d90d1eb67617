"""Compiled passes through the layers with their gradients, against the definition in operators of torch."""

from unittest.mock import patch

import pytest
import torch
from compiled_loops import loops_called

from equipoise import compiled
from equipoise.network import layers as layers_module
from equipoise.network.layers import layer_views
from equipoise.network.mlp import BayesianMLP

with_fast = pytest.mark.skipif(not compiled.is_available(), reason="of compiled code")


def by_definition(call):
    """What a call gives in operators of torch, of which it may call none that is compiled."""
    with patch.object(layers_module, "WIDEST", 0), loops_called() as called:
        result = call()
    assert called == []
    return result


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
    (W, bias), (W_out, bias_out) = layer_views(flat, (2, 2, 1))
    assert W.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert bias.tolist() == [4.0, 5.0]
    assert W_out.tolist() == [[6.0], [7.0]]
    assert bias_out.tolist() == [8.0]
    W[0, 1] = 70.0
    assert flat[1] == 70.0


def heads(gaussian):
    return [part for part in (gaussian.mean, gaussian.var, gaussian.sensor_factor) if part is not None]


@pytest.mark.parametrize("activation", ["silu", "tanh", "relu"])
@pytest.mark.parametrize("hidden", [(), (5,), (5, 4)])
def test_draws_and_their_gradients_are_those_of_the_definition(activation, hidden):
    net, x = network(activation, hidden), values(6, 3)
    upstream, parameters = [values(6, 2, seed=seed) for seed in (5, 6, 7)], [net.posterior.loc, net.posterior.log_std]
    plain = heads(by_definition(lambda: net(x, torch.Generator().manual_seed(4))))
    with loops_called() as called:
        compiled = heads(net(x, torch.Generator().manual_seed(4)))
        ours, theirs = (torch.autograd.grad(parts, parameters, upstream) for parts in (compiled, plain))
    assert called == ["forward", "backward"]
    for one, other in zip([*compiled, *ours], [*plain, *theirs], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11 * float(other.detach().abs().max()))


@pytest.mark.parametrize("activation", ["silu", "tanh", "relu"])
@pytest.mark.parametrize("hidden", [(), (5, 4)])
def test_means_and_their_gradients_are_those_of_the_definition(activation, hidden):
    net, x, upstream = network(activation, hidden), values(6, 3), values(6, 2, seed=5)
    plain = by_definition(lambda: net.at_means(x)).mean
    with loops_called() as called:
        compiled = net.at_means(x).mean
        ours, theirs = (torch.autograd.grad(mean, [net.posterior.loc], upstream)[0] for mean in (compiled, plain))
    assert called == ["forward", "backward"]
    for one, other in ((compiled, plain), (ours, theirs)):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11 * float(other.detach().abs().max()))


@with_fast
@pytest.mark.parametrize(("width", "compiled"), [(256, True), (257, False)])
def test_wide_layers_are_left_to_operators_of_torch_which_have_threads(width, compiled):
    assert layers_module.is_compiled(torch.empty(0), (3, width, 4), "silu") == compiled
    with loops_called() as called:
        network(hidden=(width,)).at_means(values(6, 3)).mean.sum().backward()
    assert called == ["forward", "backward"] * compiled


@with_fast
def test_compiled_code_can_be_switched_off(monkeypatch):
    assert layers_module.is_compiled(torch.empty(0), (3, 4), "silu")
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert not layers_module.is_compiled(torch.empty(0), (3, 4), "silu")


def test_gradients_of_inputs_and_transforms_go_through_operators_of_torch():
    net, x = network(), values(6, 3)
    x.requires_grad_()
    rng = torch.Generator()
    slopes = [
        torch.autograd.grad(net(x, rng.manual_seed(4)).mean.sum(), [x])[0],
        torch.func.jacrev(lambda x: net.at_means(x).mean.sum())(x.detach()),
    ]
    assert all(slope.abs().sum() > 0 for slope in slopes)
    step = 1e-6 * values(6, 3, seed=8)
    with torch.no_grad():
        change = [net(x + k * step, rng.manual_seed(4)).mean.sum() for k in (-1, 1)]
    torch.testing.assert_close((change[1] - change[0]) / 2, (slopes[0] * step).sum(), rtol=1e-6, atol=1e-13)


def test_parameters_changed_before_the_gradient_is_asked_for_are_noticed():
    net = network()
    loss = net.at_means(values(6, 3)).mean.sum()
    with torch.no_grad():
        net.posterior.loc.add_(1.0)
    with pytest.raises(RuntimeError, match=r"modified (by an )?inplace"):
        loss.backward()


def test_a_network_without_inputs_has_the_same_output_in_all_rows():
    net = BayesianMLP(0, 2, (4,), generator=torch.Generator().manual_seed(0)).double()
    net.posterior.loc.data.normal_(generator=torch.Generator().manual_seed(1))
    x = torch.zeros(5, 0, dtype=torch.float64)
    mean = net.at_means(x).mean
    torch.testing.assert_close(mean, mean[:1].expand(5, 2))
    torch.testing.assert_close(mean, by_definition(lambda: net.at_means(x)).mean)


def test_strided_inputs_and_gradients_are_read_as_they_are():
    net, x = network(), values(3, 6).T
    upstream = torch.ones(1, 1, dtype=torch.float64).expand(6, 2)
    mean = net.at_means(x).mean
    torch.testing.assert_close(mean, by_definition(lambda: net.at_means(x.contiguous())).mean)
    ours, other = (
        torch.autograd.grad(mean, [net.posterior.loc], each, retain_graph=True)[0]
        for each in (upstream, upstream.contiguous())
    )
    torch.testing.assert_close(ours, other)
