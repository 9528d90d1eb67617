"""Forward and backward passes of a mean-field network, all layers in one compiled call (V2).

The twin of `equipoise.network.BayesianMLP`, which computes the same by torch operators. Arrays are flat. An array over
units holds one layer after the other, the inputs excluded, each layer `(n, width)` row by row. An array over weights
holds one layer after the other, each `(fan_in, fan_out)` row by row and then the bias `(fan_out,)`, as everywhere in
the library. `sizes` are the widths of all layers, inputs first, int64.
"""

import math

import numpy as np

from equipoise.fast.compilation import compiled, spliced
from equipoise.fast.elementary import exp, tanh
from equipoise.fast.heads import write_heads
from equipoise.fast.matrix_products import add_product, multiply

ACTIVATIONS = {"silu": 0, "tanh": 1, "relu": 2}
_TILE = 128  # rows that pass through all layers before the next rows do
_BLOCK = 32  # rows whose sum is computed in the network's precision, before it is added up in double precision


@compiled
def forward(sizes, activation, loc, log_std, x, noise, var, units, squares, slopes, ratios):
    """Compute the units of all layers for one draw of the weights per row, by local reparameterisation (V2).

    The twin of `equipoise.network.BayesianMLP.forward`.

    Args:
        sizes: Widths of the layers, inputs first.
        activation: A value of `ACTIVATIONS`.
        loc, log_std: Means and log standard deviations of the posterior, over weights.
        x: Inputs, `(n, n_x)`, flat.
        noise: Standard normal numbers, over units, in any precision.
        var: Filled with the variances of the posterior, over weights.
        units, squares: Filled with the units after their activation, and with their squares, over units.
        slopes: Filled with the derivatives of the activations, over units but for the last layer.
        ratios: Filled with `noise / std`, over units.
    """
    tiny = np.finfo(loc.dtype).tiny
    for i in range(loc.size):
        value = exp(log_std[i] + log_std[i])
        var[i] = tiny if value < tiny else value
    n = units.size // sizes[1:].sum()
    h, square, weight, start = x, x * x, 0, 0
    for layer in range(sizes.size - 1):
        fan_in, width = sizes[layer], sizes[layer + 1]
        bias, span = weight + fan_in * width, slice(start, start + n * width)
        a, a_var = units[span], squares[span]
        multiply(a, h, False, loc[weight:bias], n, fan_in, width)
        multiply(a_var, square, False, var[weight:bias], n, fan_in, width)
        _draw_units(a, a_var, loc[bias : bias + width], var[bias : bias + width], noise[span], ratios[span])
        if layer < sizes.size - 2:
            _activate(activation, a, slopes[span])
            for i in range(a.size):
                a_var[i] = a[i] * a[i]
        h, square, weight, start = a, a_var, bias + width, start + n * width


@spliced
def _draw_units(a, var, bias, bias_var, noise, ratios):
    """Draw the pre-activations of a layer, `h M + m + √(h² V + u) ξ` (V2).

    Args:
        a: `h M`, replaced by the draws, flat.
        var: `h² V`, flat.
        bias, bias_var: `m` and `u`, shape `(width,)`.
        noise: `ξ`, flat.
        ratios: Filled with `ξ / √(h² V + u)`, flat.
    """
    width = bias.size
    a, var = a.reshape(-1, width), var.reshape(-1, width)
    noise, ratios = noise.reshape(-1, width), ratios.reshape(-1, width)
    for i in range(a.shape[0]):
        for j in range(width):
            std, xi = math.sqrt(var[i, j] + bias_var[j]), a.dtype.type(noise[i, j])
            a[i, j] = (a[i, j] + bias[j]) + std * xi
            ratios[i, j] = xi / std


@spliced
def _activate(activation, units, slopes):
    """Replace pre-activations by activated units, and fill `slopes`, unless None, with the derivatives, all flat."""
    one, zero = units.dtype.type(1), units.dtype.type(0)
    if activation == 0:
        for i in range(units.size):
            share = one / (one + exp(-units[i]))
            h = units[i] * share
            units[i] = h
            if slopes is not None:
                slopes[i] = share + h * (one - share)
    elif activation == 1:
        for i in range(units.size):
            h = tanh(units[i])
            units[i] = h
            if slopes is not None:
                slopes[i] = one - h * h
    else:
        for i in range(units.size):
            h = zero if units[i] <= zero else units[i]
            units[i] = h
            if slopes is not None:
                slopes[i] = one if h > zero else zero


