"""Forward and backward passes of a mean-field network, all layers in one compiled call (V2).

The twin of `equipoise.network.BayesianMLP`, which computes the same by torch operators. One loop, with or without draws
of the units, serves training, its phase of means, and prediction. Arrays are flat. An array over units holds one layer
after the other, the inputs excluded, each layer `(n, width)` row by row. An array over weights holds one layer after
the other, each `(fan_in, fan_out)` row by row and then the bias `(fan_out,)`, as everywhere in the library. `sizes` are
the widths of all layers, inputs first, int64.
"""

import math

import numpy as np

from equipoise.fast.compilation import compiled, spliced
from equipoise.fast.elementary import exp, tanh
from equipoise.fast.heads import write_head
from equipoise.fast.matrix_products import add_product, multiply

ACTIVATIONS = {"silu": 0, "tanh": 1, "relu": 2}
_TILE = 128  # rows that pass through all layers before the next rows do
_BLOCK = 32  # rows whose sum is computed in the network's precision, before it is added up in double precision


@compiled
def forward(sizes, activation, loc, x, units, slopes, draws):
    """Compute the units of all layers, at the weights `loc` or for one draw of the weights per row.

    The twin of `equipoise.network.BayesianMLP.at_vector`; with `draws`, of `BayesianMLP.forward`, which draws units by
    local reparameterisation (V2).

    Args:
        sizes: Widths of the layers, inputs first.
        activation: A value of `ACTIVATIONS`.
        loc: Weights, the means of the posterior where there are draws.
        x: Inputs, `(n, n_x)`, flat.
        units: Filled with the units after their activation, over units.
        slopes: Filled with the derivatives of the activations, over units but for the last layer; None in prediction.
        draws: None, or a tuple of: log standard deviations of the posterior, over weights; standard normal numbers,
            over units, in any precision; an array over weights, filled with the variances of the posterior; and two
            arrays over units, filled with the squares of the units, and with `noise / std`.
    """
    n = units.size // sizes[1:].sum()
    h, square, weight, start = x, x, 0, 0
    if draws is not None:
        log_std, _, var, _, _ = draws
        _fill_variances(log_std, var)
        square = x * x
    for layer in range(sizes.size - 1):
        fan_in, width = sizes[layer], sizes[layer + 1]
        end, span = weight + (fan_in + 1) * width, slice(start, start + n * width)
        a = units[span]
        _affine(a, h, loc[weight:end], n, fan_in)
        if draws is not None:
            _, noise, var, squares, ratios = draws
            _affine(squares[span], square, var[weight:end], n, fan_in)
            _draw_units(a, squares[span], noise[span], ratios[span])
        if layer < sizes.size - 2:
            if slopes is None:
                _activate(activation, a, None)
            else:
                _activate(activation, a, slopes[span])
            if draws is not None:
                square = draws[3][span]
                for i in range(a.size):
                    square[i] = a[i] * a[i]
        h, weight, start = a, end, start + n * width


@spliced
def _fill_variances(log_std, var):
    """Fill `var` with the variances of the posterior, kept above 0, from its log standard deviations."""
    tiny = np.finfo(var.dtype).tiny
    for i in range(var.size):
        value = exp(log_std[i] + log_std[i])
        var[i] = tiny if value < tiny else value


@spliced
def _affine(a, h, weights, n, fan_in):
    """Compute `h W + b` of the weights and biases of one layer.

    Args:
        a: Filled, `(n, width)`, flat.
        h: `(n, fan_in)`, flat.
        weights: `W`, row by row, and `b`.
        n, fan_in: Numbers of rows and of inputs of the layer.
    """
    width = weights.size // (fan_in + 1)
    W, bias = weights[: fan_in * width], weights[fan_in * width :]
    rows = a.reshape(n, width)
    for i in range(n):
        for j in range(width):
            rows[i, j] = bias[j]
    add_product(a, h, False, W, n, fan_in, width)


@spliced
def _draw_units(a, var, noise, ratios):
    """Draw the pre-activations of a layer, `a + √var ξ` (V2).

    Args:
        a: Their means, `h M + m`, replaced by the draws, flat, as all arrays.
        var: Their variances, `h² V + u`.
        noise: `ξ`.
        ratios: Filled with `ξ / √var`.
    """
    for i in range(a.size):
        std, xi = math.sqrt(var[i]), a.dtype.type(noise[i])
        a[i] += std * xi
        ratios[i] = xi / std


@spliced
def _activate(activation, units, slopes):
    """Replace pre-activations by activated units, and fill `slopes`, unless None, with the derivatives, flat."""
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
def backward(sizes, loc, x, units, slopes, grad, grad_loc, draws):
    """Compute the gradients with respect to the weights from the gradient with respect to the last layer.

    Args:
        sizes, loc, x: As in `forward`.
        units, slopes: As filled by `forward`.
        grad: Gradient with respect to the units of the last layer, `(n, n_out)`, flat.
        grad_loc: Filled, over weights.
        draws: None, or a tuple of: variances of the posterior; squares and ratios as filled by `forward`; and an array
            over weights that is filled with the gradient with respect to `log_std`.
    """
    n, end, weight, grad_square = units.size // sizes[1:].sum(), units.size, loc.size, grad
    if draws is not None:
        grad_square = grad * draws[2][end - grad.size :]  # twice the gradient with respect to variances
    for layer in range(sizes.size - 2, -1, -1):
        fan_in, width = sizes[layer], sizes[layer + 1]
        first = weight - (fan_in + 1) * width
        end -= n * width
        below = end - n * fan_in
        h = units[below:end] if layer else x
        _pull_affine(grad, h, grad_loc[first:weight], n, fan_in)
        if draws is not None:
            _, squares, _, grad_log_std = draws
            _pull_affine(grad_square, squares[below:end] if layer else x * x, grad_log_std[first:weight], n, fan_in)
        if layer:
            grad = _multiply_transposed(grad, loc[first : weight - width], fan_in, n)
            if draws is None:
                for i in range(grad.size):
                    grad[i] *= slopes[below + i]
            else:
                var, _, ratios, _ = draws
                grad_square = _multiply_transposed(grad_square, var[first : weight - width], fan_in, n)
                _pull_activation(grad, grad_square, h, slopes[below:end], ratios[below:end])
        weight = first
    if draws is not None:
        var, _, _, grad_log_std = draws
        for i in range(loc.size):
            grad_log_std[i] *= var[i]


@spliced
def _pull_affine(grad, h, grad_weights, n, fan_in):
    """Compute the gradient with respect to the weights and biases of one layer from that of `_affine`'s result.

    Args:
        grad: Gradient with respect to `h W + b`, `(n, width)`, flat.
        h: As in `_affine`.
        grad_weights: Filled, `W` and then `b`.
        n, fan_in: As in `_affine`.
    """
    width = grad_weights.size // (fan_in + 1)
    multiply(grad_weights[: fan_in * width], h, True, grad, fan_in, n, width)
    _sum_rows(grad, grad_weights[fan_in * width :])


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
    n, n_units = x.shape[0], sizes[1:].sum()
    memory = np.empty((2, _TILE * n_units), x.dtype)
    for draw in range(first, last):
        for start in range(0, n, _TILE):
            rows = min(_TILE, n - start)
            units = memory[0, : rows * n_units]
            forward(sizes, activation, weights[draw], x[start : start + rows].reshape(-1), units, None, None)
            last_layer = units[units.size - rows * sizes[-1] :].reshape(rows, -1)
            for head in range(values.shape[0]):
                value = values[head, draw, start : start + rows].reshape(-1)
                write_head(last_layer, head, bounds, memory[1], value, None)


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
