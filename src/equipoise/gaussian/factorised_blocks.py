"""Batches of blocks of `S = B diag(v) Bᵀ + diag(r)`, factorised in one of three ways that have the same methods.

Blocks of one balance need a division (`ScalarBlocks`). Well-conditioned blocks are inverted once by Cholesky
(`InvertedBlocks`), so that forward and backward passes are matrix products. Blocks of nearly dependent balances, or of
balances without uncertain outputs, keep a triangular factor from a QR that never forms `S` (`TriangularBlocks`): slower
by a factor of three or four, and accurate where forming `S` loses half the digits. Their methods, for blocks of k
balances with J outputs:

- `solve(rhs)`: `S⁻¹ rhs`, both of shape `(..., n_blocks, k)`.
- `solve_matrix(B)`: `S⁻¹ B`, both of shape `(..., n_blocks, k, J)`.
- `half(B)`: `L⁻¹ B` with `S = L Lᵀ`, shape `(..., n_blocks, k, J)`.
- `inverse_diag()`: The diagonals of `S⁻¹`, shape `(..., n_blocks, k)`.
- `log_det()`: `log det S`, summed over blocks, shape `(...)`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.gaussian.shapes import common_shape

# Blocks are inverted if `eps` times the largest element of the inverse of S, scaled to diagonal 1, is at most this.
LARGEST_INVERSE = 2e-11


@dataclass(frozen=True)
class ScalarBlocks:
    """Blocks of one balance, `S` of shape `(..., n_blocks, 1)`; `S = 0` (nothing uncertain) has pseudo-inverse 0."""

    S: Tensor

    @cached_property
    def inverse(self) -> Tensor:
        """`1 / S`, and 0 where `S = 0`."""
        return torch.where(self.S > 0, 1.0 / torch.where(self.S > 0, self.S, 1.0), 0.0)

    def solve(self, rhs: Tensor) -> Tensor:
        """Compute `S⁻¹ rhs`."""
        return rhs * self.inverse

    def solve_matrix(self, B: Tensor) -> Tensor:
        """Compute `S⁻¹ B`."""
        return B * self.inverse.unsqueeze(-1)

    def half(self, B: Tensor) -> Tensor:
        """Compute `S^{-1/2} B`."""
        return B * self.inverse.sqrt().unsqueeze(-1)

    def inverse_diag(self) -> Tensor:
        """Return `1 / S`."""
        return self.inverse

    def log_det(self) -> Tensor:
        """Compute `log det S`, summed over blocks."""
        return self.S.log().sum((-2, -1))


@dataclass(frozen=True)
class InvertedBlocks:
    """Well-conditioned blocks: `S` and `S⁻¹`, shape `(..., n_blocks, k, k)`, and `log det S`, `(..., n_blocks)`."""

    S: Tensor
    inverse: Tensor
    log_dets: Tensor

    def solve(self, rhs: Tensor) -> Tensor:
        """Compute `S⁻¹ rhs`."""
        return (self.inverse * rhs.unsqueeze(-2)).sum(-1)  # faster than a batch of small matrix products

    def solve_matrix(self, B: Tensor) -> Tensor:
        """Compute `S⁻¹ B`."""
        return self.inverse @ B

    def half(self, B: Tensor) -> Tensor:
        """Compute `L⁻¹ B` with `S = L Lᵀ`."""
        root = self.S.detach().diagonal(dim1=-2, dim2=-1).sqrt()
        L = torch.linalg.cholesky(self.S / (root.unsqueeze(-1) * root.unsqueeze(-2)))
        return torch.linalg.solve_triangular(L, B / root.unsqueeze(-1), upper=False)

    def inverse_diag(self) -> Tensor:
        """Return the diagonals of `S⁻¹`."""
        return self.inverse.diagonal(dim1=-2, dim2=-1)

    def log_det(self) -> Tensor:
        """Compute `log det S`, summed over blocks."""
        return self.log_dets.sum(-1)


@dataclass(frozen=True)
class TriangularBlocks:
    """Blocks of any condition by their Cholesky factors `L`, `S = L Lᵀ`, shape `(..., n_blocks, k, k)`."""

    L: Tensor

    def half(self, B: Tensor) -> Tensor:
        """Compute `L⁻¹ B`."""
        return torch.linalg.solve_triangular(self.L, B, upper=False)

    def solve(self, rhs: Tensor) -> Tensor:
        """Compute `S⁻¹ rhs`."""
        return self.solve_matrix(rhs.unsqueeze(-1)).squeeze(-1)

    def solve_matrix(self, B: Tensor) -> Tensor:
        """Compute `S⁻¹ B`."""
        return torch.linalg.solve_triangular(self.L.mT, self.half(B), upper=True)

    def inverse_diag(self) -> Tensor:
        """Compute the diagonals of `S⁻¹`."""
        eye = torch.eye(self.L.shape[-1], dtype=self.L.dtype, device=self.L.device)
        return self.half(eye.expand(self.L.shape)).square().sum(-2)

    def log_det(self) -> Tensor:
        """Compute `log det S`, summed over blocks."""
        return 2.0 * self.L.diagonal(dim1=-2, dim2=-1).log().sum((-2, -1))


def invert_blocks(S: Float[Tensor, "... n_blocks k k"]) -> InvertedBlocks | None:
    """Invert blocks of `S`, or return None unless all are so well conditioned that about eleven digits are kept."""
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
    return InvertedBlocks(S, *_Inversion.apply(S, inverse, log_dets))  # type: ignore[misc]


class _Inversion(torch.autograd.Function):
    """The function `S → S⁻¹, log det S` with values computed beforehand, differentiable twice.

    With gradients `X̄` and `ℓ̄` with respect to its two results, `S̄ = −S⁻¹ X̄ S⁻¹ + ℓ̄ S⁻¹`.
    """

    @staticmethod
    def forward(ctx: Any, S: Tensor, inverse: Tensor, log_dets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the given inverse and log determinants of `S`.

        Args:
            ctx: Autograd's context.
            S: The blocks, shape `(..., n_blocks, k, k)`.
            inverse: Their inverses.
            log_dets: Their log determinants, shape `(..., n_blocks)`.
        """
        inverse, log_dets = inverse.view_as(inverse), log_dets.view_as(log_dets)
        ctx.save_for_backward(inverse)  # an output, so that the backward pass can be differentiated
        ctx.set_materialize_grads(False)
        return inverse, log_dets

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: Any, grad_inverse: Tensor | None, grad_log_det: Tensor | None
    ) -> tuple[Tensor | None, None, None]:
        """Return the gradient with respect to `S`; either gradient passed in may be None.

        Args:
            ctx: Autograd's context.
            grad_inverse, grad_log_det: Gradients with respect to the two results.
        """
        (inverse,) = ctx.saved_tensors
        grad_S = None if grad_inverse is None else -(inverse @ grad_inverse @ inverse)
        if grad_log_det is not None:
            trace = grad_log_det.unsqueeze(-1).unsqueeze(-1) * inverse
            grad_S = trace if grad_S is None else grad_S + trace
        return grad_S, None, None


