import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import assume, given, strategies as st

import references
from equipoise.gaussian.conditioning import condition
from equipoise.gaussian.distributions import DiagonalGaussian
from references import EPS, Problem, random_problem

NAN = math.nan
CASES = {  # seed, n outputs, m balances, density, share of exact balances
    "one exact balance": (0, 5, 1, 1.0, 1.0),
    "exact, sparse": (1, 6, 3, 0.2, 1.0),
    "exact, dense": (2, 6, 3, 1.0, 1.0),
    "tolerant": (3, 6, 3, 0.5, 0.0),
    "exact and tolerant": (12, 6, 4, 0.4, 0.4),
}


def problem_of(case):
    seed, n, m, density, exact = CASES[case]
    return random_problem(seed, n, m, density=density, exact=exact)


def conditioned(problem, **settings):
    mean, var, B, target, tol_var = (torch.as_tensor(part) for part in problem)
    return condition(DiagonalGaussian(mean, var), B, target, tol_var, **settings)


def assert_moments(draws, mean, cov, rounding=1e-12):
    """Sample mean and covariance within 5 standard errors, `√(Σ_ii / N)` and `√((Σ_ii Σ_jj + Σ_ij²) / (N − 1))`.

    A normal variable is 5 standard errors off once in 1.7 million; seeds are fixed besides.
    """
    N, var = len(draws), np.diag(cov)
    assert np.all(abs(draws.mean(0) - mean) <= 5 * np.sqrt(var / N) + rounding)
    error = abs(np.cov(draws, rowvar=False) - cov)
    assert np.all(error <= 5 * np.sqrt((np.outer(var, var) + cov**2) / (N - 1)) + rounding)


def test_a_diagonal_gaussian_is_independent_normals():
    rng = np.random.default_rng(0)
    mean, var, y = rng.normal(size=(4, 3)), rng.uniform(0.1, 2, (4, 3)), rng.normal(size=(4, 3))
    gaussian = DiagonalGaussian(torch.as_tensor(mean), torch.as_tensor(var))
    expected = scipy.stats.norm.logpdf(y, mean, np.sqrt(var)).sum(-1)
    np.testing.assert_allclose(gaussian.log_prob(torch.as_tensor(y)), expected, rtol=1e-12)
    draws = gaussian.sample(10_000, torch.Generator().manual_seed(0)).numpy()
    assert draws.shape == (10_000, 4, 3)
    assert_moments(draws.reshape(10_000, 12), mean.ravel(), np.diag(var.ravel()))


def test_mean_and_variance_of_a_diagonal_gaussian_may_have_different_batches():
    gaussian = DiagonalGaussian(torch.zeros(3, dtype=torch.float64), torch.ones(4, 3, dtype=torch.float64))
    draws = gaussian.sample(4000, torch.Generator().manual_seed(0))
    assert_moments(draws.reshape(4000, 12).numpy(), np.zeros(12), np.eye(12))


def test_a_diagonal_gaussian_changes_its_dtype_and_is_itself_in_its_own():
    gaussian = DiagonalGaussian(torch.ones(3), torch.full((3,), 2.0, dtype=torch.float64))
    double = gaussian.to(torch.float64)
    assert double.mean.dtype == double.var.dtype == torch.float64
    assert double.to(torch.float64) is double
    np.testing.assert_array_equal(torch.stack([double.mean, double.var]), [[1.0] * 3, [2.0] * 3])


# --- Joint draws (M1) -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_draws_have_the_mean_and_covariance_of_the_conditioned_gaussian(case):
    problem = problem_of(case)
    draws = conditioned(problem).sample(10_000, torch.Generator().manual_seed(1)).numpy()
    assert_moments(draws, *references.conditioned(*problem))


