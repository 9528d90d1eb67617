"""Likelihoods of balances that share outputs: against dense normals in 50 digits and by scipy, gradients by torch's
closed form, which has its own oracles."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from equipoise.fast import coupled_likelihoods
from equipoise.gaussian.operator import BalanceOperator
from equipoise.training import closed_form
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
def test_gradients_are_those_of_the_closed_form(name, missing, n):
    arrays = parts(n, missing=missing)
    _, gradients, largest = evaluated(getattr(coupled_likelihoods, name), arrays, upstream=-0.3)
    assert 1.0 <= largest < 1e6
    tensors = [torch.tensor(part) for part in arrays]
    _, pull = getattr(closed_form, name)(BalanceOperator(torch.tensor(B)), *tensors, ~tensors[4].isnan())
    for key, expected in pull(-0.3)._asdict().items():
        np.testing.assert_allclose(gradients[key], expected, rtol=1e-8, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("name", ["joint", "marginal"])
def test_nan_in_one_row_shows(name):
    arrays = parts(11)
    arrays[0][10, 2] = np.nan
    total, _, _ = evaluated(getattr(coupled_likelihoods, name), arrays)
    assert np.isnan(total)
