"""qpth: the conditioned mean as the solution of a quadratic programme, batched."""

from collections.abc import Callable

import torch
from qpth.qp import QPFunction
from torch import Tensor

Rule = Callable[..., tuple[Tensor]]


def layers(B: Tensor) -> dict[str, Rule]:
    """`argmin Σ_j (y_j − μ_j)² / v_j + Σ_k ε_k² / r_k` with `B y + ε = t`; it needs an inequality, and gets `0 ≤ 1`.

    By default it checks that Q is positive definite, and factorises all rows once for each row to do so; a form as
    plain as this one can do without.
    """
    checks = {"qpth": True, "qpth without its check of Q": False}
    return {name: _layer(B, QPFunction(verbose=-1, check_Q_spd=check)) for name, check in checks.items()}


def _layer(B: Tensor, solve: Callable) -> Rule:
    m, n_y = B.shape
    A, G, h = torch.cat([B, torch.eye(m, dtype=B.dtype)], -1), B.new_zeros(1, n_y + m), B.new_ones(1)

    def rule(mean, var, B, target, tol_var):
        Q = torch.diag_embed(torch.cat([1.0 / var, 1.0 / tol_var], -1))
        p = torch.cat([-mean / var, torch.zeros_like(target)], -1)
        return (solve(Q, p, G, h, A, target)[:, :n_y],)

    return rule
