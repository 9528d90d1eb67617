"""Random numbers of the rows of a batch: the same ones whether a process has all of its rows or only some."""

from collections.abc import Sequence

import torch
from torch import Tensor


class BatchGenerator(torch.Generator):
    """A generator for some rows of a batch, which get the very numbers that they have in the whole batch.

    Attributes:
        rows: Which rows of the batch these are.
        total: How many the whole batch has.

    Example:
        >>> whole = paired_normal((6, 2), torch.Generator().manual_seed(0))
        >>> some = BatchGenerator()
        >>> _ = some.manual_seed(0)
        >>> some.rows, some.total = slice(4, 6), 6
        >>> bool((paired_normal((2, 2), some) == whole[4:]).all())
        True
    """

    rows: slice
    total: int


def paired_normal(
    shape: Sequence[int],
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> Tensor:
    """Standard normal numbers for the rows of a batch, its second half the negatives of its first.

    A loss is a mean over rows, so whatever ties the numbers of two rows together, its expectation is the same. Opposite
    numbers cost half as much to make, which is a good part of a training step, and gradients of means get less noisy.

    Those of a whole batch are drawn also where only some of its rows are wanted: generators cannot skip numbers. They
    are drawn in single precision whatever `dtype` is: noise needs no more, and four times as much time.

    Example:
        >>> paired_normal((4, 1), torch.Generator().manual_seed(0)).flatten()
        tensor([ 1.5410, -0.2934, -1.5410,  0.2934])
    """
    shared = isinstance(generator, BatchGenerator)
    total = generator.total if shared else shape[0]
    half = torch.randn(((total + 1) // 2, *shape[1:]), generator=generator, device=device)
    whole = torch.cat([half, -half])[:total]
    return (whole[generator.rows] if shared else whole).to(dtype)
