"""Scores against loops over draws, numerical integration, closed forms and scoringrules."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import scoringrules
from handmade import DISJOINT, NAN, components, predictive, stacked, standardizer, variances
from scipy import stats
from scipy.integrate import quad
from scipy.special import logsumexp

from equipoise.network.likelihood import joint, marginal
from equipoise.prediction import metrics, predictive as streaming
from equipoise.prediction.metrics import LOG10_EDGES, Magnitudes

UNITS = {"y_mean": [10.0, -3.0, 0.1, 50.0, 0.0, 2.0], "y_std": [5.0, 0.02, 3.0, 100.0, 0.4, 1.0]}
SENSOR = [NAN, 0.02, 0.01, NAN, 0.3, NAN]


def soft(**settings):
    """Two learned tolerances, sensors of which some are learned; measured values."""
    s = standardizer(DISJOINT, **UNITS)
    tolerance = variances([NAN, NAN], loc=[-1.0, -4.0], std=[0.7, 0.4])
    sensor = variances(SENSOR, loc=[-3.0] * 6, std=[0.5] * 6)
    return predictive(s, **({"tolerance": tolerance, "sensor": sensor} | settings)).measured()


def hard(**settings):
    return predictive(standardizer(DISJOINT, **UNITS), tolerance=variances([0.0, 0.0]), **settings)


def plain(**settings):
    s = dataclasses.replace(standardizer(DISJOINT, **UNITS), constraint=None)
    return predictive(s, tolerance=None, likelihood=marginal, **settings)


def measured_at(p, seed=3):
    """Rows of outputs, within a few standard deviations of what is predicted, three of them not measured."""
    rng = np.random.default_rng(seed)
    Y = p.mean + 1.5 * p.std * rng.normal(size=p.mean.shape)
    Y[0, 2] = Y[1, 2] = Y[3, 5] = np.nan
    return Y


def mixture(p):
    """Means and standard deviations of all components in the user's units, `(draws, rows, n_y)`."""
    parts = components(p)
    return stacked(parts, "mean"), np.sqrt(stacked(parts, "var") + stacked(parts, "w"))


# --- Marginals --------------------------------------------------------------------------------------------------------


def test_squared_error_is_that_of_the_mean_over_what_was_measured():
    p = soft()
    Y, (mean, _) = measured_at(p), mixture(p)
    for j, got in enumerate(metrics.squared_error(p, Y)):
        errors = [(mean[:, i, j].mean() - Y[i, j]) ** 2 for i in range(len(Y)) if not math.isnan(Y[i, j])]
        assert got == pytest.approx(sum(errors) / len(errors), rel=1e-9)


def test_an_output_that_was_never_measured_has_no_score():
    p = soft()
    Y = measured_at(p)
    Y[:, 4] = np.nan
    for scores in (metrics.squared_error(p, Y), metrics.coverage(p, Y)[0]):
        assert np.isnan(scores).tolist() == [False] * 4 + [True, False]


def test_the_transform_is_the_mixtures_distribution_function():
    p = soft()
    Y, (mean, std) = measured_at(p), mixture(p)
    np.testing.assert_allclose(metrics.pit(p, Y), stats.norm.cdf(Y, mean, std).mean(0), rtol=1e-9)


def test_the_transform_of_a_quantile_is_its_probability():
    p = soft()
    for probability in (0.01, 0.3, 0.975):
        np.testing.assert_allclose(metrics.pit(p, p.quantile([probability])[0]), probability, atol=1e-8)


def test_the_transform_steps_from_0_to_1_where_balances_leave_no_variance():
    s = standardizer([[1.0, 0.0]], y_mean=[3.0, 0.0], y_std=[2.0, 1.0])
    p = predictive(s, tolerance=variances([0.0]))
    Y = np.array([[3 - 1e-6, 0.0], [3 + 1e-6, 0.0], [2.0, 0.0], [4.0, 0.0]])
    np.testing.assert_allclose(metrics.pit(p, Y)[:, 0], [0, 1, 0, 1], atol=1e-12)
    np.testing.assert_allclose(metrics.crps(p, Y)[2:, 0], 1.0, rtol=1e-6)  # |y − point|


