"""Densities on the subspace of exact balances, against an explicit basis and against limits."""

import math

import numpy as np
import pytest
import scipy.linalg
import torch

from equipoise.gaussian.operator import LOG_2PI, BalanceOperator
from equipoise.gaussian.subspace import exact_directions, log_volume, singular_log_prob

CHAIN = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 1.0]])


def tensors(*arrays):
    return [torch.as_tensor(np.asarray(a, dtype=float)) for a in arrays]


def naive(B, left, var, tol_var) -> float:
    """L3 line by line: rotate into directions with and without variance, density there, volume of the rest."""
    N = B @ np.diag(var) @ B.T + np.diag(tol_var)
    values, vectors = np.linalg.eigh(N)
    null, rest = vectors[:, values < 1e-12], vectors[:, values >= 1e-12]
    M = rest.T @ N @ rest
    r = rest.T @ left
    density = -0.5 * (r @ np.linalg.solve(M, r) + np.linalg.slogdet(M)[1] + len(M) * LOG_2PI)
    G = null.T @ B[:, np.asarray(var) == 0]
    return density - 0.5 * np.linalg.slogdet(G @ G.T)[1]


@pytest.mark.parametrize(
    ("var", "tol_var"),
    [
        ([0, 0, 0, 0], [0, 0, 0]),  # nothing uncertain: a density on the subspace alone
        ([0, 0.7, 0, 0], [0, 0, 0]),  # two exact balances share the only uncertain output
        ([0, 0.7, 0, 0], [0, 0.3, 0]),  # … of which one has a tolerance
        ([0.2, 0, 0, 0], [0, 0, 0.5]),
        ([0.2, 0.3, 0.4, 0.5], [0, 0, 0]),  # nothing exact: an ordinary density
        ([0, 0, 0, 0], [0.1, 0.2, 0.3]),
    ],
)
def test_the_density_is_that_of_the_rotated_balances(var, tol_var):
    N = CHAIN @ np.diag(var) @ CHAIN.T + np.diag(tol_var)
    left = N @ np.array([0.3, -0.2, 0.5])  # in the range of N, so that the exact part is obeyed
    B, u, r, z = tensors(CHAIN, var, tol_var, left)
    value = singular_log_prob(BalanceOperator(B), z, u, r, torch.full((3,), 1e-9).double())
    assert value.item() == pytest.approx(naive(CHAIN, left, var, tol_var), rel=1e-10)


def test_off_the_subspace_the_density_is_zero():
    B, u, r = tensors(CHAIN, [0, 0.7, 0, 0], [0, 0, 0])
    rounding = torch.full((3,), 1e-9).double()
    on, off = tensors([0.7, 0.7, 0.0], [0.7, 0.8, 0.0])  # the shared output must close both balances alike
    operator = BalanceOperator(B)
    assert math.isfinite(singular_log_prob(operator, on, u, r, rounding).item())
    assert singular_log_prob(operator, off, u, r, rounding).item() == -math.inf
    assert math.isfinite(singular_log_prob(operator, off, u, r, torch.ones(3).double()).item())


def test_exact_directions_are_the_left_null_space_on_hard_rows():
    B = torch.as_tensor(CHAIN / np.linalg.norm(CHAIN, axis=1, keepdims=True))
    hard = torch.tensor([True, True, False])
    uncertain = torch.tensor([False, True, False, False])
    V = exact_directions(B, hard, uncertain)
    P = (V @ V.mT).numpy()
    null = scipy.linalg.null_space(B[:2, 1:2].numpy().T)
    expected = np.zeros((3, 3))
    expected[:2, :2] = null @ null.T
    np.testing.assert_allclose(P, expected, atol=1e-12)


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_the_volume_does_not_drown_in_units(unit):
    rng = np.random.default_rng(0)
    B = rng.normal(size=(3, 5)) * 10.0 ** rng.uniform(-3, 3, 5)
    eye = torch.eye(3).double()
    expected = 0.5 * np.linalg.slogdet(B @ B.T)[1] + 3 * math.log(unit)
    assert log_volume(eye, torch.as_tensor(unit * B)).item() == pytest.approx(expected, rel=1e-9)


def test_tiny_tolerances_approach_the_subspace_density_up_to_their_own_density():
    """`log N(left; 0, N + εI)` at an obeyed balance is the density of ε's own noise plus what stays on the subspace."""
    B, u = tensors(CHAIN, [0, 0, 0, 0])
    operator, zero = BalanceOperator(B), torch.zeros(3).double()
    eps = 1e-10
    loose = singular_log_prob(operator, zero, u, torch.full((3,), eps).double(), zero)
    exact = singular_log_prob(operator, zero, u, zero, torch.full((3,), 1e-9).double())
    volume = 0.5 * np.linalg.slogdet(CHAIN @ CHAIN.T)[1]
    assert (loose - exact).item() == pytest.approx(-1.5 * (math.log(eps) + LOG_2PI) + volume, rel=1e-9)
