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
    raw, one = np.empty(n * n_y, units.dtype), units.dtype.type(1)
    for head in range(n_heads):
        for i in range(n):
            for j in range(n_y):
                raw[i * n_y + j] = units[i, head * n_y + j]
        value = values[head].reshape(-1)
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


@spliced
def write_heads(units, bounds, n_y, draw, start, memory, values):
    """Write the heads of some rows into the results of one draw of the weights (V3, V4).

    Args:
        units: The last layer, shape `(rows, n_heads · n_y)` or with more heads, which are left out.
        bounds: Bounds of the logarithms of all heads but the first.
        n_y: Number of outputs.
        draw, start: Index of the draw, and of the first of these rows.
        memory: Of at least `rows · n_y` numbers, overwritten.
        values: Filled for this draw and these rows, shape `(n_heads, n_draws, n, n_y)`.
    """
    rows = units.shape[0]
    raw = memory[: rows * n_y]
    for head in range(values.shape[0]):
        for i in range(rows):
            for j in range(n_y):
                raw[i * n_y + j] = units[i, head * n_y + j]
        value = values[head, draw, start : start + rows].reshape(-1)
        for k in range(raw.size):
            value[k] = raw[k]
        if head:
            bound = units.dtype.type(bounds[head - 1])
            for k in range(raw.size):
                value[k] = exp(bound * tanh(raw[k] / bound))
