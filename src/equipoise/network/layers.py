"""Layers of a multilayer perceptron: views of their weights in a flat vector, activations, and their compiled twin.

`BayesianMLP` defines the pass through all layers in torch's operators. On the processor, passes of narrow networks go
through the compiled loops of `equipoise.fast.layers`, which compute the same to rounding in less time; autograd uses
their gradients.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from equipoise import compiled

ACTIVATIONS = {
    "silu": nn.functional.silu,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "gelu": nn.functional.gelu,
}


def _silu_slope(a: Tensor) -> Tensor:
    s = torch.sigmoid(a)
    return s * (1.0 + a * (1.0 - s))


def _gelu_slope(a: Tensor) -> Tensor:
    density = torch.exp(-0.5 * a.square()) / math.sqrt(2.0 * math.pi)
    return 0.5 * (1.0 + torch.erf(a / math.sqrt(2.0))) + a * density


SLOPES = {
    "silu": _silu_slope,
    "tanh": lambda a: 1.0 - torch.tanh(a).square(),
    "relu": lambda a: (a > 0).to(a.dtype),
    "gelu": _gelu_slope,
}
"""Derivatives of the activations."""
WIDEST = 256  # layer for which one core is enough


def layer_views(flat: Float[Tensor, "... P"], sizes: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """Return views `(W, bias)` of each layer in a flat parameter vector, `W` of shape `(..., fan_in, fan_out)`.

    Args:
        flat: Weights, then biases, layer after layer.
        sizes: Widths of inputs, hidden layers and outputs.

    Example:
        >>> (W, bias), = layer_views(torch.arange(3.0), (2, 1))
        >>> W.shape, bias
        (torch.Size([2, 1]), tensor([2.]))
    """
    shapes = list(itertools.pairwise(sizes))
    parts = flat.split([length for a, b in shapes for length in (a * b, b)], dim=-1)  # one call, not one per slice
    weights = [W.view(*W.shape[:-1], a, b) for W, (a, b) in zip(parts[::2], shapes, strict=True)]
    return list(zip(weights, parts[1::2], strict=True))


def split_units(flat: Float[Tensor, " units"], n: int, sizes: Sequence[int]) -> list[Tensor]:
    """Return views of shape `(n, width)` of each layer in a flat vector of numbers for all units of all rows.

    Args:
        flat: Numbers for all units of all rows, layer by layer.
        n: Number of rows.
        sizes: Widths of inputs, hidden layers and outputs.
    """
    return [part.view(n, -1) for part in flat.split([n * width for width in sizes[1:]])]


def is_compiled(like: Tensor, sizes: Sequence[int], activation: str) -> bool:
    """Return whether compiled code serves a network: on the processor, unless a layer is wider than `WIDEST`.

    Args:
        like: A tensor on the device in question.
        sizes: Widths of inputs, hidden layers and outputs.
        activation: Name of the activation.
    """
    on_processor = like.device.type == "cpu" and compiled.is_available() and not torch.compiler.is_compiling()
    return on_processor and max(sizes) <= WIDEST and activation in ("silu", "tanh", "relu")


def can_differentiate(x: Tensor) -> bool:
    """Return whether the gradients of compiled code are all that is asked for: none of inputs, and no transforms."""
    return not (x.requires_grad or torch._C._are_functorch_transforms_active())


class CompiledDraws(torch.autograd.Function):
    """The last layer's units of rows that have one weight draw each (V2), as a function of `loc` and `log_std`."""

    @staticmethod
    def forward(
        ctx: Any,
        loc: Float[Tensor, " P"],
        log_std: Float[Tensor, " P"],
        x: Float[Tensor, "n n_x"],
        noise: Float[Tensor, " units"],
        sizes: Sequence[int],
        activation: str,
    ) -> Float[Tensor, "n n_out"]:
        """Compute the units.

        Args:
            ctx: What `backward` needs.
            loc, log_std: Means and log standard deviations of all weights.
            x: Inputs.
            noise: A standard normal number for each row and unit, layer by layer, flat.
            sizes: Widths of inputs, hidden layers and outputs.
            activation: Name of the activation.
        """
        from equipoise.fast import layers as loops

        widths, means, inputs, xi = np.array(sizes), loc.detach().numpy(), _flat(x), noise.numpy()
        var, (units, squares, slopes, ratios) = np.empty_like(means), (np.empty_like(xi) for _ in range(4))
        draws = log_std.detach().numpy(), xi, var, squares, ratios
        loops.forward(widths, loops.ACTIVATIONS[activation], means, inputs, units, slopes, draws)
        ctx.save_for_backward(loc)
        ctx.saved = widths, inputs, units, slopes, (var, squares, ratios)
        return _last_layer(units, len(x), sizes[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Return the gradients of `loc` and `log_std`.

        Args:
            ctx: Autograd's context.
            grad: Gradient with respect to the units of the last layer.
        """
        from equipoise.fast import layers as loops

        (loc,), (widths, inputs, units, slopes, draws) = ctx.saved_tensors, ctx.saved
        gradients = torch.empty_like(loc), torch.empty_like(loc)
        of_loc, of_log_std = (each.numpy() for each in gradients)
        loops.backward(widths, loc.detach().numpy(), inputs, units, slopes, _flat(grad), of_loc, (*draws, of_log_std))
        return *gradients, None, None, None, None


class CompiledMeans(torch.autograd.Function):
    """The last layer's units at the means of all weights, as a function of `loc`."""

    @staticmethod
    def forward(
        ctx: Any, loc: Float[Tensor, " P"], x: Float[Tensor, "n n_x"], sizes: Sequence[int], activation: str
    ) -> Float[Tensor, "n n_out"]:
        """Compute the units; the arguments are those of `CompiledDraws`."""
        from equipoise.fast import layers as loops

        widths, inputs = np.array(sizes), _flat(x)
        units = np.empty(len(x) * sum(sizes[1:]), inputs.dtype)
        slopes = np.empty_like(units)
        loops.forward(widths, loops.ACTIVATIONS[activation], loc.detach().numpy(), inputs, units, slopes, None)
        ctx.save_for_backward(loc)
        ctx.saved = widths, inputs, units, slopes
        return _last_layer(units, len(x), sizes[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Return the gradient of `loc`.

        Args:
            ctx: Autograd's context.
            grad: Gradient with respect to the units of the last layer.
        """
        from equipoise.fast import layers as loops

        (loc,), (widths, *saved) = ctx.saved_tensors, ctx.saved
        gradient = torch.empty_like(loc)
        loops.backward(widths, loc.detach().numpy(), *saved, _flat(grad), gradient.numpy(), None)
        return gradient, None, None, None


def _flat(values: Tensor) -> np.ndarray:
    return values.detach().contiguous().view(-1).numpy()


def _last_layer(units: np.ndarray, n: int, width: int) -> Float[Tensor, "n width"]:
    return torch.from_numpy(units[units.size - n * width :].reshape(n, width))
