"""What conditioning does to the mean and the variance of a Gaussian, with gradients in closed form.

With `c = S⁻¹ (t − B μ)`, and `h = v ⊙ diag(Bᵀ S⁻¹ B)` the share of its variance that each output loses (C1–C4)::

    μ_C = μ + v ⊙ Bᵀ c        v_C = v ⊙ (1 − h)

Gradients of these, `μ̄_C` and `v̄_C`, make those of all that went in, by `z = S⁻¹ B (v ⊙ μ̄_C)` and
`W = S⁻¹ B diag(v² ⊙ v̄_C) Bᵀ S⁻¹`::

    μ̄ = μ̄_C − Bᵀ z            v̄ = v̄_C ⊙ (1 − 2h) + μ̄ ⊙ Bᵀ c + diag(Bᵀ W B)
    t̄ = z                     r̄ = diag(W) − z ⊙ c

At the paper's size a layer is bound by the number of operations, not by their work, and autograd needs twice as many to
differentiate the `ConditionedGaussian` that defines all this.
"""

from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear

from equipoise.gaussian.distributions import ConditionedGaussian
from equipoise.gaussian.operator import BalanceOperator, BlockFactor, reciprocal_or_zero, somewhere
from equipoise.gaussian.shapes import batch_shape

Pulled = tuple[Tensor, Tensor, Tensor, Tensor]  # gradients of μ, v, t and r


class DisjointUpdate(NamedTuple):
    """Where no two balances share an output: `S` has the diagonal `B² v + r` and nothing else."""

    step: Float[Tensor, "... n_y"]  # Bᵀ c
    share: Float[Tensor, "... n_y"]  # h
    c: Float[Tensor, "... m"]
    precision: Float[Tensor, "... m"]  # 1 / S

    @classmethod
    def of(
        cls, operator: BalanceOperator, mean: Tensor, var: Tensor, target: Tensor, tol_var: Tensor
    ) -> "DisjointUpdate":
        """For coefficients that all rows share."""
        B, B2 = operator.B, operator.squares
        precision = reciprocal_or_zero(linear(var, B2) + tol_var)
        c = (target - linear(mean, B)) * precision
        return cls(c @ B, (precision @ B2) * var, c, precision)

    def pull(self, operator: BalanceOperator, var: Tensor, of_mean: Tensor, of_var: Tensor) -> Pulled:
        """From the gradients of `μ_C` and `v_C` to those of what they came from."""
        step, share, c, precision = self
        B, B2 = operator.B, operator.squares
        z = linear(of_mean * var, B).mul_(precision)
        w = linear((of_var * var).mul_(var), B2).mul_(precision).mul_(precision)
        of_mean = of_mean - z @ B
        of_var = torch.addcmul(of_var, of_var, share, value=-2.0).addcmul_(of_mean, step).add_(w @ B2)
        return of_mean, of_var, z, w.addcmul_(z, c, value=-1.0)


class BlockUpdate(NamedTuple):
    """For coupled balances whose blocks are well conditioned."""

    step: Float[Tensor, "... n_y"]  # Bᵀ c
    share: Float[Tensor, "... n_y"]  # h
    c: Float[Tensor, "... m"]
    factor: BlockFactor

    @classmethod
    def of(
        cls, operator: BalanceOperator, mean: Tensor, var: Tensor, target: Tensor, tol_var: Tensor
    ) -> "BlockUpdate | None":
        """None if some block needs a triangular factor."""
        if (factor := operator.inverted(var, tol_var)) is None:
            return None
        c = factor.solve(target - operator.apply(mean))
        return cls(operator.adjoint(c), factor.adjoint_diag * var, c, factor)

    def pull(self, operator: BalanceOperator, var: Tensor, of_mean: Tensor, of_var: Tensor) -> Pulled:
        """From the gradients of `μ_C` and `v_C` to those of what they came from."""
        z = self.factor.solve(operator.apply(of_mean * var))
        of_columns, of_rows = self.factor.sandwiched(of_var * var * var)
        of_mean = of_mean - operator.adjoint(z)
        of_var = torch.addcmul(torch.addcmul(of_var, of_var, self.share, value=-2.0), of_mean, self.step) + of_columns
        return of_mean, of_var, z, torch.addcmul(of_rows, z, self.c, value=-1.0)


class UpdatedGaussian(ConditionedGaussian):
    """A `ConditionedGaussian` that knows the gradients of its mean and variance where they have a closed form.

    They have one for coefficients that all rows share and that are not differentiated themselves. Exact balances that
    are coupled, ill-conditioned ones, and the transforms of `torch.func` and `torch.export` go through autograd.
    """

    @cached_property
    def mean(self) -> Float[Tensor, "... n_y"]:
        """`μ_C` (C3)."""
        return super().mean if self._moments is None else self._seen(self._moments[0])

    @cached_property
    def var(self) -> Float[Tensor, "... n_y"]:
        """`v_C = diag(Σ_C)` (C4), accurate to a few roundings of `v`."""
        return super().var if self._moments is None else self._seen(self._moments[1])

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor] | None:
        """Both at once, if someone asks for gradients and they have a closed form."""
        mean, var, target, tol_var = parts = self.prior.mean, self.prior.var, self.target, self.tol_var
        asked = mean.requires_grad or var.requires_grad or target.requires_grad or tol_var.requires_grad
        if not asked or not _has_closed_form(self.operator.B):
            return None
        aligned = mean.shape == var.shape and target.shape == tol_var.shape and var.shape[:-1] == target.shape[:-1]
        if not aligned and batch_shape(*parts) != var.shape[:-1]:
            return None  # a variance that belongs to many rows is found once
        if not self.operator.coupled:
            return _Moments.apply(None, self.operator, *parts)  # type: ignore[return-value]
        if somewhere(tol_var == 0):
            return None  # what coupling costs an exact balance in rounding is made good afterwards
        with torch.no_grad():
            update = BlockUpdate.of(self.operator, *parts)
        return None if update is None else _Moments.apply(update, self.operator, *parts)  # type: ignore[return-value]


def _has_closed_form(B: Tensor) -> bool:
    transformed = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    return torch.is_grad_enabled() and not transformed and not B.requires_grad and B.ndim == 2


class _Moments(torch.autograd.Function):
    """`(μ, v, t, r) → μ_C, v_C`, with gradients that can be differentiated in their turn.

    Coupled balances bring their update along, as some have none; the others, with None, have theirs found here.
    """

    @staticmethod
    def forward(
        ctx: Any,
        found: BlockUpdate | None,
        operator: BalanceOperator,
        mean: Tensor,
        var: Tensor,
        target: Tensor,
        tol_var: Tensor,
    ) -> tuple[Tensor, Tensor]:
        update = found or DisjointUpdate.of(operator, mean, var, target, tol_var)
        ctx.update, ctx.operator = update, operator  # holds nothing that came in or goes out
        ctx.save_for_backward(mean, var, target, tol_var)
        var_c = torch.addcmul(var, var, update.share, value=-1.0)
        return torch.addcmul(mean, var, update.step), var_c.clamp_min_(0.0)  # rounding may lift a share above 1

    @staticmethod
    def backward(ctx: Any, of_mean: Tensor, of_var: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        parts, update = ctx.saved_tensors, ctx.update
        if torch.is_grad_enabled():  # second derivatives: this update does not know where it came from
            update = type(update).of(ctx.operator, *parts)
        return None, None, *update.pull(ctx.operator, parts[1], of_mean, of_var)  # torch sums over axes of broadcasting
