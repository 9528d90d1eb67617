"""Tolerances that are learned after the outputs were fitted, against dense normal distributions."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import torch

import equipoise as eq
from equipoise.data.rows import Rows
from equipoise.gaussian.conditioning import ConditioningLayer
from equipoise.gaussian.tolerance import LogNormalVariance, TolerancePrior
from equipoise.network.heads import NetworkGaussian
from equipoise.network.likelihood import joint
from equipoise.network.mlp import BayesianMLP
from equipoise.network.model import ConstrainedBNN
from equipoise.rivals.methods.catalogue import MethodError
from equipoise.rivals.methods.outputwise import learn_tolerances

B = np.array([[-1.0, -1.0, 1.0]])
V, W = np.array([0.3, 0.2, 0.4]) ** 2, np.array([0.1, 0.1, 0.2]) ** 2
BALANCE = eq.LinearConstraint.from_equations({"sum": "c = a + b"}, inputs=["x", "z"], outputs=["a", "b", "c"])


def log_density(y, mean, target, r):
    """log p(y | t) of one row from the dense joint normal of measured values and target."""
    joint_cov = np.block([[np.diag(V + W), np.diag(V) @ B.T], [B @ np.diag(V), B @ np.diag(V) @ B.T + r]])
    both = scipy.stats.multivariate_normal(np.r_[mean, B @ mean], joint_cov).logpdf(np.r_[y, target])
    return both - scipy.stats.norm((B @ mean).item(), np.sqrt(joint_cov[3, 3])).logpdf(target).item()


def test_a_tolerance_is_the_mode_of_its_posterior_with_the_spread_of_its_curvature():
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(50, 3))
    target = rng.normal(size=(50, 1)) * 0.1
    y = mean + np.sqrt(V + W) * rng.normal(size=mean.shape)
    layer = ConditioningLayer(eq.LinearConstraint(B), tolerance=TolerancePrior(-2.0, 1.5, relative=False))
    scale2 = layer.row_scale.item() ** 2
    sensor = LogNormalVariance(torch.zeros(3), torch.ones(3), torch.as_tensor(W))
    model = ConstrainedBNN(BayesianMLP(1, 3, (2,), generator=torch.Generator()), layer, joint, sensor)
    rows = Rows(torch.zeros(50, 1), torch.as_tensor(y), torch.as_tensor(target) / scale2**0.5)
    predicted = NetworkGaussian(torch.as_tensor(mean), torch.as_tensor(V).expand(50, 3))
    learn_tolerances(model, predicted, rows)

    def loss(rho):
        terms = [log_density(y[i], mean[i], target[i], np.exp(rho)) for i in range(50)]
        return -sum(terms) + 0.5 * ((rho + 2.0) / 1.5) ** 2

    best = scipy.optimize.minimize_scalar(loss, bounds=(-8, 4), method="bounded", options={"xatol": 1e-6}).x
    step = 1e-2
    curvature = (loss(best + step) + loss(best - step) - 2 * loss(best)) / step**2
    found, std = (float(moment) for moment in layer.tolerance.log_moments())
    assert found + np.log(scale2) == pytest.approx(best, abs=1e-3)
    assert std == pytest.approx(curvature**-0.5, rel=2e-2)


def table(n=150, tol_std=0.4, sensor_std=0.05, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, 2))
    parts = np.stack([np.sin(x[:, 0]), 0.5 * x[:, 0] * x[:, 1]], 1)
    bend = tol_std * np.sqrt(2) * np.sin(2 * x[:, 1])  # a function of the inputs, of root mean square tol_std
    truth = np.hstack([parts, parts.sum(1, keepdims=True) + bend[:, None]])
    return x, truth, truth + sensor_std * rng.normal(size=truth.shape)


def test_processes_find_sensors_and_tolerance_and_predict_the_truth():
    X, _, Y = table()
    model = eq.MethodRegressor(BALANCE, inference="gp", imposition="learned", random_state=0).fit(X, Y)
    std = model.sensor_std_["std"].to_numpy()
    assert np.abs(std / 0.05 - 1).max() < 0.25  # 150 rows: three standard errors of 1 / sqrt(2 · 150), and the fit's
    assert 0.2 < model.tolerances_.loc["sum", "tol_std"] < 0.8
    new, truth, _ = table(200, seed=1)
    assert np.sqrt(np.mean((model.predict(new) - truth) ** 2)) < 0.04
    exact = eq.MethodRegressor(BALANCE, inference="gp", imposition="posthoc", random_state=0).fit(X, Y)
    assert np.sqrt(np.mean((exact.predict(new) - truth) ** 2)) > 0.1  # the balance is wrong by 0.4


def test_known_sensors_leave_the_rest_of_the_noise_to_the_output():
    """The measured values' variance is that of the process, whoever its noise belongs to."""
    X, _, Y = table()
    options = {"constraint": BALANCE, "inference": "gp", "imposition": "fixed", "tolerance": 1e6, "random_state": 0}
    known, learned = (eq.MethodRegressor(**options, sensor_std=std).fit(X, Y) for std in (0.02, "learn"))
    new, *_ = table(20, seed=1)
    p, q = (model.predict_distribution(new) for model in (known, learned))
    assert (p.std > q.std).all()
    np.testing.assert_allclose(p.measured().std, q.measured().std, rtol=0.02)  # the learned ones are averaged over


def test_data_that_obey_to_rounding_are_predicted_to_obey():
    x, truth, _ = table(60, tol_std=0.0)
    model = eq.MethodRegressor(BALANCE, inference="gp", imposition="learned", random_state=0).fit(x, truth)
    assert model.tolerances_.loc["sum", "kind"] == "exact to rounding"
    assert np.abs(BALANCE.residual(x, model.sample_y(x, 5))).max() < 1e-12
    assert np.isfinite(model.predict_distribution(x).log_prob(truth)).all()


def test_an_offset_is_refused_where_it_would_not_be_learned():
    X, _, Y = table(30)
    with pytest.raises(MethodError, match="offset must be False with Gaussian processes, but got True"):
        eq.MethodRegressor(BALANCE, inference="gp", imposition="learned", offset=True).fit(X, Y)
