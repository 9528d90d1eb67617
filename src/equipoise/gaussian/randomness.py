"""Random numbers of the rows of a batch: the same ones whether a process has all of its rows or only some."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.fast import enabled

SCHEME = "threefry-2x32"  # of numbers that compiled code makes on the processor


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
    whatever `dtype` is: noise needs no more.

    Example:
        >>> paired_normal((4, 1), torch.Generator().manual_seed(0)).flatten()
        tensor([ 0.3098,  0.7479, -0.3098, -0.7479])
    """
    return paired_normals(shape[0], [math.prod(shape[1:])], generator, dtype, device).view(tuple(shape))


def paired_normals(
    n: int,
    widths: Sequence[int],
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> Float[Tensor, " numbers"]:
    """Such numbers for several widths, those of shape `(n, width)` one after the other, flat."""
    total, first = (generator.total, generator.rows.start) if isinstance(generator, BatchGenerator) else (n, 0)
    make = _on_processor if _is_counted(device) else partial(_on, device)
    return make(n, total, first, widths, generator).to(dtype)


def random_scheme(device: torch.device) -> str:
    """Return the name of the scheme by which numbers follow from a seed on a device.

    A run that was begun with one scheme cannot be continued with another.

    Example:
        >>> random_scheme(torch.device("cuda"))
        'torch.Generator on cuda'
    """
    return SCHEME if _is_counted(device) else f"torch.Generator on {device.type}"


def _is_counted(device: torch.device | None) -> bool:
    """Return whether numbers are made from a key and a counter by compiled code, or else by torch's generator."""
    return (device is None or device.type == "cpu") and enabled() and not torch.compiler.is_compiling()


def random_keys(n: int, generator: torch.Generator | None = None) -> list[int]:
    """Keys of 63 random bits for numbers that are made of a counter."""
    return torch.empty(n, dtype=torch.int64, device="cpu").random_(generator=generator).tolist()


def _on_processor(n: int, total: int, first: int, widths: Sequence[int], generator: torch.Generator | None) -> Tensor:
    """The generator gives a key, and the key all numbers: in less than half the time that the generator would take."""
    from equipoise.fast import fill_noise

    (key,), noise = random_keys(1, generator), torch.empty(n * sum(widths), dtype=torch.float32, device="cpu")
    fill_noise(key, (total, first), n, np.array(widths, np.int64), noise.numpy())
    return noise


def _on(
    device: torch.device | None,
    n: int,
    total: int,
    first: int,
    widths: Sequence[int],
    generator: torch.Generator | None,
) -> Tensor:
    rows = slice(first, first + n)
    halves = [torch.randn((total + 1) // 2, width, generator=generator, device=device) for width in widths]
    return torch.cat([torch.cat([half, -half])[rows].reshape(-1) for half in halves])
