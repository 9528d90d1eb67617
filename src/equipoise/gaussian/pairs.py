"""Which balances share which output, where these pairs are few: a tree of sums has one or two balances per output.

`S = Σ_j v_j b_j b_jᵀ` then has few terms beside the `k² J` products of a dense `B diag(v) Bᵀ`: one for each pair of
balances that an output enters, itself included.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

FEW = 256  # of as many products of a dense matrix, one pair; a pair costs about as much time as this many


@dataclass(frozen=True)
class Pairs:
    """All `(a, b, j)` with `B_aj ≠ 0` and `B_bj ≠ 0`, as places in blocks that are laid out flat.

    Args:
        first, second: Of `B_aj` and `B_bj` in `(n_blocks, k, J)`.
        columns: Of j in `(n_blocks, J)`.
        places: Of `(a, b)` in `(n_blocks, k, k)`.
        shape: `n_blocks, k, J`.
    """

    first: Int[Tensor, " p"]
    second: Int[Tensor, " p"]
    columns: Int[Tensor, " p"]
    places: Int[Tensor, " p"]
    shape: tuple[int, int, int]

    @classmethod
    def of(cls, pattern: np.ndarray) -> "Pairs | None":
        """Those of blocks `(n_blocks, k, J)`, True where a balance has an output; None if they are not few."""
        n_blocks, k, J = pattern.shape
        block, j, a = np.nonzero(pattern.swapaxes(-1, -2))  # balances of one output stand side by side
        column = block * J + j
        partners = np.bincount(column, minlength=n_blocks * J)
        if FEW * (partners**2).sum() > pattern.size * k:
            return None
        counts, starts = partners[column], np.cumsum(partners) - partners
        one = np.repeat(np.arange(len(a)), counts)
        ends = np.cumsum(counts)
        other = np.arange(len(one)) - np.repeat(ends - counts, counts) + starts[column[one]]
        flat = (block * k + a) * J + j
        places = (block[one] * k + a[one]) * k + a[other]
        first, second, columns = (torch.as_tensor(where) for where in (flat[one], flat[other], column[one]))
        return cls(first, second, columns, torch.as_tensor(places), (n_blocks, k, J))

    def products(self, B: Float[Tensor, "... n_blocks k J"]) -> Float[Tensor, "... p"]:
        """`B_aj B_bj`."""
        flat = B.flatten(-3)
        return _take(flat, self.first) * _take(flat, self.second)

    def gram(
        self, products: Float[Tensor, "... p"], w: Float[Tensor, "... n_blocks J"]
    ) -> Float[Tensor, "... n_blocks k k"]:
        """`B diag(w) Bᵀ`."""
        n_blocks, k, _ = self.shape
        return _sums(products * _take(w.flatten(-2), self.columns), self.places, (n_blocks, k, k))

    def adjoint_diag(
        self, products: Float[Tensor, "... p"], X: Float[Tensor, "... n_blocks k k"]
    ) -> Float[Tensor, "... n_blocks J"]:
        """`diag(Bᵀ X B)`."""
        n_blocks, _, J = self.shape
        return _sums(products * _take(X.flatten(-3), self.places), self.columns, (n_blocks, J))


def _take(values: Tensor, places: Tensor) -> Tensor:
    return values.index_select(-1, places.to(values.device))


def _sums(terms: Tensor, places: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The terms of one place added up, `(..., p)` to `(..., *shape)`."""
    flat = terms.new_zeros(*terms.shape[:-1], int(np.prod(shape)))
    return flat.index_add(-1, places.to(terms.device), terms).unflatten(-1, shape)