def test_coverage_counts_the_rows_inside_the_intervals():
    p = soft(rows=60)
    Y = measured_at(p)
    levels = [0.3, 0.8, 0.95]
    got = metrics.coverage(p, Y, levels)
    for line, level in zip(got, levels, strict=True):
        lower, upper = p.interval(level)
        inside = np.where(np.isnan(Y), np.nan, (lower <= Y) & (upper >= Y))
        np.testing.assert_array_equal(line, np.nanmean(inside, axis=0))
    assert got.shape == (3, 6)
    assert 0.05 < got.min() < got.max() < 1


def test_interval_width_is_that_of_a_normal_for_a_single_draw():
    p = soft(n_draws=1)
    _, std = mixture(p)
    np.testing.assert_allclose(metrics.interval_width(p, 0.9), 2 * 1.6448536269514722 * std[0].mean(0), rtol=1e-8)


def test_crps_is_the_integral_of_the_squared_difference_of_distribution_functions():
    p = soft(n_draws=12, rows=2)
    Y, (mean, std) = p.mean + p.std * [[0.3, -2.0, 1.0, 0.0, 3.0, -0.5]] * np.array([[1], [-0.4]]), mixture(p)
    got = metrics.crps(p, Y)
    for i, j in np.ndindex(Y.shape):
        m, s, y = mean[:, i, j], std[:, i, j], Y[i, j]

        def F(z, m=m, s=s):
            return stats.norm.cdf(z, m, s).mean()

        low, high = min(y, (m - 9 * s).min()), max(y, (m + 9 * s).max())
        below = quad(lambda z: F(z) ** 2, low, y, epsabs=0, epsrel=1e-9, limit=200)[0]
        above = quad(lambda z: (F(z) - 1) ** 2, y, high, epsabs=0, epsrel=1e-9, limit=200)[0]
        assert got[i, j] == pytest.approx(below + above, rel=1e-7)


def test_crps_of_a_single_draw_is_that_of_a_normal():
    p = soft(n_draws=1, rows=20)
    Y, (mean, std) = measured_at(p), mixture(p)
    z = (Y - mean[0]) / std[0]
    expected = std[0] * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / math.sqrt(math.pi))
    np.testing.assert_allclose(metrics.crps(p, Y), expected, rtol=1e-9)


def test_crps_uses_the_first_draws():
    p = soft(n_draws=100)
    Y = measured_at(p)
    np.testing.assert_array_equal(metrics.crps(p, Y, 40), metrics.crps(dataclasses.replace(p, n_draws=40), Y))
    np.testing.assert_array_equal(metrics.crps(p, Y), metrics.crps(p, Y, 64))


def test_marginal_scores_do_not_depend_on_chunks(monkeypatch):
    p = soft(rows=150)
    Y = measured_at(p)
    scores = {"pit": metrics.pit, "crps": metrics.crps}
    whole = {name: score(p, Y) for name, score in scores.items()}
    monkeypatch.setattr(streaming, "CACHE_BYTES", 1)
    for name, score in scores.items():
        np.testing.assert_allclose(score(p, Y), whole[name], rtol=1e-12)


def test_frames_are_read_by_their_columns():
    p = soft()
    Y = measured_at(p)
    shuffled = pd.DataFrame(Y, columns=p.outputs)[["y3", "y0", "y5", "y1", "y4", "y2"]]
    for score in (metrics.squared_error, metrics.pit, metrics.crps, metrics.coverage, metrics.joint_nll):
        np.testing.assert_allclose(score(p, shuffled), score(p, Y), rtol=1e-13)


# --- The joint --------------------------------------------------------------------------------------------------------


def test_energy_score_is_that_of_scoringrules():
    p, scale = soft(rows=5), np.array([5.0, 0.02, 3.0, 100.0, 0.4, 1.0])
    Y = measured_at(p)
    draws = p.sample(30) / scale
    expected = scoringrules.es_ensemble(Y / scale, draws, m_axis=0, estimator="fair", backend="numpy")
    np.testing.assert_allclose(metrics.energy_score(p, Y, scale, n=30), expected, rtol=1e-12)
    assert np.isnan(expected).tolist() == [True, True, False, True, False]  # rows that lack an output


