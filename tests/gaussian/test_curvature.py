"""Curvature in the mean before conditioning (L5) against autograd, dense matrices and limits."""

import pytest
import torch

from equipoise.gaussian.conditioning import condition
from equipoise.gaussian.curvature import hessian_root
from equipoise.gaussian.distributions import DiagonalGaussian

NAN = float("nan")
DISJOINT = [[1.0, -1.0, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 2.0]]
COUPLED = [[1.0, -1.0, 0.5, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0, 2.0]]


def numbers(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def gaussian_of(B, tol_var, n_draws=2, n=3):
    prior = DiagonalGaussian(numbers(n_draws, n, 5), numbers(n_draws, n, 5, seed=1).exp())
    return condition(prior, torch.tensor(B).double(), numbers(n, 2, seed=2), torch.tensor(tol_var).double())


def readings(missing=()):
    y = numbers(3, 5, seed=3)
    for row, column in missing:
        y[row, column] = NAN
    return y


CASES = {
    "all measured": (DISJOINT, [0.3, 0.2], (), 0.4),
    "coupled": (COUPLED, [0.3, 0.2], (), 0.4),
    "missing": (COUPLED, [0.3, 0.2], [(0, 1), (1, 0), (1, 1), (2, 4)], 0.4),
    "nothing measured": (COUPLED, [0.3, 0.2], [(0, j) for j in range(5)], 0.4),
    "exact balances": (COUPLED, [0.0, 0.0], [(0, 1)], 0.4),
    "one exact balance": (DISJOINT, [0.0, 0.2], [(0, 1)], 0.4),
    "no sensor noise": (COUPLED, [0.3, 0.2], [(0, 1)], 0.0),
    "exact balances, one output missing from each, no sensor noise": (
        DISJOINT, [0.0, 0.0], [(i, j) for i in range(3) for j in (1, 4)], 0.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_root_is_that_of_the_hessian_by_autograd(case):
    B, tol_var, missing, w = case
    c, y = gaussian_of(B, tol_var), readings(missing)
    if "nothing" in str(missing):
        y[0] = NAN
    root = c.curvature_root(y, w)
    assert root.shape == (2, 3, 5, 7)
    for d in range(2):
        for i in range(3):

            def density(mean, d=d, i=i):
                prior = DiagonalGaussian(mean, c.prior.var[d, i])
                return condition(prior, c.operator, c.target[i], c.tol_var).log_prob(y[i], w)

            H = -torch.autograd.functional.hessian(density, c.prior.mean[d, i])
            torch.testing.assert_close(root[d, i] @ root[d, i].mT, H, rtol=1e-8, atol=1e-8)


def test_rows_exact_in_balances_and_readings_move_with_the_mean_as_little_as_with_tiny_noise():
    """At r = w = 0 all outputs are known: the density is on the subspace, and its curvature a limit of (L5)."""
    prior = DiagonalGaussian(numbers(1, 5), numbers(1, 5, seed=1).exp())
    y, B = numbers(1, 5, seed=3), torch.tensor(COUPLED).double()
    exact = condition(prior, B, y @ B.mT, 0.0)
    root, tiny = exact.curvature_root(y, 0.0), condition(prior, B, y @ B.mT, 1e-9)
    near = tiny.curvature_root(y, 0.0)
    assert bool(root.isfinite().all())
    torch.testing.assert_close(root @ root.mT, near @ near.mT, rtol=1e-6, atol=1e-6)
    dense = torch.linalg.pinv(exact.covariance()[0], rtol=1e-12)
    slope = torch.eye(5).double() - exact.gain_rows()[0].mT @ B
    torch.testing.assert_close((root @ root.mT)[0], slope.mT @ dense @ slope, rtol=1e-7, atol=1e-7)


def test_uncertain_inputs_are_integrated_out():
    prior, B, A = (
        DiagonalGaussian(numbers(3, 5), numbers(3, 5, seed=1).exp()),
        torch.tensor(COUPLED).double(),
        numbers(2, 2),
    )
    c = condition(prior, B, numbers(3, 2, seed=2), 0.1, A=A, input_var=torch.tensor([0.3, 0.0]).double())
    y = readings([(0, 1)])
    root = c.curvature_root(y, 0.4)
    by_autograd = super(type(c), c).curvature_root(y, 0.4)
    torch.testing.assert_close(root @ root.mT, by_autograd @ by_autograd.mT, rtol=1e-9, atol=1e-9)


def test_a_diagonal_gaussian_has_the_precision_of_its_measurements():
    g = DiagonalGaussian(torch.zeros(2).double(), torch.tensor([1.0, 3.0]).double())
    root = g.curvature_root(torch.tensor([0.5, NAN]).double(), 1.0)
    torch.testing.assert_close(root @ root.mT, torch.diag(torch.tensor([0.5, 0.0]).double()))


def test_negative_curvature_is_cut_off():
    """`−log p = x² − y²` has the Hessian diag(2, −2)."""
    root = hessian_root(lambda m: m[..., 1].square() - m[..., 0].square(), torch.zeros(3, 2).double())
    torch.testing.assert_close(root @ root.mT, torch.diag(torch.tensor([2.0, 0.0]).double()).expand(3, 2, 2))


def test_a_density_that_does_not_depend_on_the_mean_has_no_curvature():
    assert not hessian_root(lambda m: 0.0 * m.sum(-1), torch.ones(3, 2).double()).any()
