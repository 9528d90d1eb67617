import math

import numpy as np
import pytest
import torch

import references
from equipoise.gaussian.randomness import flat_antithetic_normals
from equipoise.network.layers import ACTIVATIONS, split_units
from equipoise.network.mlp import BayesianMLP


def network(n_x=3, n_y=2, hidden=(5, 4), activation="silu", seed=0, std=None):
    """A float64 network with unequal weight spreads, biases other than zero."""
    rng = torch.Generator().manual_seed(seed)
    net = BayesianMLP(n_x, n_y, hidden, activation, generator=rng).double()
    net.posterior.loc.data += 0.1 * torch.randn(net.posterior.loc.shape, dtype=torch.float64, generator=rng)
    spread = torch.rand(net.posterior.loc.shape, dtype=torch.float64, generator=rng)
    net.posterior.log_std.data = torch.log(0.1 + 0.4 * spread if std is None else std * torch.ones_like(spread))
    return net


def inputs(n=6, n_x=3, seed=1):
    return torch.randn(n, n_x, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def weight_draws(net, n_draws, seed=2):
    shape = (n_draws, len(net.posterior.loc))
    return net.posterior.draw(shape[0], torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", [(), (5,), (5, 4)])
def test_batched_draws_are_those_of_a_loop_over_draws_rows_and_units(activation, hidden):
    net, x = network(hidden=hidden, activation=activation), inputs()
    weights = weight_draws(net, 4).detach()
    mean, var = references.network(weights.numpy(), (3, *hidden, 4), activation, x.numpy())
    gaussian = net.at(weights, x)
    assert gaussian.mean.shape == (4, 6, 2)
    np.testing.assert_allclose(gaussian.mean, mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(gaussian.var, var, rtol=1e-10)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_network_at_its_mean_weights_is_that_of_a_draw_without_spread(activation):
    net, x = network(activation=activation), inputs()
    means, drawn = net.at_means(x), net.at(net.posterior.loc.unsqueeze(0), x)
    np.testing.assert_allclose(means.mean.detach(), drawn.mean[0].detach(), rtol=1e-13)
    np.testing.assert_allclose(means.var.detach(), drawn.var[0].detach(), rtol=1e-13)


def preactivations(gaussian):
    """The last layer's units: means, and V3 undone."""
    raw = 20.0 * torch.atanh(gaussian.var.log() / 20.0)
    return torch.cat([gaussian.mean, raw], -1).detach().numpy()


def test_local_reparameterisation_has_the_moments_of_the_weights_it_stands_for():
    """One layer: `a ~ N(x M + m, x² V + u)`, independent over rows and units (V2)."""
    net, N = network(hidden=()), 40_000
    x = inputs(1).numpy()
    loc, var = net.posterior.loc.detach().numpy(), np.exp(2 * net.posterior.log_std.detach().numpy())
    mean = x[0] @ loc[:12].reshape(3, 4) + loc[12:]
    std = np.sqrt(x[0] ** 2 @ var[:12].reshape(3, 4) + var[12:])
    rows = torch.as_tensor(x).expand(N, 3)
    for gaussian in (net(rows, torch.Generator().manual_seed(0)), net.at(weight_draws(net, N), torch.as_tensor(x))):
        a = preactivations(gaussian).reshape(N, 4)
        # 5 standard errors: std / √N of a mean, std / √(2 N) of a standard deviation, 1 / √N of a correlation.
        assert np.all(abs(a.mean(0) - mean) <= 5 * std / math.sqrt(N))
        assert np.all(abs(a.std(0, ddof=1) - std) <= 5 * std / math.sqrt(2 * N))
        assert np.all(abs(np.corrcoef(a.T) - np.eye(4)) <= 5 / math.sqrt(N))
        assert abs(np.corrcoef(a[:-1, 0], a[1:, 0])[0, 1]) <= 5 / math.sqrt(N)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_through_hidden_layers_one_row_is_distributed_as_under_joint_weight_draws(activation):
    net, x, N = network(activation=activation, std=0.4), inputs(1), 20_000
    local = preactivations(net(x.expand(N, 3), torch.Generator().manual_seed(0)))
    joint = preactivations(net.at(weight_draws(net, N), x))[:, 0]
    for power in (1, 2):  # means of a and of a², 5 standard errors of their difference
        first, second = local**power, joint**power
        error = np.sqrt((first.var(0) + second.var(0)) / N)
        assert np.all(abs(first.mean(0) - second.mean(0)) <= 5 * error)


def test_without_spread_every_row_has_the_mean_weights():
    net, x = network(std=1e-200), inputs()
    gaussian, means = net(x, torch.Generator().manual_seed(3)), net.at_means(x)
    np.testing.assert_allclose(gaussian.mean.detach(), means.mean.detach(), rtol=1e-12)
    np.testing.assert_allclose(gaussian.var.detach(), means.var.detach(), rtol=1e-12)


def test_one_generator_state_gives_one_result():
    net, x = network(), inputs()
    first, same, other = (net(x, torch.Generator().manual_seed(seed)).mean for seed in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    weights = [BayesianMLP(3, 2, generator=torch.Generator().manual_seed(seed)).posterior.loc for seed in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_weights_start_with_variance_one_over_fan_in_and_biases_at_zero():
    net = BayesianMLP(100, 50, (200,), generator=torch.Generator().manual_seed(0))
    loc = net.posterior.loc.detach().double().numpy()
    for weights, fan_in in [(loc[:20_000], 100), (loc[20_200:40_200], 200)]:
        assert abs(weights.var() * fan_in - 1.0) <= 5 * math.sqrt(2 / len(weights))  # 5 standard errors
    np.testing.assert_array_equal(loc[20_000:20_200], 0.0)
    np.testing.assert_array_equal(loc[40_200:], 0.0)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("size", [1e4, -1e4])
def test_variances_are_positive_and_finite_whatever_the_weights(activation, size):
    net, x, rng = network(activation=activation), inputs(), torch.Generator().manual_seed(3)
    weights = size * torch.rand(8, len(net.posterior.loc), dtype=torch.float64, generator=rng)
    weights[4:] *= torch.randn(4, len(net.posterior.loc), dtype=torch.float64, generator=rng).sign()
    net.posterior.loc.data = weights[0]
    for gaussian in (net.at(weights, x), net.at_means(x), net(x, rng)):
        assert torch.isfinite(gaussian.mean).all()
        assert (gaussian.var >= math.exp(-20.0) * (1 - 1e-12)).all()
        assert (gaussian.var <= math.exp(20.0) * (1 + 1e-12)).all()


def test_the_variance_head_can_be_set_for_every_input():
    net, x = network(), inputs()
    before = net.at_means(x).mean.detach().clone()
    var = torch.tensor([1e-6, 300.0], dtype=torch.float64)
    net.set_variance_head(var)
    after = net.at_means(x)
    np.testing.assert_allclose(after.var.detach(), var.expand(6, 2), rtol=1e-10)
    np.testing.assert_array_equal(after.mean.detach(), before)


def test_a_third_head_says_how_sensor_noise_depends_on_the_inputs():
    net = BayesianMLP(3, 2, (5,), "tanh", sensor_head=True, generator=torch.Generator().manual_seed(0)).double()
    weights, x = 3.0 * weight_draws(net, 4).detach(), inputs()
    output = net.at(weights, x)
    mean, var, factor = references.network_with_sensors(weights.numpy(), (3, 5, 6), "tanh", x.numpy())
    for ours, naive in ((output.mean, mean), (output.var, var), (output.sensor_factor, factor)):
        np.testing.assert_allclose(ours, naive, rtol=1e-10)
    assert math.exp(-4) < float(output.sensor_factor.min()) < 0.5
    assert 2.0 < float(output.sensor_factor.max()) < math.exp(4)
    net.set_variance_head(torch.tensor([0.1, 0.2], dtype=torch.float64))
    assert (net.at_means(x).sensor_factor == 1.0).all()
    assert network().at_means(x).sensor_factor is None


def test_a_variance_head_beyond_its_bounds_stays_finite():
    net, x = network(), inputs()
    net.set_variance_head(torch.tensor([0.0, 1e300], dtype=torch.float64))
    np.testing.assert_allclose(net.at_means(x).var.detach()[0], np.exp([-18.0, 18.0]), rtol=1e-10)


@pytest.mark.parametrize("hidden", [(), (4,)])
def test_gradients_reach_weights_and_inputs(hidden):
    net, x = network(n_x=2, n_y=1, hidden=hidden), inputs(2, 2).requires_grad_()
    weights = weight_draws(net, 2).detach().requires_grad_()

    def outputs(weights, x):
        gaussian = net.at(weights, x)
        return gaussian.mean, gaussian.var

    assert torch.autograd.gradcheck(outputs, (weights, x))
    gaussian = net(x, torch.Generator().manual_seed(0))
    (gaussian.mean.square().sum() + gaussian.var.sum()).backward()
    for gradient in (net.posterior.loc.grad, net.posterior.log_std.grad):
        assert torch.isfinite(gradient).all()
        assert (gradient != 0).all()


@pytest.mark.parametrize("activation", ["silu", "tanh", "relu", "gelu"])
@pytest.mark.parametrize("hidden", [(), (5,), (5, 4)])
def test_the_closed_form_gradient_of_local_reparameterisation_is_that_of_autograd(activation, hidden):
    """The same layers written with plain torch operations (V2), one after the other."""
    net = BayesianMLP(3, 2, hidden, activation, init_std=0.3, generator=torch.Generator().manual_seed(0)).double()
    x = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    weight = torch.linspace(-1, 1, 28, dtype=torch.float64).reshape(7, 4)

    def plainly() -> torch.Tensor:
        rng, h = torch.Generator().manual_seed(2), x
        noise = split_units(flat_antithetic_normals(7, net.sizes[1:], rng).double(), 7, net.sizes)
        loc, var = net.posterior.loc, net.posterior.log_std.exp() ** 2
        layers = list(zip(net.layers(loc), net.layers(var), noise, strict=True))
        for i, ((W, bias), (W_var, bias_var), xi) in enumerate(layers):
            h = h @ W + bias + (h**2 @ W_var + bias_var).sqrt() * xi
            h = ACTIVATIONS[activation](h) if i < len(layers) - 1 else h
        output = net.heads(h)
        return torch.cat([output.mean, output.var], -1)

    gaussian = net(x, torch.Generator().manual_seed(2))
    ours, theirs = torch.cat([gaussian.mean, gaussian.var], -1), plainly()
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)
    inputs = (net.posterior.loc, net.posterior.log_std, x)
    for a, b in zip(
        torch.autograd.grad((ours * weight).sum(), inputs),
        torch.autograd.grad((theirs * weight).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("hidden", [(), (5, 4)])
def test_features_are_the_last_hidden_units_from_which_the_last_layer_makes_the_output(hidden):
    net, x = BayesianMLP(3, 2, hidden, generator=torch.Generator().manual_seed(0)).double(), inputs()
    weights = net.posterior.loc.detach()
    W, bias = net.layers(weights)[-1]
    expected = net.at(weights.unsqueeze(0), x)
    made = net.heads(net.features(weights, x) @ W + bias)
    torch.testing.assert_close(made.mean, expected.mean[0], rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(made.var, expected.var[0], rtol=1e-12, atol=0.0)
