"""Forward and backward propagation through the layers of a mean-field network, without autograd's graph.

At the sizes of these networks the time of a training step depends on the number of operations, not on their work.
Autograd over `BayesianMLP.forward` is the definition and the tests' oracle; this module computes the same numbers in
less time.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from equipoise.fast import enabled

ACTIVATIONS = {
    "silu": nn.functional.silu,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "gelu": nn.functional.gelu,
}
_BACKWARD = {  # (gradient of the activation, its argument, its value) -> gradient of the argument
    "silu": lambda grad, a, h: torch.ops.aten.silu_backward(grad, a),
    "tanh": lambda grad, a, h: torch.ops.aten.tanh_backward(grad, h),
    "relu": lambda grad, a, h: torch.ops.aten.threshold_backward(grad, h, 0.0),
    "gelu": lambda grad, a, h: torch.ops.aten.gelu_backward(grad, a),
}
WIDEST = 256  # layer for which one core is enough
Pull = Callable[[Tensor], tuple[Tensor, Tensor]]


def layers(flat: Float[Tensor, "... P"], sizes: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """Return views `(W, bias)` of each layer in a flat parameter vector, `W` of shape `(..., fan_in, fan_out)`.

    Args:
        flat: Weights, then biases, layer after layer.
        sizes: Widths of inputs, hidden layers and outputs.

    Example:
        >>> (W, bias), = layers(torch.arange(3.0), (2, 1))
        >>> W.shape, bias
        (torch.Size([2, 1]), tensor([2.]))
    """
    shapes = list(itertools.pairwise(sizes))
    parts = flat.split([length for a, b in shapes for length in (a * b, b)], dim=-1)  # one call, not one per slice
    weights = [W.view(*W.shape[:-1], a, b) for W, (a, b) in zip(parts[::2], shapes, strict=True)]
    return list(zip(weights, parts[1::2], strict=True))


def is_compiled(like: Tensor, sizes: Sequence[int], activation: str) -> bool:
    """Return whether compiled code serves a network: on the processor, unless a layer is wider than `WIDEST`.

    Args:
        like: A tensor on the device in question.
        sizes: Widths of inputs, hidden layers and outputs.
        activation: Name of the activation.
    """
    on_processor = like.device.type == "cpu" and enabled() and not torch.compiler.is_compiling()
    return on_processor and max(sizes) <= WIDEST and activation in ("silu", "tanh", "relu")


def split_units(flat: Float[Tensor, " units"], n: int, sizes: Sequence[int]) -> list[Tensor]:
    """Return views of shape `(n, width)` of each layer in a flat vector of numbers for all units of all rows."""
    return [part.view(n, -1) for part in flat.split([n * width for width in sizes[1:]])]


@torch.no_grad()
def propagate_draws(
    loc: Float[Tensor, " P"],
    log_std: Float[Tensor, " P"],
    x: Float[Tensor, "n n_x"],
    noise: Float[Tensor, " units"],
    sizes: Sequence[int],
    activation: str,
) -> tuple[Float[Tensor, "n n_out"], Pull]:
    """Propagate rows through all layers by local reparameterisation (V2).

    Args:
        loc, log_std: Means and logarithms of the standard deviations of all weights.
        x: Inputs.
        noise: A standard normal number for each row and unit, layer by layer, flat.
        sizes: Widths of inputs, hidden layers and outputs.
        activation: Name of the activation.
    Returns:
        The last layer's units, and a function from their gradient to those of `loc` and `log_std`.
    """
    if is_compiled(x, sizes, activation):
        return _propagate_compiled(loc, log_std, x, noise, sizes, activation)
    xi = split_units(noise, len(x), sizes)
    var = (2.0 * log_std).exp_().clamp_min_(torch.finfo(x.dtype).tiny)
    weights = list(zip(layers(loc, sizes), layers(var, sizes), strict=True))
    act, h, saved = ACTIVATIONS[activation], x, []
    for i, ((W, bias), (W_var, bias_var)) in enumerate(weights):
        square = h.square()
        std = torch.addmm(bias_var, square, W_var).sqrt_()
        a = torch.addmm(bias, h, W).addcmul_(std, xi[i])
        saved.append((h, square, std, a))
        h = act(a) if i < len(weights) - 1 else a

    return h, partial(_pull_draws, loc, var, xi, weights, saved, sizes, activation)


@torch.no_grad()
def _pull_draws(
    loc: Tensor,
    var: Tensor,
    noise: Sequence[Tensor],
    weights: list,
    saved: list,
    sizes: Sequence[int],
    activation: str,
    grad: Tensor,
) -> tuple[Tensor, Tensor]:
    of_loc, of_var = torch.empty_like(loc), torch.empty_like(var)
    gradients = list(zip(layers(of_loc, sizes), layers(of_var, sizes), strict=True))
    for i in reversed(range(len(weights))):
        ((W, _), (W_var, _)), ((of_W, of_bias), (of_W_var, of_bias_var)) = weights[i], gradients[i]
        h, square, std, a = saved[i]
        if i < len(weights) - 1:
            grad = _BACKWARD[activation](grad, a, saved[i + 1][0])
        of_square = (grad * noise[i]).div_(std)  # twice the gradient of std²
        torch.mm(h.T, grad, out=of_W)
        torch.sum(grad, 0, out=of_bias)
        torch.mm(square.T, of_square, out=of_W_var)
        torch.sum(of_square, 0, out=of_bias_var)
        if i > 0:
            grad = torch.mm(grad, W.T).addcmul_(h, torch.mm(of_square, W_var.T))
    return of_loc, of_var.mul_(var)


def _propagate_compiled(
    loc: Tensor, log_std: Tensor, x: Tensor, noise: Tensor, sizes: Sequence[int], activation: str
) -> tuple[Tensor, Pull]:
    """Compute `propagate_draws` on the processor, all layers in one compiled call."""
    from equipoise.fast import layers as loops

    widths, means, inputs, xi = np.array(sizes), loc.detach().numpy(), _flat(x), noise.numpy()
    var, (units, squares, slopes, ratios) = np.empty_like(means), (np.empty_like(xi) for _ in range(4))
    kind, spreads = loops.ACTIVATIONS[activation], log_std.detach().numpy()
    loops.forward(widths, kind, means, spreads, inputs, xi, var, units, squares, slopes, ratios)

    def pull(grad: Tensor) -> tuple[Tensor, Tensor]:
        of_loc, of_log_std = torch.empty_like(loc), torch.empty_like(loc)
        buffers = of_loc.numpy(), of_log_std.numpy()
        loops.backward(widths, means, var, inputs, units, squares, slopes, ratios, _flat(grad), *buffers)
        return of_loc, of_log_std

    return _last_layer(units, len(x), sizes[-1]), pull


@torch.no_grad()
def propagate_means(
    loc: Float[Tensor, " P"], x: Float[Tensor, "n n_x"], sizes: Sequence[int], activation: str
) -> tuple[Float[Tensor, "n n_out"], Callable[[Tensor], Tensor]]:
    """Propagate rows through all layers at the posterior means.

    Args:
        loc: Means of all weights.
        x: Inputs.
        sizes: Widths of inputs, hidden layers and outputs.
        activation: Name of the activation.
    Returns:
        The last layer's units, and a function from their gradient to that of `loc`.
    """
    if is_compiled(x, sizes, activation):
        return _propagate_compiled_means(loc, x, sizes, activation)
    weights, act, h, saved = layers(loc, sizes), ACTIVATIONS[activation], x, []
    for i, (W, bias) in enumerate(weights):
        a = torch.addmm(bias, h, W)
        saved.append((h, a))
        h = act(a) if i < len(weights) - 1 else a

    return h, partial(_pull_means, loc, weights, saved, sizes, activation)


def _propagate_compiled_means(
    loc: Tensor, x: Tensor, sizes: Sequence[int], activation: str
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    from equipoise.fast import layers as loops

    widths, means, inputs = np.array(sizes), loc.detach().numpy(), _flat(x)
    units = np.empty(len(x) * sum(sizes[1:]), means.dtype)
    slopes = np.empty_like(units)
    loops.forward_means(widths, loops.ACTIVATIONS[activation], means, inputs, units, slopes)

    def pull(grad: Tensor) -> Tensor:
        of_loc = torch.empty_like(loc)
        loops.backward_means(widths, means, inputs, units, slopes, _flat(grad), of_loc.numpy())
        return of_loc

    return _last_layer(units, len(x), sizes[-1]), pull


def _flat(values: Tensor) -> np.ndarray:
    return values.detach().contiguous().view(-1).numpy()


def _last_layer(units: np.ndarray, n: int, width: int) -> Float[Tensor, "n width"]:
    return torch.from_numpy(units[units.size - n * width :].reshape(n, width))


@torch.no_grad()
def _pull_means(
    loc: Tensor, weights: list, saved: list, sizes: Sequence[int], activation: str, grad: Tensor
) -> Float[Tensor, " P"]:
    of_loc = torch.empty_like(loc)
    gradients = layers(of_loc, sizes)
    for i in reversed(range(len(weights))):
        h, a = saved[i]
        if i < len(weights) - 1:
            grad = _BACKWARD[activation](grad, a, saved[i + 1][0])
        torch.mm(h.T, grad, out=gradients[i][0])
        torch.sum(grad, 0, out=gradients[i][1])
        if i > 0:
            grad = torch.mm(grad, weights[i][0].T)
    return of_loc