def assert_draws_obey(problem, n_draws=10_000):
    """Every draw obeys the exact balances to the rounding of `Σ|B||y|` before (6 standard deviations) and after."""
    y, exact = conditioned(problem).sample(n_draws, torch.Generator().manual_seed(2)).numpy(), problem.tol_var == 0
    terms = (abs(y) + abs(problem.mean) + 6 * np.sqrt(problem.var)) @ abs(problem.B).T + abs(problem.target)
    residual = abs(y @ problem.B.T - problem.target)
    assert np.all(residual[:, exact] <= 4 * (y.shape[1] + 2) * EPS * terms[:, exact])


@pytest.mark.parametrize("case", [case for case in CASES if case != "tolerant"])
def test_every_draw_obeys_exact_balances_to_rounding(case):
    assert_draws_obey(problem_of(case))


@given(seed=st.integers(0, 10**6), n=st.integers(1, 8), m=st.integers(1, 8))
def test_every_draw_obeys_exact_balances_in_any_units(seed, n, m):
    problem = random_problem(seed, n, min(m, n), decades=12)
    assume(problem.condition_number < 1e3)
    assert_draws_obey(problem, 50)


@pytest.mark.parametrize("nearness", [1e-2, 1e-4, 1e-6, 1e-8])
def test_every_draw_obeys_nearly_dependent_balances_to_rounding(nearness):
    assert_draws_obey(random_problem(7, 5, 3, density=1.0, exact=1.0, nearness=nearness))


@pytest.mark.parametrize("case", CASES)
def test_the_update_of_given_draws_is_matherons_rule_line_by_line(case):
    problem, rng = problem_of(case), np.random.default_rng(0)
    mean, var, B, target, tol_var = problem
    y0, noise = rng.normal(size=len(mean)), rng.normal(size=len(target))
    epsilon = np.sqrt(tol_var) * noise
    K = np.diag(var) @ B.T @ np.linalg.inv(B @ np.diag(var) @ B.T + np.diag(tol_var))
    updated = conditioned(problem).update(torch.as_tensor(y0), torch.as_tensor(noise))
    np.testing.assert_allclose(updated, y0 + K @ (target - B @ y0 - epsilon), rtol=1e-10, atol=1e-11)


def test_draws_of_a_batch_obey_the_balances_of_their_own_row():
    rng = np.random.default_rng(0)
    B = rng.normal(size=(5, 2, 4))
    mean, var, target = (torch.as_tensor(part) for part in (rng.normal(size=4), rng.uniform(0.5, 1, 4), np.ones(2)))
    c = condition(DiagonalGaussian(mean, var), torch.as_tensor(B), target)
    for n_draws in (3, 5):  # 5 draws of 5 rows: axes of one length must not be taken for one another
        y = c.sample(n_draws, torch.Generator().manual_seed(0)).numpy()
        assert y.shape == (n_draws, 5, 4)
        np.testing.assert_allclose(np.einsum("rkj,drj->drk", B, y), np.ones((n_draws, 5, 2)), atol=1e-13)
        assert np.all(np.ptp(y, axis=0) > 1e-3)


def test_rows_of_a_batch_are_drawn_independently():
    problem = problem_of("exact and tolerant")
    target = torch.as_tensor(np.stack([problem.target, problem.target]))
    mean, var, B, _, tol_var = (torch.as_tensor(part) for part in problem)
    draws = condition(DiagonalGaussian(mean, var), B, target, tol_var).sample(10_000, torch.Generator().manual_seed(3))
    mean_c, cov_c = references.conditioned(*problem)
    assert_moments(draws.reshape(10_000, 12).numpy(), np.tile(mean_c, 2), np.kron(np.eye(2), cov_c))


def test_draws_with_uncertain_inputs_have_the_covariance_that_these_leave():
    problem, rng = problem_of("exact, dense"), np.random.default_rng(0)
    A, input_var = rng.normal(size=(3, 2)), np.array([0.5, 0.1])
    c = conditioned(problem, A=torch.as_tensor(A), input_var=torch.as_tensor(input_var))
    draws = c.sample(10_000, torch.Generator().manual_seed(4)).numpy()
    assert_moments(draws, *references.conditioned_with_inputs(*problem, A, input_var))


