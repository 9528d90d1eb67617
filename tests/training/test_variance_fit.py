"""Variances fitted to the evidence: the evidence against exact marginal densities, its gradient against differences."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch

from equipoise.balances import LinearConstraint
from equipoise.data import Rows
from equipoise.gaussian import ConditioningLayer, LogNormalVariance
from equipoise.network import BayesianMLP, ConstrainedBNN, joint, marginal
from equipoise.training.evidence import PriorPrecisions, TangentKernel
from equipoise.training.variance_fit import FittedMember, VarianceFit, VarianceHead

N, N_X, N_Y = 14, 2, 3
B = np.array([[1.0, 1.0, -1.0]])


def _normal(*shape, seed):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _learned(n):
    return LogNormalVariance(torch.full((n,), -3.0), torch.full((n,), 2.0), torch.full((n,), math.nan))


def _fit_of(hidden, with_balance, weight=1.0):
    """A model with learned tolerance and sensors or without balances, and the fit of one member's variances."""
    generator = torch.Generator().manual_seed(5)
    network = BayesianMLP(N_X, N_Y, hidden, "tanh", generator=generator).double()
    layer = sensor = None
    target = None
    if with_balance:
        layer = ConditioningLayer(LinearConstraint(B / math.sqrt(3)), _learned(1))
        sensor, target = _learned(N_Y), 0.2 * _normal(N, 1, seed=1)
    model = ConstrainedBNN(network, layer, joint if with_balance else marginal, sensor)
    rows = Rows(_normal(N, N_X, seed=2).float(), 0.5 * _normal(N, N_Y, seed=3), target)
    weights = network.posterior.loc.detach() + 0.3 * _normal(len(network.posterior.loc), seed=4)
    precisions = PriorPrecisions.scaled_by_fan_in(network.sizes, N_Y)
    head = VarianceHead.of(model, weights, rows.x)
    head.level = torch.tensor([-1.0, -2.0, -1.5], dtype=torch.float64)
    kernel = TangentKernel(network, weights, rows.x)
    member = FittedMember(weights, kernel, precisions, kernel.covariance(precisions), head)
    fit = VarianceFit(model, rows, [member], torch.full((1, N_Y), 3.0, dtype=torch.float64), weight)
    return fit, precisions, weights


def _evidence(fit, values, heads=True):
    return -fit._objective(values.numpy(), heads)[0]


def test_the_evidence_of_a_linear_network_is_the_exact_marginal_density():
    fit, precisions, _ = _fit_of(hidden=(), with_balance=False)
    (member,), network = fit.members, fit.model.network
    J = torch.func.jacrev(lambda theta: network.at(theta[None], fit.rows.x.double()).mean[0])(member.weights)
    J = J.reshape(N * N_Y, -1) * precisions.spread
    exact, approximate = [], []
    for seed in range(3):
        values = fit._pack(heads=True) + 0.3 * _normal(len(fit._pack(heads=True)), seed=10 + seed)
        (level,), _, (slopes,) = fit._split(values, heads=True)
        var = torch.exp(20 * torch.tanh((level + member.head.units @ slopes) / 20)).flatten()
        covariance = (J @ J.mT + torch.diag(var)).numpy()
        density = scipy.stats.multivariate_normal.logpdf(fit.rows.y.flatten().numpy(), np.zeros(N * N_Y), covariance)
        log_v = 20 * torch.tanh(level / 20)
        prior = 0.5 * float(((log_v + 8.0) / 3.0).square().sum() + 3.0 * slopes.square().sum())
        exact.append(density - prior)
        approximate.append(_evidence(fit, values))
    assert approximate == pytest.approx(exact, abs=1e-8)


@pytest.mark.parametrize("with_balance", [False, True])
@pytest.mark.parametrize("heads", [False, True])
def test_the_gradient_of_the_evidence_is_that_of_its_differences(with_balance, heads):
    fit, *_ = _fit_of(hidden=(4,), with_balance=with_balance, weight=2.0)
    values = fit._pack(heads) + 0.1 * _normal(len(fit._pack(heads)), seed=20)
    _, gradient = fit._objective(values.numpy(), heads)
    for i in range(len(values)):
        step = torch.zeros_like(values)
        step[i] = 1e-4
        difference = -(_evidence(fit, values + step, heads) - _evidence(fit, values - step, heads)) / 2e-4
        assert gradient[i] == pytest.approx(difference, rel=1e-5, abs=1e-5)


