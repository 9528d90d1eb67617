"""Likelihoods of balances that share no output: against dense normals in 50 digits and by scipy, gradients by torch's
autograd over the definition, and in 50 digits."""

import likelihood_gradients
import numpy as np
import pytest
import torch
from scipy.stats import norm

from equipoise.fast import disjoint_likelihoods
from equipoise.gaussian.operator import BalanceOperator
from references import conditioned, joint_log_prob_50_digits

B = np.array([[1.0, -1.0, 2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, -0.5, 0.0]])
NAMES = ("mean", "var", "target", "tol_var", "sensor_var")


def parts(n=5, *, missing=False, exact=False) -> list[np.ndarray]:
    """mean, var, target, tol_var, y, w."""
    rng = np.random.default_rng(0)
    mean, target, y = rng.normal(size=(n, 6)), rng.normal(size=(n, 2)), rng.normal(size=(n, 6))
    var, tol_var, w = (np.exp(3 * rng.normal(size=(n, k))) for k in (6, 2, 6))
    if missing:
        y[0, 1] = y[n // 2, 3] = y[n // 2, 5] = np.nan
        y[2:3, :] = np.nan
    return [mean, var, target, 0 * tol_var if exact else tol_var, y, w]


def evaluated(function, arrays, upstream=1.0, B=B):
    mean, _, target, *_ = arrays
    gradients = [np.full(part.shape, np.nan) for part in (mean, mean, target, target, mean)]
    owners = BalanceOperator(torch.tensor(B), None if len(B) else []).owners
    return function(*owners, *arrays, upstream, *gradients), dict(zip(NAMES, gradients, strict=True))


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "outputs missing"])
@pytest.mark.parametrize("exact", [False, True], ids=["tolerances", "exact"])
def test_the_joint_density_is_the_dense_normal_of_what_was_measured(missing, exact):
    arrays = parts(missing=missing, exact=exact)
    rows = (joint_log_prob_50_digits(*(p[i] for p in arrays[:2]), B, *(p[i] for p in arrays[2:])) for i in range(5))
    assert evaluated(disjoint_likelihoods.joint, arrays)[0] == pytest.approx(float(sum(rows)), rel=1e-11)


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "outputs missing"])
def test_the_marginal_density_is_the_product_of_normals_on_the_diagonal(missing):
    total = 0.0
    for mean, var, target, tol_var, y, w in zip(*(arrays := parts(missing=missing)), strict=True):
        mean_c, cov_c = conditioned(mean, var, B, target, tol_var)
        total += np.nansum(norm(mean_c, np.sqrt(np.diag(cov_c) + w)).logpdf(y))
    assert evaluated(disjoint_likelihoods.marginal, arrays)[0] == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "outputs missing"])
@pytest.mark.parametrize("name", ["joint", "marginal"])
@pytest.mark.parametrize("n", [1, 37])
def test_gradients_are_those_of_autograd_over_the_definition(name, missing, n):
    arrays = parts(n, missing=missing)
    _, gradients = evaluated(getattr(disjoint_likelihoods, name), arrays, upstream=-0.3)
    expected = likelihood_gradients.by_autograd(name, B, arrays, -0.3)
    likelihood_gradients.assert_close(gradients, expected, rtol=1e-10)


@pytest.mark.parametrize("key", likelihood_gradients.NAMES)
def test_gradients_of_the_joint_density_agree_with_fifty_digits(key):
    """To some hundreds of roundings at a condition of 1e3."""
    arrays = parts(1)
    _, gradients, *_ = evaluated(disjoint_likelihoods.joint, arrays)
    row = [part[0] for part in arrays]
    expected = [likelihood_gradients.in_fifty_digits(B, row, key, i) for i in range(gradients[key].shape[1])]
    likelihood_gradients.assert_close(gradients, {key: np.array([expected])}, rtol=1e-10)


@pytest.mark.parametrize("function", [disjoint_likelihoods.joint, disjoint_likelihoods.marginal])
def test_what_was_not_measured_needs_no_sensor(function):
    arrays = parts(missing=True)
    total, gradients = evaluated(function, arrays)
    arrays[5][np.isnan(arrays[4])] = np.nan
    other, others = evaluated(function, arrays)
    assert other == total
    for name in NAMES[:4]:
        np.testing.assert_array_equal(others[name], gradients[name])


def test_without_balances_the_outputs_are_independent_normals():
    arrays = parts()
    arrays[2] = arrays[3] = np.empty((5, 0))
    expected = norm(arrays[0], np.sqrt(arrays[1] + arrays[5])).logpdf(arrays[4]).sum()
    for function in (disjoint_likelihoods.joint, disjoint_likelihoods.marginal):
        assert evaluated(function, arrays, B=np.empty((0, 6)))[0] == pytest.approx(expected, rel=1e-12)


def test_an_output_that_its_balance_determines_has_the_variance_of_rounding():
    mean, var, _, _, y, w = parts(3)
    alone = np.zeros((1, 6))
    alone[0, 2] = 2.0
    arrays = [mean, var, 2.0 * y[:, 2:3], np.full((3, 1), 1e-40), y, 0 * w]
    total, gradients = evaluated(disjoint_likelihoods.marginal, arrays, B=alone)
    left, at = var.copy(), mean.copy()
    left[:, 2] *= np.finfo(float).eps
    at[:, 2] = y[:, 2]
    assert total == pytest.approx(norm(at, np.sqrt(left)).logpdf(y).sum(), rel=1e-9)
    assert all(np.isfinite(gradients[name]).all() for name in NAMES[:4])
