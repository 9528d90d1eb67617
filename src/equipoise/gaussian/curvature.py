"""Curvature of the log density of measured outputs in the mean before conditioning, as a matrix root.

Near its mode a log density falls by `½ δᵀ F δ` if the network's mean moves by δ. Laplace approximations add up these
curvatures over rows, so that what is needed is a root `L` with `F = L Lᵀ`.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

ROUNDING = 1e-13  # eigenvalues of N in units of S that count as 0


def joint_curvature_root(
    B: Float[Tensor, "... m n_y"],
    var: Float[Tensor, "... n_y"],
    tol_var: Float[Tensor, "... m"],
    inverse_rows: Float[Tensor, "... m n_y"],
    sensor_var: Float[Tensor, "... n_y"],
    measured: Bool[Tensor, "... n_y"],
) -> Float[Tensor, "... n_y k"]:
    """Compute a root of the curvature of `−log p(y_obs | t)` (L2) in μ by m × m algebra.

    With `D = diag 1/(v + w)`, `G = diag v/(v + w)`, both 0 where an output was not measured, and
    `N = B diag(v (1 − G)) Bᵀ + R`::

        F = D + (1 − G) Bᵀ N⁻¹ B (1 − G) − Bᵀ S⁻¹ B = L Lᵀ                                     (L5)
        L = [D^½ − Bᵀ S⁻¹ B G D^{−½},  Bᵀ S⁻¹ N^½ − (1 − G) Bᵀ N^{−½}]

    Directions in which N is singular (exact balances of outputs that are known exactly, L3) contribute nothing, as
    both `N^½` and `(1 − G) Bᵀ` vanish there.

    Args:
        B: Coefficients.
        var: `v`.
        tol_var: `r`.
        inverse_rows: `S⁻¹ B`.
        sensor_var: `w`, finite.
        measured: Which outputs were measured.
    Returns:
        `L` with `n_y + m` columns.
    """
    known = measured & (var + sensor_var > 0)
    d = torch.where(known, 1.0 / torch.where(known, var + sensor_var, 1.0), 0.0)
    rest = torch.where(measured, torch.where(known, sensor_var * d, 0.0), 1.0)  # 1 − G, without cancellation
    first = torch.diag_embed(d.sqrt()) - inverse_rows.mT @ (B * (d.sqrt() * var).unsqueeze(-2))
    N = (B * (var * rest).unsqueeze(-2)) @ B.mT + torch.diag_embed(tol_var)
    S_diag = ((B.square() * var.unsqueeze(-2)).sum(-1) + tol_var).clamp_min(torch.finfo(var.dtype).tiny)
    unit = S_diag.sqrt()
    values, vectors = torch.linalg.eigh(N / unit.unsqueeze(-1) / unit.unsqueeze(-2))
    positive = values > ROUNDING
    root = torch.where(positive, values, 0.0).sqrt()
    inverse_root = torch.where(positive, values.clamp_min(ROUNDING).rsqrt(), 0.0)
    half = unit.unsqueeze(-1) * vectors * root.unsqueeze(-2)
    inverse_half = vectors * inverse_root.unsqueeze(-2) / unit.unsqueeze(-1)
    second = inverse_rows.mT @ half - rest.unsqueeze(-1) * (B.mT @ inverse_half)
    shape = torch.broadcast_shapes(first.shape[:-2], second.shape[:-2])
    return torch.cat([part.expand(*shape, *part.shape[-2:]) for part in (first, second)], -1)  # L5


def hessian_root(
    log_prob: Callable[[Float[Tensor, "... n_y"]], Float[Tensor, "..."]], mean: Float[Tensor, "... n_y"]
) -> Float[Tensor, "... n_y n_y"]:
    """Compute a root of the Hessian of `−log_prob` by autograd, whose negative eigenvalues are set to 0.

    Args:
        log_prob: The log density of each row as a function of the means of all rows.
        mean: Where the Hessian is taken.
    Returns:
        `L` with `L Lᵀ` the nearest positive semidefinite matrix to the Hessian of each row.
    """
    with torch.enable_grad():
        leaf = mean.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(-log_prob(leaf).sum(), leaf, create_graph=True)
        columns = [
            torch.autograd.grad(gradient[..., j].sum(), leaf, retain_graph=True, allow_unused=True)[0]
            if gradient.requires_grad
            else None
            for j in range(mean.shape[-1])
        ]
    H = torch.stack([torch.zeros_like(mean) if column is None else column for column in columns], -1)
    values, vectors = torch.linalg.eigh(0.5 * (H + H.mT))
    return vectors * values.clamp_min(0.0).sqrt().unsqueeze(-2)