@pytest.mark.parametrize("case", CASES)
def test_draws_are_reparameterised(case):
    mean, var, B, target, tol_var = (torch.as_tensor(part) for part in problem_of(case))
    learned = [part.requires_grad_() for part in (mean, var, target)]
    learned += [tol_var.requires_grad_()] if case == "tolerant" else []

    def draws(mean, var, target, tol_var=tol_var):
        return condition(DiagonalGaussian(mean, var), B, target, tol_var).sample(2, torch.Generator().manual_seed(0))

    assert torch.autograd.gradcheck(draws, learned)


# --- What each balance contributes (D4) -------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), n=st.integers(2, 8), m=st.integers(2, 8), density=st.sampled_from([0.1, 0.4, 1.0]))
def test_the_reduction_lost_without_a_balance_is_that_of_conditioning_without_it(seed, n, m, density):
    problem = random_problem(seed, n, min(m, n), density=density)
    assume(problem.condition_number < 1e3)
    lost = conditioned(problem).reduction_lost_without().numpy()
    _, cov = references.conditioned(*problem)
    for k in range(len(problem.B)):
        _, without = references.conditioned(*problem.without(k))
        np.testing.assert_allclose(lost[k], np.diag(without) - np.diag(cov), rtol=1e-7, atol=1e-8)


# --- The joint density (L2, L3) ---------------------------------------------------------------------------------------


def log_prob(problem, y, sensor_var=0.0, **settings):
    return conditioned(problem, **settings).log_prob(
        torch.as_tensor(y), torch.as_tensor(sensor_var, dtype=torch.float64)
    )


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 8),
    m=st.integers(1, 8),
    exact=st.sampled_from([0.0, 0.5, 1.0]),
    missing=st.sampled_from([0.0, 0.3, 0.8]),
)
def test_the_joint_density_is_the_dense_normal_with_missing_outputs_dropped(seed, n, m, exact, missing):
    problem, rng = random_problem(seed, n, min(m, n), exact=exact), np.random.default_rng(seed)
    assume(problem.condition_number < 1e3)
    y = np.where(rng.random(n) < missing, NAN, problem.mean + rng.normal(size=n))
    sensor_var = rng.uniform(0.05, 1.0, n)
    expected = references.joint_log_prob(*problem, y, sensor_var)
    np.testing.assert_allclose(log_prob(problem, y, sensor_var), expected, rtol=1e-7, atol=1e-7)


@given(seed=st.integers(0, 10**6), n=st.integers(1, 8), m=st.integers(1, 8), missing=st.sampled_from([0.0, 0.4]))
def test_without_sensor_noise_the_joint_density_is_that_of_the_full_covariance(seed, n, m, missing):
    problem, rng = random_problem(seed, n, min(m, n), exact=0.0), np.random.default_rng(seed)
    problem = replace(problem, tol_var=problem.tol_var + 0.1)
    y = np.where(rng.random(n) < missing, NAN, problem.mean + rng.normal(size=n))
    expected = references.joint_log_prob(*problem, y, np.zeros(n))
    np.testing.assert_allclose(log_prob(problem, y), expected, rtol=1e-7, atol=1e-7)


def obeying(problem, seed=0):
    """A point that obeys the exact balances and lies about as far from the mean as a draw."""
    y = np.random.default_rng(seed).normal(size=len(problem.mean)) + problem.mean
    exact = problem.tol_var == 0
    return references.projected(y, problem.B[exact], problem.target[exact])


@pytest.mark.parametrize("case", [case for case in CASES if case != "tolerant"])
@pytest.mark.parametrize("seed", range(3))
def test_exact_balances_put_the_density_on_their_subspace(case, seed):
    problem = problem_of(case)
    y = obeying(problem, seed)
    np.testing.assert_allclose(log_prob(problem, y), references.subspace_log_prob(*problem, y), rtol=1e-9)


