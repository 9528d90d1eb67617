"""Both likelihoods of measured outputs with their gradients in closed form, for the training step.

They are the numbers that autograd gives for `ConditionedGaussian.log_prob` and `likelihood.marginal`, in a fraction of
the time, because the inverse of a matrix is not differentiated. For a log density `log N(e; 0, S)` of normals with
`S = B diag(v) Bᵀ + diag(r)`, the gradients need only `S⁻¹` and `c = S⁻¹ e`::

    ē = −c        v̄ = ½ ((Bᵀ c)² − diag(Bᵀ S⁻¹ B))        r̄ = ½ (c² − diag(S⁻¹))

Without balances, `m = 0`, both are the density of independent outputs.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from equipoise.gaussian import LOG_2PI, BalanceOperator, BlockUpdate, DisjointUpdate, Factor


class Gradients(NamedTuple):
    """Gradients of a loss with respect to the arguments of a density; None for arguments that need no gradient."""

    mean: Float[Tensor, "n n_y"]
    var: Float[Tensor, "n n_y"]
    target: Float[Tensor, "n m"] | None
    tol_var: Float[Tensor, "n m"] | None
    sensor_var: Float[Tensor, "n n_y"] | None


Pull = Callable[[float], Gradients]


@torch.no_grad()
def joint(
    operator: BalanceOperator,
    mean: Float[Tensor, "n n_y"],
    var: Float[Tensor, "n n_y"],
    target: Float[Tensor, "n m"],
    tol_var: Float[Tensor, "n m"],
    y: Float[Tensor, "n n_y"],
    w: Float[Tensor, "n n_y"] | float,
    measured: Bool[Tensor, "n n_y"] | None = None,
) -> tuple[Float[Tensor, " n"], Pull] | None:
    """Compute the joint log density (L2) with sensor variances `w`, where `r > 0` or `w > 0`.

    With `d = v + w`, `g = v / d`, `e = y − μ`, `Q = B diag(g w) Bᵀ + R`, `S = B diag(v) Bᵀ + R`,
    `a = Q⁻¹ (t − B(μ + g e))` and `c = S⁻¹ (t − B μ)`. An output that is not `measured` has `w = ∞`: `1/d = 0`, and
    `w/d = 1`.

    Args:
        operator: The balances.
        mean, var: The network's Gaussian before conditioning.
        target, tol_var: `t` and `r` of each balance.
        y: Measured outputs.
        w: Sensor variances.
        measured: Which outputs are measured; None if all are.
    Returns:
        `log p` per row, and the function from a gradient shared by all rows to those of the arguments; or None if
        coupled balances are too badly conditioned for an inverse.
    """
    d, e = var + w, y - mean
    precision, log_d, n_measured = d.reciprocal(), d.log(), y.shape[-1]
    share = w * precision  # 1 − g, without the cancellation
    if measured is not None:
        precision, share = precision.where(measured, 0.0), share.where(measured, 1.0)
        e, log_d, n_measured = e.where(measured, 0.0), log_d.where(measured, 0.0), measured.sum(-1, dtype=y.dtype)
    S, Q = _factor(operator, var, tol_var), _factor(operator, var * share, tol_var)
    if S is None or Q is None:
        return None
    h = e * precision
    innovation = target - operator.apply(mean)
    left = innovation - operator.apply(var * h)
    a, c = Q.solve(left), S.solve(innovation)
    quadratic = torch.linalg.vecdot(h, e) + torch.linalg.vecdot(a, left) - torch.linalg.vecdot(c, innovation)
    value = (quadratic + log_d.sum(-1) + Q.log_det - S.log_det + n_measured * LOG_2PI).mul_(-0.5)

    return value, partial(_pull_joint, operator, var, precision, share, h, Q, S, a, c)


def _factor(operator: BalanceOperator, var: Tensor, tol_var: Tensor) -> Factor | None:
    return operator.inverted(var, tol_var) if operator.coupled else operator.factor(var, tol_var)


@torch.no_grad()
def _pull_joint(
    operator: BalanceOperator,
    var: Tensor,
    precision: Tensor,
    share: Tensor,
    h: Tensor,
    Q: Factor,
    S: Factor,
    a: Tensor,
    c: Tensor,
    grad: float,
) -> Gradients:
    aB, cB, g = operator.adjoint(a), operator.adjoint(c), var * precision
    of_d = torch.addcmul(precision, h, h, value=-1.0).mul_(-0.5 * grad)
    of_smoothed = torch.addcmul(Q.adjoint_diag, aB, aB, value=-1.0).mul_(-0.5 * grad)
    of_prior = torch.addcmul(S.adjoint_diag, cB, cB, value=-1.0).mul_(0.5 * grad)
    of_r = (S.inverse_diag - Q.inverse_diag).addcmul_(a, a).addcmul_(c, c, value=-1.0).mul_(0.5 * grad)
    along = (aB * h).mul_(grad)
    of_mean = (h - cB).addcmul_(aB, share).mul_(grad)
    of_var = torch.addcmul(of_d, torch.addcmul(along, of_smoothed, share), share).add_(of_prior)
    of_w = of_d.addcmul_(torch.addcmul(along, of_smoothed, g, value=-1.0), g, value=-1.0)
    return Gradients(of_mean, of_var, (c - a).mul_(grad), of_r, of_w)


@torch.no_grad()
def marginal(
    operator: BalanceOperator,
    mean: Float[Tensor, "n n_y"],
    var: Float[Tensor, "n n_y"],
    target: Float[Tensor, "n m"],
    tol_var: Float[Tensor, "n m"],
    y: Float[Tensor, "n n_y"],
    w: Float[Tensor, "n n_y"] | float,
    measured: Bool[Tensor, "n n_y"] | None = None,
) -> tuple[Float[Tensor, " n"], Pull] | None:
    """Compute the paper's log density (L1); arguments and results as of `joint`.

    With `c = S⁻¹ (t − B μ)`: `μ_C = μ + v Bᵀ c`, `v_C = v − v² diag(Bᵀ S⁻¹ B)`.
    """
    kind = BlockUpdate if operator.coupled else DisjointUpdate
    if (update := kind.compute(operator, mean, var, target, tol_var)) is None:
        return None
    var_c = torch.rsub(update.share, 1.0).clamp_min_(torch.finfo(mean.dtype).eps).mul_(var)  # kept above rounding of v
    total = var_c.add_(w)
    u = torch.addcmul(y - mean, var, update.step, value=-1.0)
    precision, log_total, n_measured = total.reciprocal(), total.log(), y.shape[-1]
    if measured is not None:
        precision, u = precision.where(measured, 0.0), u.where(measured, 0.0)
        log_total, n_measured = log_total.where(measured, 0.0), measured.sum(-1, dtype=y.dtype)
    z = u * precision
    value = ((z * u).sum(-1) + log_total.sum(-1) + n_measured * LOG_2PI).mul_(-0.5)

    return value, partial(_pull_marginal, operator, var, update, z, precision)


@torch.no_grad()
def _pull_marginal(
    operator: BalanceOperator,
    var: Tensor,
    update: DisjointUpdate | BlockUpdate,
    z: Tensor,
    precision: Tensor,
    grad: float,
) -> Gradients:
    of_total = torch.addcmul(precision, z, z, value=-1.0).mul_(-0.5 * grad)
    return Gradients(*update.pull(operator, var, z * grad, of_total), of_total)
