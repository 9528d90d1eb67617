"""Rows through all layers of a mean-field network, and gradients back, one call each (V2).

`equipoise.propagation` has the same in operators of torch, layer by layer. What belongs to the units of all layers
stands in flat arrays, one layer after the other, each row by row: `(n, width)`. So do weights, `(fan_in, fan_out)` and
then the bias, as everywhere in the library.
"""

import math

import numpy as np

from equipoise.kernels.compilation import compiled, spliced
from equipoise.kernels.elementary import exp, tanh
from equipoise.kernels.products import multiply

ACTIVATIONS = {"silu": 0, "tanh": 1, "relu": 2}
_BLOCK = 32  # rows that are summed in the numbers of the network before they are added up in double precision


@compiled
def forward(sizes, activation, loc, log_std, x, noise, var, units, squares, slopes, ratios):
    """Units of all layers for one draw of the weights per row, by local reparameterisation (V2).

    Args:
        sizes: Widths of the layers, inputs first.
        activation: One of `ACTIVATIONS`, by number.
        loc, log_std: Of the posterior, flat.
        x: Inputs, flat.
        noise: Standard normal for all units.
        var: Filled with the variances of all weights.
        units, squares: Filled with the units of all layers after their activation, and with their squares.
        slopes: Filled with the derivatives of the activations.
        ratios: Filled with `noise / std` of all units.
    """
    tiny = np.finfo(loc.dtype).tiny
    for i in range(loc.size):
        value = exp(log_std[i] + log_std[i])
        var[i] = tiny if value < tiny else value
    n = x.size // sizes[0]
    h, square, weight, start = x, x * x, 0, 0
    for layer in range(sizes.size - 1):
        fan_in, width = sizes[layer], sizes[layer + 1]
        bias, here = weight + fan_in * width, slice(start, start + n * width)
        a, a_var = units[here], squares[here]
        multiply(a, h, False, loc[weight:bias], n, fan_in, width)
        multiply(a_var, square, False, var[weight:bias], n, fan_in, width)
        _draw(a, a_var, loc[bias : bias + width], var[bias : bias + width], noise[here], ratios[here])
        if layer < sizes.size - 2:
            _activate(activation, a, a_var, slopes[here])
        h, square, weight, start = a, a_var, bias + width, start + n * width


@spliced
def _draw(a, var, bias, bias_var, noise, ratios):
    """`h M + m + √(h² V + u) ξ` in place of the product `h M` (V2), and `ξ / √(h² V + u)`."""
    width = bias.size
    a, var = a.reshape(-1, width), var.reshape(-1, width)
    noise, ratios = noise.reshape(-1, width), ratios.reshape(-1, width)
    for i in range(a.shape[0]):
        for j in range(width):
            std, xi = math.sqrt(var[i, j] + bias_var[j]), a.dtype.type(noise[i, j])
            a[i, j] = (a[i, j] + bias[j]) + std * xi
            ratios[i, j] = xi / std


@spliced
def _activate(activation, units, squares, slopes):
    one, zero = units.dtype.type(1), units.dtype.type(0)
    if activation == 0:
        for i in range(units.size):
            share = one / (one + exp(-units[i]))
            h = units[i] * share
            units[i], squares[i], slopes[i] = h, h * h, share + h * (one - share)
    elif activation == 1:
        for i in range(units.size):
            h = tanh(units[i])
            units[i], squares[i], slopes[i] = h, h * h, one - h * h
    else:
        for i in range(units.size):
            h = zero if units[i] <= zero else units[i]
            units[i], squares[i], slopes[i] = h, h * h, one if h > zero else zero


@compiled
def backward(sizes, loc, var, x, units, squares, slopes, ratios, grad, of_loc, of_log_std):
    """From the gradient of the last layer's units to those of all weights.

    Args:
        sizes, loc, x: As in `forward`.
        var, units, squares, slopes, ratios: As `forward` left them.
        grad: Gradient of the last layer's units, flat.
        of_loc, of_log_std: Filled.
    """
    n, end, weight = x.size // sizes[0], units.size, loc.size
    of_square = grad * ratios[end - grad.size :]  # twice the gradient of the variance, here and below
    for layer in range(sizes.size - 2, -1, -1):
        fan_in, width = sizes[layer], sizes[layer + 1]
        bias, first = weight - width, weight - width - fan_in * width
        end -= n * width
        below = end - n * fan_in
        h, square = (units[below:end], squares[below:end]) if layer else (x, x * x)
        multiply(of_loc[first:bias], h, True, grad, fan_in, n, width)
        multiply(of_log_std[first:bias], square, True, of_square, fan_in, n, width)
        _sum_rows(grad, of_loc[bias:weight])
        _sum_rows(of_square, of_log_std[bias:weight])
        if layer:
            grad = _through(grad, loc[first:bias], fan_in, n)
            of_square = _through(of_square, var[first:bias], fan_in, n)
            _pull(grad, of_square, h, slopes[below:end], ratios[below:end])
        weight = first
    for i in range(loc.size):
        of_log_std[i] *= var[i]


@spliced
def _through(grad, W, fan_in, n):
    """`ā Wᵀ`."""
    width = W.size // fan_in
    transposed = np.ascontiguousarray(W.reshape(fan_in, width).T).reshape(-1)
    below = np.empty(n * fan_in, grad.dtype)
    multiply(below, grad, False, transposed, n, width, fan_in)
    return below


@spliced
def _pull(grad, of_square, h, slopes, ratios):
    """From gradients of a layer's activated units, and of their squares, to those of its units and variances."""
    for i in range(grad.size):
        grad[i] = (grad[i] + h[i] * of_square[i]) * slopes[i]
        of_square[i] = grad[i] * ratios[i]


@spliced
def _sum_rows(values, out):
    """Sums over rows, that do not lose digits as rows become many."""
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
def add_divergence(of_loc, of_log_std, loc, log_std, weight, precision):
    """Add the gradients of `weight · KL(q(θ) ‖ p(θ))` (K1), for a prior of this precision."""
    of_kl, shrink = loc.dtype.type(weight), loc.dtype.type(weight * precision)
    for i in range(loc.size):
        of_loc[i] += shrink * loc[i]
        of_log_std[i] += shrink * exp(log_std[i] + log_std[i]) - of_kl