def test_balances_that_leave_no_freedom_have_density_one_at_their_solution():
    problem = random_problem(5, 4, 4, density=0.7, exact=1.0)
    solution = np.linalg.solve(problem.B, problem.target)
    np.testing.assert_allclose(log_prob(problem, solution), 0.0, atol=1e-8 * problem.condition_number)


@pytest.mark.parametrize("case", [case for case in CASES if case != "tolerant"])
def test_off_the_subspace_beyond_rounding_the_density_is_zero(case):
    problem = problem_of(case)
    y, k = obeying(problem), int(np.flatnonzero(problem.tol_var == 0)[0])
    step = problem.B[k] / np.sum(problem.B[k] ** 2) * (abs(problem.B[k]) @ abs(y))
    assert log_prob(problem, y + 1e-6 * step) == -math.inf
    assert torch.isfinite(log_prob(problem, y + 1e-13 * step))


def test_what_counts_as_rounding_can_be_said():
    problem = problem_of("one exact balance")
    y = obeying(problem)
    y = y + 0.01 * problem.B[0] / np.sum(problem.B[0] ** 2)  # misses the balance by 0.01
    assert torch.isfinite(log_prob(problem, y, rounding=torch.tensor([0.011], dtype=torch.float64)))
    assert log_prob(problem, y, rounding=torch.tensor([0.009], dtype=torch.float64)) == -math.inf


CHAIN = Problem(
    mean=np.zeros(5),
    var=np.array([1.0, 0.5, 2.0, 1.0, 0.7]),
    B=np.array([[1.0, 1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 2.0, -1.0]]),
    target=np.array([1.0, 0.5, 0.2]),
    tol_var=np.zeros(3),
)
ON_CHAIN = np.array([0.3, 0.7, -0.2, 0.4, 0.6])
MISSING = {
    "none": [],
    "the end of one balance": [0],
    "the ends of two balances": [0, 2],
    "all of one balance": [3, 4],
    "one of each block": [2, 3],
    "all of a block": [0, 1, 2],
}


def with_missing(columns):
    y = ON_CHAIN.copy()
    y[columns] = NAN
    return y


@pytest.mark.parametrize("columns", MISSING.values(), ids=MISSING)
def test_an_exact_balance_with_a_missing_output_says_what_that_output_is(columns):
    y = with_missing(columns)
    expected = references.joint_log_prob(*CHAIN, y, np.zeros(5))
    np.testing.assert_allclose(log_prob(CHAIN, y), expected, rtol=1e-9)


def test_rows_with_different_outputs_missing_form_one_batch():
    y = np.stack([with_missing(columns) for columns in MISSING.values()])
    expected = [references.joint_log_prob(*CHAIN, row, np.zeros(5)) for row in y]
    np.testing.assert_allclose(log_prob(CHAIN, y), expected, rtol=1e-9)


def test_sensor_noise_on_some_outputs_leaves_the_other_balances_exact():
    sensor_var = np.array([0.3, 0.0, 0.2, 0.0, 0.0])
    expected = references.joint_log_prob(*CHAIN, ON_CHAIN, sensor_var)
    np.testing.assert_allclose(log_prob(CHAIN, ON_CHAIN, sensor_var), expected, rtol=1e-9)


def test_two_exact_balances_that_share_a_missing_output_are_exact_in_what_is_left():
    """`y₀ + y₁ = 1`, `y₁ + y₂ = 1`, y₁ missing: `(y₀, y₂) = (u, u)`, `u ~ N(1/3, 1/3)`, and length is `√2 du`."""
    B = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    problem = Problem(np.zeros(3), np.ones(3), B, np.ones(2), np.zeros(2))
    expected = scipy.stats.norm.logpdf(0.3, 1 / 3, math.sqrt(1 / 3)) - 0.5 * math.log(2.0)
    np.testing.assert_allclose(references.joint_log_prob(*problem, np.array([0.3, NAN, 0.3]), np.zeros(3)), expected)
    np.testing.assert_allclose(log_prob(problem, np.array([0.3, NAN, 0.3])), expected, rtol=1e-9)
    assert log_prob(problem, np.array([0.3, NAN, 0.4])) == -math.inf


