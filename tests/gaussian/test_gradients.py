"""Values and gradients of conditioned means and variances: 50 digits, and differences of first and second order."""

import gc
import weakref

import mpmath
import numpy as np
import pytest
import torch

import references
from equipoise.gaussian.conditioning import condition
from equipoise.gaussian.distributions import ConditionedGaussian, DiagonalGaussian
from equipoise.gaussian.operator import BalanceOperator
from references import EPS

PATTERNS = {
    "one balance": [[1, 1, 0, 1, 0, 0]],
    "apart": [[1, 0, 1, 0, 0, 0], [0, 1, 0, 1, 1, 0]],
    "coupled": [[1, 1, 0, 0, 0, 0], [0, 1, 1, 0, 1, 1]],
    "coupled, one apart": [[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1], [0, 1, 1, 0, 0, 0]],
}
APART = [name for name in PATTERNS if "coupled" not in name]
BATCHES = {  # of mean, var, target and tol_var
    "rows": ((4,), (4,), (4,), (4,)),
    "one row": ((), (), (), ()),
    "draws": ((3, 4), (3, 4), (3, 4), (3, 4)),
    "one tolerance": ((4,), (4,), (4,), ()),
    "a tolerance per draw": ((3, 4), (3, 4), (4,), (3, 1)),
    "one mean": ((), (4,), (), ()),
}
NAMES = ("mean", "var", "target", "tol_var")
Parts = list[torch.Tensor]


def numbers(pattern, batches=BATCHES["rows"], *, exact=False, seed=0) -> tuple[torch.Tensor, Parts]:
    """Return `B` with the zeros of the pattern, and mean, var, target and tol_var."""
    rng = np.random.default_rng(seed)
    m, n = np.shape(pattern)
    B = np.array(pattern) * rng.uniform(0.5, 2.0, (m, n)) * rng.choice([-1, 1], (m, n))
    mean, var, target, tol_var = (rng.normal(size=(*batch, k)) for batch, k in zip(batches, (n, n, m, m), strict=True))
    parts = mean, np.exp(var), target, 0.0 * tol_var if exact else np.exp(tol_var - 2.0)
    return torch.as_tensor(B), [torch.as_tensor(part).requires_grad_() for part in parts]


def conditioned_on(B, parts: Parts) -> ConditionedGaussian:
    mean, var, target, tol_var = parts
    return condition(DiagonalGaussian(mean, var), B, target, tol_var)


def weights(value: torch.Tensor, seed: int) -> torch.Tensor:
    return torch.randn(value.shape, dtype=value.dtype, generator=torch.Generator().manual_seed(seed))


def gradients(c: ConditionedGaussian, parts: Parts, names=("mean", "var")) -> Parts:
    """Return the gradients of a weighted sum of the named results with respect to the parts."""
    total = sum((getattr(c, name) * weights(getattr(c, name), seed)).sum() for seed, name in enumerate(names))
    return list(torch.autograd.grad(total, parts, retain_graph=True, materialize_grads=True))


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("tol_var", [1.0, 1e-6, 1e-13], ids=str)
def test_mean_and_variance_keep_their_digits(name, tol_var):
    """Against 50 digits: `16 (n + m)` roundings of v, as the definition has, also where `v_C` is nothing beside v."""
    B, parts = numbers(PATTERNS[name], BATCHES["one row"])
    parts[3] = torch.full_like(parts[3], tol_var).requires_grad_()
    c, (mean, var, target, r) = conditioned_on(B, parts), (part.detach().numpy() for part in parts)
    expected_mean, expected_var = references.conditioned_50_digits(mean, var, B.numpy(), target, r)
    amplification = references.condition_number(var, B.numpy(), r) ** 2
    level = 16 * sum(B.shape) * EPS * amplification
    assert np.all(abs(c.var.detach().numpy() - expected_var) <= level * var)
    assert np.all(abs(c.mean.detach().numpy() - expected_mean) <= level * 10.0)


def slope_in_50_digits(B, parts: Parts, which: int, index: int) -> float:
    """Differentiate the weighted sum of `gradients` by a central difference with step 1e-15."""

    def total(x):
        mean, var, target, r = ([mpmath.mpf(float(v)) for v in part.detach()] for part in parts)
        (mean, var, target, r)[which][index] = x
        M = mpmath.matrix(B.tolist())
        S = M * mpmath.diag(var) * M.T + mpmath.diag(r)
        K = mpmath.diag(var) * M.T * mpmath.inverse(S)
        mean_c = mpmath.matrix(mean) + K * (mpmath.matrix(target) - M * mpmath.matrix(mean))
        reduction = K * S * K.T
        like = parts[1].detach()
        G, H = (weights(like, seed).tolist() for seed in (0, 1))
        return sum(G[j] * mean_c[j] + H[j] * (var[j] - reduction[j, j]) for j in range(len(var)))

    with mpmath.workdps(50):
        x, step = mpmath.mpf(float(parts[which].detach()[index])), mpmath.mpf(10) ** -15
        return float((total(x + step) - total(x - step)) / (2 * step))


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("part", range(4), ids=NAMES)
def test_gradients_agree_with_50_digits(name, part):
    """To 1e-13 of the largest gradient of the part: a few hundred roundings for the few dozen terms of each."""
    B, parts = numbers(PATTERNS[name], BATCHES["one row"])
    got = gradients(conditioned_on(B, parts), parts)[part]
    expected = np.array([slope_in_50_digits(B, parts, part, index) for index in range(len(got))])
    np.testing.assert_allclose(got, expected, rtol=0.0, atol=1e-13 * (abs(expected).max() + 1.0))


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_float32_gradients_are_those_of_float64_rounded_once(pattern):
    B, parts = numbers(pattern)
    single = [part.detach().float().requires_grad_() for part in parts]
    double = [part.detach().double().requires_grad_() for part in single]
    B = B.float().double()
    c32, c64 = conditioned_on(B.float(), single), conditioned_on(B, double)
    rounded = [weights(c32.mean, seed) for seed in (0, 1)]
    ours = torch.autograd.grad((c32.mean, c32.var), single, rounded)
    exact = torch.autograd.grad((c64.mean, c64.var), double, [w.double() for w in rounded])
    for got, expected in [(c32.mean, c64.mean), (c32.var, c64.var), *zip(ours, exact, strict=True)]:
        assert got.dtype == torch.float32
        assert torch.equal(got, expected.float())


