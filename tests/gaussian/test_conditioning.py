import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, strategies as st

import references
from equipoise.balances.linear import LinearConstraint
from equipoise.gaussian.conditioning import ConditioningLayer, condition
from equipoise.gaussian.distributions import DiagonalGaussian
from equipoise.gaussian.tolerance import TolerancePrior
from references import EPS, Problem, random_problem

KINDS = {  # n outputs, m balances, density
    "one balance": (5, 1, 1.0),
    "sparse": (6, 3, 0.15),
    "dense": (6, 3, 1.0),
    "as many balances as outputs": (4, 4, 0.6),
}


@st.composite
def problems(draw, **settings):
    n = draw(st.integers(1, 8))
    return random_problem(
        draw(st.integers(0, 10**6)),
        n,
        draw(st.integers(1, n)),
        density=draw(st.sampled_from([0.1, 0.4, 1.0])),
        **{key: draw(value) for key, value in settings.items()},
    )


def conditioned(problem, **settings):
    mean, var, B, target, tol_var = (torch.as_tensor(part) for part in problem)
    return condition(DiagonalGaussian(mean, var), B, target, tol_var, **settings)


def size_of_rounding(problem, mean_c):
    """Rounding of the mean in units of `√v`: that of the correction and that of the terms of `t − B μ`."""
    mean, var, B, target, tol_var = problem
    terms = (abs(B) @ abs(mean) + abs(target)) / np.sqrt(B**2 @ var + tol_var)
    return np.linalg.norm((mean_c - mean) / np.sqrt(var)) + np.linalg.norm(terms)


def assert_accurate(problem, amplification):
    """Mean and variance against 50 digits: `16 (n + m) eps · amplification`, relative to v and `√v`.

    `n + m` roundings go into each sum; 16 covers the few sums on the way.
    """
    c, (mean, var) = conditioned(problem), references.conditioned_50_digits(*problem)
    level = 16 * sum(problem.B.shape) * EPS * amplification
    assert np.all(abs(c.var.numpy() - var) <= level * problem.var)
    bound = level * np.sqrt(problem.var) * size_of_rounding(problem, mean)
    assert np.all(abs(c.mean.numpy() - mean) <= bound)
    assert np.all(abs(c.reduction.numpy() - (problem.var - var)) <= level * problem.var)


def assert_mean_obeys(problem):
    """Exact balances hold to the rounding of the terms in them, `Σ|B||y|` before and after, and `|t|`."""
    y, exact = conditioned(problem).mean.numpy(), problem.tol_var == 0
    terms = abs(problem.B) @ (abs(y) + abs(problem.mean)) + abs(problem.target)
    assert np.all(abs(problem.B @ y - problem.target)[exact] <= 4 * (len(y) + 2) * EPS * terms[exact])


# --- The algebra against its oracles ----------------------------------------------------------------------------------


@given(problems(decades=st.just(12.0), exact=st.sampled_from([0.0, 0.5, 1.0]), nearness=st.sampled_from([None, 0.01])))
def test_conditioning_agrees_with_50_digits_over_12_decades_of_units(problem):
    assert_accurate(problem, problem.condition_number**2)
    assert_mean_obeys(problem)


# Rows that LinearConstraint still calls independent, and variances that make rows nearly so. No rounding of the data
# can move v_C / v by more than the condition number; an algorithm that forms S would lose twice as many digits.
ILL = {
    **{f"rows {d:g} apart": random_problem(7, 5, 3, density=1.0, exact=1.0, nearness=d) for d in (1e-3, 1e-5, 1e-7)},
    **{f"rows {d:g} apart, one loose": random_problem(12, 5, 3, exact=0.4, nearness=d) for d in (1e-3, 1e-5, 1e-7)},
    **{
        f"variances from 1 to {v:g}": Problem(
            np.array([1.0, -2.0, 0.5]),
            np.array([1.0, v, 2 * v]),
            np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]),
            np.array([1.0, 1.0 + np.sqrt(v)]),
            np.zeros(2),
        )
        for v in (1e-6, 1e-12)
    },
    "rows 1e-6 apart, units over 12 decades": random_problem(
        9, 6, 3, density=1.0, exact=1.0, nearness=1e-6, decades=12
    ),
}


