"""Mean and variance of a conditioned Gaussian, with their gradients in closed form.

With `c = S⁻¹ (t − B μ)`, and `h = v ⊙ diag(Bᵀ S⁻¹ B)` the share of its variance that each output loses (C1–C4)::

    μ_C = μ + v ⊙ Bᵀ c        v_C = v ⊙ (1 − h)

From the gradients `μ̄_C` and `v̄_C` of a loss with respect to these, the gradients with respect to μ, v, t and r follow
by `z = S⁻¹ B (v ⊙ μ̄_C)` and `W = S⁻¹ B diag(v² ⊙ v̄_C) Bᵀ S⁻¹`::

    μ̄ = μ̄_C − Bᵀ z            v̄ = v̄_C ⊙ (1 − 2h) + μ̄ ⊙ Bᵀ c + diag(Bᵀ W B)
    t̄ = z                     r̄ = diag(W) − z ⊙ c

The definition is `ConditionedGaussian`, differentiated by autograd. For networks of the paper's size the time of a step
is set by the number of torch operators, not by their arithmetic, and autograd needs twice as many.
"""

from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear

from equipoise.gaussian.distributions import ConditionedGaussian
from equipoise.gaussian.operator import BalanceOperator, BlockFactor, any_true, reciprocal_or_zero
from equipoise.gaussian.shapes import batch_shape

UpdateGradients = tuple[Tensor, Tensor, Tensor, Tensor]  # of a loss with respect to μ, v, t and r


class DisjointUpdate(NamedTuple):
    """The conditioning update where no two balances share an output, so that `S` is the diagonal `B² v + r`.

    Attributes:
        step: `Bᵀ c`, shape `(..., n_y)`.
        share: `h`, the share of its variance that each output loses, shape `(..., n_y)`.
        c: `S⁻¹ (t − B μ)`, shape `(..., m)`.
        precision: The diagonal of `S⁻¹`, shape `(..., m)`.
    """

    step: Float[Tensor, "... n_y"]
    share: Float[Tensor, "... n_y"]
    c: Float[Tensor, "... m"]
    precision: Float[Tensor, "... m"]

    @classmethod
    def compute(
        cls, operator: BalanceOperator, mean: Tensor, var: Tensor, target: Tensor, tol_var: Tensor
    ) -> "DisjointUpdate":
        """Compute the update of `N(mean, diag(var))` by balances whose coefficients all rows share (C1–C4).

        Args:
            operator: `B`, shape `(m, n_y)`.
            mean, var: `μ` and `v`, shape `(..., n_y)`.
            target, tol_var: `t` and `r`, shape `(..., m)`.
        """
        B, B2 = operator.B, operator.squares
        precision = reciprocal_or_zero(linear(var, B2) + tol_var)
        c = (target - linear(mean, B)) * precision
        return cls(c @ B, (precision @ B2) * var, c, precision)

    def pull(self, operator: BalanceOperator, var: Tensor, grad_mean: Tensor, grad_var: Tensor) -> UpdateGradients:
        """Turn gradients with respect to `μ_C` and `v_C` into gradients with respect to `μ`, `v`, `t` and `r`.

        Args:
            operator, var: The `B` and `v` of the update.
            grad_mean, grad_var: Gradients of a loss with respect to `μ_C` and `v_C`, shape `(..., n_y)`.
        """
        step, share, c, precision = self
        B, B2 = operator.B, operator.squares
        z = linear(grad_mean * var, B).mul_(precision)
        w = linear((grad_var * var).mul_(var), B2).mul_(precision).mul_(precision)
        grad_mean = grad_mean - z @ B
        grad_var = torch.addcmul(grad_var, grad_var, share, value=-2.0).addcmul_(grad_mean, step).add_(w @ B2)
        return grad_mean, grad_var, z, w.addcmul_(z, c, value=-1.0)