def test_energy_score_of_one_output_is_its_crps():
    s = dataclasses.replace(standardizer([[1.0]], y_mean=[3.0], y_std=[2.0]), constraint=None)
    p = predictive(s, tolerance=None, likelihood=marginal, n_draws=400, rows=64)
    Y = p.mean + p.std * np.random.default_rng(0).normal(size=p.mean.shape)
    got = metrics.energy_score(p, Y, [0.5], n=400) * 0.5
    expected = metrics.crps(p, Y, n_components=400)[:, 0]
    gap = (got - expected) / p.std[:, 0]
    # Per row the standard error is about 0.8 / √400 of a standard deviation; the draws of θ are the same ones.
    assert abs(gap.mean()) < 5 * 0.8 / math.sqrt(400 * 64)
    assert gap.std() < 5 * 0.8 / math.sqrt(400)


def test_joint_nll_is_that_of_a_mixture_of_dense_normals():
    p = soft()
    Y, parts = measured_at(p), components(p)
    logs = np.empty((p.n_draws, len(Y)))
    for d, i in np.ndindex(logs.shape):
        c, seen = parts[d][i], ~np.isnan(Y[i])
        cov = (c.cov + np.diag(c.w))[np.ix_(seen, seen)]
        logs[d, i] = stats.multivariate_normal.logpdf(Y[i, seen], c.mean[seen], cov)
    expected = -(logsumexp(logs, axis=0) - math.log(p.n_draws)).mean()
    assert metrics.joint_nll(p, Y) == pytest.approx(expected, rel=1e-9)


def test_rows_in_which_nothing_was_measured_do_not_dilute_the_joint_nll():
    p = soft()
    Y = measured_at(p)
    empty = np.where(np.arange(len(Y))[:, None] % 2 == 0, np.nan, Y)
    logs = p.log_prob(empty)
    assert np.all(logs[::2] == 0)  # what a row without readings says
    assert metrics.joint_nll(p, empty) == pytest.approx(-logs[1::2].mean(), rel=1e-12)
    assert math.isnan(metrics.joint_nll(p, np.full_like(Y, np.nan)))


def test_mean_crps_is_over_what_was_measured():
    p = soft()
    Y = measured_at(p)
    Y[:, 2] = np.nan
    mean, each = metrics.mean_crps(p, Y), metrics.crps(p, Y)
    assert np.isnan(mean[2])
    for j in (0, 1, 3, 4, 5):
        assert mean[j] == pytest.approx(np.mean([score for score in each[:, j] if not math.isnan(score)]), rel=1e-12)


def test_joint_nll_is_infinite_off_exact_balances():
    p = hard()
    assert metrics.joint_nll(p, p.sample(1)[0]) < 100
    assert metrics.joint_nll(p, p.sample(1)[0] + 1.0) == math.inf


# --- Balances ---------------------------------------------------------------------------------------------------------


def sizes(z, scale):
    z = np.abs(z)
    return [z[..., 0], z[..., 1], (z[..., 0] + z[..., 1]) / 2, (z[..., 0] / scale[0] + z[..., 1] / scale[1]) / 2]


@pytest.mark.parametrize("n", [7, 32, 50])
@pytest.mark.parametrize("case", [soft, plain], ids=["soft", "plain"])
def test_violations_of_means_are_those_of_all_residuals(case, n):
    p, s = case(rows=100), standardizer(DISJOINT, **UNITS)
    got, _ = metrics.violations(p, n, s.constraint)
    assert got.names == (*s.constraint.names, "overall", "overall_relative")
    z = p.residual_of_means(n, s.constraint)
    for k, expected in enumerate(sizes(z, s.row_scale)):
        assert got.mean[k] == pytest.approx(expected.mean(), rel=1e-12)
        assert got.sd_over_draws[k] == pytest.approx(expected.mean(1).std(), rel=1e-9)
        assert math.log10(got.median[k] / np.median(expected)) == pytest.approx(0, abs=0.02)
        bins = np.histogram(np.log10(expected), [-np.inf, *LOG10_EDGES, np.inf])[0]
        assert np.abs(np.cumsum(got.counts[k] - bins)).max() <= 2  # single precision may move one across an edge


