"""Means, variances and covariances over draws that come in blocks.

A prediction of usual size is bound by memory and by the number of operations, not by their arithmetic. So all fields of
a block stand in one tensor, beside their products, and one sum over draws serves them all.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Fields:
    """Names of what is averaged over draws.

    Args:
        names: In the order in which they stand in a block; those that are paired stand side by side.
        pairs: Fields whose covariance is wanted, `(a, a)` for a variance.
    """

    names: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]

    @property
    def n_rows(self) -> int:
        """How much memory a block needs: a row for each field and for the product of each pair."""
        return len(self.names) + len(self.pairs)

    @property
    def paired(self) -> slice:
        """Where the paired fields stand."""
        rows = [self.names.index(name) for pair in self.pairs for name in pair]
        return slice(min(rows), max(rows) + 1)


class DrawBlock:
    """The fields of a block of draws, by name, in memory that may serve for the next block, too.

    Args:
        fields: What it holds.
        memory: `fields.n_rows` rows, of which those of the fields are for others to fill.
    """

    def __init__(self, fields: Fields, memory: Float[Tensor, "rows n_draws ..."]):
        self.fields, self._memory = fields, memory
        self._row = dict(zip(fields.names, memory, strict=False))
        self._paired = memory[fields.paired]
        products = zip(fields.pairs, memory[len(fields.names) :], strict=True)
        self._products = [(self._row[a], self._row[b], product) for (a, b), product in products]

    def __len__(self) -> int:
        """How many draws."""
        return self._memory.shape[1]

    def __getitem__(self, name: str) -> Float[Tensor, "n_draws ..."]:
        return self._row[name]

    def means(self) -> Float[Tensor, "paired 1 ..."]:
        """Over draws, of the paired fields."""
        return self._paired.mean(1, keepdim=True)

    def sums(self, reference: Float[Tensor, "paired 1 ..."]) -> Float[Tensor, "rows ..."]:
        """Over draws: of fields, of which the paired ones become deviations from the reference, and of products."""
        self._paired.sub_(reference)
        for a, b, product in self._products:
            torch.mul(a, b, out=product)
        return self._memory.sum(1)


class RunningMoments:
    """Means of fields, and covariances with ddof 0 of pairs of them, over draws that come in blocks.

    From deviations d from the mean of the first block, in one pass over each block::

        Cov[a, b] = E[d_a d_b] − E[d_a] E[d_b]

    Of n draws, n₁ of them in the first block, its mean is off that of all by `√(n/n₁ − 1)` standard deviations at most.
    So the subtraction costs `log₁₀(n/n₁)` digits at worst, however small the spread is beside the mean.

    Example:
        >>> fields = Fields(("y",), pairs=(("y", "y"),))
        >>> moments, block = RunningMoments(), DrawBlock(fields, torch.empty(fields.n_rows, 3))
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

    def add(self, block: DrawBlock) -> None:
        """Paired fields of the block become their deviations."""
        if self.count == 0:
            self._fields, self._reference = block.fields, block.means()
            self._total = block.sums(self._reference)
        else:
            self._total += block.sums(self._reference)
        self.count += len(block)

    def mean(self, name: str) -> Float[Tensor, "..."]:
        """The mean of a field."""
        row, paired = self._fields.names.index(name), self._fields.paired
        mean = self._average(row)
        return mean + self._reference[row - paired.start, 0] if paired.start <= row < paired.stop else mean

    def cov(self, a: str, b: str) -> Float[Tensor, "..."]:
        """The covariance of a pair of fields."""
        names, pairs = self._fields.names, self._fields.pairs
        product = self._average(len(names) + pairs.index((a, b)))
        return product - self._average(names.index(a)) * self._average(names.index(b))

    def _average(self, row: int) -> Tensor:
        return self._total[row] / self.count


class MomentTable:
    """Mean and variance of a mixture, chunk of rows by chunk of rows as passes over the draws bring them (P2).

    A row's numbers depend in their last bits on the chunk in which they were computed. So only the chunks of one fixed
    division of the rows are taken, and each has the same bits whichever pass brings it.

    Args:
        chunks: The division of the rows.
        shape: `(n, n_y)`.

    Attributes:
        mean, var: Arrays of that shape; rows of chunks that are lacking hold arbitrary numbers.
    """

    def __init__(self, chunks: Iterable[slice], shape: tuple[int, int]):
        self.mean, self.var = np.empty(shape), np.empty(shape)
        self._lacking = {(rows.start, rows.stop) for rows in chunks}

    def lack(self, rows: slice) -> bool:
        """Return whether these rows are a chunk of the division whose moments are not known yet."""
        return (rows.start, rows.stop) in self._lacking

    def put(self, rows: slice, moments: RunningMoments) -> None:
        """Take the moments of the fields `mean` and `var` over all draws, if those of these rows are lacking."""
        if self.lack(rows):
            self.mean[rows] = moments.mean("mean").cpu().numpy()
            self.var[rows] = (moments.mean("var") + moments.cov("mean", "mean")).cpu().numpy()  # P2
            self._lacking.remove((rows.start, rows.stop))
