"""Joint draws of weights and variances: against quadrature over the evidence, and the linear algebra of all rows."""

import numpy as np
import pytest
import torch
from linearised_members import N_Y, learned, member_of, model_and_rows, normal

from equipoise.data import Rows
from equipoise.gaussian import LogNormalVariance, SampledVariances
from equipoise.network import BayesianMLP, ConstrainedBNN, joint
from equipoise.training import variance_posterior
from equipoise.training.evidence import LinearEvidence, Measurements, PriorPrecisions, TangentKernel
from equipoise.training.variance_fit import FittedMember, VarianceFit, VarianceHead
from equipoise.training.variance_posterior import LinearisedMember, draw_posterior

ONE = torch.ones(1, dtype=torch.float64)


def _generator(seed=0):
    return torch.Generator().manual_seed(seed)


def _ridge(n=60):
    """One output whose variance and sensor are both learned: the data determine their sum."""
    network = BayesianMLP(1, 1, (3,), "tanh", generator=_generator(5)).double()
    weights = network.posterior.loc.detach()
    W, bias = network.layers(weights)[-1]
    W[:, 1:], bias[1:] = 0.0, -4.0
    x = torch.linspace(-1, 1, n, dtype=torch.float64)[:, None]
    rows = Rows(x, network.at(weights[None], x).mean[0] + 0.2 * normal(n, 1, seed=6))
    model = ConstrainedBNN(network, None, joint, learned(1, mean=-6.0, std=3.0))
    return model, weights, rows, PriorPrecisions.scaled_by_fan_in(network.sizes, 1)


@pytest.mark.usefixtures("long_training")
def test_marginals_along_a_ridge_are_those_of_quadrature_over_the_evidence():
    model, weights, rows, precisions = _ridge()
    member = LinearisedMember(model, weights, precisions, rows, 1.0)
    sample = draw_posterior(model, [member], ONE, rows, 1024, _generator())
    kernel, head = TangentKernel(model.network, weights, rows.x), VarianceHead.of(model, weights, rows.x)
    fitted = FittedMember(weights, kernel, precisions, kernel.covariance(precisions), head)
    fit = VarianceFit(model, rows, [fitted], torch.zeros(1, 1, dtype=torch.float64))
    grid = np.concatenate([np.arange(-16.0, -5.0, 1.0), np.arange(-5.0, -1.5, 0.15)])
    width = np.gradient(grid)
    raw = 20 * np.arctanh(grid / 20)
    with torch.no_grad():
        log_mass = np.array([[-fit._loss(torch.tensor([a, b]), False)[0] for b in grid] for a in raw])
    mass = np.exp(log_mass - log_mass.max()) * width[:, None] * width
    at_head = model.network.layers(sample.changes)[-1][1][:, 1] + head.level
    draws = {0: 20 * np.tanh(at_head.numpy() / 20), 1: sample.sensor.rho[:, 0].numpy()}
    for axis, values in draws.items():
        cdf = np.cumsum(mass.sum(1 - axis)) / mass.sum()
        for probability in (0.1, 0.3, 0.5, 0.7, 0.9):
            quantile = np.interp(probability, cdf, grid + 0.5 * width)
            # 64 chains are independent, and more draws of each: five standard errors of 256
            assert abs(np.mean(values < quantile) - probability) < 5 * (probability * (1 - probability) / 256) ** 0.5
    both = np.column_stack([draws[0], draws[1]])
    assert np.logaddexp(both[:, 0], both[:, 1]).std() < 0.3  # while either alone is hardly known
    assert both.std(0).min() > 1.0