def moments(B):
    def function(*parts):
        c = conditioned_on(B, parts)
        return c.mean, c.var

    return function


@pytest.mark.global_random_numbers
@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("batches", [((2,),) * 4, ((), (2, 2), (2,), (2, 1))], ids=["rows", "draws"])
def test_first_and_second_derivatives_are_those_of_differences(pattern, batches):
    B, parts = numbers(pattern, batches)
    assert torch.autograd.gradcheck(moments(B), parts, fast_mode=True)
    assert torch.autograd.gradgradcheck(moments(B), parts, fast_mode=True)


@pytest.mark.global_random_numbers
@pytest.mark.parametrize("name", APART)
def test_second_derivatives_through_exact_balances_are_those_of_differences(name):
    B, (mean, var, target, tol_var) = numbers(PATTERNS[name], ((2,),) * 4, exact=True)

    def function(mean, var, target):
        return moments(B)(mean, var, target, tol_var.detach())

    assert torch.autograd.gradgradcheck(function, [mean, var, target], fast_mode=True)


def test_an_exact_balance_in_which_nothing_is_uncertain_has_gradients_of_its_own_and_no_nan():
    B, parts = numbers(PATTERNS["apart"], ((2,),) * 4, exact=True)
    parts[1] = (parts[1].detach() * torch.tensor([0.0, 1.0, 0.0, 1.0, 1.0, 1.0])).requires_grad_()
    c = conditioned_on(B, parts)
    torch.testing.assert_close(c.mean[:, [0, 2]], parts[0][:, [0, 2]], rtol=0.0, atol=0.0)
    first = torch.autograd.grad((c.mean.square() * c.var).sum(), parts, create_graph=True)
    for gradient in torch.autograd.grad(sum(part.sum() for part in first), parts):
        assert gradient.isfinite().all()


def test_rounding_makes_no_negative_variance():
    rng = np.random.default_rng(0)
    B, parts = torch.ones(1, 1, dtype=torch.float64), numbers([[1]], ((1000,),) * 4)[1]
    B *= float(rng.uniform(0.5, 2.0))
    parts[3] = (parts[3].detach() * 1e-18).requires_grad_()
    c = conditioned_on(B, parts)
    assert (c.var >= 0).all()
    assert (c.var <= 2 * EPS * parts[1]).all()


def test_coefficients_that_are_learned_get_their_gradient():
    B, parts = numbers(PATTERNS["apart"])
    B.requires_grad_()
    layout = BalanceOperator(B.detach()).layout

    def function(B):
        c = conditioned_on(BalanceOperator(B, layout), [part.detach() for part in parts])
        return c.mean, c.var

    assert torch.autograd.gradcheck(function, [B])


def test_what_was_looked_at_without_gradients_can_be_differentiated_later():
    B, parts = numbers(PATTERNS["apart"])
    c = conditioned_on(B, parts)
    with torch.no_grad():
        assert not c.mean.requires_grad
    assert gradients(c, parts, ("var",))[1].abs().sum() > 0


@pytest.mark.parametrize("name", APART)
def test_transforms_of_torch_find_plain_operations(name):
    B, parts = numbers(PATTERNS[name])
    operator = BalanceOperator(B)
    _, var, target, tol_var = (part.detach() for part in parts)

    def total(mean, var, target):
        c = condition(DiagonalGaussian(mean, var), operator, target, tol_var[0])
        return (c.mean.square() * c.var).sum()

    expected = torch.autograd.grad(total(*parts[:3]), parts[0])[0]
    each = torch.func.vmap(torch.func.grad(total))(parts[0].detach(), var, target)
    torch.testing.assert_close(each, expected, rtol=1e-12, atol=1e-12)
    at_once = torch.func.jacrev(total)(parts[0].detach(), var, target)
    torch.testing.assert_close(at_once, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_autocast_costs_no_digit(pattern):
    B, parts = numbers(pattern)
    plain = gradients(conditioned_on(B, parts), parts)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = gradients(conditioned_on(B, parts), parts)
    assert all(torch.equal(a, b) for a, b in zip(plain, cast, strict=True))


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_a_gaussian_that_is_let_go_leaves_nothing_behind(pattern):
    B, parts = numbers(pattern)
    gc.collect()
    gc.disable()
    try:
        c = conditioned_on(B, parts)
        gradients(c, parts)
        watched = [weakref.ref(c.mean), weakref.ref(c)]
        del c
        assert [ref() for ref in watched] == [None, None]
    finally:
        gc.enable()
