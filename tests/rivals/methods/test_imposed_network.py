"""ImposedBNN: other gains and sources of weights inside the core's model, seen by its training too."""

from functools import partial

import numpy as np
import pytest
import torch
from handmade import NAN, variances

from equipoise.balances.linear import LinearConstraint
from equipoise.data.rows import Rows
from equipoise.gaussian.conditioning import ConditioningLayer, condition
from equipoise.gaussian.distributions import DiagonalGaussian
from equipoise.network.likelihood import joint, marginal
from equipoise.network.mlp import BayesianMLP
from equipoise.network.model import ConstrainedBNN
from equipoise.rivals.methods.gains import GainGaussian, completing_gain, orthogonal_gain
from equipoise.rivals.methods.imposed_network import ImposedBNN
from equipoise.rivals.methods.members import Members
from equipoise.rivals.methods.penalty import Penalised, ResidualGaussian
from equipoise.training.objective import Objective

MECHANISMS = {
    "projection": (partial(GainGaussian.of, rule=orthogonal_gain), marginal),
    "completion": (partial(GainGaussian.of, rule=completing_gain), marginal),
    "penalty": (ResidualGaussian.before, Penalised(3.0)),
}


def imposed(impose=None, likelihood=marginal, tolerance=0.0):
    network = BayesianMLP(2, 3, (4,), generator=torch.Generator().manual_seed(0))
    layer = ConditioningLayer(LinearConstraint([[1.0, 1.0, -1.0]]), tolerance)
    return ImposedBNN(ConstrainedBNN(network, layer, likelihood), impose)


def rows(n=8):
    rng = np.random.default_rng(1)
    x, y, t = rng.standard_normal((n, 2)), rng.standard_normal((n, 3)), rng.standard_normal((n, 1))
    return Rows(torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y), torch.as_tensor(t))


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_cores_training_step_descends_the_same_objective(name):
    impose, likelihood = MECHANISMS[name]
    model, data = imposed(impose, likelihood), rows()
    expected = model.negative_elbo(data, 8, torch.Generator().manual_seed(3))
    wanted = torch.autograd.grad(expected.per_row(), list(model.network.parameters()))
    value = Objective(model).backward(data, 8, torch.Generator().manual_seed(3))
    np.testing.assert_allclose(value, expected.nll.detach(), rtol=1e-6)
    for parameter, gradient in zip(model.network.parameters(), wanted, strict=True):
        np.testing.assert_allclose(parameter.grad, gradient, rtol=1e-4, atol=1e-5)


def test_the_penalty_reaches_the_objective():
    data = rows()
    plain, penalised = (imposed(ResidualGaussian.before, Penalised(strength)) for strength in (0.0, 2.0))
    gaussian = plain.network.at_means(data.x)
    residual = data.target - gaussian.mean.double() @ plain.conditioning.B.mT
    densities = [model.log_likelihood(gaussian, data, torch.Generator().manual_seed(0)) for model in (plain, penalised)]
    added = densities[0] - densities[1]
    np.testing.assert_allclose(added.detach(), 2.0 * residual.square().sum(-1).detach(), rtol=1e-6)


def test_without_another_mechanism_it_is_the_library_model():
    model, data = imposed(likelihood=joint, tolerance=0.3), rows()
    core = ConstrainedBNN(model.network, model.conditioning, joint)
    draws = model.draw(5, 0)
    assert torch.equal(draws.weights, core.draw(5, 0).weights)
    assert torch.equal(model.at(draws, data.x, data.target).mean, core.at(draws, data.x, data.target).mean)


def test_weights_come_from_the_source_and_tolerances_from_the_core():
    model = imposed(likelihood=joint, tolerance=None)
    before = model.draw(5, 1)
    model.source = Members(torch.arange(float(model.network.posterior.loc.numel()))[None])
    after = model.draw(5, 1)
    assert torch.equal(after.weights[7], model.source.weights[0])
    assert torch.equal(after.tol_var, before.tol_var)


def test_the_density_of_a_mixture_is_the_mean_of_its_components():
    model, data = imposed(likelihood=joint, tolerance=0.3), rows(2)
    draws = model.draw(5, 0)
    output = model.network.at(draws.weights, data.x)
    B, r = model.conditioning.B, model.conditioning.tolerance.median()
    densities = [
        condition(DiagonalGaussian(output.mean[d].double(), output.var[d].double()), B, data.target, r).log_prob(data.y)
        for d in range(32)
    ]
    expected = torch.stack(densities).exp().mean(0).log()
    np.testing.assert_allclose(model.mixture_log_prob(data, 5), expected.detach(), rtol=1e-9)


def test_the_shared_divergence_is_the_sum_over_tolerances_and_learned_sensors():
    model = imposed(likelihood=joint, tolerance=None)
    with torch.no_grad():
        model.conditioning.tolerance.loc -= 1.0
    np.testing.assert_allclose(model.kl_shared().detach(), 0.5 * (1.0 / 3.0) ** 2)
    model.sensor = variances([NAN, 0.1, NAN], loc=[-6.5, 0.0, -5.0])
    np.testing.assert_allclose(model.kl_shared().detach(), 0.5 * (1.0 + 0.5**2 + 1.0) / 9.0)