class BlockUpdate(NamedTuple):
    """The conditioning update for coupled balances whose blocks are well conditioned.

    Attributes:
        step, share, c: As in `DisjointUpdate`.
        factor: `S` by inverses of its blocks.
    """

    step: Float[Tensor, "... n_y"]
    share: Float[Tensor, "... n_y"]
    c: Float[Tensor, "... m"]
    factor: BlockFactor

    @classmethod
    def compute(
        cls, operator: BalanceOperator, mean: Tensor, var: Tensor, target: Tensor, tol_var: Tensor
    ) -> "BlockUpdate | None":
        """Compute the update as `DisjointUpdate.compute` does, or return None if a block is too badly conditioned."""
        if (factor := operator.inverted(var, tol_var)) is None:
            return None
        c = factor.solve(target - operator.apply(mean))
        return cls(operator.adjoint(c), factor.adjoint_diag * var, c, factor)

    def pull(self, operator: BalanceOperator, var: Tensor, grad_mean: Tensor, grad_var: Tensor) -> UpdateGradients:
        """Turn gradients with respect to `μ_C` and `v_C` into gradients with respect to `μ`, `v`, `t` and `r`.

        Arguments are those of `DisjointUpdate.pull`.
        """
        z = self.factor.solve(operator.apply(grad_mean * var))
        output_diag, balance_diag = self.factor.sandwiched(grad_var * var * var)
        grad_mean = grad_mean - operator.adjoint(z)
        grad_var = torch.addcmul(torch.addcmul(grad_var, grad_var, self.share, value=-2.0), grad_mean, self.step)
        grad_var = grad_var + output_diag
        return grad_mean, grad_var, z, torch.addcmul(balance_diag, z, self.c, value=-1.0)


class UpdatedGaussian(ConditionedGaussian):
    """A `ConditionedGaussian` that computes the gradients of its mean and variance in closed form where there is one.

    There is one for coefficients that all rows share and that need no gradient themselves. Exact coupled balances,
    ill-conditioned balances and the transforms of `torch.func` and `torch.export` are differentiated by autograd.
    """

    @cached_property
    def mean(self) -> Float[Tensor, "... n_y"]:
        """`μ_C` (C3)."""
        return super().mean if self._moments is None else self._to_outputs(self._moments[0])

    @cached_property
    def var(self) -> Float[Tensor, "... n_y"]:
        """`v_C = diag(Σ_C)` (C4), accurate to a few roundings of `v`."""
        return super().var if self._moments is None else self._to_outputs(self._moments[1])

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor] | None:
        """`μ_C` and `v_C` with closed-form gradients; None where no gradient is needed or there is no closed form."""
        mean, var, target, tol_var = parts = self.prior.mean, self.prior.var, self.target, self.tol_var
        needs_gradient = mean.requires_grad or var.requires_grad or target.requires_grad or tol_var.requires_grad
        if not needs_gradient or not _has_closed_form(self.operator.B):
            return None
        aligned = mean.shape == var.shape and target.shape == tol_var.shape and var.shape[:-1] == target.shape[:-1]
        if not aligned and batch_shape(*parts) != var.shape[:-1]:
            return None  # a variance that many rows share is computed once by the definition
        if not self.operator.coupled:
            return _ConditionedMoments.apply(None, self.operator, *parts)  # type: ignore[return-value]
        if any_true(tol_var == 0):
            return None  # the definition removes the rounding that coupling leaves in exact balances
        with torch.no_grad():
            update = BlockUpdate.compute(self.operator, *parts)
        return None if update is None else _ConditionedMoments.apply(update, self.operator, *parts)  # type: ignore[return-value]


def _has_closed_form(B: Tensor) -> bool:
    transformed = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    return torch.is_grad_enabled() and not transformed and not B.requires_grad and B.ndim == 2


class _ConditionedMoments(torch.autograd.Function):
    """The function `(μ, v, t, r) → μ_C, v_C`, differentiable twice.

    For coupled balances the caller passes the update, which does not exist for all of them; for other balances the
    caller passes None, and the update is computed here.
    """

    @staticmethod
    def forward(
        ctx: Any,
        block_update: BlockUpdate | None,
        operator: BalanceOperator,
        mean: Tensor,
        var: Tensor,
        target: Tensor,
        tol_var: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the conditioned mean and variance (C3, C4)."""
        update = block_update or DisjointUpdate.compute(operator, mean, var, target, tol_var)
        ctx.update, ctx.operator = update, operator  # neither holds an input or output of this function
        ctx.save_for_backward(mean, var, target, tol_var)
        var_c = torch.addcmul(var, var, update.share, value=-1.0)
        return torch.addcmul(mean, var, update.step), var_c.clamp_min_(0.0)  # rounding may lift a share above 1

    @staticmethod
    def backward(ctx: Any, grad_mean: Tensor, grad_var: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Return gradients with respect to mean, variance, target and tolerance variance."""
        parts, update = ctx.saved_tensors, ctx.update
        if torch.is_grad_enabled():  # second derivatives need an update with a graph
            update = type(update).compute(ctx.operator, *parts)
        gradients = update.pull(ctx.operator, parts[1], grad_mean, grad_var)
        return None, None, *gradients  # torch sums over axes of broadcasting
