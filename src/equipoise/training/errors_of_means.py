"""Errors of predicted means over measured values, computed over all processes that train together."""

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.training.distributed import ALONE, Group


def mean_rmse(
    mean: Float[Tensor, "... n n_y"], y: Float[Tensor, "... n n_y"], group: Group = ALONE
) -> Float[Tensor, "..."]:
    """Compute the root mean squared error of each output over its measured values, averaged over outputs.

    Args:
        mean: Predicted means of this process's rows.
        y: Measured outputs, NaN where not measured.
        group: Processes over whose rows errors are computed; the gradient is that with respect to `mean`.

    Example:
        >>> mean_rmse(torch.zeros(1, 2, 1), torch.tensor([[[3.0], [torch.nan]]]))
        tensor([3.])
    """
    squares = _mean_squares(mean, y, group)
    return squares.clamp_min(torch.finfo(mean.dtype).tiny).sqrt().mean(-1)


def mean_squares(
    mean: Float[Tensor, "... n n_y"], y: Float[Tensor, "... n n_y"], group: Group = ALONE
) -> Float[Tensor, "..."]:
    """Compute the mean squared error of each output over its measured values, averaged over outputs.

    Arguments are those of `mean_rmse`.

    Example:
        >>> mean_squares(torch.zeros(1, 2, 1), torch.tensor([[[3.0], [1.0]]]))
        tensor([5.])
    """
    return _mean_squares(mean, y, group).mean(-1)


def _mean_squares(mean: Tensor, y: Tensor, group: Group) -> Float[Tensor, "... n_y"]:
    measured = ~y.isnan()
    squares, counts = torch.where(measured, mean - y, 0.0).square().sum(-2), measured.sum(-2)
    if group.size > 1:
        sums, counts = group.sum(torch.stack([squares.detach(), counts.to(squares.dtype)])).unbind()
        squares = squares + (sums - squares.detach())
    return squares / counts.clamp_min(1)
