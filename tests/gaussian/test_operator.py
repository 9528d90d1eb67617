import numpy as np
import pytest
import torch

from equipoise.gaussian.connected_blocks import block_layout
from equipoise.gaussian.operator import BalanceOperator, reciprocal_or_zero

PATTERNS = {
    "one balance": [[1, 1, 0, 1, 0, 0]],
    "balances that share nothing": [[1, 0, 1, 0, 0, 0], [0, 1, 0, 1, 1, 0]],
    "one coupled block": [[1, 1, 0, 0, 0, 0], [0, 1, 1, 0, 1, 1]],
    "coupled rows apart, single between": [[1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1], [0, 1, 1, 0, 0, 0]],
    "blocks of one size, different widths": [[0, 0, 0, 0, 0, 1], [1, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]],
    "a chain": [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1]],
}
BATCHES = [((), (), ()), ((4,), (), ()), ((4,), (4,), ()), ((2, 4), (4,), ()), ((4,), (4,), (4,)), ((), (), (4,))]


def random_numbers(pattern, batch=(), tol_batch=(), B_batch=(), seed=0):
    """`(B, var, tol_var)` with the given zeros."""
    rng = np.random.default_rng(seed)
    pattern = np.array(pattern, float)
    B = pattern * rng.uniform(0.5, 2.0, (*B_batch, *pattern.shape)) * rng.choice([-1, 1], pattern.shape)
    var = rng.uniform(0.1, 3.0, (*batch, pattern.shape[1]))
    return B, var, rng.uniform(0.01, 1.0, (*tol_batch, pattern.shape[0]))


def dense(B, var, tol_var):
    """S with explicit matrices, any batch."""
    return B @ (var[..., None] * np.swapaxes(B, -1, -2)) + tol_var[..., None] * np.eye(tol_var.shape[-1])


def tensors(*arrays):
    return [torch.as_tensor(array) for array in arrays]


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("B_batch", [(), (4,)])
def test_products_with_B_are_those_of_the_matrix(pattern, B_batch):
    B, y, balance = random_numbers(pattern, (3, 4), (3, 4), B_batch)
    y, balance = y - 1.0, balance - 0.5
    operator = BalanceOperator(torch.as_tensor(B))
    for got, expected in [
        (operator.apply(torch.as_tensor(y)), np.einsum("...kj,...j->...k", B, y)),
        (operator.adjoint(torch.as_tensor(balance)), np.einsum("...kj,...k->...j", B, balance)),
        (operator.apply_squared(torch.as_tensor(y)), np.einsum("...kj,...j->...k", B**2, y)),
        (operator.magnitude(torch.as_tensor(y)), np.einsum("...kj,...j->...k", abs(B), abs(y))),
    ]:
        np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize(("batch", "tol_batch", "B_batch"), BATCHES)
def test_a_factor_in_blocks_does_the_algebra_of_the_whole_matrix(pattern, batch, tol_batch, B_batch):
    B, var, tol_var = random_numbers(pattern, batch, tol_batch, B_batch)
    S = dense(B, var, tol_var)
    inverse, m = np.linalg.inv(S), S.shape[-1]
    rhs = np.random.default_rng(1).normal(size=(*S.shape[:-2], m))
    operator = BalanceOperator(torch.as_tensor(B))
    factor = operator.factor(*tensors(var, tol_var))
    half = factor.half().numpy()
    log_prob = -0.5 * (
        np.einsum("...k,...kl,...l->...", rhs, inverse, rhs) + np.linalg.slogdet(S)[1] + m * np.log(2 * np.pi)
    )
    for got, expected in [
        (factor.solve(torch.as_tensor(rhs)), (inverse @ rhs[..., None])[..., 0]),
        (factor.log_det, np.linalg.slogdet(S)[1]),
        (factor.inverse_diag, np.diagonal(inverse, axis1=-2, axis2=-1)),
        (factor.adjoint_diag, np.diagonal(np.swapaxes(B, -1, -2) @ inverse @ B, axis1=-2, axis2=-1)),
        (factor.inverse_rows(), inverse @ B),
        (np.swapaxes(half, -1, -2) @ half, np.swapaxes(B, -1, -2) @ inverse @ B),
        (factor.log_prob(torch.as_tensor(rhs)), log_prob),
    ]:
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "coupled"), [("balances that share nothing", False), ("a chain", True), ("one balance", False)]
)
def test_balances_that_share_no_output_need_no_matrix_factorisation(name, coupled, monkeypatch):
    used = []
    for function in ("cholesky", "cholesky_ex", "qr", "solve", "inv", "eigh", "svd", "solve_triangular"):
        original = getattr(torch.linalg, function)
        monkeypatch.setattr(torch.linalg, function, lambda *a, f=original, **k: used.append(f) or f(*a, **k))
    B, var, tol_var = random_numbers(PATTERNS[name], (5,))
    operator = BalanceOperator(torch.as_tensor(B))
    factor = operator.factor(*tensors(var, tol_var))
    np.testing.assert_allclose(factor.log_det, np.linalg.slogdet(dense(B, var, tol_var))[1], rtol=1e-12)
    assert operator.coupled is coupled
    assert bool(used) is coupled