def test_two_exact_balances_that_share_the_only_noisy_output_are_exact_in_what_is_left():
    sensor_var = np.array([0.0, 0.3, 0.0, 0.0, 0.0])
    expected = references.joint_log_prob(*CHAIN, ON_CHAIN, sensor_var)
    np.testing.assert_allclose(log_prob(CHAIN, ON_CHAIN, sensor_var), expected, rtol=1e-9)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sensor_var", [0.0, 0.5])
def test_a_row_in_which_everything_is_missing_says_nothing(case, sensor_var):
    problem = problem_of(case)
    assert log_prob(problem, np.full(len(problem.mean), NAN), sensor_var) == 0.0


@pytest.mark.parametrize("exact", [0.0, 1.0])
@pytest.mark.parametrize("sensor_var", [0.0, 0.3])
def test_uncertain_inputs_widen_the_joint_density(exact, sensor_var):
    problem, rng = random_problem(6, 6, 3, density=0.3, exact=exact), np.random.default_rng(0)
    A, input_var, y = rng.normal(size=(3, 3)), np.array([0.5, 0.1, 0.2]), problem.mean + rng.normal(size=6)
    mean, cov = references.conditioned_with_inputs(*problem, A, input_var)
    expected = scipy.stats.multivariate_normal(mean, cov + sensor_var * np.eye(6)).logpdf(y)
    got = log_prob(problem, y, sensor_var, A=torch.as_tensor(A), input_var=torch.as_tensor(input_var))
    np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_one_table_is_scored_by_every_draw():
    problem, rng = problem_of("exact and tolerant"), np.random.default_rng(0)
    means, y, sensor_var = rng.normal(size=(3, 4, 6)), rng.normal(size=(4, 6)), rng.uniform(0.1, 1, 6)
    y[1, 2] = y[3, 0] = NAN
    _, var, B, target, tol_var = (torch.as_tensor(part) for part in problem)
    c = condition(DiagonalGaussian(torch.as_tensor(means), var), B, target, tol_var)
    got = c.log_prob(torch.as_tensor(y), torch.as_tensor(sensor_var))
    assert got.shape == (3, 4)
    for d, i in np.ndindex(3, 4):
        expected = references.joint_log_prob(*replace(problem, mean=means[d, i]), y[i], sensor_var)
        np.testing.assert_allclose(got[d, i], expected, rtol=1e-9)


