"""Other ways to impose the balances inside the library's model, seen by its training too."""

import numpy as np
import pytest
import torch
from handmade import NAN, variances

from equipoise.balances.linear import LinearConstraint
from equipoise.data.rows import Rows
from equipoise.gaussian.conditioning import ConditioningLayer, condition
from equipoise.gaussian.distributions import DiagonalGaussian
from equipoise.network.likelihood import joint, marginal
from equipoise.network.members import Members
from equipoise.network.mlp import BayesianMLP
from equipoise.network.model import ConstrainedBNN
from equipoise.rivals.methods.gains import Completion, GainGaussian, Projection
from equipoise.rivals.methods.penalty import KeepResidual, Penalised
from equipoise.rivals.methods.posthoc import mixture_log_prob
from equipoise.training.objective import Objective

MECHANISMS = {
    "projection": (Projection(), marginal),
    "completion": (Completion(), marginal),
    "penalty": (KeepResidual(), Penalised(3.0)),
}


def imposed(imposition=None, likelihood=marginal, tolerance=0.0):
    network = BayesianMLP(2, 3, (4,), generator=torch.Generator().manual_seed(0))
    layer = ConditioningLayer(LinearConstraint([[1.0, 1.0, -1.0]]), tolerance)
    return ConstrainedBNN(network, layer, likelihood, imposition=imposition)


def rows(n=8):
    rng = np.random.default_rng(1)
    x, y, t = rng.standard_normal((n, 2)), rng.standard_normal((n, 3)), rng.standard_normal((n, 1))
    return Rows(torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y), torch.as_tensor(t))


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_cores_training_step_descends_the_same_objective(name):
    imposition, likelihood = MECHANISMS[name]
    model, data = imposed(imposition, likelihood), rows()
    expected = model.negative_elbo(data, 8, torch.Generator().manual_seed(3))
    wanted = torch.autograd.grad(expected.per_row(), list(model.network.parameters()))
    value = Objective(model).backward(data, 8, torch.Generator().manual_seed(3))
    np.testing.assert_allclose(value, expected.nll.detach(), rtol=1e-6)
    for parameter, gradient in zip(model.network.parameters(), wanted, strict=True):
        np.testing.assert_allclose(parameter.grad, gradient, rtol=1e-4, atol=1e-5)


def test_the_penalty_reaches_the_objective():
    data = rows()
    plain, penalised = (imposed(KeepResidual(), Penalised(strength)) for strength in (0.0, 2.0))
    gaussian = plain.network.at_means(data.x)
    residual = data.target - gaussian.mean.double() @ plain.conditioning.B.mT
    densities = [model.log_likelihood(gaussian, data, torch.Generator().manual_seed(0)) for model in (plain, penalised)]
    added = densities[0] - densities[1]
    np.testing.assert_allclose(added.detach(), 2.0 * residual.square().sum(-1).detach(), rtol=1e-6)


def test_a_variant_shares_all_modules_that_are_not_replaced():
    model, data = imposed(likelihood=joint), rows()
    projected = model.variant(imposition=Projection())
    assert {id(p) for p in projected.parameters()} == {id(p) for p in model.parameters()}
    zero = torch.zeros(1).double()
    gaussians = [m.condition(model.network.at_means(data.x), data.target, zero) for m in (model, projected)]
    assert [isinstance(gaussian, GainGaussian) for gaussian in gaussians] == [False, True]
    assert (model.conditions_by_definition, projected.conditions_by_definition) == (True, False)
    assert model.variant(imposition=Projection(), conditioning=None).conditions_by_definition


def test_members_take_the_place_of_a_posterior_and_tolerances_stay():
    model = imposed(likelihood=joint, tolerance=None)
    members = Members(torch.arange(float(model.network.posterior.loc.numel()))[None])
    after = model.variant(network=model.network.with_posterior(members)).draw(5, 1)
    assert torch.equal(after.weights[7], members.weights[0])
    spread = (after.tol_var.log().std() / model.conditioning.tolerance.std).detach()
    assert abs(float(spread) - 1.0) < 5 / (2 * 32) ** 0.5


def test_draws_are_distinct_only_in_their_members_where_nothing_else_is_uncertain():
    members = Members(torch.zeros(3, 6))
    exact, learned = (imposed(likelihood=joint, tolerance=tolerance) for tolerance in (0.0, None))
    with_members = [m.variant(network=m.network.with_posterior(members)) for m in (exact, learned)]
    assert [m.n_distinct for m in (exact, *with_members)] == [None, 3, None]


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
    np.testing.assert_allclose(mixture_log_prob(model, data, 5), expected.detach(), rtol=1e-9)


def test_the_shared_divergence_is_the_sum_over_tolerances_and_learned_sensors():
    model = imposed(likelihood=joint, tolerance=None)
    with torch.no_grad():
        model.conditioning.tolerance.loc -= 1.0
    np.testing.assert_allclose(model.kl_shared().detach(), 0.5 * (1.0 / 3.0) ** 2)
    model.sensor = variances([NAN, 0.1, NAN], loc=[-6.5, 0.0, -5.0])
    np.testing.assert_allclose(model.kl_shared().detach(), 0.5 * (1.0 + 0.5**2 + 1.0) / 9.0)
