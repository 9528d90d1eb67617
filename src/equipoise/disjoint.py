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

from equipoise.blocks import LOG_2PI, BalanceOperator
from equipoise.update import DisjointUpdate


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
    precision = d.reciprocal()
    h, share = e * precision, w * precision  # precision-weighted error; 1 − g
    innovation = torch.addmm(target, mean, B.mT, alpha=-1.0)
    left = torch.addmm(innovation, var * h, B.mT, alpha=-1.0)
    s, q = torch.addmm(tol_var, var, B2.mT), torch.addmm(tol_var, var * share, B2.mT)
    a, c = left / q, innovation / s
    quadratic = torch.linalg.vecdot(h, e) + torch.linalg.vecdot(a, left) - torch.linalg.vecdot(c, innovation)
    value = (quadratic + d.log().sum(-1) + (q / s).log_().sum(-1) + y.shape[-1] * LOG_2PI).mul_(-0.5)

    return value, partial(_pull_joint, B, B2, var, precision, h, q, s, a, c, share)


@torch.no_grad()
def _pull_joint(
    B: Tensor,
    B2: Tensor,
    var: Tensor,
    precision: Tensor,
    h: Tensor,
    q: Tensor,
    s: Tensor,
    a: Tensor,
    c: Tensor,
    share: Tensor,
    grad: float,
) -> Gradients:
    of_d = torch.addcmul(precision, h, h, value=-1.0).mul_(-0.5 * grad)
    of_q = torch.addcmul(q.reciprocal(), a, a, value=-1.0).mul_(-0.5 * grad)
    of_s = torch.addcmul(s.reciprocal(), c, c, value=-1.0).mul_(0.5 * grad)
    aB, inner, g = a @ B, of_q @ B2, var * precision
    along = (aB * h).mul_(grad)
    of_mean = (h - c @ B).addcmul_(aB, share).mul_(grad)
    of_var = torch.addcmul(of_d, torch.addcmul(along, inner, share), share).addmm_(of_s, B2)
    of_w = of_d.addcmul_(torch.addcmul(along, inner, g, value=-1.0), g, value=-1.0)
    return Gradients(of_mean, of_var, (c - a).mul_(grad), of_q + of_s, of_w)


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
    operator = BalanceOperator(B, layout=[])  # nothing here needs to know of blocks
    update = DisjointUpdate.of(operator, mean, var, target, tol_var)
    var_c = torch.rsub(update.share, 1.0).clamp_min_(torch.finfo(mean.dtype).eps).mul_(var)  # kept above rounding of v
    u = torch.addcmul(y - mean, var, update.step, value=-1.0)
    z = u / var_c
    value = ((z * u).sum(-1) + var_c.log().sum(-1) + y.shape[-1] * LOG_2PI).mul_(-0.5)

    return value, partial(_pull_marginal, operator, var, update, z, var_c)


@torch.no_grad()
def _pull_marginal(
    operator: BalanceOperator, var: Tensor, update: DisjointUpdate, z: Tensor, var_c: Tensor, grad: float
) -> Gradients:
    of_var_c = (z.square() - 1.0 / var_c).mul_(0.5 * grad)
    return Gradients(*update.pull(operator, var, z * grad, of_var_c), None)
