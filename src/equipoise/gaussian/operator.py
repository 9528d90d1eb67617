"""The coefficients `B` as an operator, and `S = B diag(v) Bᵀ + diag(r)` factorised in connected blocks."""

import math
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from equipoise.gaussian.connected_blocks import BlockGroup, BlockLayout, block_layout
from equipoise.gaussian.factorised_blocks import (
    InvertedBlocks,
    ScalarBlocks,
    TriangularBlocks,
    factorise_blocks,
    invert_blocks,
)
from equipoise.gaussian.shapes import batch_shape

LOG_2PI = math.log(2.0 * math.pi)
FactorisedBlocks = ScalarBlocks | InvertedBlocks | TriangularBlocks


class BalanceOperator:
    """The coefficients `B` as a linear operator with a partition into connected blocks (balances that share outputs).

    Args:
        B: Coefficients, shape `(..., m, n_y)`; leading axes broadcast against the batch.
        layout: Rows and columns of each connected block; computed from the zeros of `B` by default.

    Example:
        >>> operator = BalanceOperator(torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, -1.0]]))
        >>> operator.coupled, operator.apply(torch.tensor([1.0, 2.0, 3.0]))
        (True, tensor([ 3., -1.]))
    """

    def __init__(self, B: Float[Tensor, "... m n_y"], layout: list[BlockLayout] | None = None):
        self.B = B
        self.layout = block_layout(B) if layout is None else layout

    @cached_property
    def coupled(self) -> bool:
        """Whether any two balances share an output."""
        return any(group.rows.shape[-1] > 1 for group in self.layout)

    @cached_property
    def groups(self) -> list[BlockGroup]:
        """The coefficients of the connected blocks, one batch for each size of block."""
        return [group.gather(self.B) for group in self.layout]

    @cached_property
    def owners(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The one balance that each output is in, −1 for none, and its coefficient there, both of shape `(n_y,)`.

        Defined where no two balances share an output.
        """
        B = self.B.numpy()
        owner = np.where((B != 0).any(0), np.argmax(B != 0, axis=0) if len(B) else -1, -1)
        return owner, B[owner, np.arange(B.shape[1])] if len(B) else np.zeros(B.shape[1])

    @cached_property
    def entries(self) -> tuple[NDArray, ...]:
        """The nonzero coefficients as flat arrays, block by block.

        ::

            rows[row_start[b] : row_start[b + 1]]                balances of block b
            columns[column_start[b] : column_start[b + 1]]       outputs of block b
            local[entry_start[c] : entry_start[c + 1]]           balances of output columns[c], counted within the block
            coefficients[entry_start[c] : entry_start[c + 1]]    its coefficients in them

        Returns:
            `row_start, rows, column_start, columns, entry_start, local, coefficients`.
        """
        B, arrays = self.B.numpy(), ([0], [], [0], [], [0], [], [])
        row_start, rows, column_start, columns, entry_start, local, coefficients = arrays
        for block in (block for group in self.layout for block in group.rows.tolist()):
            rows += block
            row_start.append(len(rows))
            for j in np.flatnonzero((B[block] != 0).any(0)).tolist():
                columns.append(j)
                local += np.flatnonzero(B[block, j]).tolist()
                coefficients += B[block, j][B[block, j] != 0].tolist()
                entry_start.append(len(local))
            column_start.append(len(columns))
        return *(np.array(part, np.int64) for part in arrays[:-1]), np.array(coefficients, np.float64)

    def take(self, rows: Int[Tensor, " k"]) -> "BalanceOperator":
        """Return the operator of these rows of data, itself unless coefficients differ from row to row.

        Args:
            rows: Positions of the rows.
        """
        return self if self.B.ndim == 2 else BalanceOperator(self.B[rows], self.layout)

    def apply(self, y: Float[Tensor, "... n_y"]) -> Float[Tensor, "... m"]:
        """Compute `B y`."""
        return _times(self.B, y)

    def adjoint(self, balance: Float[Tensor, "... m"]) -> Float[Tensor, "... n_y"]:
        """Compute `Bᵀ λ` for a vector λ of one number per balance."""
        return balance @ self.B if self.B.ndim == 2 else (self.B.mT @ balance.unsqueeze(-1)).squeeze(-1)

    def apply_squared(self, var: Float[Tensor, "... n_y"]) -> Float[Tensor, "... m"]:
        """Compute `diag(B diag(v) Bᵀ) = B² v`."""
        return _times(self.squares, var)

    def adjoint_squared(self, balance: Float[Tensor, "... m"]) -> Float[Tensor, "... n_y"]:
        """Compute `diag(Bᵀ diag(λ) B) = (B²)ᵀ λ`."""
        return balance @ self.squares if self.B.ndim == 2 else (self.squares.mT @ balance.unsqueeze(-1)).squeeze(-1)

    @cached_property
    def squares(self) -> Float[Tensor, "... m n_y"]:
        """`B²`, element by element."""
        return self.B.square()

    def magnitude(self, y: Float[Tensor, "... n_y"]) -> Float[Tensor, "... m"]:
        """Compute `Σ_j |B_kj| |y_j|`, the magnitude that the rounding error of `B y` is relative to."""
        return (self.B.abs() @ y.abs().unsqueeze(-1)).squeeze(-1)

    def factor(self, var: Float[Tensor, "... n_y"], tol_var: Float[Tensor, "... m"]) -> "Factor":
        """Factorise `S = B diag(v) Bᵀ + diag(r)` (C1), block by block where balances share outputs.

        Args:
            var: `v`, shape `(..., n_y)`.
            tol_var: `r`, shape `(..., m)`.
        Returns:
            The factor, with which systems in `S` are solved: diagonal where no two balances share an output, else
            block by block.
        """
        if not self.coupled:
            return DiagonalFactor(self, var, tol_var)
        return BlockFactor(self, [_factor_group(group, var, tol_var) for group in self.groups])


class DiagonalFactor:
    """`S` where no two balances share an output, a diagonal `B² v + r` (C1).

    `S = 0` (nothing uncertain in an exact balance) has the pseudo-inverse 0.

    Args:
        operator: `B`.
        var: `v`, shape `(..., n_y)`.
        tol_var: `r`, shape `(..., m)`.
    """

    def __init__(self, operator: BalanceOperator, var: Tensor, tol_var: Tensor):
        self.operator = operator
        self.S = operator.apply_squared(var) + tol_var  # C1
        self.inverse_diag = reciprocal_or_zero(self.S)

    def solve(self, rhs: Float[Tensor, "... m"]) -> Float[Tensor, "... m"]:
        """Compute `S⁻¹ rhs`."""
        return rhs * self.inverse_diag

    @cached_property
    def log_det(self) -> Float[Tensor, "..."]:
        """`log det S`, shape `(...)`."""
        return self.S.log().sum(-1)

    @cached_property
    def adjoint_diag(self) -> Float[Tensor, "... n_y"]:
        """`diag(Bᵀ S⁻¹ B)`."""
        return self.operator.adjoint_squared(self.inverse_diag)

    def half(self) -> Float[Tensor, "... m n_y"]:
        """Compute `S^{-1/2} B`."""
        return self.operator.B * safe_sqrt(self.inverse_diag).unsqueeze(-1)

    def inverse_rows(self) -> Float[Tensor, "... m n_y"]:
        """Compute `S⁻¹ B`."""
        return self.operator.B * self.inverse_diag.unsqueeze(-1)

    def log_prob(self, residual: Float[Tensor, "... m"]) -> Float[Tensor, "..."]:
        """Compute `log N(residual; 0, S)`, shape `(...)`."""
        return _log_prob(self, residual)


class BlockFactor:
    """`S = B diag(v) Bᵀ + diag(r)` factorised in connected blocks, never stored as a matrix `(..., m, m)` (C1).

    Args:
        operator: `B`.
        parts: Factorised blocks, one batch for each of `operator.groups`.
    """

    def __init__(self, operator: BalanceOperator, parts: list[FactorisedBlocks]):
        self.operator = operator
        self._parts = parts

    def solve(self, rhs: Float[Tensor, "... m"]) -> Float[Tensor, "... m"]:
        """Compute `S⁻¹ rhs`."""
        return self._rows([part.solve(group.rows_of(rhs)) for group, part in self._blocks()])

    @cached_property
    def log_det(self) -> Float[Tensor, "..."]:
        """`log det S`, shape `(...)`."""
        return sum(part.log_det() for part in self._parts)  # type: ignore[return-value]

    @cached_property
    def inverse_diag(self) -> Float[Tensor, "... m"]:
        """`diag(S⁻¹)`."""
        return self._rows([part.inverse_diag() for part in self._parts])

    @cached_property
    def adjoint_diag(self) -> Float[Tensor, "... n_y"]:
        """`diag(Bᵀ S⁻¹ B)`; `v` times this is the share of its variance that each output loses (C4)."""
        return sum(group.scatter_columns(_adjoint_diag(group, part)) for group, part in self._blocks())  # type: ignore[return-value]

    def half(self) -> Float[Tensor, "... m n_y"]:
        """Compute `L⁻¹ B` with `S = L Lᵀ`, whose Gram matrix is `Bᵀ S⁻¹ B`; rows in the order of the blocks."""
        return torch.cat([group.scatter_rows(part.half(group.B)) for group, part in self._blocks()], dim=-2)

    def inverse_rows(self) -> Float[Tensor, "... m n_y"]:
        """Compute `S⁻¹ B`, rows in the order of the balances."""
        parts = [group.scatter_rows(part.solve_matrix(group.B)) for group, part in self._blocks()]
        return torch.cat(parts, dim=-2).index_select(-2, self._inverse_order)

    def log_prob(self, residual: Float[Tensor, "... m"]) -> Float[Tensor, "..."]:
        """Compute `log N(residual; 0, S)`, shape `(...)`."""
        return _log_prob(self, residual)

    def _blocks(self):
        return zip(self.operator.groups, self._parts, strict=True)

    @property
    def _inverse_order(self) -> Tensor:
        rows = torch.cat([group.layout.rows.reshape(-1) for group in self.operator.groups])
        return rows.argsort().to(self.operator.B.device)

    def _rows(self, parts: list[Tensor]) -> Tensor:
        """Concatenate values `(..., n_blocks, k)` of all groups, in the order of the balances, shape `(..., m)`."""
        flat = [part.flatten(-2) for part in parts]
        if len(flat) == 1 and self.operator.groups[0].layout.ordered:
            return flat[0]
        shape = batch_shape(*flat)
        return torch.cat([p.expand(*shape, p.shape[-1]) for p in flat], -1).index_select(-1, self._inverse_order)


Factor = DiagonalFactor | BlockFactor
"""A factorised `S = B diag(v) Bᵀ + diag(r)` (C1), made by `BalanceOperator.factor`."""


def _adjoint_diag(group: BlockGroup, part: FactorisedBlocks) -> Tensor:
    if isinstance(part, ScalarBlocks):
        return group.B.squeeze(-2).square() * part.inverse
    return group.adjoint_diag(part.inverse) if isinstance(part, InvertedBlocks) else part.half(group.B).square().sum(-2)


def _log_prob(factor: Factor, residual: Tensor) -> Tensor:
    return -0.5 * ((residual * factor.solve(residual)).sum(-1) + factor.log_det + residual.shape[-1] * LOG_2PI)


def _factor_group(group: BlockGroup, var: Tensor, tol_var: Tensor) -> FactorisedBlocks:
    inverted = _invert_group(group, var, tol_var)
    return inverted or factorise_blocks(group.B, group.columns_of(var), group.rows_of(tol_var))


def _invert_group(group: BlockGroup, var: Tensor, tol_var: Tensor) -> ScalarBlocks | InvertedBlocks | None:
    v, r = group.columns_of(var), group.rows_of(tol_var)
    if group.layout.rows.shape[-1] == 1:
        return ScalarBlocks((group.B.squeeze(-2).square() * v).sum(-1, keepdim=True) + r)
    return invert_blocks(group.S(v, r))


def _times(B: Tensor, y: Tensor) -> Tensor:
    """Compute `B y` for vectors `(..., n_y)`."""
    if B.ndim > 2:
        return (B @ y.unsqueeze(-1)).squeeze(-1)
    return (B @ y.reshape(-1, y.shape[-1]).mT).mT.reshape(*y.shape[:-1], len(B))  # faster than y Bᵀ with few balances


def reciprocal_or_zero(S: Tensor) -> Tensor:
    """Compute the pseudo-inverse of a diagonal: `1 / S`, and 0 where `S = 0` (an exact balance, nothing uncertain)."""
    if S.requires_grad:
        return S.masked_fill(S == 0, torch.inf).reciprocal()  # the gradient at 0 is 0, not NaN
    return S.reciprocal().nan_to_num_(nan=torch.nan, posinf=0.0)


def safe_sqrt(x: Tensor) -> Tensor:
    """Compute `√x` with gradient 0 at 0, where the derivative of `√x` is infinite.

    Example:
        >>> x = torch.zeros(1, requires_grad=True)
        >>> safe_sqrt(x).backward()
        >>> x.grad
        tensor([0.])
    """
    return torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), 0.0)


def any_true(mask: Tensor) -> bool:
    """Return whether any element of a mask is true; True where values are not known (tracing, the meta device)."""
    return torch.compiler.is_compiling() or mask.is_meta or bool(mask.any())
