"""Connected blocks of the coefficients `B`, gathered so that all blocks of one size form a batch.

Balances that share an output, directly or through other balances, belong to one block. The partition is computed once
from the zeros of `B`; blocks of one size k are padded to one number of outputs J and go through the same matrix
products.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from equipoise.balances import connected_rows
from equipoise.gaussian.shapes import batch_shape
from equipoise.gaussian.sparse_gram import SparseGram

MAX_PRODUCTS = 2**20  # products of coefficients that are stored for one block


@dataclass(frozen=True)
class BlockLayout:
    """Rows and columns of `B` that make up all connected blocks of one size `k`, padded to `J` outputs each.

    Args:
        rows: The balances of each block, shape `(n_blocks, k)`.
        columns: The outputs of each block, shape `(n_blocks, J)`; None for a single block over all rows and columns.
        real: 1 for outputs of the block and 0 for padding, shape `(n_blocks, J)`; None as for `columns`.
        sparse: The pairs of balances that share an output, if these are few; else None.
        n_columns: Number of outputs, `n_y`.
        ordered: Whether these blocks contain all balances, in their original order.
    """

    rows: Int[Tensor, "n_blocks k"]
    columns: Int[Tensor, "n_blocks J"] | None
    real: Float[Tensor, "n_blocks J"] | None
    sparse: SparseGram | None
    n_columns: int
    ordered: bool

    def gather(self, B: Tensor) -> "BlockGroup":
        """Gather the coefficients of these blocks from `B`, shape `(..., m, n_y)`."""
        if self.columns is None:
            return BlockGroup(self, B.unsqueeze(-3))
        rows, columns, real = (part.to(B.device) for part in (self.rows, self.columns, self.real))  # type: ignore
        return BlockGroup(self, B[..., rows.unsqueeze(-1), columns.unsqueeze(-2)] * real.to(B.dtype).unsqueeze(-2))


def block_layout(B: Float[Tensor, "... m n_y"]) -> list[BlockLayout]:
    """Partition balances into connected blocks, so that no two blocks share an output, and group the blocks by size.

    Args:
        B: Coefficients; leading axes are rows of data, and a coefficient counts as zero if it is zero in all of them.
    Returns:
        One layout for each size of block, smallest first.
    """
    pattern = (B.detach() != 0).reshape(-1, *B.shape[-2:]).any(0).cpu().numpy()
    blocks = connected_rows(pattern)
    if len(blocks) == 1:
        rows, sparse = torch.arange(B.shape[-2]).unsqueeze(0), SparseGram.from_pattern(pattern[None])
        return [BlockLayout(rows, None, None, sparse, B.shape[-1], True)]
    sizes = sorted({len(block) for block in blocks})
    return [_layout([block for block in blocks if len(block) == size], pattern) for size in sizes]


def _layout(blocks: list[tuple[int, ...]], pattern: np.ndarray) -> BlockLayout:
    columns = [np.flatnonzero(pattern[list(block)].any(0)) for block in blocks]
    width = max(len(c) for c in columns)
    padded = np.stack([np.pad(c, (0, width - len(c))) for c in columns])
    real = np.stack([np.arange(width) < len(c) for c in columns])
    rows = np.asarray(blocks)
    sparse = SparseGram.from_pattern(pattern[rows[:, :, None], padded[:, None]] & real[:, None])
    ordered = rows.ravel().tolist() == list(range(len(pattern)))
    blocked = torch.as_tensor(rows), torch.as_tensor(padded), torch.as_tensor(real, dtype=torch.float64)
    return BlockLayout(*blocked, sparse, pattern.shape[1], ordered)


@dataclass(frozen=True)
class BlockGroup:
    """The coefficients of all blocks of one size as a batch, shape `(..., n_blocks, k, J)`, 0 at padding."""

    layout: BlockLayout
    B: Float[Tensor, "... n_blocks k J"]

    def rows_of(self, values: Tensor) -> Tensor:
        """Gather values of balances, shape `(..., m)`, into blocks, shape `(..., n_blocks, k)`."""
        rows = self.layout.rows
        if not self.layout.ordered:
            values = values.index_select(-1, rows.reshape(-1).to(values.device))
        return values.unflatten(-1, rows.shape)

    def columns_of(self, values: Tensor) -> Tensor:
        """Gather values of outputs, shape `(..., n_y)`, into blocks, shape `(..., n_blocks, J)`."""
        columns = self.layout.columns
        if columns is None:
            return values.unsqueeze(-2)
        return values.index_select(-1, columns.reshape(-1).to(values.device)).unflatten(-1, columns.shape)

    @cached_property
    def products(self) -> Float[Tensor, "n_blocks J_and_k kk"] | None:
        """`b_j b_jᵀ` of every output j and `e_k e_kᵀ` of every balance k, flattened, so that `S` is a matrix product.

        None if there are more than `MAX_PRODUCTS`, or if `B` differs from row to row.
        """
        k, J = self.B.shape[-2:]
        if self.B.ndim > 3 or J * k * k > MAX_PRODUCTS:
            return None
        columns = torch.cat(
            [self.B, torch.eye(k, dtype=self.B.dtype, device=self.B.device).expand(len(self.B), k, k)], -1
        )
        return (columns.unsqueeze(-2) * columns.unsqueeze(-3)).flatten(-3, -2).mT.contiguous()

    def gram(self, w: Float[Tensor, "... n_blocks J"]) -> Float[Tensor, "... n_blocks k k"]:
        """Compute `B diag(w) Bᵀ`."""
        k, J = self.B.shape[-2:]
        if self.products is None:
            return self._large_gram(w)
        return _block_by_block(w, self.products[:, :J]).unflatten(-1, (k, k))

    def S(
        self, v: Float[Tensor, "... n_blocks J"], r: Float[Tensor, "... n_blocks k"]
    ) -> Float[Tensor, "... n_blocks k k"]:
        """Compute `S = B diag(v) Bᵀ + diag(r)` (C1).

        Args:
            v: Variances by block, shape `(..., n_blocks, J)`.
            r: Tolerance variances by block, shape `(..., n_blocks, k)`.
        """
        if self.products is None:
            return self.gram(v) + torch.diag_embed(r)  # C1
        lead = batch_shape(v, r)
        both = torch.cat([v.expand(*lead, v.shape[-1]), r.expand(*lead, r.shape[-1])], -1)
        return _block_by_block(both, self.products).unflatten(-1, (r.shape[-1], r.shape[-1]))

    def adjoint_diag(self, X: Float[Tensor, "... n_blocks k k"]) -> Float[Tensor, "... n_blocks J"]:
        """Compute `diag(Bᵀ X B)`."""
        if self.products is None:
            return self._large_adjoint_diag(X)
        return _block_by_block(X.flatten(-2), self.products[:, : self.B.shape[-1]].mT)

    def diagonals(
        self, W: Float[Tensor, "... n_blocks k k"]
    ) -> tuple[Float[Tensor, "... n_blocks J"], Float[Tensor, "... n_blocks k"]]:
        """Compute `diag(Bᵀ W B)` and `diag(W)`, the gradients with respect to `v` and `r` if `W` is that of `S`."""
        if self.products is None:
            return self.adjoint_diag(W), W.diagonal(dim1=-2, dim2=-1)
        both = _block_by_block(W.flatten(-2), self.products.mT)
        return both[..., : self.B.shape[-1]], both[..., self.B.shape[-1] :]

    @cached_property
    def _sparse_products(self) -> Float[Tensor, "... p"] | None:
        return None if self.layout.sparse is None else self.layout.sparse.products(self.B)

    def _large_gram(self, w: Tensor) -> Tensor:
        if self._sparse_products is None:
            return (self.B * w.unsqueeze(-2)) @ self.B.mT
        return self.layout.sparse.gram(self._sparse_products, w)  # type: ignore[union-attr]

    def _large_adjoint_diag(self, X: Tensor) -> Tensor:
        if self._sparse_products is None:
            return ((X @ self.B) * self.B).sum(-2)
        return self.layout.sparse.adjoint_diag(self._sparse_products, X)  # type: ignore[union-attr]

    def scatter_columns(self, values: Tensor) -> Tensor:
        """Add values in blocks, shape `(..., n_blocks, J)` and 0 at padding, to their outputs, shape `(..., n_y)`."""
        if self.layout.columns is None:
            return values.squeeze(-2)
        out = values.new_zeros(*values.shape[:-2], self.layout.n_columns)
        return out.index_add(-1, self.layout.columns.reshape(-1).to(values.device), values.flatten(-2))

    def scatter_rows(self, values: Tensor) -> Tensor:
        """Expand rows of blocks, shape `(..., n_blocks, k, J)`, to all outputs, shape `(..., n_blocks · k, n_y)`."""
        if self.layout.columns is None:
            return values.squeeze(-3)
        out = values.new_zeros(*values.shape[:-1], self.layout.n_columns)
        index = self.layout.columns.to(values.device).unsqueeze(-2).expand(values.shape)
        return out.scatter_add(-1, index, values).flatten(-3, -2)


def _block_by_block(values: Tensor, matrices: Tensor) -> Tensor:
    """Multiply vectors `(..., n_blocks, a)` by matrices `(n_blocks, a, b)`, one matrix product per block."""
    lead = values.shape[:-2]
    flat = values.movedim(-2, 0).reshape(len(matrices), -1, values.shape[-1]) @ matrices
    return flat.reshape(len(matrices), *lead, matrices.shape[-1]).movedim(0, -2)
