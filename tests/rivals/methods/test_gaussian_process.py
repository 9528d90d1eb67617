"""Gaussian processes against scikit-learn's at the same parameters, and against leaving rows out by hand."""

import mpmath
import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from equipoise.data.rows import Rows
from equipoise.network.mlp import BayesianMLP
from equipoise.rivals.methods import gaussian_process
from equipoise.rivals.methods.gaussian_process import (
    GaussianProcesses,
    log_marginal_likelihood,
    most_likely_parameters,
)

PARAMETERS = torch.log(torch.tensor([0.7, 2.0, 1.5, 0.04], dtype=torch.float64))  # two lengths, variance, noise


def table(n=40, noise=0.2):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (n, 2))
    return x, np.sin(2 * x[:, 0]) + 0.3 * x[:, 1] + noise * rng.normal(size=n)


def theirs(parameters=PARAMETERS):
    """scikit-learn's regressor with the same kernel, whose parameters stay as they are."""
    *lengths, variance, noise = parameters.exp().tolist()
    kernel = ConstantKernel(variance) * Matern(lengths, nu=2.5) + WhiteKernel(noise)
    return GaussianProcessRegressor(kernel, optimizer=None, alpha=0.0)


def processes(x, Y, parameters=PARAMETERS):
    return GaussianProcesses(torch.as_tensor(x), torch.as_tensor(Y), parameters.repeat(Y.shape[1], 1))


def evaluated(q, x, n_draws=1):
    network = BayesianMLP(x.shape[1], q.y.shape[1], (4,), generator=torch.Generator()).with_posterior(q)
    return network.at_draws(q.draw_block(0, 0)[:n_draws], torch.as_tensor(x))


def test_the_log_marginal_likelihood_and_its_gradient_are_scikit_learns():
    x, y = table()
    value, gradient = log_marginal_likelihood(torch.as_tensor(x), torch.as_tensor(y), PARAMETERS)
    fitted = theirs().fit(x, y)
    order = np.r_[1, 2, 0, 3]  # theirs: variance, lengths, noise
    expected, slopes = fitted.log_marginal_likelihood(fitted.kernel_.theta, eval_gradient=True)
    assert value == pytest.approx(expected, rel=1e-8)
    np.testing.assert_allclose(gradient.numpy(), slopes[order], rtol=1e-6)


def test_means_and_variances_are_scikit_learns_with_the_noise():
    x, y = table()
    new, _ = table(15)
    p = evaluated(processes(x, y[:, None]), new + 0.1, n_draws=3)
    mean, std = theirs().fit(x, y).predict(new + 0.1, return_std=True)
    assert p.mean.shape == (3, 15, 1)
    np.testing.assert_allclose(p.mean[2, :, 0], mean, rtol=1e-7)
    np.testing.assert_allclose(p.var[0, :, 0], std**2, rtol=1e-7)  # theirs has the white noise


def test_the_parameters_are_as_likely_as_those_that_scikit_learn_finds():
    x, y = table(60)
    found = most_likely_parameters(torch.as_tensor(x), torch.as_tensor(y))
    bounds = (1e-9, 1e3)
    kernel = ConstantKernel(1.0, bounds) * Matern([1.0, 1.0], bounds, nu=2.5) + WhiteKernel(0.1, bounds)
    best = GaussianProcessRegressor(kernel, alpha=0.0).fit(x, y).log_marginal_likelihood_value_
    assert log_marginal_likelihood(torch.as_tensor(x), torch.as_tensor(y), found)[0] > best - 1e-3
    assert found[-1].exp().item() == pytest.approx(0.04, rel=0.6)  # 60 rows: sqrt(2 / 60), three times over


def test_leaving_a_row_out_is_predicting_it_from_the_others():
    x, y = table(12)
    p = processes(x, y[:, None]).leave_one_out()
    for i in range(12):
        rest = np.arange(12) != i
        mean, std = theirs().fit(x[rest], y[rest]).predict(x[[i]], return_std=True)
        assert p.mean[i, 0].item() == pytest.approx(mean[0], rel=1e-7)
        assert p.var[i, 0].item() == pytest.approx(std[0] ** 2, rel=1e-7)


def test_an_output_that_a_row_lacks_is_as_if_the_row_were_not_there():
    x, y = table(20)
    Y = np.stack([y, np.where(np.arange(20) < 5, np.nan, y)], 1)
    new, _ = table(6)
    p = evaluated(processes(x, Y), new)
    mean, std = theirs().fit(x[5:], y[5:]).predict(new, return_std=True)
    np.testing.assert_allclose(p.mean[0, :, 1], mean, rtol=1e-7)
    np.testing.assert_allclose(p.var[0, :, 1], std**2, rtol=1e-7)
    left_out = processes(x, Y).leave_one_out()
    np.testing.assert_allclose(left_out.mean[:5, 1], theirs().fit(x[5:], y[5:]).predict(x[:5]), rtol=1e-7)


def test_at_most_so_many_rows_are_used_and_the_seed_says_which(monkeypatch):
    monkeypatch.setattr(gaussian_process, "MOST_ROWS", 10)
    x, y = table(30)
    rows = Rows(torch.as_tensor(x), torch.as_tensor(y[:, None]))
    first, again, other = (GaussianProcesses.fit(rows, seed) for seed in (1, 1, 2))
    assert len(first.x) == 10
    assert torch.equal(first.x, again.x)
    assert not torch.equal(first.x, other.x)
    assert all(any(torch.equal(row, one) for one in rows.x) for row in first.x)


def test_variances_survive_where_there_is_hardly_any_noise():
    """Against 50-digit arithmetic: an explicit inverse of the covariance loses them to rounding."""
    mpmath.mp.dps = 50
    x = np.linspace(0, 1, 12)[:, None]
    log = torch.log(torch.tensor([5.0, 100.0, 1e-8], dtype=torch.float64))
    q = processes(x, np.sin(3 * x), log)
    length, variance, noise = (mpmath.e ** mpmath.mpf(float(part)) for part in log)

    def kernel(a, b):
        d = mpmath.sqrt(5) * abs(mpmath.mpf(float(a)) - mpmath.mpf(float(b))) / length
        return variance * (1 + d + d**2 / 3) * mpmath.exp(-d)

    K = mpmath.matrix(12, 12)
    for i in range(12):
        for j in range(12):
            K[i, j] = kernel(x[i, 0], x[j, 0]) + (i == j) * (noise + variance * mpmath.mpf(gaussian_process.JITTER))
    new = 0.37
    cross = mpmath.matrix([kernel(new, row) for row in x[:, 0]])
    exact = variance - (cross.T * mpmath.lu_solve(K, cross))[0] + noise
    p = evaluated(q, np.array([[new]]))
    assert p.var.item() == pytest.approx(float(exact), rel=1e-3)
    assert float(exact) < 1e-6