@pytest.mark.parametrize("most_collapsed", [100, 6])
def test_weights_given_variances_have_the_moments_of_all_rows(most_collapsed, monkeypatch):
    monkeypatch.setattr(variance_posterior, "MOST_COLLAPSED", most_collapsed)
    model, weights, rows = model_and_rows(missing=True, slopes=0.1)
    member, precisions = member_of(model, weights, rows)
    assert member.has_rest == (most_collapsed == 6)
    kernel, var = TangentKernel(model.network, weights, rows.x), model.network.at(weights[None], rows.x).var[0]
    r, w = model.conditioning.tolerance.median().detach(), model.sensor.median().detach()
    measured = Measurements.of(
        model.likelihood,
        lambda mean: model.condition(model.network.at(weights[None], rows.x).__class__(mean, var), rows.target, r),
        kernel.head.mean,
        rows.y,
        w,
    )
    exact = LinearEvidence(kernel, precisions, measured)
    assert member.log_evidence == pytest.approx(exact.log_evidence, abs=0.5)
    n, noise = 4000, _generator(1)
    c = member.draw_loosest(member.start.expand(n, -1), member.draw_at_start(n, noise), noise)
    means = member.basis.means(c)
    var_of_means = exact.spreads.square().sum(0)
    error = (means.mean(0) - exact.mode) / var_of_means.sqrt()
    assert float(error.abs().max()) < 5 / n**0.5 + 0.1  # what the basis leaves out moves means by little
    ratio = means.var(0) / var_of_means
    assert float(ratio.min()) > 0.8
    assert float(ratio.max()) < 1 + 5 * (2 / n) ** 0.5


@pytest.mark.usefixtures("long_training")
def test_draws_belong_together_by_number_and_by_seed():
    model, weights, rows = model_and_rows()
    member, _ = member_of(model, weights, rows)
    first, again, other = (draw_posterior(model, [member], ONE, rows, 20, _generator(s)) for s in (2, 2, 3))
    assert isinstance(first.tolerance, SampledVariances)
    assert isinstance(first.sensor, SampledVariances)
    assert first.changes.shape == (20, len(weights))
    assert (len(first.tolerance.rho), len(first.sensor.rho), first.member.tolist()) == (20, 20, 20 * [0])
    torch.testing.assert_close(first.changes, again.changes, rtol=0, atol=0)
    torch.testing.assert_close(first.sensor.rho, again.sensor.rho, rtol=0, atol=0)
    assert not torch.equal(first.sensor.rho, other.sensor.rho)


@pytest.mark.usefixtures("long_training")
def test_members_have_draws_in_their_shares():
    model, weights, rows = model_and_rows()
    other = weights.clone()
    model.network.layers(other)[-1][1][N_Y : 2 * N_Y] = -5.0
    members = [member_of(model, each, rows)[0] for each in (weights, other)]
    shares = torch.tensor([0.75, 0.25], dtype=torch.float64)
    sample = draw_posterior(model, members, shares, rows, 128, _generator(4))
    assert torch.bincount(sample.member).tolist() == [96, 32]
    assert torch.bincount(sample.member[:32]).tolist() == [24, 8]


@pytest.mark.usefixtures("long_training")
def test_second_tolerances_differ_from_the_first_and_have_their_distribution():
    model, weights, rows = model_and_rows(sensor_std=0.3)
    member, _ = member_of(model, weights, rows)
    tolerance = draw_posterior(model, [member], ONE, rows, 512, _generator(5)).tolerance
    first, second = tolerance.rho[:, 0], tolerance.rho_again[:, 0]
    assert float((first == second).double().mean()) < 0.01
    assert abs(float(first.mean() - second.mean())) < 5 * float(first.std()) / 128**0.5
    assert float(second.std() / first.std()) == pytest.approx(1.0, abs=0.3)


def test_variances_of_rows_that_differ_one_by_one_stay_as_they_were_fitted():
    model, weights, rows = model_and_rows()
    model.sensor = None
    known = Rows(rows.x, rows.y, rows.target, sensor_var=torch.full_like(rows.y, 0.09))
    member, _ = member_of(model, weights, known)
    sample = draw_posterior(model, [member], ONE, known, 64, _generator(6))
    assert isinstance(sample.tolerance, LogNormalVariance)
    heads = model.network.layers(sample.changes)[-1][1][:, N_Y:]
    torch.testing.assert_close(heads, torch.zeros_like(heads), rtol=0, atol=1e-9)