def test_a_fit_leads_to_larger_evidence_and_is_written_into_the_weights():
    fit, *_ = _fit_of(hidden=(4,), with_balance=True)
    before = _evidence(fit, fit._pack(heads=True))
    after = fit.run(heads=True, steps=30)
    assert after > before + 1.0
    (member,) = fit.members
    var = fit.model.network.at(member.weights[None], fit.rows.x.double()).var[0]
    torch.testing.assert_close(var, member.head.var(), rtol=1e-9, atol=0)


def test_spreads_of_tolerances_and_sensors_are_those_of_the_inverse_curvature():
    fit, *_ = _fit_of(hidden=(4,), with_balance=True)
    fit.run(heads=False, steps=60)
    fit.set_spreads()
    start, n, step = fit._pack(heads=False), len(fit._pack(heads=False)), 1e-3
    H = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            e, f = (torch.zeros(n, dtype=torch.float64).index_fill(0, torch.tensor(k), step) for k in (i, j))
            corners = [_evidence(fit, start + a * e + b * f, False) * a * b for a in (1, -1) for b in (1, -1)]
            H[i, j] = -sum(corners) / (4 * step**2)
    expected = np.sqrt(np.diag(np.linalg.inv(H)))[N_Y:]
    stds = torch.cat([fit.tolerance.std, fit.sensor.std]).detach().numpy()
    assert stds == pytest.approx(np.minimum(expected, 2.0), rel=2e-2)


def test_a_head_without_support_stays_constant_and_one_with_support_does_not():
    found = []
    for spread in (0.0, 1.5):
        fit, *_ = _fit_of(hidden=(4,), with_balance=False)
        generator = torch.Generator().manual_seed(11)
        x = torch.randn(300, N_X, dtype=torch.float64, generator=generator)
        noise = torch.randn(300, N_Y, dtype=torch.float64, generator=generator)
        (old,), network = fit.members, fit.model.network
        mean = network.at(old.weights[None], x).mean[0]
        rows = Rows(x.float(), mean + torch.exp(-1.0 + 0.5 * spread * x[:, :1]) * noise)
        kernel = TangentKernel(network, old.weights, rows.x)
        head = VarianceHead.of(fit.model, old.weights, rows.x)
        member = FittedMember(old.weights, kernel, old.precisions, kernel.covariance(old.precisions), head)
        member.head.slopes = torch.zeros_like(member.head.slopes)
        again = VarianceFit(fit.model, rows, [member], torch.full((1, N_Y), 40.0, dtype=torch.float64))
        for _ in range(4):
            again.run(heads=True, steps=25)
        found.append(float(member.head.var().log().std(0).max()))
    assert found[0] < 0.25  # log variance, four standard errors of a spread that 300 rows could feign
    assert found[1] == pytest.approx(1.5, rel=0.3)


@pytest.mark.parametrize("freedom", [1.0, 0.8])
def test_with_the_weights_held_variances_are_those_of_the_residuals_per_degree_of_freedom(freedom):
    fit, *_ = _fit_of(hidden=(4,), with_balance=False, weight=1e6)  # the prior of v counts nothing beside
    (member,) = fit.members
    fit.members = [replace(member, covariance=None, freedom=freedom)]
    member.head.slopes.zero_()
    fit.run(heads=False, steps=200)
    expected = (fit.rows.y - member.kernel.head.mean).square().mean(0) / freedom
    torch.testing.assert_close(fit.members[0].head.var()[0], expected, rtol=1e-3, atol=0)


def test_a_head_comes_as_close_to_known_variances_as_its_units_allow():
    fit, *_ = _fit_of(hidden=(6,), with_balance=False)
    old = fit.members[0].head
    old.slopes = _normal(*old.slopes.shape, seed=7)
    other = replace(old, level=0.0 * old.level, slopes=_normal(*old.slopes.shape, seed=8))
    weak, strong = (other.nearest_to(old.var(), torch.full((N_Y,), value).double()) for value in (1e-9, 1e9))
    torch.testing.assert_close(weak.var(), old.var(), rtol=1e-4, atol=0)
    geometric_mean = old.var().log().mean(0).exp()  # log v is nearly linear in the raw units
    torch.testing.assert_close(strong.var(), geometric_mean.expand(N, -1), rtol=5e-2, atol=0)