def test_a_given_layout_is_used_in_place_of_the_zeros_of_B():
    B, var, tol_var = random_numbers(PATTERNS["a chain"], (5,))
    layout = block_layout(torch.as_tensor(B))
    B = B * (np.arange(4) != 2)[:, None]  # the row that links the chain vanishes, as it may in one row of data
    factor = BalanceOperator(torch.as_tensor(B), layout).factor(*tensors(var, tol_var))
    assert [group.layout for group in factor.operator.groups] == layout
    np.testing.assert_allclose(factor.log_det, np.linalg.slogdet(dense(B, var, tol_var))[1], rtol=1e-12)


def test_a_balance_in_which_nothing_is_uncertain_has_inverse_zero():
    operator = BalanceOperator(torch.ones(1, 2, dtype=torch.float64))
    var = torch.tensor([[0.0, 0.0], [1.0, 3.0]], dtype=torch.float64)
    factor = operator.factor(var, torch.zeros(1, dtype=torch.float64))
    np.testing.assert_array_equal(factor.inverse_diag, [[0.0], [0.25]])
    np.testing.assert_array_equal(factor.solve(torch.ones(2, 1, dtype=torch.float64)), [[0.0], [0.25]])


@pytest.mark.parametrize("power", [-150, 150])
def test_units_of_a_balance_do_not_spoil_the_factor_of_a_coupled_block(power):
    B, var, tol_var = random_numbers(PATTERNS["one coupled block"], (3,))
    c = np.array([2.0**power, 1.0])  # a power of two: scaled numbers have the same digits
    rhs = np.array([0.3, -0.7])
    plain = BalanceOperator(torch.as_tensor(B)).factor(*tensors(var, tol_var)).solve(torch.as_tensor(rhs))
    scaled = BalanceOperator(torch.as_tensor(B * c[:, None])).factor(*tensors(var, tol_var * c**2))
    np.testing.assert_allclose(scaled.solve(torch.as_tensor(rhs * c)).numpy() * c, plain, rtol=1e-13)


def test_the_reciprocal_of_nothing_is_nothing_and_so_are_its_derivatives():
    values = [4.0, 0.0, float("nan")]
    plain = torch.tensor(values, dtype=torch.float64)
    np.testing.assert_array_equal(reciprocal_or_zero(plain), [0.25, 0.0, np.nan])
    S = torch.tensor(values[:2], dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(reciprocal_or_zero(S).sum(), S, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), S)
    np.testing.assert_array_equal(first.detach(), [-1 / 16, 0.0])
    np.testing.assert_array_equal(second, [2 / 64, 0.0])


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_rows_that_are_taken_bring_their_own_coefficients(pattern):
    B, var, tol_var = random_numbers(pattern, (4,), (4,), (4,))
    rows = torch.tensor([2, 0, 2])
    taken = BalanceOperator(torch.as_tensor(B)).take(rows)
    S = dense(B[rows], var[rows], tol_var[rows])
    log_det = taken.factor(*tensors(var[rows], tol_var[rows])).log_det
    np.testing.assert_allclose(log_det, np.linalg.slogdet(S)[1], rtol=1e-10)
    shared = BalanceOperator(torch.as_tensor(B[0]))
    assert shared.take(rows) is shared
