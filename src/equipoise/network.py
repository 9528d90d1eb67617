"""BayesianMLP: inputs and weight draws in, one diagonal Gaussian per draw out."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from equipoise.gaussian import DiagonalGaussian
from equipoise.variational import MeanFieldGaussian, first_derivative_only

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
LOG_VAR_BOUND = 20.0
LOG_FACTOR_BOUND = 4.0


@dataclass(frozen=True)
class NetworkGaussian(DiagonalGaussian):
    """What a network says of rows: `y ~ N(μ, diag(v))`, and how much noisier than elsewhere they are measured.

    Args:
        mean, var: As of any Gaussian, shape `(..., n_y)`.
        sensor_factor: `κ` (V4), by which learned sensor variances are multiplied here; None without such a head.
    """

    sensor_factor: Float[Tensor, "... n_y"] | None = None


class BayesianMLP(nn.Module):
    """A multilayer perceptron with a mean-field Gaussian posterior over all its weights and biases.

    The last layer has `2 n_y` units: means, and raw log-variances bounded smoothly::

        log v = 20 tanh(raw / 20)                                                 (V3)

    so that `v` is positive and finite whatever the weights. Where sensors are learned, `n_y` more say how their noise
    depends on the inputs, by a factor of seven at most in standard deviation, up or down::

        w(x) = ω κ(x),   log κ = 4 tanh(raw / 4)                                  (V4)

    Args:
        n_inputs, n_outputs: Widths of x and y.
        hidden: Widths of the hidden layers; empty for a linear model.
        activation: One of silu, tanh, relu, gelu.
        sensor_head: Whether it also says how sensor noise depends on x.
        prior_std: Prior standard deviation of each weight and bias.
        init_std: Starting posterior standard deviation.
        generator: Randomness of the starting weights.
    """

    def __init__(
        self,
        n_inputs: int,
        n_outputs: int,
        hidden: Sequence[int] = (64, 64),
        activation: str = "silu",
        *,
        sensor_head: bool = False,
        prior_std: float = 1.0,
        init_std: float = 1e-2,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        self.n_outputs = n_outputs
        self.activation = activation
        self.sizes = (n_inputs, *hidden, (3 if sensor_head else 2) * n_outputs)
        self.posterior = MeanFieldGaussian(self._starting_weights(generator), prior_std, init_std)

    def forward(self, x: Float[Tensor, "n n_x"], generator: torch.Generator | None = None) -> NetworkGaussian:
        """One Gaussian per row, each row with its own weight draw, by local reparameterisation.

        For a layer with inputs h the pre-activations are independent normals given h::

            a ~ N(h M + m, h² V + u),   W ~ N(M, V), bias ~ N(m, u)                (V2)

        so sampling them instead of the weights gives the same expectation of the loss with less noise.
        """
        posterior, width = self.posterior, sum(self.sizes[1:])
        noise = torch.randn((x.shape[0], width), dtype=x.dtype, device=x.device, generator=generator)
        return self._heads(
            _LocalReparameterisation.apply(posterior.loc, posterior.log_std, x, noise, self.sizes, self.activation)  # type: ignore[arg-type]
        )

    def at(self, weights: Float[Tensor, "n_draws P"], x: Float[Tensor, "n n_x"]) -> NetworkGaussian:
        """Gaussians of shape `(n_draws, n, n_y)` for joint weight draws, in batched matrix products."""
        h = x.expand(weights.shape[0], *x.shape)
        for i, (W, bias) in enumerate(self._layers(weights)):
            h = self._activate(torch.baddbmm(bias.unsqueeze(-2), h, W), i)
        return self._heads(h)

    def at_means(self, x: Float[Tensor, "n n_x"]) -> NetworkGaussian:
        """The Gaussian at the posterior means of the weights."""
        h = x
        for i, (W, bias) in enumerate(self._layers(self.posterior.loc)):
            h = self._activate(torch.addmm(bias, h, W), i)
        return self._heads(h)

    @torch.no_grad()
    def set_variance_head(self, var: Float[Tensor, " n_y"]) -> None:
        """Make the network say `var`, and sensors of like noise, for every input, whatever it said before."""
        W, bias = self._layers(self.posterior.loc)[-1]
        log_var = var.log().clamp(-0.9 * LOG_VAR_BOUND, 0.9 * LOG_VAR_BOUND)
        W[:, self.n_outputs :] = 0.0
        bias[self.n_outputs :] = 0.0
        bias[self.n_outputs : 2 * self.n_outputs] = LOG_VAR_BOUND * torch.atanh(log_var / LOG_VAR_BOUND)

    @torch.no_grad()
    def hold_means(self) -> None:
        """Forget the gradients of the posterior means, except those of the variance and sensor heads."""
        if (grad := self.posterior.loc.grad) is not None:
            W, bias = self._layers(grad)[-1]
            kept = W[:, self.n_outputs :].clone(), bias[self.n_outputs :].clone()
            grad.zero_()
            W[:, self.n_outputs :], bias[self.n_outputs :] = kept

    def _layers(self, flat: Float[Tensor, "... P"]) -> list[tuple[Tensor, Tensor]]:
        return _layers(flat, self.sizes)

    def _activate(self, h: Tensor, layer: int) -> Tensor:
        return ACTIVATIONS[self.activation](h) if layer < len(self.sizes) - 2 else h

    def _heads(self, h: Tensor) -> NetworkGaussian:
        mean, raw, *rest = h.split(self.n_outputs, dim=-1)
        factor = _bounded(rest[0], LOG_FACTOR_BOUND).exp() if rest else None  # V4
        return NetworkGaussian(mean, _bounded(raw, LOG_VAR_BOUND).exp(), factor)  # V3

    def _starting_weights(self, generator: torch.Generator | None) -> Tensor:
        """Weights `N(0, 1 / fan_in)`, biases 0."""
        parts = []
        for fan_in, fan_out in itertools.pairwise(self.sizes):
            parts.append(torch.randn(fan_in * fan_out, generator=generator) / math.sqrt(max(fan_in, 1)))
            parts.append(torch.zeros(fan_out))
        return torch.cat(parts)


def _bounded(raw: Tensor, bound: float) -> Tensor:
    return bound * torch.tanh(raw / bound)


def _layers(flat: Float[Tensor, "... P"], sizes: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """Views of a flat parameter vector: `(W, bias)` of each layer, `W` of shape `(..., fan_in, fan_out)`."""
    layers, start = [], 0
    for fan_in, fan_out in itertools.pairwise(sizes):
        end = start + fan_in * fan_out
        layers.append((flat[..., start:end].unflatten(-1, (fan_in, fan_out)), flat[..., end : end + fan_out]))
        start = end + fan_out
    return layers


class _LocalReparameterisation(torch.autograd.Function):
    """All layers of (V2) in one node of the graph: four fifths of the time that autograd takes for the same."""

    @staticmethod
    def forward(
        ctx: Any, loc: Tensor, log_std: Tensor, x: Tensor, noise: Tensor, sizes: tuple[int, ...], activation: str
    ) -> Tensor:
        var = (2.0 * log_std).exp_()
        xi = noise.split(sizes[1:], dim=-1)
        layers = list(zip(_layers(loc, sizes), _layers(var, sizes), strict=True))
        h, saved = x, []
        for i, ((W, bias), (W_var, bias_var)) in enumerate(layers):
            square = h.square()
            std = torch.addmm(bias_var, square, W_var).clamp_min_(torch.finfo(x.dtype).tiny).sqrt_()
            a = torch.addmm(bias, h, W).addcmul_(std, xi[i])
            saved += [h, square, std, a]
            h = ACTIVATIONS[activation](a) if i < len(layers) - 1 else a
        ctx.save_for_backward(loc, var, noise, *saved)
        ctx.sizes, ctx.activation = sizes, activation
        return h

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        first_derivative_only()
        loc, var, noise, *saved = ctx.saved_tensors
        sizes, grad_loc, grad_var = ctx.sizes, torch.empty_like(loc), torch.empty_like(var)
        xi = noise.split(sizes[1:], dim=-1)
        views = [_layers(flat, sizes) for flat in (loc, var, grad_loc, grad_var)]
        for i in reversed(range(len(sizes) - 1)):
            (W, _), (W_var, _), (into_W, into_bias), (into_W_var, into_bias_var) = (view[i] for view in views)
            h, square, std, a = saved[4 * i : 4 * i + 4]
            if i < len(sizes) - 2:
                grad = _BACKWARD[ctx.activation](grad, a, saved[4 * i + 4])
            grad_s = (grad * xi[i]).div_(std)  # twice the gradient of std²
            torch.mm(h.T, grad, out=into_W)
            torch.sum(grad, 0, out=into_bias)
            torch.mm(square.T, grad_s, out=into_W_var)
            torch.sum(grad_s, 0, out=into_bias_var)
            if i > 0 or ctx.needs_input_grad[2]:
                grad = torch.mm(grad, W.T).addcmul_(h, torch.mm(grad_s, W_var.T))
        return grad_loc, grad_var.mul_(var), grad if ctx.needs_input_grad[2] else None, None, None, None
