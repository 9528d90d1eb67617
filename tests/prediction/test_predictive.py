"""The predictive mixture against a loop over draws and rows with dense matrices, in the user's units."""

import dataclasses
import math

import mpmath
import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import scipy.stats
import torch
from handmade import COUPLED, DISJOINT, NAN, components, network, numbers, predictive, stacked, standardizer, variances
from outside import LaplaceNoise
from scipy.special import logsumexp

import references
from equipoise.balances.linear import ConstraintError, LinearConstraint
from equipoise.data import frames
from equipoise.data.scaling import Standardizer
from equipoise.network.likelihood import joint, marginal
from equipoise.network.model import ConstrainedBNN
from equipoise.prediction import metrics, mixture, predictive as module
from equipoise.prediction.predictive import Predictive

WITH_INPUTS = {"A": [[1.0, 0.0, 0.5], [0.0, -2.0, 1.0], [0.3, 0.2, 0.1]], "known": ["load"]}
UNITS = {"y_mean": [10.0, -3.0, 0.1, 50.0, 0.0, 2.0], "y_std": [5.0, 0.02, 3.0, 100.0, 0.4, 1.0]}


def plain():
    s = dataclasses.replace(standardizer(COUPLED, **UNITS), constraint=None)
    return predictive(s, tolerance=None, likelihood=marginal)


def mixed(**settings):
    """Coupled balances with inputs and a known column: one exact, one fixed, one learned; offsets; learned sensors."""
    s = standardizer(COUPLED, **WITH_INPUTS, **UNITS)
    tolerance = variances([0.0, 0.05, NAN], loc=[0.0, 0.0, -2.0], std=[1.0, 1.0, 0.8])
    sensor = variances([NAN, 0.0, 0.01, NAN, 0.3, NAN], loc=[-3.0] * 6, std=[0.5] * 6)
    offset = ([0.5, -0.2, 0.1], [0.1, 0.3, 0.2])
    return predictive(s, **({"tolerance": tolerance, "sensor": sensor, "offset": offset} | settings))


def disjoint(**settings):
    s = standardizer(DISJOINT, **UNITS)
    tolerance = variances([NAN, NAN], loc=[-1.0, -4.0], std=[0.7, 0.4])
    return predictive(s, **({"tolerance": tolerance} | settings))


def exact(B=COUPLED, **settings):
    s = standardizer(B, **UNITS)
    return predictive(s, **({"tolerance": variances(np.zeros(len(B)))} | settings))


