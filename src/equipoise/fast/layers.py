"""Rows through all layers of a mean-field network, and gradients back, one call each (V2).

`equipoise.network.propagation` has the same in operators of torch, layer by layer. What belongs to the units of all
layers stands in flat arrays, one layer after the other, each row by row: `(n, width)`. So do weights,
`(fan_in, fan_out)` and then the bias, as everywhere in the library.
"""

import math

import numpy as np

from equipoise.fast.compilation import compiled, spliced
from equipoise.fast.elementary import exp, tanh
from equipoise.fast.products import multiply

ACTIVATIONS = {"silu": 0, "tanh": 1, "relu": 2}
_TILE = 128  # rows that go through all layers before the next ones do
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
    n = units.size // sizes[1:].sum()
    h, square, weight, start = x, x * x, 0, 0
    for layer in range(sizes.size - 1):
        fan_in, width = sizes[layer], sizes[layer + 1]
        bias, here = weight + fan_in * width, slice(start, start + n * width)
        a, a_var = units[here], squares[here]
        multiply(a, h, False, loc[weight:bias], n, fan_in, width)
        multiply(a_var, square, False, var[weight:bias], n, fan_in, width)
        _draw(a, a_var, loc[bias : bias + width], var[bias : bias + width], noise[here], ratios[here])
        if layer < sizes.size - 2:
            _activate(activation, a, slopes[here])
            for i in range(a.size):
                a_var[i] = a[i] * a[i]
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
def _activate(activation, units, slopes):
    one, zero = units.dtype.type(1), units.dtype.type(0)
    if activation == 0:
        for i in range(units.size):
            share = one / (one + exp(-units[i]))
            h = units[i] * share
            units[i], slopes[i] = h, share + h * (one - share)
    elif activation == 1:
        for i in range(units.size):
            h = tanh(units[i])
            units[i], slopes[i] = h, one - h * h
    else:
        for i in range(units.size):
            h = zero if units[i] <= zero else units[i]
            units[i], slopes[i] = h, one if h > zero else zero


@compiled
def backward(sizes, loc, var, x, units, squares, slopes, ratios, grad, of_loc, of_log_std):
    """From the gradient of the last layer's units to those of all weights.

    Args:
        sizes, loc, x: As in `forward`.
        var, units, squares, slopes, ratios: As `forward` left them.
        grad: Gradient of the last layer's units, flat.
        of_loc, of_log_std: Filled.
    """
    n, end, weight = units.size // sizes[1:].sum(), units.size, loc.size
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
def forward_means(sizes, activation, loc, x, units, slopes):
    """As `forward`, at the means of all weights."""
    n = units.size // sizes[1:].sum()
    h, weight, start = x, 0, 0
    for layer in range(sizes.size - 1):
        fan_in, width = sizes[layer], sizes[layer + 1]
        bias, here = weight + fan_in * width, slice(start, start + n * width)
        a = units[here]
        multiply(a, h, False, loc[weight:bias], n, fan_in, width)
        _add_bias(a, loc[bias : bias + width])
        if layer < sizes.size - 2:
            _activate(activation, a, slopes[here])
        h, weight, start = a, bias + width, start + n * width


@spliced
def _add_bias(a, bias):
    a = a.reshape(-1, bias.size)
    for i in range(a.shape[0]):
        for j in range(bias.size):
            a[i, j] += bias[j]


@compiled
def backward_means(sizes, loc, x, units, slopes, grad, of_loc):
    """From the gradient of the last layer's units to that of all weights, after `forward_means`."""
    n, end, weight = units.size // sizes[1:].sum(), units.size, loc.size
    for layer in range(sizes.size - 2, -1, -1):
        fan_in, width = sizes[layer], sizes[layer + 1]
        bias, first = weight - width, weight - width - fan_in * width
        end -= n * width
        below = end - n * fan_in
        h = units[below:end] if layer else x
        multiply(of_loc[first:bias], h, True, grad, fan_in, n, width)
        _sum_rows(grad, of_loc[bias:weight])
        if layer:
            grad = _through(grad, loc[first:bias], fan_in, n)
            for i in range(grad.size):
                grad[i] *= slopes[below + i]
        weight = first


@compiled
def evaluate(sizes, activation, bounds, weights, first, last, x, said):
    """What the network says of all rows for some draws of all weights.

    Args:
        sizes, activation: As in `forward`.
        bounds: Largest logarithms of all heads but the first (V3, V4).
        weights: Draws, shape `(n_draws, P)`.
        first, last: Which of them, the last excluded.
        x: Inputs, shape `(n, n_x)`.
        said: Filled, shape `(n_heads, n_draws, n, n_y)`, with the first heads of the last layer.
    """
    n, n_y = x.shape[0], said.shape[3]
    memory = np.empty((3, _TILE * sizes.max()), x.dtype)
    for draw in range(first, last):
        for start in range(0, n, _TILE):
            rows = min(_TILE, n - start)
            h, weight = x[start : start + rows].reshape(-1), 0
            for layer in range(sizes.size - 1):
                fan_in, width = sizes[layer], sizes[layer + 1]
                bias, a = weight + fan_in * width, memory[layer % 2, : rows * width]
                multiply(a, h, False, weights[draw, weight:bias], rows, fan_in, width)
                _add_bias(a, weights[draw, bias : bias + width])
                if layer < sizes.size - 2:
                    _activate(activation, a, memory[2, : rows * width])
                h, weight = a, bias + width
            _speak(h.reshape(rows, -1), bounds, n_y, draw, start, memory[2], said)


@spliced
def _speak(units, bounds, n_y, draw, start, memory, said):
    """The heads of some rows, what is in a head side by side."""
    rows = units.shape[0]
    raw = memory[: rows * n_y]
    for head in range(said.shape[0]):
        for i in range(rows):
            for j in range(n_y):
                raw[i * n_y + j] = units[i, head * n_y + j]
        into = said[head, draw, start : start + rows].reshape(-1)
        for k in range(raw.size):
            into[k] = raw[k]
        if head:
            bound = units.dtype.type(bounds[head - 1])
            for k in range(raw.size):
                into[k] = exp(bound * tanh(raw[k] / bound))


@compiled
def add_divergence(of_loc, of_log_std, loc, log_std, weight, precision):
    """Add the gradients of `weight · KL(q(θ) ‖ p(θ))` (K1), for a prior of this precision."""
    of_kl, shrink = loc.dtype.type(weight), loc.dtype.type(weight * precision)
    for i in range(loc.size):
        of_loc[i] += shrink * loc[i]
        of_log_std[i] += shrink * exp(log_std[i] + log_std[i]) - of_kl
