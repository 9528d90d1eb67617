"""Random numbers for the rows of a batch, the same whether a process holds all rows of the batch or a part of them."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from equipoise import compiled
from equipoise.gaussian.counted_normals import counted_normals

SCHEME = "threefry-2x32"  # of numbers on the processor


class BatchGenerator(torch.Generator):
    """A generator for a part of a batch, whose rows get the same numbers as in the whole batch.

    Attributes:
        rows: The rows of the batch that make up this part.
        total: Number of rows of the whole batch.

    Example:
        >>> whole = antithetic_normal((6, 2), torch.Generator().manual_seed(0))
        >>> generator = BatchGenerator()
        >>> _ = generator.manual_seed(0)
        >>> generator.rows, generator.total = slice(4, 6), 6
        >>> bool((antithetic_normal((2, 2), generator) == whole[4:]).all())
        True
    """

    rows: slice
    total: int


def antithetic_normal(
    shape: Sequence[int],
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> Tensor:
    """Draw antithetic standard normal numbers: those of a batch's second half are the negatives of its first half.

    A loss is a mean over rows, so that its expectation does not depend on how the numbers of two rows are related.
    Negatives halve the cost of drawing, a considerable part of a training step, and make gradients of means less noisy.

    With a `BatchGenerator` the numbers are those that the rows have in the whole batch. Numbers are drawn in single
    precision, which is enough for noise, and converted to `dtype`.

    Args:
        shape: Shape of the result; axis 0 runs over the rows.
        generator: Source of random numbers; torch's default by default.
        dtype, device: Of the result.

    Example:
        >>> antithetic_normal((4, 1), torch.Generator().manual_seed(0)).flatten()
        tensor([ 0.3098,  0.7479, -0.3098, -0.7479])
    """
    return flat_antithetic_normals(shape[0], [math.prod(shape[1:])], generator, dtype, device).view(tuple(shape))


def flat_antithetic_normals(
    n: int,
    widths: Sequence[int],
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> Float[Tensor, " numbers"]:
    """Draw antithetic standard normal numbers, as `antithetic_normal` does, for several arrays from one key.

    Args:
        n: Number of rows.
        widths: Numbers per row of each array.
        generator: Source of random numbers; torch's default by default.
        dtype, device: Of the result.
    Returns:
        The arrays of shape `(n, width)`, flattened and concatenated.

    Example:
        >>> flat_antithetic_normals(2, [1, 2], torch.Generator().manual_seed(0)).shape
        torch.Size([6])
    """
    total, first = (generator.total, generator.rows.start) if isinstance(generator, BatchGenerator) else (n, 0)
    draw = _draw_counted if _is_counted(device) else partial(_draw_on_device, device)
    return draw(n, total, first, widths, generator).to(dtype)


def random_scheme(device: torch.device) -> str:
    """Return the name of the scheme by which numbers follow from a seed on a device.

    A run that was begun with one scheme cannot be continued with another.

    Example:
        >>> random_scheme(torch.device("cuda"))
        'torch.Generator on cuda'
    """
    return SCHEME if _is_counted(device) else f"torch.Generator on {device.type}"


def _is_counted(device: torch.device | None) -> bool:
    """Return whether numbers are made from a key and a counter, or else by torch's generator."""
    return (device is None or device.type == "cpu") and not torch.compiler.is_compiling()


def random_keys(n: int, generator: torch.Generator | None = None) -> list[int]:
    """Draw keys of 63 random bits, from which a counter-based generator computes its numbers.

    Args:
        n: Number of keys.
        generator: Source of random numbers; torch's default by default.
    Returns:
        n whole numbers from 0 to 2⁶³ − 1.

    Example:
        >>> keys = random_keys(2, torch.Generator().manual_seed(0))
        >>> [0 <= key < 2**63 for key in keys]
        [True, True]
    """
    return torch.empty(n, dtype=torch.int64, device="cpu").random_(generator=generator).tolist()


def _draw_counted(n: int, total: int, first: int, widths: Sequence[int], generator: torch.Generator | None) -> Tensor:
    """Draw a key from the generator and compute all numbers from it."""
    (key,) = random_keys(1, generator)
    if not compiled.is_available():
        return torch.from_numpy(counted_normals(key, (total, first), n, widths))
    from equipoise.fast import fill_noise

    noise = torch.empty(n * sum(widths), dtype=torch.float32, device="cpu")
    fill_noise(key, (total, first), n, np.array(widths, np.int64), noise.numpy())
    return noise


def _draw_on_device(
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
