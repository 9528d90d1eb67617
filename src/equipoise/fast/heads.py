"""Heads of a network: means, variances and sensor factors from the units of its last layer, with gradients (V3, V4).

The twin of the heads of `equipoise.network.BayesianMLP`. The first head is the mean; the others are positive,
`exp(bound tanh(raw / bound))`. A row of the last layer has `n_heads · n_y` units, head by head.
"""

import numpy as np

from equipoise.fast.compilation import compiled, spliced
from equipoise.fast.elementary import exp, tanh


@compiled
def evaluate_heads(units, bounds, values, slopes):
    """Compute the heads of all rows and the derivatives of the positive heads (V3, V4).

    Args:
        units: The last layer, shape `(n, n_heads · n_y)`.
        bounds: Bounds of the logarithms of all heads but the first.
        values: Filled with the heads in double precision, shape `(n_heads, n, n_y)`.
        slopes: Filled with the derivatives of all heads but the first, shape `(n_heads − 1, n, n_y)`.
    """
    n_heads, n, n_y = values.shape
    memory = np.empty(n * n_y, units.dtype)
    for head in range(n_heads):
        write_head(units, head, bounds, memory, values[head].reshape(-1), slopes[max(head - 1, 0)].reshape(-1))


@spliced
def write_head(units, head, bounds, memory, value, slope):
    """Write one head of some rows into memory that holds it for these rows only (V3, V4).

    Args:
        units: The last layer, shape `(n, n_heads · n_y)`.
        head: Number of the head.
        bounds: Bounds of the logarithms of all heads but the first.
        memory: Of as many numbers as `value` or more, overwritten.
        value: Filled, `(n, n_y)`, flat.
        slope: Filled with the derivatives of a head that is not the first, `(n, n_y)`, flat; None for none.
    """
    n, n_y, one = units.shape[0], value.size // units.shape[0], units.dtype.type(1)
    raw = memory[: value.size]
    for i in range(n):
        for j in range(n_y):
            raw[i * n_y + j] = units[i, head * n_y + j]
    if head == 0:
        for k in range(raw.size):
            value[k] = raw[k]
    else:
        bound = units.dtype.type(bounds[head - 1])
        for k in range(raw.size):
            fraction = tanh(raw[k] / bound)
            positive = exp(fraction * bound)
            value[k] = positive
            if slope is not None:
                slope[k] = positive * (one - fraction * fraction)


@compiled
def pull_heads(grad_values, slopes, grad_units):
    """Compute the gradient with respect to the units of the last layer from the gradient with respect to the heads.

    Args:
        grad_values: Gradient with respect to the heads, shape `(n_heads, n, n_y)`.
        slopes: As filled by `evaluate_heads`.
        grad_units: Filled, shape `(n, n_heads · n_y)`.
    """
    n_heads, n, n_y = grad_values.shape
    for i in range(n):
        for j in range(n_y):
            grad_units[i, j] = grad_values[0, i, j]
        for head in range(1, n_heads):
            for j in range(n_y):
                grad_units[i, head * n_y + j] = grad_values[head, i, j] * slopes[head - 1, i, j]