@compiled
def backward(sizes, loc, var, x, units, squares, slopes, ratios, grad, grad_loc, grad_log_std):
    """Compute the gradients with respect to `loc` and `log_std` from the gradient with respect to the last layer.

    Args:
        sizes, loc, x: As in `forward`.
        var, units, squares, slopes, ratios: As filled by `forward`.
        grad: Gradient with respect to the units of the last layer, `(n, n_out)`, flat.
        grad_loc, grad_log_std: Filled, over weights.
    """
    n, end, weight = units.size // sizes[1:].sum(), units.size, loc.size
    grad_square = grad * ratios[end - grad.size :]  # twice the gradient with respect to the variance, in all layers
    for layer in range(sizes.size - 2, -1, -1):
        fan_in, width = sizes[layer], sizes[layer + 1]
        bias, first = weight - width, weight - width - fan_in * width
        end -= n * width
        below = end - n * fan_in
        h, square = (units[below:end], squares[below:end]) if layer else (x, x * x)
        multiply(grad_loc[first:bias], h, True, grad, fan_in, n, width)
        multiply(grad_log_std[first:bias], square, True, grad_square, fan_in, n, width)
        _sum_rows(grad, grad_loc[bias:weight])
        _sum_rows(grad_square, grad_log_std[bias:weight])
        if layer:
            grad = _multiply_transposed(grad, loc[first:bias], fan_in, n)
            grad_square = _multiply_transposed(grad_square, var[first:bias], fan_in, n)
            _pull_activation(grad, grad_square, h, slopes[below:end], ratios[below:end])
        weight = first
    for i in range(loc.size):
        grad_log_std[i] *= var[i]


@spliced
def _multiply_transposed(grad, W, fan_in, n):
    """Compute `ā Wᵀ` of the gradient `ā`, `(n, width)`, and weights `W`, `(fan_in, width)`, all flat."""
    width = W.size // fan_in
    transposed = np.ascontiguousarray(W.reshape(fan_in, width).T).reshape(-1)
    below = np.empty(n * fan_in, grad.dtype)
    multiply(below, grad, False, transposed, n, width, fan_in)
    return below


@spliced
def _pull_activation(grad, grad_square, h, slopes, ratios):
    """Turn gradients with respect to activated units and their squares into those of pre-activations and variances.

    All arrays belong to one layer and are flat; `grad` and `grad_square` are replaced.
    """
    for i in range(grad.size):
        grad[i] = (grad[i] + h[i] * grad_square[i]) * slopes[i]
        grad_square[i] = grad[i] * ratios[i]


@spliced
def _sum_rows(values, out):
    """Fill `out`, shape `(width,)`, with sums of `values`, `(n, width)`, over rows, accurate for any number of rows."""
    width = out.size
    values, total, part = values.reshape(-1, width), np.zeros(width), np.empty(width, out.dtype)
    for start in range(0, values.shape[0], _BLOCK):
        part[:] = 0
        for i in range(start, min(start + _BLOCK, values.shape[0])):
            for j in range(width):
                part[j] += values[i, j]
        for j in range(width):
            total[j] += part[j]
    for j in range(width):
        out[j] = total[j]


@compiled
def forward_means(sizes, activation, loc, x, units, slopes):
    """Compute the units of all layers at the means of all weights.

    The twin of `equipoise.network.BayesianMLP.at_means`.

    Args:
        sizes: Widths of the layers, inputs first.
        activation: A value of `ACTIVATIONS`.
        loc: Means of the posterior, over weights.
        x: Inputs, `(n, n_x)`, flat.
        units: Filled with the units after their activation, over units.
        slopes: Filled with the derivatives of the activations, over units but for the last layer.
    """
    n = units.size // sizes[1:].sum()
    h, weight, start = x, 0, 0
    for layer in range(sizes.size - 1):
        fan_in, width = sizes[layer], sizes[layer + 1]
        bias, span = weight + fan_in * width, slice(start, start + n * width)
        a = units[span]
        _fill_rows(a, loc[bias : bias + width])
        add_product(a, h, False, loc[weight:bias], n, fan_in, width)
        if layer < sizes.size - 2:
            _activate(activation, a, slopes[span])
        h, weight, start = a, bias + width, start + n * width