@pytest.mark.parametrize("likelihood", [joint, marginal])
def test_violations_of_draws_are_those_of_normal_residuals(likelihood):
    """E|z| of a normal in closed form for every draw and row."""
    p = dataclasses.replace(soft(likelihood=likelihood, rows=300), sensor_var=None)
    c, n = p.standardizer.constraint, 20
    _, got = metrics.violations(p, n)
    parts = components(p, n_draws=n)
    mean = stacked(parts, "mean") @ c.B.T - stacked(parts, "target")
    cov = stacked(parts, "cov")
    cov = cov if likelihood is joint else cov * np.eye(6)
    std = np.sqrt(np.diagonal(c.B @ cov @ c.B.T, axis1=2, axis2=3))
    expected = stats.foldnorm.mean(np.abs(mean) / std, scale=std).mean((0, 1))
    standard_error = std.mean((0, 1)) / math.sqrt(n * 300)
    assert np.all(np.abs(got.mean[:2] - expected) < 5 * standard_error)
    assert got.mean[2] == pytest.approx(got.mean[:2].mean(), rel=1e-12)


def test_draws_miss_exact_balances_by_rounding_or_as_far_as_their_diagonal_lets_them():
    c = standardizer(DISJOINT, **UNITS).constraint
    of_means, of_draws = metrics.violations(hard(rows=20), 40)
    assert of_means.mean.max() < 1e-12
    assert of_draws.mean.max() < 1e-12
    _, diagonal = metrics.violations(hard(rows=20, likelihood=marginal), 40)
    _, free = metrics.violations(plain(rows=20), 40, c)
    assert diagonal.mean[0] > 0.1 * free.mean[0]
    assert diagonal.mean[1] > 0.1  # beside outputs of very unequal spread the diagonal is tighter


def test_violations_do_not_depend_on_chunks_or_sensor_noise(monkeypatch):
    p = soft(rows=150)
    whole, _ = metrics.violations(p, 40)
    monkeypatch.setattr(streaming, "CACHE_BYTES", 1)
    chunked, _ = metrics.violations(dataclasses.replace(p, sensor_var=None), 40)
    np.testing.assert_allclose(chunked.of_draws, whole.of_draws, rtol=1e-12)
    assert chunked.counts.sum(1).tolist() == [150 * 40] * 4


def test_relative_violations_take_the_scale_that_is_given():
    p = soft()
    own, _ = metrics.violations(p, 10)
    twice, _ = metrics.violations(p, 10, scale=2 * p.standardizer.row_scale)
    np.testing.assert_allclose(twice.mean, own.mean * [1, 1, 1, 0.5], rtol=1e-12)


def test_progress_is_told_up_to_the_end():
    texts = []
    metrics.violations(soft(), 70, progress=texts.append)
    assert texts == [32 / 70, 64 / 70, 1.0]


@pytest.mark.parametrize(
    ("values", "median"),
    [
        (10.0 ** np.linspace(-4, 3, 7001), 10**-0.5),
        (np.zeros(5), 0.0),
        (np.array([0.0, 1e-30, 1e-25, 2.0, 3.0]), 0.0),
        (np.array([1e9, 1e300, 1.0]), math.inf),
        (np.array([1e-300, 2e-3, 1e300]), 2e-3),
    ],
)
def test_the_median_is_read_from_the_histogram(values, median):
    counts = metrics._histogram(values[None])
    assert counts.sum() == len(values)
    got = Magnitudes(("all",), np.zeros((1, 1)), counts).median[0]
    assert got == pytest.approx(median, rel=10**0.02 - 1)


# --- Messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", [metrics.squared_error, metrics.pit, metrics.crps, metrics.coverage])
def test_outputs_of_another_shape_are_refused(score):
    with pytest.raises(ValueError, match=r"Y must have shape \(4, 6\).*but got \(3, 6\)"):
        score(soft(), np.zeros((3, 6)))


def test_wrong_arguments_are_named():
    p = soft()
    Y = measured_at(p)
    with pytest.raises(ValueError, match=r"levels must lie strictly between 0 and 1, but got \[95\.\]"):
        metrics.coverage(p, Y, 95)
    with pytest.raises(
        ValueError, match=r"scale must hold one positive number per output, 6 of them, but got \[1, 0\]"
    ):
        metrics.energy_score(p, Y, [1, 0])
    with pytest.raises(ValueError, match="n must be at least 2"):
        metrics.energy_score(p, Y, np.ones(6), n=1)
    with pytest.raises(ValueError, match="Residuals need balances"):
        metrics.violations(plain(), 10)
