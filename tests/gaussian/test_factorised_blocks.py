"""Blocks of S, inverted and by triangular factors, against numpy's inverse, 50 digits and each other."""

import mpmath
import numpy as np
import pytest
import torch

from equipoise.gaussian.factorised_blocks import InvertedBlocks, factorise_blocks, invert_blocks


def problem(n=5, k=3, J=6, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    B = torch.as_tensor(rng.normal(size=(1, k, J)))
    v, r = torch.as_tensor(rng.uniform(0.1, 3.0, (n, 1, J))), torch.as_tensor(scale * rng.uniform(0.1, 1.0, (n, 1, k)))
    return B, v, r


def formed(B, v, r):
    return (B * v.unsqueeze(-2)) @ B.mT + torch.diag_embed(r)


def test_both_ways_are_numpys_inverse():
    B, v, r = problem()
    S = formed(B, v, r)
    fast, slow, naive = invert_blocks(S), factorise_blocks(B, v, r), np.linalg.inv(S.numpy())
    rhs = torch.as_tensor(np.random.default_rng(1).normal(size=(5, 1, 3)))
    for way in (fast, slow):
        np.testing.assert_allclose(way.solve(rhs), (naive @ rhs.numpy()[..., None])[..., 0], rtol=1e-12)
        np.testing.assert_allclose(way.solve_matrix(B), naive @ B.numpy(), rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(way.inverse_diag(), np.diagonal(naive, axis1=-2, axis2=-1), rtol=1e-12)
        np.testing.assert_allclose(way.log_det(), np.linalg.slogdet(S.numpy())[1].sum(-1), rtol=1e-12)
        half = way.half(B).numpy()
        np.testing.assert_allclose(np.swapaxes(half, -1, -2) @ half, B.mT.numpy() @ naive @ B.numpy(), atol=1e-12)


@pytest.mark.global_random_numbers
def test_the_gradients_of_the_inverse_are_those_of_differences():
    S = formed(*problem(n=2)).requires_grad_()

    def results(S):
        symmetric = 0.5 * (S + S.mT)  # differences of one element must not leave the symmetric matrices
        inverted = invert_blocks(symmetric)
        return inverted.inverse, inverted.log_dets

    assert torch.autograd.gradcheck(results, [S])
    assert torch.autograd.gradgradcheck(results, [S])


def test_each_gradient_is_right_without_the_other():
    S = formed(*problem()).requires_grad_()
    for result, naive in ((lambda f: f.log_det(), torch.logdet), (lambda f: f.inverse, torch.linalg.inv)):
        ours, theirs = (torch.autograd.grad(value.sum(), S)[0] for value in (result(invert_blocks(S)), naive(S)))
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def nearly_dependent(gap):
    B = torch.tensor([[[1.0, 1.0, 0.0], [1.0, 1.0, gap]]], dtype=torch.float64)
    return B, torch.ones(1, 1, 3, dtype=torch.float64), torch.zeros(1, 1, 2, dtype=torch.float64)


@pytest.mark.parametrize(("gap", "inverted"), [(1e-1, True), (1e-2, True), (1e-3, False), (1e-9, False), (0.0, False)])
def test_only_well_conditioned_blocks_are_inverted(gap, inverted):
    """Scaled to diagonal 1 the inverse has elements of about 1 / gap²."""
    assert isinstance(invert_blocks(formed(*nearly_dependent(gap))), InvertedBlocks) is inverted


@pytest.mark.parametrize("gap", [1e-1, 1e-2, 2e-2])
def test_what_is_inverted_keeps_the_digits_that_its_condition_leaves(gap):
    B, v, r = nearly_dependent(gap)
    with mpmath.workdps(50):
        S = mpmath.matrix(B[0].tolist()) * mpmath.matrix(B[0].tolist()).T
        exact = np.array((S**-1).tolist(), dtype=float)
    condition = np.linalg.cond(np.array(S.tolist(), dtype=float))  # 800 to 80,000
    rtol = 16 * condition * np.finfo(float).eps  # elimination in two dimensions, and what forms S
    np.testing.assert_allclose(invert_blocks(formed(B, v, r)).inverse[0, 0], exact, rtol=rtol)


def test_one_block_without_uncertainty_leaves_all_blocks_to_the_triangular_factor():
    B, v, r = problem()
    v[2], r[2] = 0.0, 0.0
    assert invert_blocks(formed(B, v, r)) is None
    solved = factorise_blocks(B, v, r).solve(torch.ones(5, 1, 3, dtype=torch.float64))
    assert torch.isfinite(solved).all()
    np.testing.assert_allclose(solved[2], 0.0, atol=1e-50)


@pytest.mark.parametrize("power", [-150, 150])
def test_units_do_not_decide_how_blocks_are_factorised(power):
    B, v, r = problem()
    c = torch.tensor([2.0**power, 1.0, 1.0], dtype=torch.float64)
    plain, scaled = invert_blocks(formed(B, v, r)), invert_blocks(formed(B * c[:, None], v, r * c**2))
    torch.testing.assert_close(scaled.inverse * c * c[:, None], plain.inverse, rtol=1e-13, atol=0.0)