def factorise_blocks(
    B: Float[Tensor, "... n_blocks k J"], v: Float[Tensor, "... n_blocks J"], r: Float[Tensor, "... n_blocks k"]
) -> TriangularBlocks:
    """Factorise the blocks `S = B diag(v) Bᵀ + diag(r)`, however badly conditioned.

    Args:
        B: Coefficients by block, shape `(..., n_blocks, k, J)`.
        v: Variances by block, shape `(..., n_blocks, J)`.
        r: Tolerance variances by block, shape `(..., n_blocks, k)`.
    """
    return TriangularBlocks(_TriangularFactor.apply(B, v, r))  # type: ignore[arg-type]


class _TriangularFactor(torch.autograd.Function):
    """The function `(B, v, r) → L` with `S = B diag(v) Bᵀ + diag(r) = L Lᵀ`, differentiable in all three.

    Forward, by QR: `S = Mᵀ M` with `M = [√v Bᵀ; √r]`, and the R of `M = Q R` is `Lᵀ`. Forming S first would square its
    condition number, and balances may be nearly dependent. The QR works on columns of M scaled to length 1, so that
    the units of the balances do not affect its accuracy.

    Backward, from S as a function of v and r (so that it is right at r = 0, where √r has no derivative)::

        S̄ = ½ L⁻ᵀ (Φ + Φᵀ) L⁻¹,  Φ = tril(Lᵀ L̄) with its diagonal halved        v̄ = diag(Bᵀ S̄ B),  r̄ = diag(S̄)
        B̄ = 2 S̄ B diag(v)
    """

    @staticmethod
    def forward(ctx, B: Tensor, v: Tensor, r: Tensor) -> Tensor:
        """Return `L`, shape `(..., n_blocks, k, k)`.

        Args:
            ctx: Autograd's context.
            B, v, r: Arguments of `factorise_blocks`.
        """
        diag = (B.square() * v.unsqueeze(-2)).sum(-1) + r
        root = torch.where(diag > 0, diag, 1.0).sqrt()
        top, bottom = (B * v.sqrt().unsqueeze(-2)).mT, torch.diag_embed(r.sqrt())
        shape = common_shape(top.shape[:-2], bottom.shape[:-2])
        M = torch.cat([part.expand(*shape, *part.shape[-2:]) for part in (top, bottom)], -2) / root.unsqueeze(-2)
        R = torch.linalg.qr(M, mode="r").R
        diagonal = R.diagonal(dim1=-2, dim2=-1)
        # A zero on the diagonal is a balance without uncertain outputs, or one that depends on others: an infinite
        # pivot removes it, as the pseudo-inverse would.
        lift = torch.where(diagonal.abs() < 8 * M.shape[-2] * torch.finfo(M.dtype).eps, 1e30, 0.0)
        sign = torch.where(diagonal < 0, -1.0, 1.0)
        L = root.unsqueeze(-1) * (R * sign.unsqueeze(-1) + torch.diag_embed(lift)).mT
        ctx.save_for_backward(B, v, r, L)
        return L

    @staticmethod
    def backward(ctx, *grads: Tensor):
        """Return the gradients with respect to `B`, `v` and `r`.

        Args:
            ctx: Autograd's context.
            grads: The gradient with respect to `L`.
        """
        (grad,), (B, v, r, L) = grads, ctx.saved_tensors
        phi = (L.mT @ grad).tril()
        phi = phi - 0.5 * torch.diag_embed(phi.diagonal(dim1=-2, dim2=-1))
        half = torch.linalg.solve_triangular(L.mT, phi + phi.mT, upper=True)
        S = 0.5 * torch.linalg.solve_triangular(L, half, upper=False, left=False)
        grad_v = ((S @ B) * B).sum(-2)
        grad_B = (2.0 * (S @ B) * v.unsqueeze(-2)).sum_to_size(B.shape) if ctx.needs_input_grad[0] else None
        return grad_B, grad_v.sum_to_size(v.shape), S.diagonal(dim1=-2, dim2=-1).sum_to_size(r.shape)
