"""`S = B diag(v) Bᵀ + diag(r)` of a batch of blocks, ready to be divided by: three ways, one face.

A 1 × 1 block is a division (`Scalar`). Well-conditioned blocks are inverted once by Cholesky (`Inverse`): what follows,
forward and backward, is matrix products. The others, of nearly dependent or exhausted balances, keep a triangular
factor from a QR that never forms `S` (`Triangular`): slower by a factor of three or four, and accurate where forming
`S` has lost half the digits. All have shape `(..., n_blocks, k, ·)`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.gaussian.shapes import common_shape

LARGEST_INVERSE = 2e-11  # over the rounding of the dtype: the largest element of the inverse of S scaled to diagonal 1


@dataclass(frozen=True)
class Scalar:
    """1 × 1 blocks, `S` of shape `(..., n_blocks, 1)`. `S = 0` (nothing uncertain) has pseudo-inverse 0."""

    S: Tensor

    @cached_property
    def inverse(self) -> Tensor:
        return torch.where(self.S > 0, 1.0 / torch.where(self.S > 0, self.S, 1.0), 0.0)

    def solve(self, rhs: Tensor) -> Tensor:
        return rhs * self.inverse

    def solve_matrix(self, B: Tensor) -> Tensor:
        return B * self.inverse.unsqueeze(-1)

    def half(self, B: Tensor) -> Tensor:
        return B * self.inverse.sqrt().unsqueeze(-1)

    def inverse_diag(self) -> Tensor:
        return self.inverse

    def log_det(self) -> Tensor:
        return self.S.log().sum((-2, -1))


@dataclass(frozen=True)
class Inverse:
    """Well-conditioned blocks: `S` and `S⁻¹`, shape `(..., n_blocks, k, k)`, and `log det S`, `(..., n_blocks)`."""

    S: Tensor
    inverse: Tensor
    log_dets: Tensor

    def solve(self, rhs: Tensor) -> Tensor:
        return (self.inverse * rhs.unsqueeze(-2)).sum(-1)  # faster than a batch of small matrix products

    def solve_matrix(self, B: Tensor) -> Tensor:
        return self.inverse @ B

    def half(self, B: Tensor) -> Tensor:
        root = self.S.detach().diagonal(dim1=-2, dim2=-1).sqrt()
        L = torch.linalg.cholesky(self.S / (root.unsqueeze(-1) * root.unsqueeze(-2)))
        return torch.linalg.solve_triangular(L, B / root.unsqueeze(-1), upper=False)

    def inverse_diag(self) -> Tensor:
        return self.inverse.diagonal(dim1=-2, dim2=-1)

    def log_det(self) -> Tensor:
        return self.log_dets.sum(-1)


@dataclass(frozen=True)
class Triangular:
    """Any blocks, `S = L Lᵀ` of shape `(..., n_blocks, k, k)`."""

    L: Tensor

    def half(self, B: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(self.L, B, upper=False)

    def solve(self, rhs: Tensor) -> Tensor:
        return self.solve_matrix(rhs.unsqueeze(-1)).squeeze(-1)

    def solve_matrix(self, B: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(self.L.mT, self.half(B), upper=True)

    def inverse_diag(self) -> Tensor:
        eye = torch.eye(self.L.shape[-1], dtype=self.L.dtype, device=self.L.device)
        return self.half(eye.expand(self.L.shape)).square().sum(-2)

    def log_det(self) -> Tensor:
        return 2.0 * self.L.diagonal(dim1=-2, dim2=-1).log().sum((-2, -1))


def inverse_of(S: Float[Tensor, "... n_blocks k k"]) -> Inverse | None:
    """The inverse, if every block is so well conditioned that it keeps about eleven digits; else None."""
    if S.is_meta or torch.compiler.is_compiling():  # a decision on values cannot be traced
        return None
    with torch.no_grad():
        scale = S.diagonal(dim1=-2, dim2=-1).rsqrt()
        units = scale.unsqueeze(-1) * scale.unsqueeze(-2)
        L, info = torch.linalg.cholesky_ex(S * units)
        if bool((info != 0).any()):
            return None
        inverse = torch.cholesky_inverse(L)
        largest = inverse.diagonal(dim1=-2, dim2=-1).amax() if inverse.numel() else inverse.new_zeros(())
        if not bool(largest * torch.finfo(S.dtype).eps <= LARGEST_INVERSE):
            return None
        log_dets = 2.0 * (L.diagonal(dim1=-2, dim2=-1) / scale).log().sum(-1)
        inverse = inverse.mT * units  # transposed: contiguous
    return Inverse(S, *_Inverted.apply(S, inverse, log_dets))  # type: ignore[misc]


class _Inverted(torch.autograd.Function):
    """`S → S⁻¹, log det S`, both known already. `S̄ = −S⁻¹ X̄ S⁻¹ + ℓ̄ S⁻¹` for their gradients `X̄` and `ℓ̄`."""

    @staticmethod
    def forward(ctx: Any, S: Tensor, inverse: Tensor, log_dets: Tensor) -> tuple[Tensor, Tensor]:
        inverse, log_dets = inverse.view_as(inverse), log_dets.view_as(log_dets)
        ctx.save_for_backward(inverse)  # an output, so that the backward can be differentiated in its turn
        ctx.set_materialize_grads(False)
        return inverse, log_dets

    @staticmethod
    def backward(ctx: Any, of_inverse: Tensor | None, of_log_det: Tensor | None) -> tuple[Tensor | None, None, None]:  # type: ignore[override]
        (inverse,) = ctx.saved_tensors
        of_S = None if of_inverse is None else -(inverse @ of_inverse @ inverse)
        if of_log_det is not None:
            trace = of_log_det.unsqueeze(-1).unsqueeze(-1) * inverse
            of_S = trace if of_S is None else of_S + trace
        return of_S, None, None


def triangular_factor(
    B: Float[Tensor, "... n_blocks k J"], v: Float[Tensor, "... n_blocks J"], r: Float[Tensor, "... n_blocks k"]
) -> Triangular:
    """The factor `L` of `S`, however badly conditioned."""
    return Triangular(_TriangularFactor.apply(B, v, r))  # type: ignore[arg-type]


class _TriangularFactor(torch.autograd.Function):
    """`(B, v, r) → L` with `S = B diag(v) Bᵀ + diag(r) = L Lᵀ`, differentiable in all three.

    Forward, by QR: `S = Mᵀ M` with `M = [√v Bᵀ; √r]`, and the R of `M = Q R` is `Lᵀ`. Forming S first would square its
    condition number, and balances may be nearly dependent. Columns of M are scaled to length 1 meanwhile, so that
    units cannot spoil the factor.

    Backward, from S as a function of v and r (so that it is right at r = 0, where √r has no derivative)::

        S̄ = ½ L⁻ᵀ (Φ + Φᵀ) L⁻¹,  Φ = tril(Lᵀ L̄) with its diagonal halved        v̄ = diag(Bᵀ S̄ B),  r̄ = diag(S̄)
        B̄ = 2 S̄ B diag(v)
    """

    @staticmethod
    def forward(ctx, B: Tensor, v: Tensor, r: Tensor) -> Tensor:
        diag = (B.square() * v.unsqueeze(-2)).sum(-1) + r
        root = torch.where(diag > 0, diag, 1.0).sqrt()
        top, bottom = (B * v.sqrt().unsqueeze(-2)).mT, torch.diag_embed(r.sqrt())
        shape = common_shape(top.shape[:-2], bottom.shape[:-2])
        M = torch.cat([part.expand(*shape, *part.shape[-2:]) for part in (top, bottom)], -2) / root.unsqueeze(-2)
        R = torch.linalg.qr(M, mode="r").R
        diagonal = R.diagonal(dim1=-2, dim2=-1)
        # A zero on the diagonal is a balance in which nothing uncertain is left, or that repeats others: an infinite
        # pivot takes it out, as the pseudo-inverse would.
        lift = torch.where(diagonal.abs() < 8 * M.shape[-2] * torch.finfo(M.dtype).eps, 1e30, 0.0)
        sign = torch.where(diagonal < 0, -1.0, 1.0)
        L = root.unsqueeze(-1) * (R * sign.unsqueeze(-1) + torch.diag_embed(lift)).mT
        ctx.save_for_backward(B, v, r, L)
        return L

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (grad,), (B, v, r, L) = grads, ctx.saved_tensors
        phi = (L.mT @ grad).tril()
        phi = phi - 0.5 * torch.diag_embed(phi.diagonal(dim1=-2, dim2=-1))
        half = torch.linalg.solve_triangular(L.mT, phi + phi.mT, upper=True)
        S = 0.5 * torch.linalg.solve_triangular(L, half, upper=False, left=False)
        v_grad = ((S @ B) * B).sum(-2)
        B_grad = (2.0 * (S @ B) * v.unsqueeze(-2)).sum_to_size(B.shape) if ctx.needs_input_grad[0] else None
        return B_grad, v_grad.sum_to_size(v.shape), S.diagonal(dim1=-2, dim2=-1).sum_to_size(r.shape)