@spliced
def _fill_rows(a, bias):
    """Fill every row of `a`, `(n, width)`, flat, with `bias`, shape `(width,)`."""
    a = a.reshape(-1, bias.size)
    for i in range(a.shape[0]):
        for j in range(bias.size):
            a[i, j] = bias[j]


@compiled
def backward_means(sizes, loc, x, units, slopes, grad, grad_loc):
    """Compute the gradient with respect to `loc` from the gradient with respect to the last layer of `forward_means`.

    Args:
        sizes, loc, x: As in `forward_means`.
        units, slopes: As filled by `forward_means`.
        grad: Gradient with respect to the units of the last layer, `(n, n_out)`, flat.
        grad_loc: Filled, over weights.
    """
    n, end, weight = units.size // sizes[1:].sum(), units.size, loc.size
    for layer in range(sizes.size - 2, -1, -1):
        fan_in, width = sizes[layer], sizes[layer + 1]
        bias, first = weight - width, weight - width - fan_in * width
        end -= n * width
        below = end - n * fan_in
        h = units[below:end] if layer else x
        multiply(grad_loc[first:bias], h, True, grad, fan_in, n, width)
        _sum_rows(grad, grad_loc[bias:weight])
        if layer:
            grad = _multiply_transposed(grad, loc[first:bias], fan_in, n)
            for i in range(grad.size):
                grad[i] *= slopes[below + i]
        weight = first


@compiled
def evaluate(sizes, activation, bounds, weights, first, last, x, values):
    """Compute the heads of the network for all rows and some of the given weight draws.

    The twin of `equipoise.network.BayesianMLP.at`.

    Args:
        sizes, activation: As in `forward`.
        bounds: Bounds of the logarithms of all heads but the first (V3, V4).
        weights: Weight draws, shape `(n_draws, P)`.
        first, last: Range of draws to evaluate, the last excluded.
        x: Inputs, shape `(n, n_x)`.
        values: Filled for these draws with the first heads of the last layer, shape `(n_heads, n_draws, n, n_y)`.
    """
    n, n_y = x.shape[0], values.shape[3]
    memory = np.empty((3, _TILE * sizes.max()), x.dtype)
    for draw in range(first, last):
        for start in range(0, n, _TILE):
            rows = min(_TILE, n - start)
            h, weight = x[start : start + rows].reshape(-1), 0
            for layer in range(sizes.size - 1):
                fan_in, width = sizes[layer], sizes[layer + 1]
                bias, a = weight + fan_in * width, memory[layer % 2, : rows * width]
                _fill_rows(a, weights[draw, bias : bias + width])
                add_product(a, h, False, weights[draw, weight:bias], rows, fan_in, width)
                if layer < sizes.size - 2:
                    _activate(activation, a, None)
                h, weight = a, bias + width
            write_heads(h.reshape(rows, -1), bounds, n_y, draw, start, memory[2], values)


@compiled
def add_divergence(grad_loc, grad_log_std, loc, log_std, weight, precision):
    """Add the gradients of `weight · KL(q(θ) ‖ p(θ))` with respect to `loc` and `log_std` (K1).

    Args:
        grad_loc, grad_log_std: Gradients that are added to, over weights.
        loc, log_std: As in `forward`.
        weight: Weight of the divergence in the loss.
        precision: Of the prior `N(0, 1 / precision)`.
    """
    kl_weight, shrink = loc.dtype.type(weight), loc.dtype.type(weight * precision)
    for i in range(loc.size):
        grad_loc[i] += shrink * loc[i]
        grad_log_std[i] += shrink * exp(log_std[i] + log_std[i]) - kl_weight
