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
        >>> whole = standard_normal((6, 2), torch.Generator().manual_seed(0))
        >>> some = BatchGenerator()
        >>> _ = some.manual_seed(0)
        >>> some.rows, some.total = slice(4, 6), 6
        >>> bool((standard_normal((2, 2), some) == whole[4:]).all())
        True
    """

    rows: slice
    total: int


def standard_normal(
    shape: Sequence[int],
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> Tensor:
    """Standard normal numbers, rows on the first axis of `shape`.

    Those of a whole batch are drawn also where only some of its rows are wanted: generators cannot skip numbers.
    """
    if not isinstance(generator, BatchGenerator):
        return torch.randn(tuple(shape), generator=generator, dtype=dtype, device=device)
    whole = (generator.total, *shape[1:])
    return torch.randn(whole, generator=generator, dtype=dtype, device=device)[generator.rows]
