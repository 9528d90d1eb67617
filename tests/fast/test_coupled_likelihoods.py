"""Likelihoods of balances that share outputs: against dense normals in 50 digits and by scipy, gradients by torch's
autograd over the definition, and in 50 digits."""

import likelihood_gradients
import numpy as np
import pytest
import torch
from scipy.stats import norm

from equipoise.fast import coupled_likelihoods
from equipoise.gaussian.operator import BalanceOperator
from references import conditioned, joint_log_prob_50_digits

# Three coupled balances, one that shares no output, and an output that is in none.
B = np.zeros((4, 9))
B[0, :3], B[1, 2:5], B[2, [0, 4, 5]], B[3, 6:8] = [1.0, -1.0, 2.0], [1.0, 1.0, -0.5], [2.0, 1.0, 1.0], [1.0, 3.0]
NAMES = ("mean", "var", "target", "tol_var", "sensor_var")


def parts(n, *, missing=False, exact=False) -> list[np.ndarray]:
    """mean, var, target, tol_var, y, w."""
    rng = np.random.default_rng(0)
    mean, target, y = rng.normal(size=(n, 9)), rng.normal(size=(n, 4)), rng.normal(size=(n, 9))
    var, tol_var, w = (np.exp(2 * rng.normal(size=(n, k))) for k in (9, 4, 9))
    if missing:
        y[0, 1] = y[1, 3] = y[1, 8] = y[2, :] = np.nan
    return [mean, var, target, 0 * tol_var if exact else tol_var, y, w]


def evaluated(function, arrays, upstream=1.0):
    mean, _, target, *_ = arrays
    gradients = [np.full(part.shape, np.nan) for part in (mean, mean, target, target, mean)]
    total, largest = function(BalanceOperator(torch.tensor(B)).entries, *arrays, upstream, *gradients)
    return total, dict(zip(NAMES, gradients, strict=True)), largest


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "outputs missing"])
@pytest.mark.parametrize("exact", [False, True], ids=["tolerances", "exact"])
def test_the_joint_density_is_the_dense_normal_of_what_was_measured(missing, exact):
    arrays = parts(5, missing=missing, exact=exact)
    rows = (joint_log_prob_50_digits(*(p[i] for p in arrays[:2]), B, *(p[i] for p in arrays[2:])) for i in range(5))
    assert evaluated(coupled_likelihoods.joint, arrays)[0] == pytest.approx(float(sum(rows)), rel=1e-10)


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "outputs missing"])
def test_the_marginal_density_is_the_product_of_normals_on_the_diagonal(missing):
    total = 0.0
    for mean, var, target, tol_var, y, w in zip(*(arrays := parts(5, missing=missing)), strict=True):
        mean_c, cov_c = conditioned(mean, var, B, target, tol_var)
        total += np.nansum(norm(mean_c, np.sqrt(np.diag(cov_c) + w)).logpdf(y))
    assert evaluated(coupled_likelihoods.marginal, arrays)[0] == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "outputs missing"])
@pytest.mark.parametrize("name", ["joint", "marginal"])
@pytest.mark.parametrize("n", [3, 8, 37])
def test_gradients_are_those_of_autograd_over_the_definition(name, missing, n):
    arrays = parts(n, missing=missing)
    _, gradients, largest = evaluated(getattr(coupled_likelihoods, name), arrays, upstream=-0.3)
    assert 1.0 <= largest < 1e6
    expected = likelihood_gradients.by_autograd(name, B, arrays, -0.3)
    likelihood_gradients.assert_close(gradients, expected, rtol=1e-10)


@pytest.mark.parametrize("key", likelihood_gradients.NAMES)
def test_gradients_of_the_joint_density_agree_with_fifty_digits(key):
    """To some hundreds of roundings at a condition of 1e3."""
    arrays = parts(1)
    _, gradients, *_ = evaluated(coupled_likelihoods.joint, arrays)
    row = [part[0] for part in arrays]
    expected = [likelihood_gradients.in_fifty_digits(B, row, key, i) for i in range(gradients[key].shape[1])]
    likelihood_gradients.assert_close(gradients, {key: np.array([expected])}, rtol=1e-10)


@pytest.mark.parametrize("name", ["joint", "marginal"])
def test_nan_in_one_row_shows(name):
    arrays = parts(11)
    arrays[0][10, 2] = np.nan
    total, _, _ = evaluated(getattr(coupled_likelihoods, name), arrays)
    assert np.isnan(total)
