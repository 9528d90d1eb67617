"""Densities of measurements that must obey balances exactly, on an affine subspace instead of the whole space.

Given noise-free measurements, the prediction of the balances, `t | y_obs ~ N(t̂, N)` with `N = B diag(u) Bᵀ + R`, is
singular where exact balances (r = 0) involve nothing uncertain (u = 0), alone or in combination. With P the projector
onto those directions λ (supported on exact rows, `λᵀ B diag(u) = 0`) the density is::

    log N(t; t̂, N)|_{range(I − P)} − ½ log det⁺(P B₀ B₀ᵀ P),    B₀: the columns with u = 0          (L3)

if `P (t − t̂) = 0` to rounding, and −∞ otherwise: `δ(G y) dy` is surface measure divided by `√det(G Gᵀ)`.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from equipoise.gaussian.operator import LOG_2PI, BalanceOperator, any_true
from equipoise.gaussian.shapes import batch_shape


def singular_log_prob(
    operator: BalanceOperator,
    residual: Float[Tensor, "... m"],
    var: Float[Tensor, "... n_y"],
    tol_var: Float[Tensor, "... m"],
    rounding: Float[Tensor, "... m"],
) -> Float[Tensor, "..."]:
    """Compute the log density of `t − t̂` under `N(0, B diag(u) Bᵀ + R)`, singular or not (L3).

    Args:
        operator: `B`.
        residual: `t − t̂`, shape `(..., m)`.
        var: `u`, 0 for outputs that are known exactly, shape `(..., n_y)`.
        tol_var: `r`, shape `(..., m)`.
        rounding: Largest `|residual|` of an exact balance that counts as rounding, shape `(..., m)`.
    Returns:
        Log densities, shape `(...)`, −∞ off the subspace.
    """
    exact = (tol_var == 0) & (operator.apply_squared(var) == 0)
    partly = (tol_var == 0) & ~exact & (operator.apply_squared((var == 0).to(residual.dtype)) > 0)
    if any_true(partly):
        return _dense_singular_log_prob(operator, residual, var, tol_var, rounding)
    if not any_true(exact):
        return operator.factor(var, tol_var).log_prob(residual)
    # No uncertain output connects an exact row to other rows. With variance 1 and residual 0 it contributes −½ log 2π,
    # which is subtracted again, and its subspace term takes the place.
    log_prob = operator.factor(var, torch.where(exact, 1.0, tol_var)).log_prob(torch.where(exact, 0.0, residual))
    log_prob = log_prob + 0.5 * LOG_2PI * exact.to(residual.dtype).sum(-1)
    violated = (exact & (residual.abs() > rounding)).any(-1)
    return torch.where(violated, -math.inf, log_prob - 0.5 * _gram_log_det(operator, exact))  # L3


def _gram_log_det(operator: BalanceOperator, rows: Bool[Tensor, "... m"]) -> Tensor:
    """Compute `log det(B_e B_eᵀ)` for the rows e of the mask."""
    B = operator.B * rows.to(operator.B.dtype).unsqueeze(-1)
    masked = BalanceOperator(B, [group.layout for group in operator.groups])
    return masked.factor(torch.ones_like(B[..., 0, :]), (~rows).to(B.dtype)).log_det


def _dense_singular_log_prob(operator: BalanceOperator, residual, var, tol_var, rounding) -> Tensor:
    """Compute the density with m × m matrices, for exact balances that share uncertain outputs (L3)."""
    # The result does not depend on the scale `root` of the rows, and the directions have no derivative.
    root = (operator.apply_squared(torch.ones_like(operator.B[..., 0, :])) + tol_var).sqrt().detach()
    B, z = operator.B.detach() / root.unsqueeze(-1), residual / root
    V = exact_directions(B, tol_var == 0, var > 0)
    P = V @ V.mT
    exact_part = (P @ z.unsqueeze(-1)).squeeze(-1)
    N = (B * var.unsqueeze(-2)) @ B.mT + torch.diag_embed(tol_var / root.square())
    L = torch.linalg.cholesky_ex(N + P)[0]
    u = torch.linalg.solve_triangular(L, (z - exact_part).unsqueeze(-1), upper=False).squeeze(-1)
    rank = B.shape[-2] - P.diagonal(dim1=-2, dim2=-1).sum(-1)
    density = -0.5 * (u.square().sum(-1) + rank * LOG_2PI) - L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    bound = (P.abs() @ (rounding / root).unsqueeze(-1)).squeeze(-1)
    violated = (exact_part.abs() > bound + torch.finfo(z.dtype).tiny).any(-1)
    log_prob = density - log_volume(V, B * (var == 0).to(B.dtype).unsqueeze(-2)) - root.log().sum(-1)  # L3
    return torch.where(violated, -math.inf, log_prob)


def exact_directions(
    B: Float[Tensor, "... m n_y"], hard: Bool[Tensor, "... m"], uncertain: Bool[Tensor, "... n_y"]
) -> Float[Tensor, "... m m"]:
    """Compute orthonormal combinations λ of exact balances in which all uncertain outputs cancel, `λᵀ B_uncertain = 0`.

    Args:
        B: Coefficients, shape `(..., m, n_y)`; rows of length 1 or less, so that a singular value below 1e-12 is zero.
        hard: Which balances are exact, shape `(..., m)`.
        uncertain: Which outputs are not known exactly, shape `(..., n_y)`.
    Returns:
        `V` whose columns are the λ, filled up with columns of zeros, shape `(..., m, m)`; `P = V Vᵀ` projects onto the
        span of the λ.

    Example:
        Two exact balances share their only uncertain output, so their difference is a relation of the others.

        >>> B = torch.tensor([[0.6, 0.8, 0.0], [0.0, 0.8, 0.6]], dtype=torch.float64)
        >>> V = exact_directions(B, torch.tensor([True, True]), torch.tensor([False, True, False]))
        >>> (V @ V.mT).round(decimals=3)
        tensor([[ 0.5000, -0.5000],
                [-0.5000,  0.5000]], dtype=torch.float64)
    """
    of_uncertain = B * (uncertain.unsqueeze(-2) & hard.unsqueeze(-1)).to(B.dtype)
    of_inexact = torch.diag_embed((~hard).to(B.dtype))
    shape = batch_shape(of_uncertain[..., 0], of_inexact[..., 0])
    both = torch.cat([part.expand(*shape, *part.shape[-2:]) for part in (of_uncertain, of_inexact)], -1)
    vectors, values, _ = torch.linalg.svd(both, full_matrices=False)
    return vectors * (values < 1e-12).to(B.dtype).unsqueeze(-2)


def log_volume(V: Float[Tensor, "... m m"], B: Float[Tensor, "... m n_y"]) -> Float[Tensor, "..."]:
    """Compute `½ log det⁺(P B Bᵀ P)`, by the pseudo-determinant on the range of `P = V Vᵀ` (L3).

    Accurate whatever the units of the outputs.

    Args:
        V: Orthonormal columns, filled up with columns of zeros, shape `(..., m, m)`, as of `exact_directions`.
        B: Coefficients, shape `(..., m, n_y)`.
    Returns:
        Shape `(...)`.

    Example:
        >>> log_volume(torch.eye(2), torch.diag(torch.tensor([1.0, math.e]))).round(decimals=4)
        tensor(1.)
    """
    absent = (V == 0).all(-2)
    M = torch.cat([B.mT @ V, torch.diag_embed(absent.to(V.dtype))], -2)  # a column of the identity counts as log 1 = 0
    length = torch.linalg.vector_norm(M, dim=-2)
    R = torch.linalg.qr(M / length.unsqueeze(-2), mode="r").R
    return length.log().sum(-1) + R.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)  # L3
