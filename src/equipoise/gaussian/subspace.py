"""Densities of measurements that must obey balances exactly: on an affine subspace instead of the whole space.

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

from equipoise.gaussian.operator import LOG_2PI, BalanceOperator, somewhere
from equipoise.gaussian.shapes import batch_shape


def singular_log_prob(
    operator: BalanceOperator,
    left: Float[Tensor, "... m"],
    var: Float[Tensor, "... n_y"],
    tol_var: Float[Tensor, "... m"],
    rounding: Float[Tensor, "... m"],
) -> Float[Tensor, "..."]:
    """Log density of `left = t − t̂` under `N = B diag(u) Bᵀ + R`, singular or not (L3).

    Args:
        operator: `B`.
        left: `t − t̂`.
        var: `u`, 0 for outputs that are known exactly.
        tol_var: `r`.
        rounding: Largest `|left|` of an exact balance that is rounding alone.
    """
    exact = (tol_var == 0) & (operator.apply_squared(var) == 0)
    partly = (tol_var == 0) & ~exact & (operator.apply_squared((var == 0).to(left.dtype)) > 0)
    if somewhere(partly):
        return _dense_singular_log_prob(operator, left, var, tol_var, rounding)
    if not somewhere(exact):
        return operator.factor(var, tol_var).log_prob(left)
    # Each exact row stands alone: no uncertain output connects it to others. Unit variance and no residual make it
    # contribute −½ log 2π, which is taken back, and its subspace term is put in its place.
    loose = operator.factor(var, torch.where(exact, 1.0, tol_var)).log_prob(torch.where(exact, 0.0, left))
    loose = loose + 0.5 * LOG_2PI * exact.to(left.dtype).sum(-1)
    off = (exact & (left.abs() > rounding)).any(-1)
    return torch.where(off, -math.inf, loose - 0.5 * _gram_log_det(operator, exact))


def _gram_log_det(operator: BalanceOperator, rows: Bool[Tensor, "... m"]) -> Tensor:
    """`log det(B_e B_eᵀ)` for the masked rows e."""
    B = operator.B * rows.to(operator.B.dtype).unsqueeze(-1)
    masked = BalanceOperator(B, [group.layout for group in operator.groups])
    return masked.factor(torch.ones_like(B[..., 0, :]), (~rows).to(B.dtype)).log_det


def _dense_singular_log_prob(operator: BalanceOperator, left, var, tol_var, rounding) -> Tensor:
    """L3 with m × m matrices, for exact balances that share uncertain outputs with one another."""
    # The result does not depend on the units `root` of the rows, and the directions have no derivative.
    root = (operator.apply_squared(torch.ones_like(operator.B[..., 0, :])) + tol_var).sqrt().detach()
    B, z = operator.B.detach() / root.unsqueeze(-1), left / root
    V = exact_directions(B, tol_var == 0, var > 0)
    P = V @ V.mT
    gone = (P @ z.unsqueeze(-1)).squeeze(-1)
    N = (B * var.unsqueeze(-2)) @ B.mT + torch.diag_embed(tol_var / root.square())
    L = torch.linalg.cholesky_ex(N + P)[0]
    u = torch.linalg.solve_triangular(L, (z - gone).unsqueeze(-1), upper=False).squeeze(-1)
    rank = B.shape[-2] - P.diagonal(dim1=-2, dim2=-1).sum(-1)
    density = -0.5 * (u.square().sum(-1) + rank * LOG_2PI) - L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    allowed = (P.abs() @ (rounding / root).unsqueeze(-1)).squeeze(-1)
    off = (gone.abs() > allowed + torch.finfo(z.dtype).tiny).any(-1)
    log_prob = density - log_volume(V, B * (var == 0).to(B.dtype).unsqueeze(-2)) - root.log().sum(-1)
    return torch.where(off, -math.inf, log_prob)


def exact_directions(
    B: Float[Tensor, "... m n_y"], hard: Bool[Tensor, "... m"], uncertain: Bool[Tensor, "... n_y"]
) -> Float[Tensor, "... m m"]:
    """Orthonormal combinations λ of the hard rows in which nothing uncertain is left, `λᵀ B_uncertain = 0`.

    Rows of `B` have length 1 or less, so that a singular value below 1e-12 is zero.

    Returns:
        `V` whose columns are the λ, and zero for the rest; `P = V Vᵀ` projects onto them.
    """
    blurred = B * (uncertain.unsqueeze(-2) & hard.unsqueeze(-1)).to(B.dtype)
    loose = torch.diag_embed((~hard).to(B.dtype))
    shape = batch_shape(blurred[..., 0], loose[..., 0])
    both = torch.cat([part.expand(*shape, *part.shape[-2:]) for part in (blurred, loose)], -1)
    vectors, values, _ = torch.linalg.svd(both, full_matrices=False)
    return vectors * (values < 1e-12).to(B.dtype).unsqueeze(-2)


def log_volume(V: Float[Tensor, "... m m"], B: Float[Tensor, "... m n_y"]) -> Float[Tensor, "..."]:
    """`½ log det⁺(P B Bᵀ P)`, the pseudo-determinant on the range of `P = V Vᵀ`, whatever the units of `B` (L3)."""
    absent = (V == 0).all(-2)
    M = torch.cat([B.mT @ V, torch.diag_embed(absent.to(V.dtype))], -2)  # a column of the identity counts as log 1 = 0
    length = torch.linalg.vector_norm(M, dim=-2)
    R = torch.linalg.qr(M / length.unsqueeze(-2), mode="r").R
    return length.log().sum(-1) + R.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)