@given(seed=st.integers(0, 10**6), n=st.integers(1, 8), m=st.integers(1, 8), missing=st.sampled_from([0.0, 0.4]))
def test_other_units_of_outputs_shift_the_log_density_by_their_logarithm(seed, n, m, missing):
    problem, rng = random_problem(seed, n, min(m, n)), np.random.default_rng(seed)
    assume(problem.condition_number < 1e3)
    y = np.where(rng.random(n) < missing, NAN, problem.mean + rng.normal(size=n))
    s, c = 10.0 ** rng.uniform(-6, 6, n), 10.0 ** rng.uniform(-6, 6, len(problem.B))
    w = rng.uniform(0.05, 1.0, n)
    got = log_prob(problem.in_units(s, c), y * s, w * s**2)
    np.testing.assert_allclose(got, log_prob(problem, y, w) - np.log(s)[~np.isnan(y)].sum(), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_the_joint_density_are_right_with_outputs_missing(case):
    problem = problem_of(case)
    mean, var, B, target, tol_var = (torch.as_tensor(part) for part in problem)
    y = torch.as_tensor(np.where(np.arange(len(problem.mean)) == 1, NAN, problem.mean + 0.5))
    w = torch.full_like(mean, 0.3)
    learned = [part.requires_grad_() for part in (mean, var, target, w)]
    learned += [tol_var.requires_grad_()] if case == "tolerant" else []

    def density(mean, var, target, w, tol_var=tol_var):
        return condition(DiagonalGaussian(mean, var), B, target, tol_var).log_prob(y, w)

    assert torch.autograd.gradcheck(density, learned)


@pytest.mark.parametrize("case", [case for case in CASES if case != "tolerant"])
def test_gradients_on_the_subspace_are_right(case):
    problem = problem_of(case)
    mean, var, B, target, tol_var = (torch.as_tensor(part) for part in problem)
    y = torch.as_tensor(obeying(problem))

    def density(mean, var):
        return condition(DiagonalGaussian(mean, var), B, target, tol_var).log_prob(y)

    assert torch.autograd.gradcheck(density, [part.requires_grad_() for part in (mean, var)])


def _numbers(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_a_diagonal_gaussian_answers_as_one_conditioned_on_a_balance_without_influence():
    prior = DiagonalGaussian(_numbers(5, 4, 3), _numbers(5, 4, 3, seed=1).exp())
    loose = condition(prior, torch.ones(1, 3).double(), torch.zeros(4, 1).double(), 1e16)
    y = _numbers(4, 3, seed=2)
    y[0, 1] = torch.nan
    for answer in (
        lambda g: g.prior.mean,
        lambda g: g.mean,
        lambda g: g.var,
        lambda g: g.reduction,
        lambda g: g.covariance(),
        lambda g: g.weighted_covariance(_numbers(5, 4, seed=5).square()),
        lambda g: g.shift,
        lambda g: g.var_above_rounding(),
        lambda g: g.log_prob(y, 0.3),
        lambda g: g.take(torch.tensor([4, 0]), torch.tensor([1, 3])).mean,
        lambda g: g.with_prior(DiagonalGaussian(prior.mean + 1.0, prior.var)).mean,
        lambda g: g.update(prior.mean + 0.5, _numbers(5, 4, g.n_balances)),
    ):
        torch.testing.assert_close(answer(prior), answer(loose), rtol=1e-6, atol=1e-6)
    assert (prior.n_balances, loose.n_balances) == (0, 1)
    for empty in (prior.innovation, prior.residual_var(), prior.gain_rows().mT, prior.reduction_lost_without().mT):
        assert empty.shape[-1] == 0
    assert prior.B.shape == (0, 3)


@pytest.mark.parametrize("per_row", [False, True], ids=["one B", "B by row"])
def test_selected_gaussians_are_those_of_their_draw_and_row(per_row):
    B = _numbers(4, 2, 3) if per_row else _numbers(2, 3)
    block = condition(
        DiagonalGaussian(_numbers(5, 4, 3), _numbers(5, 4, 3, seed=1).exp()), B, _numbers(4, 2, seed=2), 0.2
    )
    draw, row = torch.tensor([4, 0, 2]), torch.tensor([1, 3, 3])
    selected = block.take(draw, row)
    torch.testing.assert_close(selected.mean, block.mean[draw, row])
    torch.testing.assert_close(selected.covariance(), block.covariance()[draw, row])


def test_the_variance_of_a_residual_is_that_of_the_dense_covariance():
    B, tol_var = _numbers(2, 3), torch.tensor([0.3, 0.1]).double()
    c = condition(DiagonalGaussian(_numbers(4, 3), _numbers(4, 3, seed=1).exp()), B, _numbers(4, 2, seed=2), tol_var)
    dense = (B @ c.covariance() @ B.mT).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(c.residual_var(), dense, rtol=1e-10, atol=1e-12)
    alone = (B @ torch.diag_embed(c.var) @ B.mT).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(c.residual_var(joint=False), alone, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(c.gain_rows().mT @ c.innovation.unsqueeze(-1), (c.mean - c.prior.mean).unsqueeze(-1))