@pytest.mark.parametrize("problem", ILL.values(), ids=ILL)
def test_nearly_dependent_balances_are_solved_to_the_digits_they_have(problem):
    assert_accurate(problem, problem.condition_number)


@pytest.mark.parametrize("problem", ILL.values(), ids=ILL)
def test_the_mean_obeys_nearly_dependent_balances_to_rounding(problem):
    assert_mean_obeys(problem)


def test_one_balance_keeps_all_digits_over_12_decades_of_variances():
    rng = np.random.default_rng(3)
    problem = random_problem(3, 8, 1, density=1.0, exact=1.0)
    problem = replace(problem, var=10.0 ** rng.permutation(np.linspace(-6, 6, 8)))
    _, var = references.conditioned_50_digits(*problem)
    assert np.all(abs(conditioned(problem).var.numpy() - var) <= 8 * EPS * problem.var)
    assert_mean_obeys(problem)


@given(problems(exact=st.just(0.0)))
def test_conditioning_is_the_precision_form_of_bayes_rule(problem):
    c, (mean, cov) = conditioned(problem), references.conditioned_by_precision(*problem)
    np.testing.assert_allclose(c.mean, mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(c.covariance(), cov, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(c.var, np.diag(cov), rtol=1e-9, atol=1e-9)


@given(problems(exact=st.just(1.0)))
def test_unit_variances_and_exact_balances_are_the_kkt_projection(problem):
    problem = replace(problem, var=np.ones_like(problem.var))
    assume(np.linalg.cond(problem.B) < 1e3)
    projected = references.projected(problem.mean, problem.B, problem.target)
    np.testing.assert_allclose(conditioned(problem).mean, projected, rtol=1e-8, atol=1e-8)


@given(problems(exact=st.sampled_from([0.0, 0.5])))
def test_conditioning_row_by_row_equals_all_at_once(problem):
    mean, cov = problem.mean, np.diag(problem.var)
    for k in range(len(problem.B)):
        row = slice(k, k + 1)
        mean, cov = references.conditioned_dense(
            mean, cov, problem.B[row], problem.target[row], np.maximum(problem.tol_var[row], 1e-8)
        )
    c = conditioned(replace(problem, tol_var=np.maximum(problem.tol_var, 1e-8)))
    assume(problem.condition_number < 1e3)
    np.testing.assert_allclose(c.mean, mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(c.covariance(), cov, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_an_endless_tolerance_leaves_the_gaussian_as_it_was(kind):
    problem = random_problem(0, *kind[:2], density=kind[2])
    c = conditioned(replace(problem, tol_var=np.full(kind[1], 1e30)))
    np.testing.assert_allclose(c.mean, problem.mean, rtol=1e-13)
    np.testing.assert_allclose(c.var, problem.var, rtol=1e-13)
    np.testing.assert_allclose(c.covariance(), np.diag(problem.var), rtol=1e-13, atol=1e-25)


@given(problems(exact=st.sampled_from([0.0, 0.5, 1.0])), st.integers(0, 7), st.sampled_from([1e-3, 1.0, 1e3]))
def test_a_larger_tolerance_never_reduces_more(problem, balance, more):
    amplification = problem.condition_number**2
    rounding = 16 * sum(problem.B.shape) * EPS * amplification * problem.var
    tol_var = problem.tol_var.copy()
    tol_var[balance % len(tol_var)] += more
    tight, loose = conditioned(problem), conditioned(replace(problem, tol_var=tol_var))
    assert np.all(loose.reduction.numpy() <= tight.reduction.numpy() + rounding)
    assert np.all(tight.var.numpy() >= 0.0)
    assert np.all(tight.var.numpy() <= problem.var)


@given(problems(exact=st.sampled_from([0.0, 0.5, 1.0])), st.integers(0, 10**6))
def test_permuting_outputs_and_balances_permutes_the_result(problem, seed):
    amplification = problem.condition_number**2
    assume(amplification < 1e6)
    rng = np.random.default_rng(seed)
    outputs, balances = rng.permutation(len(problem.mean)), rng.permutation(len(problem.B))
    plain, permuted = conditioned(problem), conditioned(problem.permuted(outputs, balances))
    np.testing.assert_allclose(permuted.mean, plain.mean[outputs], rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(permuted.covariance(), plain.covariance()[outputs][:, outputs], rtol=1e-7, atol=1e-7)
    lost = plain.reduction_lost_without()
    np.testing.assert_allclose(permuted.reduction_lost_without(), lost[balances][:, outputs], rtol=1e-7, atol=1e-7)


@given(problems(exact=st.sampled_from([0.0, 0.5, 1.0])), st.integers(0, 10**6))
def test_units_change_numbers_but_not_the_result(problem, seed):
    rng = np.random.default_rng(seed)
    s, c = (2.0 ** rng.integers(-20, 20, size) for size in (len(problem.mean), len(problem.B)))  # the same digits
    plain, scaled = conditioned(problem), conditioned(problem.in_units(s, c))
    assume(problem.condition_number < 1e3)
    np.testing.assert_allclose(scaled.mean.numpy() / s, plain.mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(scaled.covariance().numpy() / np.outer(s, s), plain.covariance(), rtol=1e-8, atol=1e-8)


def test_means_far_larger_than_their_spread_obey_to_the_rounding_of_the_means():
    problem = random_problem(5, 6, 2, density=1.0, exact=1.0)
    assert_mean_obeys(replace(problem, mean=problem.mean * 1e8, var=problem.var * 1e-8))


def test_outputs_without_variance_stay_where_they_are():
    problem = random_problem(2, 4, 2, density=1.0, exact=1.0)
    known = replace(problem, var=np.array([0.0, 1.0, 2.0, 0.5]))
    c = conditioned(known)
    assert c.mean[0] == problem.mean[0]
    assert c.var[0] == 0.0
    nothing = conditioned(replace(problem.without(1), var=np.zeros(4)))
    np.testing.assert_array_equal(nothing.mean, problem.mean)
    np.testing.assert_array_equal(nothing.var, np.zeros(4))


# --- Batches, dtypes, uncertain inputs --------------------------------------------------------------------------------

BATCHES = {  # of mean and var, of B, of target, of tol_var
    "none": ((), (), (), ()),
    "rows": ((4,), (), (4,), ()),
    "draws and rows": ((3, 4), (), (4,), ()),
    "a tolerance per row": ((4,), (), (4,), (4,)),
    "a tolerance per draw": ((3, 4), (), (4,), (3, 1)),
    "coefficients per row": ((4,), (4,), (4,), ()),
    "coefficients per row, draws": ((3, 4), (4,), (4,), (3, 1)),
    "one Gaussian, a target per row": ((), (), (4,), ()),
    "one Gaussian, coefficients per row": ((), (4,), (), ()),
}


def batched(kind, gaussian, coefficients, targets, tolerances, seed=0):
    """One problem per element of the batch; what has no batch axis is shared."""
    shape = np.broadcast_shapes(gaussian, coefficients, targets, tolerances)
    base = random_problem(seed, *kind[:2], density=kind[2], exact=0.3)
    rng = np.random.default_rng(seed + 1)
    mean = base.mean + rng.normal(size=(*gaussian, kind[0]))
    var = base.var * rng.uniform(0.5, 2.0, (*gaussian, kind[0]))
    B = base.B * rng.uniform(0.5, 2.0, (*coefficients, *base.B.shape))
    target = base.target + rng.normal(size=(*targets, kind[1]))
    tol_var = base.tol_var * rng.uniform(0.5, 2.0, (*tolerances, kind[1]))
    return shape, Problem(mean, var, B, target, tol_var)


def elements(shape, problem):
    """The problems of a batch, one by one."""
    mean, var, B, target, tol_var = problem
    parts = [np.broadcast_to(part, (*shape, part.shape[-1])) for part in (mean, var, target, tol_var)]
    B = np.broadcast_to(B, (*shape, *B.shape[-2:]))
    for index in np.ndindex(*shape):
        mean, var, target, tol_var = (part[index] for part in parts)
        yield index, Problem(mean, var, B[index], target, tol_var)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_a_batch_is_conditioned_element_by_element(kind, batch):
    shape, problem = batched(kind, *batch)
    c, n = conditioned(problem), kind[0]
    mean, var = (np.broadcast_to(part.numpy(), (*shape, n)) for part in (c.mean, c.var))
    cov = np.broadcast_to(c.covariance().numpy(), (*shape, n, n))
    assert c.sample(3, torch.Generator().manual_seed(0)).shape == (3, *shape, n)
    for index, one in elements(shape, problem):
        expected_mean, expected_cov = references.conditioned(*one)
        np.testing.assert_allclose(mean[index], expected_mean, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(var[index], np.diag(expected_cov), rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(cov[index], expected_cov, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_float32_results_are_those_of_float64_rounded_once(kind):
    problem = Problem(*(part.astype(np.float32) for part in random_problem(1, *kind[:2], density=kind[2])))
    single = conditioned(problem)
    double = conditioned(Problem(*(part.astype(np.float64) for part in problem)))
    generators = [torch.Generator().manual_seed(0) for _ in range(2)]
    for got, exact in [
        (single.mean, double.mean),
        (single.var, double.var),
        (single.covariance(), double.covariance()),
        (single.sample(2, generators[0]), double.sample(2, generators[1])),
    ]:
        assert got.dtype == torch.float32
        assert torch.equal(got, exact.float())


def test_a_number_is_a_tolerance_for_every_balance_and_zero_is_the_default():
    problem = random_problem(4, 6, 3)
    gaussian = DiagonalGaussian(torch.as_tensor(problem.mean), torch.as_tensor(problem.var))
    B, target = torch.as_tensor(problem.B), torch.as_tensor(problem.target)
    for given_tolerance, expected in [((), 0.0), ((0.5,), 0.5)]:
        mean, cov = references.conditioned(*replace(problem, tol_var=np.full(3, expected)))
        c = condition(gaussian, B, target, *given_tolerance)
        np.testing.assert_allclose(c.mean, mean, rtol=1e-10)
        np.testing.assert_allclose(c.covariance(), cov, atol=1e-11)


@pytest.mark.parametrize("exact", [0.0, 1.0])
@pytest.mark.parametrize("input_batch", [(), (3,)])
def test_uncertain_inputs_add_their_covariance_to_that_of_the_balances(exact, input_batch):
    rng = np.random.default_rng(0)
    problem = random_problem(6, 6, 3, density=0.3, exact=exact)
    A, input_var = rng.normal(size=(3, 2)), rng.uniform(0.1, 1.0, (*input_batch, 2)) * [1.0, 0.0]
    c = conditioned(problem, A=torch.as_tensor(A), input_var=torch.as_tensor(input_var))
    assert c.mean.shape == (*input_batch, 6)
    for index in np.ndindex(*input_batch):
        mean, cov = references.conditioned_with_inputs(*problem, A, input_var[index])
        np.testing.assert_allclose(c.mean[index], mean, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(c.var[index], np.diag(cov), rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(c.covariance()[index], cov, rtol=1e-10, atol=1e-10)


def test_inputs_known_exactly_change_nothing():
    problem, A = random_problem(6, 6, 3), torch.ones(3, 2, dtype=torch.float64)
    c = conditioned(problem, A=A, input_var=torch.zeros(2, dtype=torch.float64))
    np.testing.assert_allclose(c.mean, conditioned(problem).mean, rtol=1e-13)
    np.testing.assert_allclose(c.covariance(), conditioned(problem).covariance(), atol=1e-13)


def test_input_variances_need_the_coefficients_of_the_inputs():
    with pytest.raises(ValueError, match=r"input_var needs A.*but got A=None\. Pass A=constraint\.A"):
        conditioned(random_problem(0), input_var=torch.ones(2, dtype=torch.float64))


# --- Gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("result", ["mean", "var", "reduction", "covariance", "reduction_lost_without"])
def test_gradients_reach_mean_variance_target_and_tolerance(kind, result):
    mean, var, B, target, tol_var = (torch.as_tensor(p) for p in random_problem(0, *kind[:2], density=kind[2], exact=0))

    def function(mean, var, target, tol_var):
        value = getattr(condition(DiagonalGaussian(mean, var), B, target, tol_var), result)
        return value() if callable(value) else value

    assert torch.autograd.gradcheck(function, [part.requires_grad_() for part in (mean, var, target, tol_var)])


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_gradients_through_exact_balances_are_those_of_the_formula(kind):
    mean, var, B, target, tol_var = (torch.as_tensor(p) for p in random_problem(0, *kind[:2], density=kind[2], exact=1))

    def function(mean, var, target):
        c = condition(DiagonalGaussian(mean, var), B, target, tol_var)
        return c.mean, c.var

    assert torch.autograd.gradcheck(function, [part.requires_grad_() for part in (mean, var, target)])


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("result", ["mean", "var"])
def test_the_gradient_at_a_tolerance_of_zero_is_the_one_sided_derivative(kind, result):
    mean, var, B, target, tol_var = (torch.as_tensor(p) for p in random_problem(0, *kind[:2], density=kind[2], exact=1))
    weights = torch.linspace(1.0, 2.0, mean.shape[-1], dtype=torch.float64)

    def value(r):
        return (getattr(condition(DiagonalGaussian(mean, var), B, target, r), result) * weights).sum()

    tol_var.requires_grad_()
    value(tol_var).backward()
    for k in range(len(tol_var)):
        step = torch.zeros_like(tol_var)
        step[k] = 1e-6
        forward, twice = ((value(tol_var + h * step) - value(tol_var)).item() for h in (1, 2))
        assert tol_var.grad[k].item() == pytest.approx((4 * forward - twice) / 2e-6, rel=1e-4, abs=1e-6)


# --- The layer --------------------------------------------------------------------------------------------------------

HEAT = LinearConstraint(
    [[1.0, -1.0, -1.0, 0.0], [0.0, 2.0, 0.0, 30.0], [0.0, 0.0, 1.0, 1.0]],
    A=[[0.0, 0.5], [0.0, 0.0], [1.0, 0.0]],
    b=[0.0, 2.0, 1.0],
    names=["heat", "flow", "rest"],
)
STD = np.array([1.0, 0.5, 2.0, 0.1])
SCALE = np.sqrt(HEAT.B**2 @ STD**2)
TOLERANCES = {
    "exact": (0.0, np.zeros(3)),
    "fixed": (0.3, np.full(3, 0.09)),
    "learned": (None, np.exp(-6.0) * SCALE**2),
    "in its own unit": (TolerancePrior(-1.0, 2.0, relative=False), np.full(3, np.exp(-1.0))),
    "each its own": (
        {"heat": 0, "flow": TolerancePrior(-3.0, 1.0), "rest": 0.5},
        np.array([0.0, np.exp(-3.0) * SCALE[1] ** 2, 0.25]),
    ),
}


def rows(n=5, seed=0):
    rng = torch.Generator().manual_seed(seed)
    mean, x = (torch.randn(n, width, dtype=torch.float64, generator=rng) for width in (4, 2))
    return mean, torch.rand(n, 4, dtype=torch.float64, generator=rng) + 0.1, x


def assert_layer_gives(c, mean, var, target, tol_var, rtol=1e-9):
    for i in range(len(mean)):
        r = np.broadcast_to(tol_var, target.shape)[i]
        expected_mean, expected_cov = references.conditioned(mean[i].numpy(), var[i].numpy(), HEAT.B, target[i], r)
        np.testing.assert_allclose(c.mean[i].detach(), expected_mean, rtol=rtol, atol=rtol)
        np.testing.assert_allclose(c.var[i].detach(), np.diag(expected_cov), rtol=rtol, atol=rtol)


@pytest.mark.parametrize(("tolerance", "tol_var"), TOLERANCES.values(), ids=TOLERANCES)
def test_the_layer_in_evaluation_conditions_on_the_balances_at_the_median_tolerance(tolerance, tol_var):
    layer = ConditioningLayer(HEAT, tolerance, output_std=STD).eval()
    mean, var, x = rows()
    assert_layer_gives(layer(mean, var, x), mean, var, HEAT.target(x.numpy()), tol_var)


def test_the_layer_in_training_draws_a_tolerance_for_each_row():
    layer = ConditioningLayer(HEAT, {"heat": 0}, output_std=STD).train()
    mean, var, x = rows()
    relative = layer.tolerance.draw((5,), torch.Generator().manual_seed(3)).detach().numpy()
    assert len(np.unique(relative[:, 1])) == 5
    c = layer(mean, var, x, torch.Generator().manual_seed(3))
    assert_layer_gives(c, mean, var, HEAT.target(x.numpy()), relative * SCALE**2)


def test_an_offset_shifts_the_target_in_units_of_the_scale_of_its_balance():
    layer = ConditioningLayer(HEAT, 0.1, output_std=STD, offset=True)
    layer.offset.loc.data = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    mean, var, x = rows()
    shifted = HEAT.target(x.numpy()) + layer.offset.loc.detach().numpy() * SCALE
    assert_layer_gives(layer.eval()(mean, var, x), mean, var, shifted, np.full(3, 0.01))
    noise = torch.Generator().manual_seed(3)
    layer.tolerance.draw((5,), noise)
    drawn = layer.offset.draw((5,), noise).detach().numpy()
    c = layer.train()(mean, var, x, torch.Generator().manual_seed(3))
    assert_layer_gives(c, mean, var, HEAT.target(x.numpy()) + drawn * SCALE, np.full(3, 0.01))


def test_the_kl_of_the_layer_is_the_sum_over_tolerances_and_offsets():
    layer = ConditioningLayer(HEAT, {"heat": 0, "flow": TolerancePrior(-3.0, 1.0)}, offset=True)
    normal = torch.distributions.Normal
    layer.tolerance.loc.data += 1.5
    layer.tolerance.log_std.data -= 0.7
    mu, std = torch.tensor([[-3.0, -6.0], [1.0, 3.0]], dtype=torch.float64)
    learned = torch.distributions.kl_divergence(normal(mu + 1.5, std * np.exp(-0.7)), normal(mu, std)).sum()
    offset = torch.distributions.kl_divergence(normal(layer.offset.loc, layer.offset.std), normal(0.0, 1.0)).sum()
    np.testing.assert_allclose(layer.kl().detach(), (learned + offset).detach(), rtol=1e-12)
    assert ConditioningLayer(HEAT, 0).kl() == 0


def test_the_loss_moves_every_learned_part_of_the_layer():
    layer = ConditioningLayer(HEAT, {"heat": 0.0}, output_std=STD, offset=True).train()
    mean, var, x = (part.requires_grad_() for part in rows())
    c = layer(mean, var, x, torch.Generator().manual_seed(0))
    (c.mean.square().sum() + c.var.sum() + layer.kl()).backward()
    for gradient in (mean.grad, var.grad, x.grad, layer.offset.loc.grad, layer.offset.log_std.grad):
        assert torch.isfinite(gradient).all()
        assert (gradient != 0).any()
    for gradient in (layer.tolerance.loc.grad, layer.tolerance.log_std.grad):
        assert torch.isfinite(gradient).all()
        assert gradient[0] == 0  # an exact balance has nothing to learn
        assert (gradient[1:] != 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_layer_follows_dtype_and_answers_in_that_of_the_mean(dtype):
    layer = ConditioningLayer(HEAT, None, output_std=STD, offset=True).eval().to(dtype)
    assert {p.dtype for p in layer.parameters()} == {dtype}
    mean, var, x = (part.to(dtype) for part in rows())
    c = layer(mean, var, x)
    assert c.mean.dtype == c.var.dtype == c.sample(2, torch.Generator().manual_seed(0)).dtype == dtype
    tol_var = np.exp(-6.0) * SCALE**2
    rtol = 64 * torch.finfo(dtype).eps
    assert_layer_gives(c, mean.double(), var.double(), HEAT.target(x.double().numpy()), tol_var, max(rtol, 1e-9))


def test_the_layer_follows_its_device():
    layer = ConditioningLayer(HEAT, {"heat": 0}, offset=True).train().to("meta")  # a device that refuses strangers
    assert {part.device.type for part in layer.state_dict().values()} == {"meta"}
    c = layer(*(part.to("meta") for part in rows()))
    for value in (c.mean, c.var, c.covariance(), c.sample(2), c.reduction_lost_without()):
        assert value.device.type == "meta"


def test_a_state_dict_carries_the_layer_into_another():
    first, second = ConditioningLayer(HEAT, None, output_std=STD, offset=True), ConditioningLayer(HEAT, 0, offset=True)
    for parameter in first.parameters():
        parameter.data += 0.3
    arguments = rows()
    expected = first.eval()(*arguments)
    assert not torch.equal(second.eval()(*arguments).mean, expected.mean)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    got = second.eval()(*arguments)
    assert torch.equal(got.mean, expected.mean)
    assert torch.equal(got.var, expected.var)
    assert torch.equal(second.kl(), first.kl())


class MeanAndVariance(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *arguments):
        c = self.layer(*arguments)
        return c.mean, c.var


@pytest.mark.parametrize(
    ("constraint", "settings", "with_inputs"),
    [
        (HEAT, {"tolerance": None, "offset": True}, True),
        (HEAT, {"tolerance": 0}, True),
        (LinearConstraint(HEAT.B[:1], A=HEAT.A[:1]), {"tolerance": 0.1}, True),
        (LinearConstraint(HEAT.B, b=HEAT.b), {"tolerance": None}, False),
    ],
    ids=["learned, offsets", "exact", "one balance", "no inputs"],
)
def test_the_layer_survives_export_with_any_number_of_rows(constraint, settings, with_inputs):
    module = MeanAndVariance(ConditioningLayer(constraint, **settings)).eval()
    few, many = (rows(n, seed)[: 2 + with_inputs] for n, seed in [(3, 0), (7, 1)])
    n_rows = torch.export.Dim("n_rows", min=2)
    exported = torch.export.export(module, few, dynamic_shapes=(tuple({0: n_rows} for _ in few),))
    for got, expected in zip(exported.module()(*many), module(*many), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def test_balances_without_inputs_need_no_inputs():
    constraint = LinearConstraint(HEAT.B, b=HEAT.b)
    mean, var, _ = rows()
    c = ConditioningLayer(constraint, 0.3).eval()(mean, var)
    assert_layer_gives(c, mean, var, np.tile(HEAT.b, (5, 1)), np.full(3, 0.09))


def test_balances_with_inputs_ask_for_them():
    mean, var, _ = rows()
    with pytest.raises(ValueError, match=r"involve inputs, but got x=None\. Pass the inputs as x"):
        ConditioningLayer(HEAT, 0)(mean, var)


def test_a_mean_of_the_wrong_width_is_refused_with_both_widths():
    _, _, x = rows()
    wrong = torch.ones(5, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"one entry per output of the balances \(4\).*but got shape \(5, 3\)"):
        ConditioningLayer(HEAT, 0)(wrong, wrong, x)


# --- The boundary -----------------------------------------------------------------------------------------------------


def test_shapes_that_do_not_fit_and_negative_variances_are_refused():
    g = DiagonalGaussian(torch.zeros(3).double(), torch.ones(3).double())
    with pytest.raises(ValueError, match=r"must fit together, but got mean \(3,\), B \(2, 4\) and target \(2,\)"):
        condition(g, torch.ones(2, 4).double(), torch.ones(2).double())
    with pytest.raises(ValueError, match=r"must be ≥ 0, but got -1\.0"):
        condition(g, torch.ones(1, 3).double(), torch.ones(1).double(), -1.0)


def test_a_repeated_exact_balance_changes_nothing():
    g = DiagonalGaussian(torch.zeros(3).double(), torch.ones(3).double())
    once, twice = torch.tensor([[1.0, 1.0, 0.0]]).double(), torch.tensor([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0]]).double()
    one, two = condition(g, once, torch.ones(1).double()), condition(g, twice, torch.tensor([1.0, 2.0]).double())
    torch.testing.assert_close(two.mean, one.mean)
    torch.testing.assert_close(two.var, one.var)


def test_gradients_flow_to_the_coefficients_too():
    g = DiagonalGaussian(torch.tensor([0.3, -1.0, 2.0]).double(), torch.tensor([0.5, 1.0, 2.0]).double())
    B = torch.tensor([[1.0, -0.5, 2.0], [0.3, 1.0, 0.7]]).double().requires_grad_()

    def function(B):
        c = condition(g, B, torch.ones(2).double(), torch.tensor([0.1, 0.2]).double())
        return c.mean, c.var

    assert torch.autograd.gradcheck(function, [B])


def test_the_layer_takes_uncertain_inputs():
    mean, var, x = rows()
    layer = ConditioningLayer(HEAT, 0.3).eval()
    input_var = torch.tensor([0.2, 0.0]).double()
    got = layer(mean, var, x, input_var=input_var)
    expected = condition(
        DiagonalGaussian(mean, var), layer.B, layer.target(x), layer.tolerance.median(), A=layer.A, input_var=input_var
    )
    torch.testing.assert_close(got.mean, expected.mean)
    assert not torch.allclose(got.var, layer(mean, var, x).var)
