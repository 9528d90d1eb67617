"""Positive numbers from unbounded ones and back: heads of a network (V3, V4), draws of tolerances and sensors (K2)."""

import numpy as np

from equipoise.fast.compilation import compiled
from equipoise.fast.elementary import exp, tanh


@compiled
def heads(units, bounds, said, slopes):
    """What a network's last layer says: means, and `exp(bound tanh(raw / bound))` of what follows them (V3, V4).

    Args:
        units: The last layer, shape `(n, n_heads · n_y)`.
        bounds: Largest logarithms of all heads but the first.
        said: Filled in double precision, shape `(n_heads, n, n_y)`.
        slopes: Filled with the derivatives of all heads but the first, shape `(n_heads − 1, n, n_y)`.
    """
    n_heads, n, n_y = said.shape
    raw, one = np.empty(n * n_y, units.dtype), units.dtype.type(1)
    for head in range(n_heads):
        for i in range(n):
            for j in range(n_y):
                raw[i * n_y + j] = units[i, head * n_y + j]
        value = said[head].reshape(-1)
        if head == 0:
            for k in range(raw.size):
                value[k] = raw[k]
        else:
            bound, slope = units.dtype.type(bounds[head - 1]), slopes[head - 1].reshape(-1)
            for k in range(raw.size):
                fraction = tanh(raw[k] / bound)
                positive = exp(fraction * bound)
                value[k], slope[k] = positive, positive * (one - fraction * fraction)


@compiled
def pull_heads(of_said, slopes, of_units):
    """Gradients of the last layer's units from those of what its heads say.

    Args:
        of_said: Shape `(n_heads, n, n_y)`.
        slopes: As `heads` left them.
        of_units: Filled, shape `(n, n_heads · n_y)`.
    """
    n_heads, n, n_y = of_said.shape
    for i in range(n):
        for j in range(n_y):
            of_units[i, j] = of_said[0, i, j]
        for head in range(1, n_heads):
            for j in range(n_y):
                of_units[i, head * n_y + j] = of_said[head, i, j] * slopes[head - 1, i, j]


@compiled
def draw_log_normal(posterior, noise, growth, value):
    """`exp(loc + std ξ) + floor` where learned, else the fixed value, for every row.

    Args:
        posterior: `loc`, `log_std`, floor, what is learned, fixed values, mean and standard deviation of the prior,
            all of shape `(k,)`.
        noise: Standard normal, shape `(n, k)`.
        growth: Filled with `exp(loc + std ξ)`, the derivative by `loc`.
        value: Filled with the draws.
    """
    loc, log_std, floor, learned, fixed, _, _ = posterior
    for k in range(loc.size):
        std = exp(log_std[k])
        for i in range(noise.shape[0]):
            growth[i, k] = loc[k] + std * noise[i, k]
    flat = growth.reshape(-1)
    for e in range(flat.size):
        flat[e] = exp(flat[e])
    for i in range(noise.shape[0]):
        for k in range(loc.size):
            value[i, k] = growth[i, k] + floor[k] if learned[k] else fixed[k]


@compiled
def pull_log_normal(of_value, growth, noise, posterior, weight, of_posterior):
    """Gradients of `loc` and `log_std`, the KL's with its weight included (K2), from those of the draws."""
    loc, log_std, _, learned, _, prior_mean, prior_std = posterior
    of_loc, of_log_std = of_posterior
    of_loc[:], of_log_std[:] = 0.0, 0.0
    for i in range(of_value.shape[0]):
        for k in range(loc.size):
            of_rho = of_value[i, k] * growth[i, k]
            of_loc[k] += of_rho
            of_log_std[k] += of_rho * noise[i, k]
    for k in range(loc.size):
        std, z = exp(log_std[k]), (loc[k] - prior_mean[k]) / prior_std[k]
        ratio = std / prior_std[k]
        of_loc[k] = of_loc[k] + weight * z / prior_std[k] if learned[k] else 0.0
        of_log_std[k] = of_log_std[k] * std + weight * (ratio * ratio - 1.0) if learned[k] else 0.0
