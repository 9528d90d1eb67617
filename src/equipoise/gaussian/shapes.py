"""Shapes to which values with different leading axes broadcast."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def common_shape(*shapes: Sequence[int]) -> torch.Size:
    """Return the shape that all of these shapes broadcast to.

    `torch.broadcast_shapes` handles symbolic sizes too, but its first call imports sympy and more, which takes most of
    a second in every process.

    Example:
        >>> common_shape((4, 1), (3,))
        torch.Size([4, 3])
    """
    if torch.compiler.is_compiling():
        return torch.broadcast_shapes(*shapes)
    return torch.Size(np.broadcast_shapes(*map(tuple, shapes)))


def batch_shape(*parts: Tensor) -> torch.Size:
    """Return the shape that the leading axes of values with one event axis broadcast to."""
    return common_shape(*(part.shape[:-1] for part in parts))
