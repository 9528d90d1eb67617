"""`S = B diag(v) Bᵀ + diag(r)` in connected blocks: the one matrix the library ever factorises.

Balances that share no output make `S` block-diagonal. Blocks are found once; all blocks of one size form one batch.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from equipoise.constraints import connected_rows
from equipoise.inversion import Inverse, Scalar, Triangular, inverse_of, triangular_factor

LOG_2PI = math.log(2.0 * math.pi)
PRODUCTS = 2**20  # numbers that products of coefficients may take, in a block


class BalanceOperator:
    """The coefficients `B` as an operator that knows which balances touch each other.

    Args:
        B: Coefficients, shape `(..., m, n_y)`; leading axes broadcast against the batch.
        layout: Which rows and outputs make up each block; found from the zeros of `B` when not given.
    """

    def __init__(self, B: Float[Tensor, "... m n_y"], layout: "list[BlockLayout] | None" = None):
        self.B = B
        layout = block_layout(B) if layout is None else layout
        self.groups = [group.gather(B) for group in layout]
        self.coupled = any(group.rows.shape[-1] > 1 for group in layout)

    def apply(self, y: Float[Tensor, "... n_y"]) -> Float[Tensor, "... m"]:
        """`B y`."""
        return y @ self.B.mT if self.B.ndim == 2 else (self.B @ y.unsqueeze(-1)).squeeze(-1)

    def adjoint(self, balance: Float[Tensor, "... m"]) -> Float[Tensor, "... n_y"]:
        """`Bᵀ λ`."""
        return balance @ self.B if self.B.ndim == 2 else (self.B.mT @ balance.unsqueeze(-1)).squeeze(-1)

    def apply_squared(self, var: Float[Tensor, "... n_y"]) -> Float[Tensor, "... m"]:
        """`diag(B diag(v) Bᵀ) = B² v`."""
        return var @ self.squares.mT if self.B.ndim == 2 else (self.squares @ var.unsqueeze(-1)).squeeze(-1)

    def adjoint_squared(self, balance: Float[Tensor, "... m"]) -> Float[Tensor, "... n_y"]:
        """`diag(Bᵀ diag(λ) B) = (B²)ᵀ λ`."""
        return balance @ self.squares if self.B.ndim == 2 else (self.squares.mT @ balance.unsqueeze(-1)).squeeze(-1)

    @cached_property
    def squares(self) -> Float[Tensor, "... m n_y"]:
        """`B²`, element by element."""
        return self.B.square()

    def magnitude(self, y: Float[Tensor, "... n_y"]) -> Float[Tensor, "... m"]:
        """`Σ_j |B_kj| |y_j|`: what rounding in `B y` is measured against."""
        return (self.B.abs() @ y.abs().unsqueeze(-1)).squeeze(-1)

    def factor(self, var: Float[Tensor, "... n_y"], tol_var: Float[Tensor, "... m"]) -> "Factor":
        """Factorise `S = B diag(v) Bᵀ + diag(r)` (C1): divisions where no two balances touch, else block by block."""
        return BlockFactor(self, var, tol_var) if self.coupled else DiagonalFactor(self, var, tol_var)


class DiagonalFactor:
    """`S` where no two balances share an output: its diagonal `B² v + r` (C1).

    `S = 0` (nothing uncertain in an exact balance) has the pseudo-inverse 0.
    """

    def __init__(self, operator: BalanceOperator, var: Tensor, tol_var: Tensor):
        self.operator = operator
        self.S = operator.apply_squared(var) + tol_var
        self.inverse_diag = torch.where(self.S > 0, 1.0 / torch.where(self.S > 0, self.S, 1.0), 0.0)

    def solve(self, rhs: Float[Tensor, "... m"]) -> Float[Tensor, "... m"]:
        """`S⁻¹ rhs`."""
        return rhs * self.inverse_diag

    @cached_property
    def log_det(self) -> Float[Tensor, "..."]:
        """`log det S`."""
        return self.S.log().sum(-1)

    @cached_property
    def adjoint_diag(self) -> Float[Tensor, "... n_y"]:
        """`diag(Bᵀ S⁻¹ B)`."""
        return self.operator.adjoint_squared(self.inverse_diag)

    def half(self) -> Float[Tensor, "... m n_y"]:
        """`S^{-1/2} B`."""
        return self.operator.B * safe_sqrt(self.inverse_diag).unsqueeze(-1)

    def inverse_rows(self) -> Float[Tensor, "... m n_y"]:
        """`S⁻¹ B`."""
        return self.operator.B * self.inverse_diag.unsqueeze(-1)

    def log_prob(self, residual: Float[Tensor, "... m"]) -> Float[Tensor, "..."]:
        """`log N(residual; 0, S)`."""
        return _log_prob(self, residual)


class BlockFactor:
    """A factorised `S = B diag(v) Bᵀ + diag(r)`, shape `(..., m, m)` and never stored as such (C1)."""

    def __init__(self, operator: BalanceOperator, var: Tensor, tol_var: Tensor):
        self.operator = operator
        self._parts = [_factor_group(group, var, tol_var) for group in operator.groups]

    def solve(self, rhs: Float[Tensor, "... m"]) -> Float[Tensor, "... m"]:
        """`S⁻¹ rhs`."""
        return self._rows([part.solve(group.rows_of(rhs)) for group, part in self._pairs()])

    @cached_property
    def log_det(self) -> Float[Tensor, "..."]:
        """`log det S`."""
        return sum(part.log_det() for part in self._parts)  # type: ignore[return-value]

    @cached_property
    def inverse_diag(self) -> Float[Tensor, "... m"]:
        """`diag(S⁻¹)`."""
        return self._rows([part.inverse_diag() for part in self._parts])

    @cached_property
    def adjoint_diag(self) -> Float[Tensor, "... n_y"]:
        """`diag(Bᵀ S⁻¹ B)`: by C4, the share of its variance each output loses is `v` times this."""
        return sum(group.scatter_columns(_adjoint_diag(group, part)) for group, part in self._pairs())  # type: ignore[return-value]

    def half(self) -> Float[Tensor, "... m n_y"]:
        """`L⁻¹ B` with `S = L Lᵀ`, so that `Bᵀ S⁻¹ B` is its Gram matrix."""
        return torch.cat([group.scatter_rows(part.half(group.B)) for group, part in self._pairs()], dim=-2)

    def inverse_rows(self) -> Float[Tensor, "... m n_y"]:
        """`S⁻¹ B`, rows in the order of the balances."""
        parts = [group.scatter_rows(part.solve_matrix(group.B)) for group, part in self._pairs()]
        return torch.cat(parts, dim=-2).index_select(-2, self._inverse_order)

    def log_prob(self, residual: Float[Tensor, "... m"]) -> Float[Tensor, "..."]:
        """`log N(residual; 0, S)`."""
        return _log_prob(self, residual)

    def _pairs(self):
        return zip(self.operator.groups, self._parts, strict=True)

    @property
    def _inverse_order(self) -> Tensor:
        rows = torch.cat([group.layout.rows.reshape(-1) for group in self.operator.groups])
        return rows.argsort().to(self.operator.B.device)

    def _rows(self, parts: list[Tensor]) -> Tensor:
        """Concatenate per-group results `(..., n_blocks, k)` into balance order `(..., m)`."""
        flat = [part.flatten(-2) for part in parts]
        if len(flat) == 1 and self.operator.groups[0].layout.ordered:
            return flat[0]
        shape = torch.broadcast_shapes(*(part.shape[:-1] for part in flat))
        return torch.cat([p.expand(*shape, p.shape[-1]) for p in flat], -1).index_select(-1, self._inverse_order)


Factor = DiagonalFactor | BlockFactor


def _adjoint_diag(group: "BlockGroup", part: Scalar | Inverse | Triangular) -> Tensor:
    if isinstance(part, Scalar):
        return group.B.squeeze(-2).square() * part.inverse
    return group.adjoint_diag(part.inverse) if isinstance(part, Inverse) else part.half(group.B).square().sum(-2)


def _log_prob(factor: Factor, residual: Tensor) -> Tensor:
    return -0.5 * ((residual * factor.solve(residual)).sum(-1) + factor.log_det + residual.shape[-1] * LOG_2PI)


@dataclass(frozen=True)
class BlockLayout:
    """Where all blocks of one size `k` stand in `B`, padded to one width `J` so that they form a batch."""

    rows: Int[Tensor, "n_blocks k"]
    columns: Int[Tensor, "n_blocks J"] | None  # None: one block over all rows and outputs, in order
    real: Float[Tensor, "n_blocks J"] | None  # 0 at padding
    n_columns: int
    ordered: bool  # the rows of all balances, in their own order, are exactly those of this group

    def gather(self, B: Tensor) -> "BlockGroup":
        if self.columns is None:
            return BlockGroup(self, B.unsqueeze(-3))
        rows, columns, real = (part.to(B.device) for part in (self.rows, self.columns, self.real))  # type: ignore
        return BlockGroup(self, B[..., rows.unsqueeze(-1), columns.unsqueeze(-2)] * real.to(B.dtype).unsqueeze(-2))


def block_layout(B: Float[Tensor, "... m n_y"]) -> list[BlockLayout]:
    """Partition balances into connected blocks (no output shared between two of them), grouped by size."""
    pattern = (B.detach() != 0).reshape(-1, *B.shape[-2:]).any(0).cpu().numpy()
    blocks = connected_rows(pattern)
    if len(blocks) == 1:
        return [BlockLayout(torch.arange(B.shape[-2]).unsqueeze(0), None, None, B.shape[-1], True)]
    sizes = sorted({len(block) for block in blocks})
    return [_layout([block for block in blocks if len(block) == size], pattern) for size in sizes]


def _layout(blocks: list[tuple[int, ...]], pattern: np.ndarray) -> BlockLayout:
    columns = [np.flatnonzero(pattern[list(block)].any(0)) for block in blocks]
    width = max(len(c) for c in columns)
    padded = np.stack([np.pad(c, (0, width - len(c))) for c in columns])
    real = np.stack([np.arange(width) < len(c) for c in columns]).astype(float)
    rows = np.asarray(blocks)
    ordered = rows.ravel().tolist() == list(range(len(pattern)))
    return BlockLayout(torch.as_tensor(rows), torch.as_tensor(padded), torch.as_tensor(real), pattern.shape[1], ordered)


@dataclass(frozen=True)
class BlockGroup:
    """The coefficients of all blocks of one size, as a batch."""

    layout: BlockLayout
    B: Float[Tensor, "... n_blocks k J"]

    def rows_of(self, values: Tensor) -> Tensor:
        """`(..., m)` to `(..., n_blocks, k)`."""
        rows = self.layout.rows
        if not self.layout.ordered:
            values = values.index_select(-1, rows.reshape(-1).to(values.device))
        return values.unflatten(-1, rows.shape)

    def columns_of(self, values: Tensor) -> Tensor:
        """`(..., n_y)` to `(..., n_blocks, J)`."""
        columns = self.layout.columns
        if columns is None:
            return values.unsqueeze(-2)
        return values.index_select(-1, columns.reshape(-1).to(values.device)).unflatten(-1, columns.shape)

    @cached_property
    def products(self) -> Float[Tensor, "n_blocks J_and_k kk"] | None:
        """`b_j b_jᵀ` of every output, then `e_k e_kᵀ` of every balance, so that `S` is one matrix product; None where
        that is too much."""
        k, J = self.B.shape[-2:]
        if self.B.ndim > 3 or J * k * k > PRODUCTS:
            return None
        columns = torch.cat(
            [self.B, torch.eye(k, dtype=self.B.dtype, device=self.B.device).expand(len(self.B), k, k)], -1
        )
        return (columns.unsqueeze(-2) * columns.unsqueeze(-3)).flatten(-3, -2).mT.contiguous()

    def S(
        self, v: Float[Tensor, "... n_blocks J"], r: Float[Tensor, "... n_blocks k"]
    ) -> Float[Tensor, "... n_blocks k k"]:
        """`B diag(v) Bᵀ + diag(r)` (C1)."""
        if self.products is None:
            return (self.B * v.unsqueeze(-2)) @ self.B.mT + torch.diag_embed(r)
        lead = torch.broadcast_shapes(v.shape[:-1], r.shape[:-1])
        both = torch.cat([v.expand(*lead, v.shape[-1]), r.expand(*lead, r.shape[-1])], -1)
        return _block_by_block(both, self.products).unflatten(-1, (r.shape[-1], r.shape[-1]))

    def adjoint_diag(self, X: Float[Tensor, "... n_blocks k k"]) -> Float[Tensor, "... n_blocks J"]:
        """`diag(Bᵀ X B)`."""
        if self.products is None:
            return ((X @ self.B) * self.B).sum(-2)
        return _block_by_block(X.flatten(-2), self.products[:, : self.B.shape[-1]].mT)

    def scatter_columns(self, values: Tensor) -> Tensor:
        """`(..., n_blocks, J)` back to `(..., n_y)`; padding carries zeros."""
        if self.layout.columns is None:
            return values.squeeze(-2)
        out = values.new_zeros(*values.shape[:-2], self.layout.n_columns)
        return out.index_add(-1, self.layout.columns.reshape(-1).to(values.device), values.flatten(-2))

    def scatter_rows(self, values: Tensor) -> Tensor:
        """`(..., n_blocks, k, J)` to `(..., n_blocks · k, n_y)`."""
        if self.layout.columns is None:
            return values.squeeze(-3)
        out = values.new_zeros(*values.shape[:-1], self.layout.n_columns)
        index = self.layout.columns.to(values.device).unsqueeze(-2).expand(values.shape)
        return out.scatter_add(-1, index, values).flatten(-3, -2)


def _block_by_block(values: Tensor, matrices: Tensor) -> Tensor:
    """`(..., n_blocks, a)` times `(n_blocks, a, b)`: one matrix product per block, whatever the batch."""
    lead = values.shape[:-2]
    flat = values.movedim(-2, 0).reshape(len(matrices), -1, values.shape[-1]) @ matrices
    return flat.reshape(len(matrices), *lead, matrices.shape[-1]).movedim(0, -2)


def _factor_group(group: BlockGroup, var: Tensor, tol_var: Tensor) -> Scalar | Inverse | Triangular:
    v, r = group.columns_of(var), group.rows_of(tol_var)
    if group.layout.rows.shape[-1] == 1:
        return Scalar((group.B.squeeze(-2).square() * v).sum(-1, keepdim=True) + r)
    return inverse_of(group.S(v, r)) or triangular_factor(group.B, v, r)


def safe_sqrt(x: Tensor) -> Tensor:
    """`√x` with gradient 0 at 0, where that of `√x` is infinite.

    Example:
        >>> x = torch.zeros(1, requires_grad=True)
        >>> safe_sqrt(x).backward()
        >>> x.grad
        tensor([0.])
    """
    return torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), 0.0)


def somewhere(mask: Tensor) -> bool:
    """Whether a mask is true anywhere; yes where values cannot be looked at (tracing, the meta device)."""
    return torch.compiler.is_compiling() or mask.is_meta or bool(mask.any())


def batch_shape(*parts: Tensor) -> torch.Size:
    """The leading axes that values with one event axis broadcast to."""
    return torch.broadcast_shapes(*(part.shape[:-1] for part in parts))
