"""Weights of components reach everything that a prediction answers: a weight of k counts as k equal draws."""

import dataclasses

import numpy as np
import pytest
import torch
from handmade import COUPLED, DISJOINT, NAN, predictive, standardizer, variances

import equipoise as eq
from equipoise.gaussian.conditioning import condition
from equipoise.gaussian.distributions import DiagonalGaussian
from equipoise.network.model import PosteriorDraws
from equipoise.prediction import metrics
from equipoise.prediction.components import Components, log_mean_density
from equipoise.reconciliation.model_reconciliation import reconcile_with_model

WEIGHTS = (1, 2, 3)
REPEATED = [d for d, count in enumerate(WEIGHTS) for _ in range(count)]


def with_draws(p, change, n_draws):
    """The prediction with other posterior draws."""
    draw = p.model.draw
    p.model.draw = lambda seed, block: change(draw(seed, block))
    return dataclasses.replace(p, n_draws=n_draws)


def pick(draws, index):
    parts = (getattr(draws, field.name) for field in dataclasses.fields(PosteriorDraws))
    return PosteriorDraws(*(None if part is None else part[index] for part in parts))


def pair(B=DISJOINT, **settings):
    """A prediction of three weighted draws, and one of these draws repeated as often as their weights say."""

    def made():
        m = len(B)
        tolerance = variances([NAN] * m, loc=[-1.0] * m, std=[0.5] * m)
        sensor = variances([0.05] * 6)
        return predictive(standardizer(B), tolerance=tolerance, sensor=sensor, rows=70, **settings)

    log_weight = torch.tensor(WEIGHTS, dtype=torch.float64).log().unsqueeze(-1) + 700.0  # a constant changes nothing
    weighted = with_draws(made(), lambda d: dataclasses.replace(pick(d, [0, 1, 2]), log_weight=log_weight), 3)
    return weighted, with_draws(made(), lambda d: pick(d, REPEATED), 6)


def outputs(p):
    Y = p.mean + np.random.default_rng(0).normal(size=p.mean.shape)
    Y[3, 2] = NAN
    return Y


ANSWERS = {
    "mean": lambda p: p.mean,
    "var": lambda p: p.var,
    "measured var": lambda p: p.measured().var,
    "quantile": lambda p: p.quantile([0.1, 0.5, 0.975]),
    "interval": lambda p: p.interval(0.9),
    "log_prob": lambda p: p.measured().log_prob(outputs(p)),
    "covariance": lambda p: p.measured().covariance(),
    "diagonal covariance": lambda p: p.covariance(joint=False),
    "ledger": lambda p: p.measured().ledger().to_frame().to_numpy(),
    "pit": lambda p: metrics.pit(p.measured(), outputs(p)),
    "crps": lambda p: metrics.crps(p.measured(), outputs(p)),
}


@pytest.mark.parametrize("B", [DISJOINT, COUPLED], ids=["disjoint", "coupled"])
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_weight_counts_as_repeated_draws(answer, B):
    weighted, repeated = pair(B)
    np.testing.assert_allclose(answer(weighted), answer(repeated), rtol=1e-8, atol=1e-9)


def test_weights_differ_from_equal_ones():
    weighted, _ = pair()
    equal = with_draws(pair()[0], lambda d: dataclasses.replace(d, log_weight=None), 3)
    assert np.abs(weighted.mean - equal.mean).max() > 0.01


@pytest.mark.parametrize("least_draws", [0.0, 1e6], ids=["mixture", "matched Gaussian"])
def test_reconciliation_starts_from_the_weights(least_draws):
    results = []
    for p in pair(COUPLED):
        r = reconcile_with_model(p, outputs(p), np.full(6, 0.3), least_draws=least_draws)
        results.append([r.mean, r.std, r.covariance(), *r.updated.contributions()])
    for ours, expected in zip(*results, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-7, atol=1e-9)


def test_samples_select_draws_by_their_weights_and_have_the_moments_of_the_mixture():
    """Bands are five standard errors; all rows share the selected draw, so that a draw is one function of x."""
    weighted, _ = pair(COUPLED)
    weighted = dataclasses.replace(weighted, X=weighted.X[:4])
    n = 4000
    samples = weighted.sample(n)
    error = np.abs(samples.mean(0) - weighted.mean) / (weighted.std / np.sqrt(n))
    assert error.max() < 5.0
    np.testing.assert_allclose(samples.std(0), weighted.std, rtol=5 * np.sqrt(2 / n))
    z = weighted.residual_of_means(n)
    kinds, counts = np.unique(z[:, 0, 0].round(9), return_counts=True)
    assert len(kinds) == 3
    np.testing.assert_allclose(np.sort(counts) / n, np.array(WEIGHTS) / 6, atol=5 * 0.5 / np.sqrt(n))
    of_means, _ = metrics.violations(weighted, n)
    np.testing.assert_allclose(of_means.mean[:3], np.abs(z).mean((0, 1)), rtol=1e-9)


def test_weights_of_single_rows_select_for_each_row():
    """The second row has all its weight on the last draw."""
    weighted, _ = pair()
    rows = slice(0, 2)
    log_weight = torch.tensor([[0.0, -1e9], [0.0, -1e9], [-1e9, 0.0]], dtype=torch.float64)
    (part,) = weighted.components(rows)

    class ByRow(type(weighted)):
        def components(self, rows, again=False, draws=None):
            yield dataclasses.replace(part, log_weight=log_weight)

    p = ByRow(**{field.name: getattr(weighted, field.name) for field in dataclasses.fields(weighted)})
    p = dataclasses.replace(p, X=weighted.X[:2])
    y = p.standardizer.outputs_to_user(part.gaussian.mean.numpy())
    np.testing.assert_allclose(p.mean[1], y[2, 1], rtol=1e-12)
    np.testing.assert_allclose(p.mean[0], y[:2, 0].mean(0), rtol=1e-12)
    one_by_one = {tuple(z) for z in p.residual_of_means(50)[:, 1].round(12)}
    assert len(one_by_one) == 1
    assert len({tuple(z) for z in p.residual_of_means(50)[:, 0].round(12)}) == 2


def test_selected_components_are_those_of_their_draw_and_row():
    g = torch.Generator().manual_seed(0)
    gaussian = condition(
        DiagonalGaussian(torch.randn(3, 4, 2, generator=g).double(), torch.rand(3, 4, 2, generator=g).double() + 0.1),
        torch.ones(1, 2).double(),
        torch.randn(4, 1, generator=g).double(),
        0.1,
    )
    w = torch.rand(4, 2, generator=g).double()
    part = Components(slice(0, 4), gaussian, w, log_weight=torch.randn(3, 4, generator=g).double())
    draw, row = torch.tensor([2, 0]), torch.tensor([1, 3])
    taken = part.take(draw, row)
    torch.testing.assert_close(taken.std, part.std[draw, row])
    torch.testing.assert_close(taken.gaussian.mean, gaussian.mean[draw, row])
    assert taken.log_weight is None
    assert len(part) == 3


def test_the_density_of_a_mixture_is_the_weighted_average_of_densities():
    density, weight = torch.tensor([[0.1], [0.4]]).double(), torch.tensor([[3.0], [1.0]]).double()
    expected = torch.tensor([(0.1 * 3 + 0.4) / 4]).double().log()
    torch.testing.assert_close(log_mean_density(density.log(), weight.log() - 50.0), expected)


def test_components_are_public():
    assert eq.Components is Components
    assert {"rows", "gaussian", "sensor_var", "log_weight", "latent_scale", "truncation"} <= {
        field.name for field in dataclasses.fields(eq.Components)
    }
