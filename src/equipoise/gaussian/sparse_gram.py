"""`B diag(w) Bᵀ` for sparse coefficients, such as a tree of sums, where every output is in one or two balances.

`Σ_j w_j b_j b_jᵀ` then has few terms, one for each pair of balances that an output enters, a balance paired with itself
included; a dense product takes `k² J` terms.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

PAIR_COST = 256  # products of a dense matrix that take about as long as one pair


@dataclass(frozen=True)
class SparseGram:
    """All pairs of balances and outputs `(a, b, j)` with `B_aj ≠ 0` and `B_bj ≠ 0`, as indices of flattened blocks.

    Args:
        first, second: Indices of `B_aj` and `B_bj` in the flattened coefficients `(n_blocks, k, J)`, shape `(p,)`.
        columns: Indices of output j in the flattened `(n_blocks, J)`, shape `(p,)`.
        positions: Indices of the element `(a, b)` in the flattened `(n_blocks, k, k)`, shape `(p,)`.
        shape: `n_blocks, k, J`.
    """

    first: Int[Tensor, " p"]
    second: Int[Tensor, " p"]
    columns: Int[Tensor, " p"]
    positions: Int[Tensor, " p"]
    shape: tuple[int, int, int]

    @classmethod
    def from_pattern(cls, pattern: np.ndarray) -> "SparseGram | None":
        """List the pairs of blocks; None if they are so many that the dense product is faster.

        Args:
            pattern: Whether a balance has an output, shape `(n_blocks, k, J)`.
        """
        n_blocks, k, J = pattern.shape
        block, j, a = np.nonzero(pattern.swapaxes(-1, -2))  # balances of one output are neighbours
        column = block * J + j
        partners = np.bincount(column, minlength=n_blocks * J)
        if PAIR_COST * (partners**2).sum() > pattern.size * k:
            return None
        counts, starts = partners[column], np.cumsum(partners) - partners
        one = np.repeat(np.arange(len(a)), counts)
        ends = np.cumsum(counts)
        other = np.arange(len(one)) - np.repeat(ends - counts, counts) + starts[column[one]]
        flat = (block * k + a) * J + j
        positions = (block[one] * k + a[one]) * k + a[other]
        first, second, columns = (torch.as_tensor(index) for index in (flat[one], flat[other], column[one]))
        return cls(first, second, columns, torch.as_tensor(positions), (n_blocks, k, J))

    def products(self, B: Float[Tensor, "... n_blocks k J"]) -> Float[Tensor, "... p"]:
        """Compute `B_aj B_bj` of every pair."""
        flat = B.flatten(-3)
        return _take(flat, self.first) * _take(flat, self.second)

    def gram(
        self, products: Float[Tensor, "... p"], w: Float[Tensor, "... n_blocks J"]
    ) -> Float[Tensor, "... n_blocks k k"]:
        """Compute `B diag(w) Bᵀ` from the pairs' `products`.

        Args:
            products: Products of pairs of coefficients, shape `(..., p)`.
            w: Weights of the columns, shape `(..., n_blocks, J)`.
        """
        n_blocks, k, _ = self.shape
        return _sum_by_position(products * _take(w.flatten(-2), self.columns), self.positions, (n_blocks, k, k))

    def adjoint_diag(
        self, products: Float[Tensor, "... p"], X: Float[Tensor, "... n_blocks k k"]
    ) -> Float[Tensor, "... n_blocks J"]:
        """Compute `diag(Bᵀ X B)` from the pairs' `products`.

        Args:
            products: Products of pairs of coefficients, shape `(..., p)`.
            X: Matrices by block, shape `(..., n_blocks, k, k)`.
        """
        n_blocks, _, J = self.shape
        return _sum_by_position(products * _take(X.flatten(-3), self.positions), self.columns, (n_blocks, J))


def _take(values: Tensor, positions: Tensor) -> Tensor:
    return values.index_select(-1, positions.to(values.device))


def _sum_by_position(terms: Tensor, positions: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Add up the terms, shape `(..., p)`, that belong to each position of an array of this shape."""
    flat = terms.new_zeros(*terms.shape[:-1], int(np.prod(shape)))
    return flat.index_add(-1, positions.to(terms.device), terms).unflatten(-1, shape)
