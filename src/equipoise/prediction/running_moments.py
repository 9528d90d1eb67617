"""Means, variances and covariances over draws that come in blocks.

The time of a prediction of usual size depends on memory and on the number of operations, not on their arithmetic. So
all fields of a block are in one tensor, beside their products, and one sum over draws serves them all.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Fields:
    """Names of the quantities that are averaged over draws.

    Args:
        names: Their order in a block; those of pairs are side by side.
        pairs: Pairs of fields whose covariance is wanted, `(a, a)` for a variance.
    """

    names: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]

    @property
    def n_rows(self) -> int:
        """Number of rows of memory that a block needs: one for each field and for the product of each pair."""
        return len(self.names) + len(self.pairs)

    @property
    def paired(self) -> slice:
        """Rows of the fields that occur in pairs."""
        rows = [self.names.index(name) for pair in self.pairs for name in pair]
        return slice(min(rows), max(rows) + 1)


class BlockBuffer:
    """A buffer for the fields of one block of draws, by name: filled, summed over draws, and then filled again.

    Args:
        fields: Names of the fields.
        memory: `fields.n_rows` rows: those of the fields, to be filled by the caller, and those of the products.
    """

    def __init__(self, fields: Fields, memory: Float[Tensor, "rows n_draws ..."]):
        self.fields, self._memory = fields, memory
        self._row = dict(zip(fields.names, memory, strict=False))
        self._paired = memory[fields.paired]
        products = zip(fields.pairs, memory[len(fields.names) :], strict=True)
        self._products = [(self._row[a], self._row[b], product) for (a, b), product in products]

    def __len__(self) -> int:
        """Return the number of draws."""
        return self._memory.shape[1]

    def __getitem__(self, name: str) -> Float[Tensor, "n_draws ..."]:
        return self._row[name]

    def means(self) -> Float[Tensor, "paired 1 ..."]:
        """Compute the mean over draws of the paired fields."""
        return self._paired.mean(1, keepdim=True)

    def sums(self, reference: Float[Tensor, "paired 1 ..."]) -> Float[Tensor, "rows ..."]:
        """Compute the sums over draws of all fields and products; paired fields are overwritten by their deviations.

        Args:
            reference: Values of the paired fields from which deviations are measured.
        """
        self._paired.sub_(reference)
        for a, b, product in self._products:
            torch.mul(a, b, out=product)
        return self._memory.sum(1)


class RunningMoments:
    """Means of fields, and covariances with ddof 0 of pairs of them, over draws that come in blocks.

    They are computed in one pass over each block from deviations d from the mean of the first block::

        Cov[a, b] = E[d_a d_b] − E[d_a] E[d_b]

    With n₁ of n draws in the first block, its mean differs from that of all by `√(n/n₁ − 1)` standard deviations at
    most. So the subtraction costs `log₁₀(n/n₁)` digits at worst, however small the spread is beside the mean.

    Example:
        >>> fields = Fields(("y",), pairs=(("y", "y"),))
        >>> moments, block = RunningMoments(), BlockBuffer(fields, torch.empty(fields.n_rows, 3))
        >>> for draws in ([1.0, 2.0, 3.0], [6.0, 7.0, 8.0]):
        ...     block["y"][:] = torch.tensor(draws)
        ...     moments.add(block)
        >>> moments.mean("y"), moments.cov("y", "y")
        (tensor(4.5000), tensor(6.9167))
    """

    def __init__(self):
        self.count = 0
        self._fields: Fields
        self._reference: Tensor
        self._total: Tensor

    def add(self, block: BlockBuffer) -> None:
        """Add a block of draws, whose paired fields are overwritten by their deviations."""
        if self.count == 0:
            self._fields, self._reference = block.fields, block.means()
            self._total = block.sums(self._reference)
        else:
            self._total += block.sums(self._reference)
        self.count += len(block)

    def mean(self, name: str) -> Float[Tensor, "..."]:
        """Return the mean of a field over all draws."""
        row, paired = self._fields.names.index(name), self._fields.paired
        mean = self._average(row)
        return mean + self._reference[row - paired.start, 0] if paired.start <= row < paired.stop else mean

    def cov(self, a: str, b: str) -> Float[Tensor, "..."]:
        """Return the covariance of a pair of fields over all draws.

        Args:
            a, b: Names of the fields; they must be one of the pairs.
        """
        names, pairs = self._fields.names, self._fields.pairs
        product = self._average(len(names) + pairs.index((a, b)))
        return product - self._average(names.index(a)) * self._average(names.index(b))

    def _average(self, row: int) -> Tensor:
        return self._total[row] / self.count


class MomentTable:
    """Mean and variance of a mixture at all rows, filled chunk of rows by chunk of rows (P2).

    The last bits of a row's numbers depend on the chunk of rows in which they were computed. So only the chunks of one
    fixed division of the rows are accepted, and these have the same bits whichever pass over the draws brings them.

    Args:
        chunks: The division of the rows.
        shape: `(n, n_y)`.

    Attributes:
        mean, var: Arrays of that shape; rows of chunks that are still lacking have arbitrary numbers.
    """

    def __init__(self, chunks: Iterable[slice], shape: tuple[int, int]):
        self.mean, self.var = np.empty(shape), np.empty(shape)
        self._lacking = {(rows.start, rows.stop) for rows in chunks}

    def lack(self, rows: slice) -> bool:
        """Return whether these rows are a chunk of the division that is not filled yet."""
        return (rows.start, rows.stop) in self._lacking

    def put(self, rows: slice, moments: RunningMoments) -> None:
        """Fill a chunk, if it is lacking, from the moments over all draws of the fields `mean` and `var`.

        Args:
            rows: The chunk of rows.
            moments: Moments of the fields `mean` and `var` over all draws, at these rows.
        """
        if self.lack(rows):
            self.mean[rows] = moments.mean("mean").cpu().numpy()
            self.var[rows] = (moments.mean("var") + moments.cov("mean", "mean")).cpu().numpy()  # P2
            self._lacking.remove((rows.start, rows.stop))
