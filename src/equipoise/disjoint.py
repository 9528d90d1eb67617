"""Densities where no two balances share an output and everything is measured, with their gradients in closed form.

For the training step, which at the paper's size is bound by the number of operations, not by their work: the same
numbers as the general `ConditionedGaussian.log_prob` and `marginal` give by autograd, in a fraction of the time.
Without balances, `m = 0`, both are the density of independent outputs.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.blocks import LOG_2PI


class Gradients(NamedTuple):
    """Of a loss with respect to what a density is made of; None where nobody asks."""

    mean: Float[Tensor, "n n_y"]
    var: Float[Tensor, "n n_y"]
    target: Float[Tensor, "n m"] | None
    tol_var: Float[Tensor, "n m"] | None
    sensor_var: Float[Tensor, "n n_y"] | None


Pull = Callable[[float], Gradients]


@torch.no_grad()
def joint(
    B: Float[Tensor, "m n_y"],
    mean: Float[Tensor, "n n_y"],
    var: Float[Tensor, "n n_y"],
    target: Float[Tensor, "n m"],
    tol_var: Float[Tensor, "n m"],
    y: Float[Tensor, "n n_y"],
    w: Float[Tensor, "n n_y"] | float,
) -> tuple[Float[Tensor, " n"], Pull]:
    """The joint density (L2) for `r > 0` and sensor variances `w`; every matrix in it is diagonal here.

    With `d = v + w`, `g = v / d`, `e = y − μ`, `q = B² g w + r`, `s = B² v + r`, `a = (t − B(μ + g e)) / q` and
    `c = (t − B μ) / s`.

    Returns:
        `log p` per row, and the function from a gradient shared by all rows to those of the arguments.
    """
    B2, d, e = B.square(), var + w, y - mean
    h = e / d  # precision-weighted error
    innovation = target - mean @ B.mT
    s = torch.addmm(tol_var, var, B2.mT)
    share = w / d  # 1 − g
    q = torch.addmm(tol_var, var * share, B2.mT)
    left = innovation - (var * h) @ B.mT
    a, c = left / q, innovation / s
    quadratic = (h * e).sum(-1) + (a * left - c * innovation).sum(-1)
    value = (quadratic + d.log().sum(-1) + (q / s).log_().sum(-1) + y.shape[-1] * LOG_2PI).mul_(-0.5)

    return value, partial(_pull_joint, B, B2, var, d, h, q, s, a, c, share)


@torch.no_grad()
def _pull_joint(
    B: Tensor,
    B2: Tensor,
    var: Tensor,
    d: Tensor,
    h: Tensor,
    q: Tensor,
    s: Tensor,
    a: Tensor,
    c: Tensor,
    share: Tensor,
    grad: float,
) -> Gradients:
    of_d = (h.square() - 1.0 / d).mul_(0.5 * grad)
    of_q = (a.square() - 1.0 / q).mul_(0.5 * grad)
    of_s = (c.square() - 1.0 / s).mul_(-0.5 * grad)
    of_left, of_innovation = a * grad, c * grad
    aB, inner = of_left @ B, of_q @ B2
    along = aB * h
    of_mean = torch.addcmul(h * grad - of_innovation @ B, aB, share)
    of_var = of_d + (along + inner * share).mul_(share) + of_s @ B2
    g = var / d
    of_w = of_d + (inner * g - along).mul_(g)
    return Gradients(of_mean, of_var, of_innovation - of_left, of_q + of_s, of_w)


@torch.no_grad()
def marginal(
    B: Float[Tensor, "m n_y"],
    mean: Float[Tensor, "n n_y"],
    var: Float[Tensor, "n n_y"],
    target: Float[Tensor, "n m"],
    tol_var: Float[Tensor, "n m"],
    y: Float[Tensor, "n n_y"],
) -> tuple[Float[Tensor, " n"], Pull]:
    """The paper's density (L1) for `r > 0` and `w = 0`; returns as `joint` does.

    With `s = B² v + r`, `c = (t − B μ) / s`: `μ_C = μ + v Bᵀ c`, `v_C = v − v² (B²)ᵀ (1/s)`.
    """
    B2 = B.square()
    precision = 1.0 / torch.addmm(tol_var, var, B2.mT)
    c = (target - mean @ B.mT) * precision
    cB, share = c @ B, var * (precision @ B2)
    left = (1.0 - share).clamp_min_(torch.finfo(mean.dtype).eps)  # v_C / v, kept above rounding
    var_c = var * left
    u = y - mean - var * cB
    z = u / var_c
    value = ((z * u).sum(-1) + var_c.log().sum(-1) + y.shape[-1] * LOG_2PI).mul_(-0.5)

    return value, partial(_pull_marginal, B, B2, var, precision, c, cB, left, share, z, var_c)


@torch.no_grad()
def _pull_marginal(
    B: Tensor,
    B2: Tensor,
    var: Tensor,
    precision: Tensor,
    c: Tensor,
    cB: Tensor,
    left: Tensor,
    share: Tensor,
    z: Tensor,
    var_c: Tensor,
    grad: float,
) -> Gradients:
    G, H = z * grad, (z.square() - 1.0 / var_c).mul_(0.5 * grad)
    of_target = ((G * var) @ B.mT).mul_(precision)
    of_s = ((H * var.square()) @ B2.mT).mul_(precision.square()).addcmul_(of_target, c, value=-1.0)
    of_var = G * cB + H * (left - share) + of_s @ B2
    return Gradients(G - of_target @ B, of_var, of_target, of_s, None)