CASES = {
    "plain": plain,
    "coupled, mixed tolerances": mixed,
    "disjoint, learned": disjoint,
    "exact": exact,
    "marginal": lambda: mixed(likelihood=marginal, sensor=None),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def naive_moments(p, sensor):
    """P2, written out."""
    parts = components(p)
    mean, var, w = (stacked(parts, name) for name in ("mean", "var", "w"))
    spread = ((mean - mean.mean(0)) ** 2).mean(0)
    return mean.mean(0), var.mean(0) + spread + (w.mean(0) if sensor else 0.0)


# --- Moments ----------------------------------------------------------------------------------------------------------


@every_case
@pytest.mark.parametrize("measured", [False, True])
def test_mean_and_variance_are_those_of_a_loop_over_draws_and_rows(case, measured):
    p = case()
    mean, var = naive_moments(p, measured)
    p = p.measured() if measured else p
    unit = p.standardizer.y_std
    np.testing.assert_allclose(p.mean / unit, mean / unit, rtol=1e-10)
    np.testing.assert_allclose(p.var / unit**2, var / unit**2, rtol=1e-10, atol=1e-13)
    np.testing.assert_array_equal(p.std, np.sqrt(p.var))


@every_case
@pytest.mark.parametrize("full", [False, True])
def test_the_covariance_is_that_of_a_loop_over_draws_and_rows(case, full):
    p = case()
    parts = components(p)
    mean, cov = stacked(parts, "mean"), stacked(parts, "cov")
    centred = mean - mean.mean(0)
    inner = cov if full else cov * np.eye(6)
    expected = inner.mean(0) + np.einsum("dij,dik->ijk", centred, centred) / len(mean)
    unit = np.outer(p.standardizer.y_std, p.standardizer.y_std)
    np.testing.assert_allclose(p.covariance(joint=full) / unit, expected / unit, rtol=1e-9, atol=1e-11)
    if full == (p.model.likelihood is joint):
        np.testing.assert_array_equal(p.covariance(), p.covariance(joint=full))


@every_case
def test_the_diagonal_of_the_covariance_of_measured_values_is_their_variance(case):
    p = case().measured()
    np.testing.assert_allclose(np.diagonal(p.covariance(), axis1=1, axis2=2), p.var, rtol=1e-9)


def test_results_come_back_in_the_kind_of_frame_that_is_asked_for():
    p = exact()
    table = pd.DataFrame(p.X, index=[3, 1, 4, 15])
    wrapped = dataclasses.replace(p, wrap=frames.frame_builder(table, p.outputs))
    for name in ("mean", "std", "var"):
        result = getattr(wrapped, name)
        assert list(result.columns) == list(p.outputs)
        assert list(result.index) == [3, 1, 4, 15]
        np.testing.assert_array_equal(result.to_numpy(), getattr(p, name))
    for bound, frame in zip(p.interval(0.8), wrapped.interval(0.8), strict=True):
        np.testing.assert_array_equal(frame.to_numpy(), bound)


@pytest.mark.parametrize("make", [mixed, disjoint])
def test_a_very_large_tolerance_leaves_the_network_untouched(make):
    p = make(tolerance=variances([1e30] * len(make().standardizer.B)), offset=None)
    parts = components(p)
    mu, v = stacked(parts, "mu"), stacked(parts, "v")
    np.testing.assert_allclose(p.mean, mu.mean(0), rtol=1e-12)
    np.testing.assert_allclose(p.var, v.mean(0) + mu.var(0), rtol=1e-12)
    without = ConstrainedBNN(p.model.network, None, p.model.likelihood)
    alone = dataclasses.replace(p, model=without, standardizer=dataclasses.replace(p.standardizer, constraint=None))
    np.testing.assert_allclose(p.covariance(), alone.covariance(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("B", [DISJOINT, COUPLED], ids=["disjoint", "coupled"])
def test_the_reduction_shrinks_as_tolerances_grow(B):
    reductions = []
    for r in [0.0, *10.0 ** np.arange(-6.0, 8.0, 2.0)]:
        p = exact(B, tolerance=variances([r] * len(B)))
        reductions.append(p.ledger().reduction / p.standardizer.y_std**2)
    steps = np.diff(reductions, axis=0)
    assert np.all(steps <= 1e-14)
    assert np.all(steps.sum((1, 2))[2:6] < -1e-3)  # r from 1e-4 to 1e4
    touched = (B != 0).any(0)
    assert np.all(reductions[0][:, touched] > 0)
    assert np.all(reductions[-1][:, touched] < 1e-4)


# --- Intervals --------------------------------------------------------------------------------------------------------


@every_case
@pytest.mark.parametrize("measured", [False, True])
def test_intervals_are_roots_of_the_mixtures_distribution_function(case, measured):
    p = case()
    parts = components(p)
    mean, var = stacked(parts, "mean"), stacked(parts, "var") + (stacked(parts, "w") if measured else 0.0)
    lower, upper = (p.measured() if measured else p).interval(0.9)
    for i, j in ((3, j) for j in range(6)):
        for got, probability in ((lower, 0.05), (upper, 0.95)):
            expected = references.root_quantile(mean[:, i, j], np.sqrt(var[:, i, j]), probability)
            np.testing.assert_allclose(got[i, j], expected, atol=1e-8 * p.standardizer.y_std[j], rtol=1e-10)


def two_modes(n_draws=300):
    """Every draw says −3 or +3 with a standard deviation of 0.1, each about half the time."""
    net = network(1, 1, hidden=(1,), weight_std=1e-9)
    sizes = {"W1": 0.0, "b1": 0.0, "W2 mean": 3.0, "W2 log var": 0.0, "b2 mean": 0.0, "b2 log var": math.log(0.01)}
    with torch.no_grad():
        net.posterior.loc.copy_(torch.tensor(list(sizes.values())))
        net.posterior.log_std[1] = math.log(1e6)  # b1: the tanh of the hidden unit is −1 or +1
    s = Standardizer(np.zeros(1), np.ones(1), np.array([100.0]), np.array([2.0]))
    return Predictive(ConstrainedBNN(net, None, marginal), s, np.zeros((1, 1)), ("y",), n_draws, seed=1)


def test_the_interval_of_two_modes_ends_at_the_modes_and_not_where_a_normal_would():
    p = two_modes()
    parts = components(p)
    mean, std = stacked(parts, "mean")[:, 0, 0], np.sqrt(stacked(parts, "var")[:, 0, 0])
    (lower,), (upper,) = p.interval(0.9)
    np.testing.assert_allclose(lower, references.root_quantile(mean, std, 0.05), rtol=1e-9)
    np.testing.assert_allclose(upper, references.root_quantile(mean, std, 0.95), rtol=1e-9)
    normal = 1.6449 * p.std[0, 0]
    assert p.mean[0, 0] + normal - upper[0] > 3.0  # the moment-matched normal is far too wide
    assert lower[0] - (p.mean[0, 0] - normal) > 3.0
    inside = p.sample(300)[:, 0, 0]
    assert abs(np.mean((inside > lower) & (inside < upper)) - 0.9) < 4 * math.sqrt(0.09 / 300)  # 4 standard errors


def test_quantiles_grow_with_their_probability():
    p = mixed()
    q = p.quantile(np.linspace(0.01, 0.99, 15))
    assert q.shape == (15, 4, 6)
    assert np.all(np.diff(q, axis=0) > 0)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, -0.1, NAN])
def test_a_level_outside_zero_and_one_is_refused(level):
    with pytest.raises(ValueError, match=rf"strictly between 0 and 1, but got {level}"):
        exact().interval(level)


@pytest.mark.parametrize("probability", [-0.1, 1.5, NAN])
def test_a_probability_outside_zero_and_one_is_refused(probability):
    with pytest.raises(ValueError, match=f"{probability}"):
        exact().quantile([0.5, probability])


# --- Joint samples ----------------------------------------------------------------------------------------------------

SPREADS = np.array([1e-5, 1e5, 1e3, 1e-2, 1.0, 1e-4])
SIGNS = np.array([1.0, -1.0, 0.7, 1.3, -0.4, 0.9])


@pytest.mark.parametrize("coefficients", ["of the order of one in standardized units", "of the order of one"])
@pytest.mark.parametrize("B", [DISJOINT, COUPLED], ids=["disjoint", "coupled"])
def test_every_draw_obeys_exact_balances_in_the_users_units(B, coefficients):
    """10,000 draws; spreads differ by 1e10, means are 1e6 times the spreads, and the right-hand side varies by row."""
    B = B / SPREADS if "standardized" in coefficients else B
    c = np.sqrt((B**2) @ SPREADS**2)
    A = c[:, None] * np.array([[1.0, 0.0, 0.5], [0.0, -2.0, 1.0], [0.3, 0.2, 0.1]])[: len(B)]
    s = standardizer(B, A=A, known=["load"], y_mean=1e6 * SIGNS * SPREADS, y_std=SPREADS)
    p = predictive(s, tolerance=variances(np.zeros(len(B))), rows=8, double=False)
    y = p.sample(1_250)
    terms = np.abs(y) @ np.abs(B).T
    assert np.all(np.abs(s.constraint.residual(p.X, y)) <= 1e-9 * terms)
    assert np.all(np.ptp(s.constraint.target(p.X), axis=0) > 0.1 * c)
    if "standardized" in coefficients:
        assert np.all(y.std(0) > 0.1 * SPREADS)  # and they are draws, not copies of one value


def at_one_input(p, copies=640):
    """The first row many times over: the same posterior draws, each with many draws of the outputs."""
    return dataclasses.replace(p, X=np.repeat(p.X[:1], copies, axis=0))


@pytest.mark.parametrize("joint_samples", [True, False], ids=["joint", "diagonal"])
@every_case
def test_the_covariance_of_samples_is_the_covariance(case, joint_samples):
    """640 samples from each of 32 components; five standard errors of each mean product."""
    p = dataclasses.replace(case(), n_draws=32).measured()
    y = at_one_input(p).sample(32, joint=joint_samples).reshape(-1, 6)
    y = (y - p.mean[0]) / p.standardizer.y_std
    products = np.einsum("dj,dk->djk", y, y)
    expected = p.covariance(joint=joint_samples)[0] / np.outer(p.standardizer.y_std, p.standardizer.y_std)
    n = len(y)
    assert np.all(np.abs(products.mean(0) - expected) <= 5 * products.std(0) / math.sqrt(n) + 1e-13)
    assert np.all(np.abs(y.mean(0)) <= 5 * y.std(0) / math.sqrt(n) + 1e-13)


@pytest.mark.parametrize("joint_samples", [True, False], ids=["joint", "diagonal"])
def test_the_residuals_of_samples_scatter_as_the_covariance_says(joint_samples):
    """Draw by draw, 640 samples each: `B Σ_C Bᵀ` for joint samples, `B diag(v_C) Bᵀ` for diagonal ones."""
    p = disjoint()
    B, scale = p.standardizer.constraint.B, p.standardizer.row_scale
    scatter = (at_one_input(p).residual_of_samples(20, joint=joint_samples) / scale).var(1, ddof=1)
    for d, (c, *_) in enumerate(components(p, n_draws=20)):
        cov = c.cov if joint_samples else np.diag(c.var)
        expected = np.diag(B @ cov @ B.T) / scale**2
        np.testing.assert_allclose(scatter[d], expected, rtol=5 * math.sqrt(2 / 639))  # 5 standard errors


def test_with_the_papers_likelihood_samples_are_independent_given_the_draw():
    """Each draw, 1600 samples: means, variances and correlations within 5 standard errors."""
    p, n = exact(likelihood=marginal), 1600
    y = at_one_input(p, n).sample(2)
    for d, (c, *_) in enumerate(components(p, n_draws=2)):
        assert np.all(np.abs(y[d].mean(0) - c.mean) < 5 * np.sqrt(c.var / n))
        np.testing.assert_allclose(y[d].var(0), c.var, rtol=5 * math.sqrt(2 / n))
        assert np.all(np.abs(np.corrcoef(y[d].T) - np.eye(6)) < 5 / math.sqrt(n))


def test_with_the_papers_likelihood_only_joint_samples_obey():
    p = exact(likelihood=marginal)
    c, y = p.standardizer.constraint, p.sample(200, joint=True)
    assert np.all(np.abs(c.residual(p.X, y)) <= 1e-12 * c.magnitude(p.X, y))
    assert np.all(np.abs(p.residual_of_samples(200)) > 1e-9 * c.magnitude(p.X, p.sample(200)))
    np.testing.assert_array_equal(p.sample(50), p.sample(50, joint=False))


def test_with_the_joint_likelihood_samples_are_joint():
    p = exact()
    np.testing.assert_array_equal(p.sample(50), p.sample(50, joint=True))
    np.testing.assert_array_equal(plain().sample(50, joint=True), plain().sample(50, joint=False))


# --- Measured values --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["(n_y,)", "(n, n_y)"])
def test_given_sensor_noise_adds_its_variance(shape):
    p, rng = mixed(), np.random.default_rng(0)
    std = rng.uniform(0.1, 2.0, 6 if shape == "(n_y,)" else (4, 6)) * p.standardizer.y_std
    q = p.measured(std)
    np.testing.assert_array_equal(q.mean, p.mean)
    np.testing.assert_allclose(q.var, p.var + std**2, rtol=1e-12)
    added = q.covariance() - p.covariance()
    unit = np.outer(p.standardizer.y_std, p.standardizer.y_std)
    np.testing.assert_allclose(added / unit, np.eye(6) * np.broadcast_to(std**2, (4, 6))[:, :, None] / unit, atol=1e-11)
    np.testing.assert_allclose(q.ledger().sensor, np.broadcast_to(std**2, (4, 6)), rtol=1e-12)


def test_sensor_noise_is_added_to_samples_of_the_truth_and_independent_of_them():
    """The difference between measured and true samples, 640 of each of 32 draws, in 5 standard errors."""
    p, std = at_one_input(mixed()), np.array([1.0, 0.0, 2.0, 50.0, 0.1, 0.5])
    y = p.sample(32)
    e = (p.measured(std).sample(32) - y).reshape(-1, 6)
    assert np.all(e[:, 1] == 0)
    seen, n, y = std > 0, len(e), y.reshape(-1, 6)
    e, y = e[:, seen] / std[seen], ((y - y.mean(0)) / y.std(0))[:, seen]
    assert np.all(np.abs(e.mean(0)) < 5 / math.sqrt(n))
    assert np.all(np.abs(e.T @ e / n - np.eye(5)) < 5 * np.sqrt((1 + np.eye(5)) / n))
    assert np.all(np.abs(e.T @ y / n) < 5 / math.sqrt(n))


def test_sensors_that_differ_per_row_stay_with_their_rows(monkeypatch):
    p, rng = exact(rows=150), np.random.default_rng(0)
    std = rng.uniform(0.1, 2.0, (150, 6)) * p.standardizer.y_std
    monkeypatch.setattr(module, "CACHE_BYTES", 1)
    np.testing.assert_allclose(p.measured(std).var - p.var, std**2, rtol=1e-9)
    order = rng.permutation(150)
    q = dataclasses.replace(p, X=p.X[order]).measured(std[order])
    np.testing.assert_allclose(q.var, p.measured(std).var[order], rtol=1e-12)


@pytest.mark.parametrize("case", [exact, lambda: exact(likelihood=marginal)], ids=["joint", "marginal"])
def test_without_sensor_noise_measured_and_true_coincide(case):
    p = case()
    np.testing.assert_array_equal(p.measured().var, p.var)
    np.testing.assert_array_equal(p.measured().sample(10), p.sample(10))


@pytest.mark.parametrize(
    ("sensor_std", "complaint"),
    [
        (np.ones(5), r"one per output, .*but got \(5,\)"),
        ([1.0, 1.0, -1.0, 1.0, 1.0, 1.0], "but got -1.0"),
        ([1.0, 1.0, NAN, 1.0, 1.0, 1.0], "but got nan"),
        ({"y0": 1.0}, "missing"),
        (np.ones((3, 6)), r"\(3, 6\)"),
        (np.ones((1, 4, 6)), r"\(1, 4, 6\)"),
    ],
)
def test_sensor_noise_of_a_wrong_shape_or_sign_is_refused(sensor_std, complaint):
    with pytest.raises(ValueError, match=f"sensor_std must.*{complaint}"):
        exact().measured(sensor_std)


def test_a_fit_with_sensors_per_row_asks_for_those_of_the_new_rows():
    p = dataclasses.replace(exact(), sensors_per_row=True)
    with pytest.raises(ValueError, match=r"given per training row.*\(6,\) or \(4, 6\)"):
        p.measured()
    np.testing.assert_allclose(p.measured(np.ones(6)).var, p.var + 1.0, rtol=1e-12)


# --- Densities --------------------------------------------------------------------------------------------------------


def naive_log_prob(p, Y, sensor_var=None):
    """P1 with one dense multivariate normal per draw and row; unmeasured outputs are left out by hand."""
    parts = components(p)
    result = np.empty((p.n_draws, len(Y)))
    for d, i in np.ndindex(result.shape):
        c, seen = parts[d][i], np.flatnonzero(~np.isnan(Y[i]))
        cov = c.cov + np.diag(c.w if sensor_var is None else np.broadcast_to(sensor_var, Y.shape)[i])
        result[d, i] = gaussian_log_pdf(Y[i, seen], c.mean[seen], cov[np.ix_(seen, seen)])
    return logsumexp(result, axis=0) - math.log(p.n_draws)


def gaussian_log_pdf(y, mean, cov):
    """`log N(y; mean, cov)`, with units taken out first, so that SciPy's own cut-off has nothing to cut."""
    if len(y) == 0:
        return 0.0
    s = np.sqrt(np.diag(cov))
    return (
        scipy.stats.multivariate_normal((y - mean) * 0, cov / np.outer(s, s)).logpdf((y - mean) / s) - np.log(s).sum()
    )


def with_holes(Y, seed=0):
    Y = Y.copy()
    Y[np.random.default_rng(seed).random(Y.shape) < 0.3] = NAN
    return Y


@pytest.mark.parametrize("holes", [False, True], ids=["all measured", "some missing"])
@pytest.mark.parametrize("sensor", ["none", "model", "given", "given per row"])
def test_the_joint_density_is_a_mixture_of_multivariate_normals(sensor, holes):
    p = mixed(tolerance=variances([0.2, 0.05, NAN], loc=[0.0, 0.0, -2.0], std=[1.0, 1.0, 0.8]))
    Y = p.measured().sample(1)[0]
    Y = with_holes(Y) if holes else Y
    rng = np.random.default_rng(0)
    w = {"none": 0.0, "model": None, "given": rng.uniform(0.1, 1, 6), "given per row": rng.uniform(0.1, 1, (4, 6))}[
        sensor
    ]
    w = w * p.standardizer.y_std**2 if sensor.startswith("given") else w
    q = {"none": p, "model": p.measured()}.get(sensor) or p.measured(np.sqrt(w))
    np.testing.assert_allclose(q.log_prob(Y), naive_log_prob(p, Y, w), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("holes", [False, True], ids=["all measured", "some missing"])
def test_exact_balances_seen_through_sensor_noise_have_an_ordinary_density(holes):
    p = exact(sensor=variances([0.1, 0.2, 0.3, 0.1, 0.4, 0.01])).measured()
    Y = p.sample(1)[0]
    Y = with_holes(Y) if holes else Y
    np.testing.assert_allclose(p.log_prob(Y), naive_log_prob(p, Y), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("holes", [False, True], ids=["all measured", "some missing"])
def test_the_papers_density_is_a_mixture_of_products_of_normals(holes):
    p = mixed(likelihood=marginal, sensor=None)
    Y = p.sample(1)[0]
    Y = with_holes(Y) if holes else Y
    expected = np.empty((p.n_draws, 4))
    for d, line in enumerate(components(p)):
        for i, c in enumerate(line):
            expected[d, i] = np.nansum(scipy.stats.norm.logpdf(Y[i], c.mean, np.sqrt(c.var)))
    expected = logsumexp(expected, axis=0) - math.log(p.n_draws)
    np.testing.assert_allclose(p.log_prob(Y), expected, rtol=1e-9)


@pytest.mark.parametrize("holes", [False, True], ids=["all measured", "some missing"])
def test_without_balances_the_density_is_a_mixture_of_products_of_normals(holes):
    p = plain()
    Y = with_holes(p.sample(1)[0]) if holes else p.sample(1)[0]
    np.testing.assert_allclose(p.log_prob(Y), naive_log_prob(p, Y), rtol=1e-9)


def subspace_log_prob(p, Y, exact_rows):
    """L3 and L4 by a change of variables: `y = y_p + N u`, the columns of N orthonormal, in the user's units."""
    B = p.standardizer.constraint.B[exact_rows]
    N = scipy.linalg.null_space(B)
    result = np.array(
        [
            [gaussian_log_pdf(N.T @ Y[i], N.T @ c.mean, N.T @ c.cov @ N) for i, c in enumerate(line)]
            for line in components(p)
        ]
    )
    return logsumexp(result, axis=0) - math.log(p.n_draws)


@pytest.mark.parametrize("B", [DISJOINT, COUPLED], ids=["disjoint", "coupled"])
@pytest.mark.parametrize("units", [1.0, 1e-9, 1e4, 1e9], ids=["own", "small", "large", "very large"])
def test_on_the_subspace_of_exact_balances_the_density_is_per_length_in_the_users_units(B, units):
    y_std = units * np.array([1.0, 0.01, 3.0, 30.0, 0.4, 100.0])
    s = standardizer(B, y_mean=y_std, y_std=y_std)
    p = predictive(s, tolerance=variances(np.zeros(len(B))))
    Y = p.sample(1)[0]
    np.testing.assert_allclose(p.log_prob(Y), subspace_log_prob(p, Y, range(len(B))), atol=1e-6)


@pytest.mark.parametrize("B", [DISJOINT, COUPLED], ids=["disjoint", "coupled"])
def test_on_the_subspace_the_density_is_right_if_units_differ_by_ten_decades(B):
    """`y = y_p + diag(s) N u` with an orthonormal N: a density of u, divided by `√det(Nᵀ diag(s²) N)` in 50 digits."""
    s = standardizer(B / SPREADS, y_mean=SPREADS, y_std=SPREADS)
    p = predictive(s, tolerance=variances(np.zeros(len(B))))
    Y, N = p.sample(1)[0], scipy.linalg.null_space(s.B)
    with mpmath.workdps(50):
        stretched = mpmath.matrix((SPREADS[:, None] * N).tolist())
        volume = 0.5 * float(mpmath.log(mpmath.det(stretched.T * stretched)))
    M, unit = N.T / SPREADS, np.outer(SPREADS, SPREADS)
    result = np.empty((p.n_draws, len(Y)))
    for d, line in enumerate(components(p)):
        for i, c in enumerate(line):
            result[d, i] = gaussian_log_pdf(M @ Y[i], M @ c.mean, N.T @ (c.cov / unit) @ N)
    np.testing.assert_allclose(p.log_prob(Y), logsumexp(result, axis=0) - math.log(p.n_draws) - volume, atol=1e-6)


@pytest.mark.parametrize("tolerances", [(0.0, NAN, NAN), (NAN, 0.0, 0.0), (0.0, 0.2, 0.0)])
def test_where_some_balances_are_exact_the_density_is_on_their_subspace(tolerances):
    s = standardizer(COUPLED, y_std=[1.0, 0.01, 3.0, 30.0, 0.4, 100.0])
    p = predictive(s, tolerance=variances(tolerances, loc=[-1.0] * 3, std=[0.5] * 3))
    Y = p.sample(1)[0]
    np.testing.assert_allclose(p.log_prob(Y), subspace_log_prob(p, Y, np.array(tolerances) == 0), atol=1e-6)


def test_the_density_along_a_line_is_per_length_even_if_units_differ_by_ten_decades():
    """`y₀ = k y₁`: one coordinate u along `(k, 1) / √(k² + 1)`, in closed form."""
    k = 1e10
    s = standardizer([[1.0, -k]], y_mean=[3e10, 3.0], y_std=[1e10, 2.0])
    p = predictive(s, tolerance=variances([0.0]), n_draws=40)
    Y = p.sample(1)[0]
    expected = np.empty((40, 4))
    for d, line in enumerate(components(p)):
        for i, c in enumerate(line):
            precision = k**2 / c.v[0] + 1 / c.v[1]  # of y₁ = u / √(k² + 1)
            mean = (k * c.mu[0] / c.v[0] + c.mu[1] / c.v[1]) / precision
            expected[d, i] = scipy.stats.norm.logpdf(Y[i, 1], mean, precision**-0.5) - 0.5 * math.log(k**2 + 1)
    expected = logsumexp(expected, axis=0) - math.log(40)
    np.testing.assert_allclose(p.log_prob(Y), expected, rtol=1e-9)


def test_off_the_subspace_the_density_is_zero_in_any_units():
    s = standardizer(COUPLED, y_std=[1.0, 0.01, 3.0, 30.0, 0.4, 100.0])
    p = predictive(s, tolerance=variances(np.zeros(3)))
    Y = p.sample(1)[0]
    for j in range(6):
        Z = Y.copy()
        Z[1, j] += 1e-3 * s.y_std[j]
        assert np.array_equal(np.isneginf(p.log_prob(Z)), [False, True, False, False])


@pytest.mark.parametrize("missing", [[0], [1], [4], [0, 3], [1, 2], [0, 5], [3, 4, 5], [0, 1, 2]])
def test_a_missing_output_is_integrated_out_of_the_density_on_the_subspace(missing):
    """Outputs 1, 2 and 4 are in two exact balances each: without them, what is left of the two is still exact."""
    s = standardizer(COUPLED, y_std=[1.0, 0.1, 3.0, 3.0, 0.4, 10.0])
    p = predictive(s, tolerance=variances(np.zeros(3)))
    Y = p.sample(1)[0]
    Y[:, missing] = NAN
    np.testing.assert_allclose(p.log_prob(Y), density_of_the_measured(p, Y), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("share", [1.0, 1e-3, 1e-7])
def test_a_missing_output_with_a_small_share_of_its_balance_still_leaves_room(share):
    """`y₀ = y₁ + y₂`, y₂ missing and far smaller: Bayes' rule for `(y₀, y₁)`, with `y₂ = y₀ − y₁ − t` inserted."""
    p = predictive(
        standardizer([[1.0, -1.0, -1.0]], y_mean=[0.3, 0.3, 0.0], y_std=[1.0, 1.0, share]), tolerance=variances([0.0])
    )
    Y = p.sample(1)[0]
    Y[:, 2] = NAN
    result = np.empty((p.n_draws, len(Y)))
    for d, line in enumerate(components(p)):
        for i, c in enumerate(line):
            y = np.array([Y[i, 0], Y[i, 1], Y[i, 0] - Y[i, 1] - c.target[0]])
            evidence = scipy.stats.norm.logpdf(c.target[0], c.mu[0] - c.mu[1] - c.mu[2], math.sqrt(c.v.sum()))
            result[d, i] = scipy.stats.norm.logpdf(y, c.mu, np.sqrt(c.v)).sum() - evidence
    np.testing.assert_allclose(p.log_prob(Y), logsumexp(result, axis=0) - math.log(p.n_draws), atol=1e-6)


def density_of_the_measured(p, Y):
    """The density of what was measured, on the range of its own covariance, per volume in the user's units."""
    result = np.empty((p.n_draws, len(Y)))
    for d, line in enumerate(components(p)):
        for i, c in enumerate(line):
            seen = np.flatnonzero(~np.isnan(Y[i]))
            s = p.standardizer.y_std[seen]
            basis = scipy.linalg.orth(s[:, None] * restricted_basis(p, seen))
            cov = c.cov[np.ix_(seen, seen)]
            result[d, i] = gaussian_log_pdf(basis.T @ Y[i, seen], basis.T @ c.mean[seen], basis.T @ cov @ basis)
    return logsumexp(result, axis=0) - math.log(p.n_draws)


def restricted_basis(p, seen):
    """Directions in which the measured outputs can move, in standardized units."""
    return scipy.linalg.null_space(p.standardizer.constraint.B * p.standardizer.y_std)[seen]


def test_a_row_in_which_nothing_was_measured_has_log_density_zero():
    for case in CASES.values():
        np.testing.assert_allclose(case().log_prob(np.full((4, 6), NAN)), 0.0, atol=1e-12)


def test_densities_integrate_to_one():
    """Two outputs without balances, by the trapezoidal rule; a lattice of 101² points over 6 standard deviations."""
    s = Standardizer(np.zeros(1), np.ones(1), np.array([5.0, -3.0]), np.array([10.0, 0.1]))
    net = network(1, 2)
    p = Predictive(ConstrainedBNN(net, None, marginal), s, np.zeros((1, 1)), ("a", "b"), 32)
    axes = [np.linspace(p.mean[0, j] - 6 * p.std[0, j], p.mean[0, j] + 6 * p.std[0, j], 101) for j in range(2)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    density = np.exp(dataclasses.replace(p, X=np.zeros((len(grid), 1))).log_prob(grid)).reshape(101, 101)
    np.testing.assert_allclose(np.trapezoid(np.trapezoid(density, axes[1]), axes[0]), 1.0, atol=1e-3)


@pytest.mark.parametrize("Y", [np.zeros(6), np.zeros((4, 5)), np.zeros((3, 6)), np.zeros((1, 6))])
def test_outputs_of_a_wrong_shape_are_refused(Y):
    with pytest.raises(ValueError, match=f"Y must.*{Y.shape}".replace("(", r"\(").replace(")", r"\)")):
        exact().log_prob(Y)


# --- Draws ------------------------------------------------------------------------------------------------------------


def results(p):
    """Everything a `Predictive` says, by name."""
    Y = p.mean
    answers = {"mean": p.mean, "var": p.var, "quantile": p.quantile([0.1, 0.9]), "covariance": p.covariance()}
    answers |= {"sample": p.sample(40), "diagonal sample": p.sample(40, joint=False), "log_prob": p.log_prob(Y)}
    ledger = p.ledger()
    answers |= {"ledger": ledger.total, "tolerance share": ledger.tolerance_share, "lost": ledger.lost_without}
    if p.standardizer.constraint is not None:
        answers |= {"residual of means": p.residual_of_means(), "residual of samples": p.residual_of_samples(40)}
    return answers


def assert_same(first, second, rows=slice(None)):
    """Equal but for the last digits, in units of the largest entry of each kind."""
    by_row = {"mean": 0, "var": 0, "quantile": 1, "covariance": 0, "sample": 1, "diagonal sample": 1, "log_prob": 0}
    by_row |= {"ledger": 0, "tolerance share": 0, "lost": 1, "residual of means": 1, "residual of samples": 1}
    for name, value in first.items():
        value = np.take(value, np.arange(value.shape[by_row[name]])[rows], axis=by_row[name])
        largest = np.abs(value).max(initial=0.0)
        np.testing.assert_allclose(second[name], value, rtol=1e-10, atol=1e-12 * largest, err_msg=name)


LARGE = {
    "plain": lambda: predictive(
        dataclasses.replace(standardizer(COUPLED), constraint=None), tolerance=None, likelihood=marginal, rows=150
    ),
    "coupled": lambda: mixed(
        rows=150, tolerance=variances([0.2, 0.05, NAN], loc=[0.0, 0.0, -2.0], std=[1.0, 1.0, 0.8])
    ).measured(),
    "marginal": lambda: mixed(rows=150, likelihood=marginal, sensor=None),
}


@pytest.mark.parametrize("case", LARGE.values(), ids=LARGE)
def test_the_size_of_chunks_changes_nothing(case, monkeypatch):
    at_once = case()
    monkeypatch.setattr(module, "CACHE_BYTES", 2**40)
    monkeypatch.setattr(module, "UNITS_BYTES", 2**40)
    assert [(chunk.start, chunk.stop) for chunk in at_once.chunks()] == [(0, 150)]
    expected = results(at_once)
    monkeypatch.setattr(module, "CACHE_BYTES", 1)
    assert [(chunk.start, chunk.stop) for chunk in case().chunks()] == [(0, 64), (64, 128), (128, 150)]
    assert_same(expected, results(case()))


@pytest.mark.parametrize("at_once", [1, 7, 32])
def test_how_many_draws_are_conditioned_at_once_changes_nothing(at_once, monkeypatch):
    expected, p = results(mixed()), mixed()
    monkeypatch.setattr(mixture, "S_BYTES", at_once * len(p.X) * 9 * 8)  # three coupled balances
    assert p._draws_at_once(len(p.X)) == at_once
    assert_same(expected, results(p))


def test_draws_that_are_not_kept_are_made_anew_and_the_same(monkeypatch):
    expected = results(mixed())
    monkeypatch.setattr(mixture, "DRAWS_BYTES", 0)
    p = mixed()
    answers = results(p)
    assert not p._kept_draws
    for name, value in expected.items():
        np.testing.assert_array_equal(answers[name], value, err_msg=name)


@pytest.mark.parametrize("case", LARGE.values(), ids=LARGE)
def test_the_order_of_rows_changes_no_moment(case):
    p = case()
    order = np.random.default_rng(0).permutation(150)
    q = dataclasses.replace(p, X=p.X[order])
    for name in ("mean", "var"):
        np.testing.assert_allclose(getattr(q, name), getattr(p, name)[order], rtol=1e-12)
    np.testing.assert_allclose(q.quantile([0.1]), p.quantile([0.1])[:, order], rtol=1e-10)
    np.testing.assert_allclose(q.covariance(), p.covariance()[order], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(q.log_prob(p.mean[order]), p.log_prob(p.mean)[order], rtol=1e-12)


def test_a_row_alone_is_predicted_like_the_row_among_others():
    p = mixed(rows=70)
    alone = dataclasses.replace(p, X=p.X[66:67])
    np.testing.assert_allclose(alone.mean[0], p.mean[66], rtol=1e-12)
    np.testing.assert_allclose(alone.var[0], p.var[66], rtol=1e-12)


@pytest.mark.parametrize("short", [1, 31, 32, 40, 64])
def test_fewer_draws_are_the_first_of_more(short):
    p = mixed(n_draws=128)
    np.testing.assert_array_equal(p.sample(128)[:short], p.sample(short))
    np.testing.assert_array_equal(p.residual_of_means(128)[:short], p.residual_of_means(short))
    parts = components(p, n_draws=short)
    q = dataclasses.replace(p, n_draws=short)
    np.testing.assert_allclose(q.mean, stacked(parts, "mean").mean(0), rtol=1e-10)
    expected = stacked(parts, "var").mean(0) + stacked(parts, "mean").var(0)
    np.testing.assert_allclose(q.var, expected, rtol=1e-9)


def test_rows_of_a_longer_table_have_the_noise_of_their_place():
    p = mixed(rows=150)
    rest = dataclasses.replace(p, X=p.X[64:], first_row=64)
    np.testing.assert_allclose(rest.sample(40), p.sample(40)[:, 64:], rtol=1e-10)
    np.testing.assert_allclose(rest.mean, p.mean[64:], rtol=1e-12)


def test_another_seed_gives_other_draws_and_other_noise():
    p = mixed()
    q = dataclasses.replace(p, seed=6)
    assert np.all(np.abs(p.sample(3) - q.sample(3)).max((0, 1)) > 1e-6)
    assert np.all(p.mean != q.mean)


def test_noise_is_not_shared_between_draws_rows_or_blocks():
    """100 draws of 130 equal rows: every pair of rows and of draws differs, and nothing repeats."""
    p = exact(rows=130)
    y = dataclasses.replace(p, X=np.repeat(p.X[:1], 130, axis=0)).sample(100)[..., 3]
    assert len(np.unique(y)) == y.size


# --- Residuals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [mixed, disjoint, exact], ids=["mixed", "disjoint", "exact"])
def test_residuals_of_means_are_those_of_a_loop(case):
    p = case()
    expected = [
        [p.standardizer.constraint.residual(x, c.mean) for x, c in zip(p.X, line, strict=True)]
        for line in components(p)
    ]
    got = p.residual_of_means()
    assert got.shape == (40, 4, p.standardizer.constraint.n_balances)
    np.testing.assert_allclose(got / p.standardizer.row_scale, expected / p.standardizer.row_scale, atol=1e-10)


def test_residuals_of_means_are_the_offsets_where_balances_are_exact():
    p = exact(offset=([0.5, -0.2, 0.0], [0.1, 0.3, 1e-6]))
    offset = np.concatenate([numbers(p.model.draw(p.seed, block).offset) for block in range(2)])[:40]
    expected = np.broadcast_to(offset * p.standardizer.row_scale, (40, 4, 3))
    np.testing.assert_allclose(p.residual_of_means(), expected, atol=1e-11)
    np.testing.assert_allclose(p.residual_of_samples(40), expected, atol=1e-11)


def test_residuals_of_samples_are_those_of_the_samples():
    p = mixed()
    y, z, c = p.sample(50), p.residual_of_samples(50), p.standardizer.constraint
    for d, i, k in np.ndindex(50, 4, 3):
        by_hand = c.A[k] @ p.X[i] + c.B[k] @ y[d, i] - c.b[k]
        np.testing.assert_allclose(z[d, i, k], by_hand, atol=1e-13 * c.magnitude(p.X[i], y[d, i])[k])


def test_measured_values_miss_exact_balances_by_their_sensor_noise():
    std = np.array([1.0, 0.1, 2.0, 5.0, 0.1, 0.5])
    p = at_one_input(exact()).measured(std)
    z = p.residual_of_samples(25).reshape(-1, 3)
    expected = np.sqrt((COUPLED**2) @ std**2)
    np.testing.assert_allclose(z.std(0), expected, rtol=5 * math.sqrt(1 / (2 * 16_000)))  # 5 standard errors


def test_a_model_without_balances_can_be_asked_how_far_it_misses_given_ones():
    p, s = plain(), standardizer(COUPLED, **WITH_INPUTS, **UNITS)
    c = LinearConstraint(s.constraint.B, s.constraint.A[:, :2], s.constraint.b)
    means = [[c.residual(x, part.mean) for x, part in zip(p.X, line, strict=True)] for line in components(p)]
    np.testing.assert_allclose(p.residual_of_means(constraint=c) / s.row_scale, means / s.row_scale, atol=1e-10)
    np.testing.assert_array_equal(p.residual_of_samples(7, constraint=c), c.residual(p.X, p.sample(7)))


def test_given_balances_take_the_place_of_those_of_the_fit():
    p = exact()
    other = LinearConstraint([[0.0, 0.0, 0.0, 1.0, 0.0, 0.0]], b=[4.0], inputs=["in0", "in1"])
    mean = stacked(components(p, n_draws=9), "mean")
    np.testing.assert_allclose(p.residual_of_means(9, other)[..., 0], mean[..., 3] - 4.0, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(
        p.residual_of_samples(9, joint=False, constraint=other)[..., 0], p.sample(9, joint=False)[..., 3] - 4.0
    )


def test_given_balances_must_fit_the_columns():
    with pytest.raises(ConstraintError, match=r"Y must have 2 columns \('y0' and 'y1'\), but got shape"):
        plain().residual_of_means(constraint=LinearConstraint([[1.0, -1.0]], inputs=["in0", "in1"]))


def test_residuals_need_balances():
    for ask in (plain().residual_of_means, lambda: plain().residual_of_samples(3)):
        with pytest.raises(ValueError, match=r"Residuals need balances.*without a constraint"):
            ask()


def test_samples_and_intervals_of_measured_values_have_the_noise_of_their_likelihood():
    """A normal and a Laplace number add up: quantiles invert its distribution function, samples fall below them."""
    p = predictive(standardizer(DISJOINT), tolerance=variances([0.1, 0.1]), sensor=variances([0.8] * 6), n_draws=3)
    p.model.likelihood = LaplaceNoise()
    measured, levels, n = p.measured(), [0.01, 0.5, 0.9], 1500
    quantiles, samples = measured.quantile(levels), measured.sample(3)
    for level, quantile in zip(levels, quantiles, strict=True):
        np.testing.assert_allclose(metrics.pit(measured, quantile), level, atol=1e-9)
    few = dataclasses.replace(measured, X=measured.X[:1], n_draws=n)  # samples use one draw each
    below = few.sample(n)[:, 0] < few.quantile([0.01])[0, 0]
    np.testing.assert_allclose(below.mean(0), 0.01, atol=5 * np.sqrt(0.01 * 0.99 / n))
    p.model.likelihood = joint
    normal = p.measured().quantile([0.01])
    assert np.all(np.abs(quantiles[0] - normal) / p.measured().std > 0.02)
    assert quantiles.shape == samples.shape
