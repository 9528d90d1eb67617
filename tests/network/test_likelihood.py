import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch

import references
from equipoise.gaussian.conditioning import condition
from equipoise.gaussian.distributions import DiagonalGaussian
from equipoise.network import likelihood
from references import random_problem

NAN = math.nan


def rows(problem, n=4, missing=0.0, seed=0):
    """Means and measured outputs of n rows."""
    rng = np.random.default_rng(seed)
    means, y = (problem.mean + rng.normal(size=(n, len(problem.mean))) for _ in range(2))
    return means, np.where(rng.random(y.shape) < missing, NAN, y)


def conditioned(problem, means):
    _, var, B, target, tol_var = (torch.as_tensor(part) for part in problem)
    return condition(DiagonalGaussian(torch.as_tensor(means), var), B, target, tol_var)


SENSORS = {"none": np.zeros(6), "one for all": np.full(6, 0.3), "each its own": np.linspace(0.1, 2.0, 6)}


@pytest.mark.parametrize("sensor_var", SENSORS.values(), ids=SENSORS)
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_the_marginal_likelihood_is_a_sum_over_measured_outputs(sensor_var, missing):
    problem = random_problem(3, 6, 3, exact=0.3)
    means, y = rows(problem, missing=missing)
    got = likelihood.marginal(conditioned(problem, means), torch.as_tensor(y), torch.as_tensor(sensor_var))
    for i, mean in enumerate(means):
        mean_c, cov_c = references.conditioned(*replace(problem, mean=mean))
        expected = references.marginal_log_prob(mean_c, np.diag(cov_c), y[i], sensor_var)
        np.testing.assert_allclose(got[i], expected, rtol=1e-9)


@pytest.mark.parametrize("sensor_var", list(SENSORS.values())[1:], ids=list(SENSORS)[1:])
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_the_joint_likelihood_is_the_dense_normal_of_measured_outputs(sensor_var, missing):
    problem = random_problem(3, 6, 3, exact=0.3)
    means, y = rows(problem, missing=missing)
    got = likelihood.joint(conditioned(problem, means), torch.as_tensor(y), torch.as_tensor(sensor_var))
    for i, mean in enumerate(means):
        expected = references.joint_log_prob(*replace(problem, mean=mean), y[i], sensor_var)
        np.testing.assert_allclose(got[i], expected, rtol=1e-9)


@pytest.mark.parametrize("which", [likelihood.marginal, likelihood.joint])
@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("sensor_var", SENSORS.values(), ids=SENSORS)
def test_without_balances_both_likelihoods_are_independent_normals(which, missing, sensor_var):
    problem = random_problem(3)
    means, y = rows(problem, missing=missing)
    gaussian = DiagonalGaussian(torch.as_tensor(means), torch.as_tensor(problem.var).expand(4, 6))
    got = which(gaussian, torch.as_tensor(y), torch.as_tensor(sensor_var))
    expected = [references.marginal_log_prob(means[i], problem.var, y[i], sensor_var) for i in range(4)]
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("which", [likelihood.marginal, likelihood.joint])
@pytest.mark.parametrize("balances", [False, True])
def test_a_row_in_which_everything_is_missing_has_log_density_zero(which, balances):
    problem = random_problem(3)
    means, y = rows(problem)
    y[1] = NAN
    gaussian = DiagonalGaussian(torch.as_tensor(means), torch.as_tensor(problem.var).expand(4, 6))
    got = which(conditioned(problem, means) if balances else gaussian, torch.as_tensor(y), 0.5)
    assert got[1] == 0.0
    assert torch.isfinite(got).all()
    assert (got[[0, 2, 3]] != 0.0).all()


def test_the_two_likelihoods_agree_where_the_balances_couple_nothing():
    """Each balance has one output: Σ_C is diagonal."""
    problem = random_problem(4, 6, 3, density=0.0, exact=0.0)
    means, y = rows(problem)
    arguments = (conditioned(problem, means), torch.as_tensor(y), 0.2)
    np.testing.assert_allclose(likelihood.joint(*arguments), likelihood.marginal(*arguments), rtol=1e-11)


def test_an_output_that_its_balance_determines_has_a_finite_marginal_density():
    """`2 y₀ = t` exactly: v_C is 0, and is taken as the rounding of v, `eps · v`."""
    one = torch.ones(1, dtype=torch.float64)
    c = condition(DiagonalGaussian(0 * one, 3 * one), 2 * one.unsqueeze(0), one)
    assert c.var.item() <= np.finfo(float).eps * 3
    expected = -0.5 * math.log(2 * math.pi * 3 * np.finfo(float).eps)
    np.testing.assert_allclose(likelihood.marginal(c, 0.5 * one), expected, rtol=1e-12)


@pytest.mark.parametrize("which", [likelihood.marginal, likelihood.joint])
def test_uncertain_inputs_are_no_outputs(which):
    problem, rng = random_problem(3, 6, 3, exact=0.3), np.random.default_rng(0)
    A, input_var, y = rng.normal(size=(3, 2)), np.array([0.5, 0.1]), problem.mean + rng.normal(size=6)
    mean, var, B, target, tol_var, A_, input_var_ = (torch.as_tensor(part) for part in (*problem, A, input_var))
    c = condition(DiagonalGaussian(mean, var), B, target, tol_var, A=A_, input_var=input_var_)
    mean_c, cov_c = references.conditioned_with_inputs(*problem, A, input_var)
    if which is likelihood.marginal:
        expected = references.marginal_log_prob(mean_c, np.diag(cov_c), y, np.full(6, 0.3))
    else:
        expected = scipy.stats.multivariate_normal(mean_c, cov_c + 0.3 * np.eye(6)).logpdf(y)
    np.testing.assert_allclose(which(c, torch.as_tensor(y), 0.3), expected, rtol=1e-9)


@pytest.mark.parametrize("which", [likelihood.marginal, likelihood.joint])
def test_gradients_with_outputs_missing_are_right(which):
    problem = random_problem(3, 5, 2, exact=0.0)
    mean, var, B, target, tol_var = (torch.as_tensor(part) for part in problem)
    y = torch.as_tensor(np.array([0.1, NAN, 0.3, NAN, -1.0]))
    w = torch.full((5,), 0.2, dtype=torch.float64)

    def density(mean, var, target, tol_var, w):
        return which(condition(DiagonalGaussian(mean, var), B, target, tol_var), y, w)

    assert torch.autograd.gradcheck(density, [part.requires_grad_() for part in (mean, var, target, tol_var, w)])
