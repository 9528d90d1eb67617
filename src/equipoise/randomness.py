"""Random numbers of the rows of a batch: the same ones whether a process has all of its rows or only some."""

from collections.abc import Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

SCHEME = "threefry-2x32"  # how numbers follow from a seed: a run that began with another is not continued


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

    Those of a whole batch are drawn also where only some of its rows are wanted. They are drawn in single precision
    whatever `dtype` is: noise needs no more, and four times as much time.

    Example:
        >>> paired_normal((4, 1), torch.Generator().manual_seed(0)).flatten()
        tensor([ 0.3098,  0.7479, -0.3098, -0.7479])
    """
    return paired_normals(shape[0], shape[1:], generator, dtype, device).view(tuple(shape))


def paired_normals(
    n: int,
    widths: Sequence[int],
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> Float[Tensor, " numbers"]:
    """Such numbers for several widths, those of shape `(n, width)` one after the other, flat."""
    total = generator.total if isinstance(generator, BatchGenerator) else n
    make = _on_processor if device is None or device.type == "cpu" else partial(_on, device)
    whole = make(total, widths, generator)
    if isinstance(generator, BatchGenerator) and n < total:
        parts = zip(whole.split([total * width for width in widths]), widths, strict=True)
        whole = torch.cat([part.view(total, width)[generator.rows].reshape(-1) for part, width in parts])
    return whole.to(dtype)


def random_keys(n: int, generator: torch.Generator | None = None) -> list[int]:
    """Keys of 63 random bits for numbers that are made of a counter."""
    return torch.empty(n, dtype=torch.int64).random_(generator=generator).tolist()


def _on_processor(n: int, widths: Sequence[int], generator: torch.Generator | None) -> Tensor:
    """The generator gives a key, and the key all numbers: in less than half the time that the generator would take."""
    from equipoise.kernels.normals import fill_paired

    (key,) = random_keys(1, generator)
    whole, start = torch.empty(n * sum(widths)), 0
    numbers = whole.numpy()
    for stream, width in enumerate(widths):
        fill_paired(key, stream, numbers[start : start + n * width], (n + 1) // 2 * width)
        start += n * width
    return whole


def _on(device: torch.device, n: int, widths: Sequence[int], generator: torch.Generator | None) -> Tensor:
    halves = [torch.randn((n + 1) // 2 * width, generator=generator, device=device) for width in widths]
    return torch.cat([torch.cat([half, -half])[: n * width] for half, width in zip(halves, widths, strict=True)])
