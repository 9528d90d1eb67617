"""Quantiles of mixtures of normals."""

import math

import torch
from torch import Tensor


def mixture_quantile(
    mean: Tensor, std: Tensor, probability: float, weight: Tensor | None = None, steps: int = 120
) -> Tensor:
    """Compute a quantile of mixtures of normals, to 1e-9 of the smaller tail (P3).

    Halley's method runs inside a bracket: the quantile lies between the smallest and the largest component quantile.

    Args:
        mean, std: Means and standard deviations, components on axis 0, a mixture for each place of the other axes.
        probability: Strictly between 0 and 1.
        weight: Weights that add up to 1 over the components, shape `(n_components, ...)`; equal ones by default.
        steps: Most iterations.
    Returns:
        The quantile of each mixture, in the shape of the other axes.

    Example:
        >>> mixture_quantile(torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64), 0.975)
        tensor(1.9600, dtype=torch.float64)
    """
    z, tail = torch.special.ndtri(torch.tensor(probability, dtype=mean.dtype)).item(), min(probability, 1 - probability)
    shape, mean = mean.shape[1:], mean.reshape(len(mean), -1)
    std = std.reshape(mean.shape).clamp_min(torch.finfo(std.dtype).tiny)
    component = mean + z * std
    low, high = component.amin(0), component.amax(0)
    if weight is not None:
        weight = weight.expand(len(mean), *shape).reshape(mean.shape)
    centre = _average(mean, weight)
    total_std = (_average(std.square(), weight) + _average((mean - centre).square(), weight)).sqrt()
    x = (centre + z * total_std).clamp(low, high)
    precision, narrowest = 1.0 / (std * math.sqrt(2.0)), std.amin(0)
    result, left = x.clone(), torch.arange(len(x), device=x.device)
    for i in range(steps):
        u = (x - mean).mul_(precision)
        excess = _average(torch.erf(u), weight).mul_(0.5).add_(0.5 - probability)
        parts = u.square().neg_().exp_().mul_(precision)
        density = _average(parts, weight) / math.sqrt(math.pi)
        slope = _average(parts.mul_(precision).mul_(u), weight) * (-2.0 / math.sqrt(math.pi))
        low, high = torch.where(excess < 0, x, low), torch.where(excess < 0, high, x)
        bend = 0.5 * slope * excess / density.square()
        halley, middle = x - excess / (density * (1.0 - bend)), 0.5 * (low + high)
        inside = (
            (halley >= low) & (halley <= high) & (i % 4 != 3)
        )  # bisect now and then: Halley's method is slow at a spike
        small = excess.abs() / tail
        done = (small <= 1e-9) | (high - low <= 1e-14 * (x.abs() + total_std))
        old, x = x, torch.where(done, x, torch.where(inside, halley, middle))
        result[left] = x
        # The error of a step is of third order in its size relative to the narrowest component: no check is needed.
        going = ~(done | (inside & (small <= 1e-4) & ((halley - old).abs() <= 1e-3 * narrowest)))
        n_going = int(going.sum())
        if n_going == 0:
            break
        if 2 * n_going < len(x):  # converged quantiles are computed no more
            mean, precision = mean[:, going], precision[:, going]
            weight = None if weight is None else weight[:, going]
            kept = (x, low, high, total_std, narrowest, left)
            x, low, high, total_std, narrowest, left = (part[going] for part in kept)
    return result.reshape(shape)


def _average(values: Tensor, weight: Tensor | None) -> Tensor:
    return values.mean(0) if weight is None else (weight * values).sum(0)
