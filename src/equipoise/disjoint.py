"""Densities where no two balances share an output and everything is measured, with their gradients in closed form.

For the training step alone, which at the paper's size is bound by the number of operations, not by their work: the same
numbers as the general `ConditionedGaussian.log_prob` and `marginal`, in half the time. First derivatives only.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.blocks import LOG_2PI
from equipoise.variational import first_derivative_only


def joint_log_prob(
    B: Float[Tensor, "m n_y"],
    mean: Float[Tensor, "n n_y"],
    var: Float[Tensor, "n n_y"],
    target: Float[Tensor, "n m"],
    tol_var: Float[Tensor, "n m"],
    y: Float[Tensor, "n n_y"],
    sensor_var: Float[Tensor, "n n_y"],
) -> Float[Tensor, " n"]:
    """The joint density (L2) for `r > 0`; every matrix in it is diagonal here."""
    return _Joint.apply(B, B.square(), mean, var, target, tol_var, y, sensor_var)  # type: ignore[return-value]


def marginal_log_prob(
    B: Float[Tensor, "m n_y"],
    mean: Float[Tensor, "n n_y"],
    var: Float[Tensor, "n n_y"],
    target: Float[Tensor, "n m"],
    tol_var: Float[Tensor, "n m"],
    y: Float[Tensor, "n n_y"],
) -> Float[Tensor, " n"]:
    """The paper's density (L1) for `r > 0` and `w = 0`."""
    return _Marginal.apply(B, B.square(), mean, var, target, tol_var, y)  # type: ignore[return-value]


class _Joint(torch.autograd.Function):
    """(L2) with `d = v + w`, `g = v / d`, `e = y − μ`, `q = B² g w + r`, `s = B² v + r`,
    `a = (t − B(μ + g e)) / q` and `c = (t − B μ) / s`.
    """

    @staticmethod
    def forward(ctx: Any, B, B2, mean, var, target, tol_var, y, w) -> Tensor:
        d, e = var + w, y - mean
        h = e / d  # precision-weighted error
        innovation = target - mean @ B.mT
        s = (var @ B2.mT).add_(tol_var)
        q = (var * w / d @ B2.mT).add_(tol_var)
        left = innovation - (var * h) @ B.mT
        a, c = left / q, innovation / s
        quadratic = (h * e).sum(-1) + (a * left - c * innovation).sum(-1)
        ctx.save_for_backward(B, B2, var, w, d, h, a, c, q, s)
        return (quadratic + d.log().sum(-1) + (q / s).log_().sum(-1) + y.shape[-1] * LOG_2PI).mul_(-0.5)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        first_derivative_only()
        B, B2, var, w, d, h, a, c, q, s = ctx.saved_tensors
        grad = grad.unsqueeze(-1)
        of_d = (h.square() - 1.0 / d).mul_(0.5 * grad)
        of_q = (a.square() - 1.0 / q).mul_(0.5 * grad)
        of_s = (c.square() - 1.0 / s).mul_(-0.5 * grad)
        a, c, share = a * grad, c * grad, w / d  # share = 1 − g
        aB, inner = a @ B, of_q @ B2
        pull = aB * h
        of_mean = torch.addcmul(h * grad - c @ B, aB, share)
        of_var = of_d + pull * share + inner * share.square() + of_s @ B2
        of_w = None
        if ctx.needs_input_grad[7]:
            g = var / d
            of_w = of_d - pull * g + inner * g.square()
        return None, None, of_mean, of_var, c - a, of_q + of_s, None, of_w


class _Marginal(torch.autograd.Function):
    """With `s = B² v + r`, `c = (t − B μ) / s`: `μ_C = μ + v Bᵀ c`, `v_C = v − v² (B²)ᵀ (1/s)`."""

    @staticmethod
    def forward(ctx: Any, B, B2, mean, var, target, tol_var, y) -> Tensor:
        s = (var @ B2.mT).add_(tol_var)
        precision = 1.0 / s
        c = (target - mean @ B.mT) * precision
        cB, share = c @ B, var * (precision @ B2)
        left = (1.0 - share).clamp_min_(torch.finfo(mean.dtype).eps)  # v_C / v, kept above rounding
        var_c = var * left
        u = y - mean - var * cB
        G = u / var_c
        ctx.save_for_backward(B, B2, var, precision, c, cB, left, share, G, var_c)
        return ((G * u).sum(-1) + var_c.log().sum(-1) + y.shape[-1] * LOG_2PI).mul_(-0.5)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        first_derivative_only()
        B, B2, var, precision, c, cB, left, share, G, var_c = ctx.saved_tensors
        grad = grad.unsqueeze(-1)
        H = (G.square() - 1.0 / var_c).mul_(0.5 * grad)
        G = G * grad
        of_target = ((G * var) @ B.mT).mul_(precision)
        of_s = ((H * var.square()) @ B2.mT).mul_(precision.square()).addcmul_(of_target, c, value=-1.0)
        of_mean = G - of_target @ B
        of_var = G * cB + H * (left - share) + of_s @ B2
        return None, None, of_mean, of_var, of_target, of_s, None
