"""BayesianMLP: inputs and weight draws in, one diagonal Gaussian per draw out."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from equipoise.gaussian import DiagonalGaussian, flat_antithetic_normals
from equipoise.network.posterior import MeanFieldGaussian
from equipoise.network.propagation import ACTIVATIONS, layers, propagate_draws, propagate_means, split_units

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
        xi, tiny = split_units(self._noise(x, generator), len(x), self.sizes), torch.finfo(x.dtype).tiny
        h, var = x, self._layers(self.posterior.std.square().clamp_min(tiny))
        for i, ((W, bias), (W_var, bias_var)) in enumerate(zip(self._layers(self.posterior.loc), var, strict=True)):
            std = torch.addmm(bias_var, h.square(), W_var).sqrt()
            h = self._activate(torch.addmm(bias, h, W) + std * xi[i], i)
        return self._heads(h)

    def propagate(
        self, x: Float[Tensor, "n n_x"], generator: torch.Generator | None = None
    ) -> tuple[NetworkGaussian, Callable[..., tuple[Tensor, Tensor]]]:
        """`forward` without a graph, and the function that takes the gradients of what the network said (of `mean`,
        `var` and `sensor_factor`, the last None without such a head) to those of the posterior's `loc` and `log_std`.
        """
        q = self.posterior
        h, pull = propagate_draws(q.loc, q.log_std, x, self._noise(x, generator), self.sizes, self.activation)
        said = self._heads(h.detach())
        return said, lambda *of: pull(self._of_units(h, said, *of))

    def propagate_means(self, x: Float[Tensor, "n n_x"]) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The means of `at_means` without a graph, and the function that takes their gradient to that of `loc`."""
        h, pull = propagate_means(self.posterior.loc, x, self.sizes, self.activation)
        rest = h.shape[-1] - self.n_outputs
        return h[:, : self.n_outputs], lambda of_mean: pull(nn.functional.pad(of_mean, (0, rest)))

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
        return layers(flat, self.sizes)

    def _activate(self, h: Tensor, layer: int) -> Tensor:
        return ACTIVATIONS[self.activation](h) if layer < len(self.sizes) - 2 else h

    def _noise(self, x: Tensor, generator: torch.Generator | None) -> Float[Tensor, " units"]:
        """Of each row and unit, layer by layer, flat."""
        return flat_antithetic_normals(len(x), self.sizes[1:], generator, x.dtype, x.device)

    def _heads(self, h: Tensor) -> NetworkGaussian:
        mean, raw, *rest = h.split(self.n_outputs, dim=-1)
        factor = _bounded(rest[0], LOG_FACTOR_BOUND).exp() if rest else None  # V4
        return NetworkGaussian(mean, _bounded(raw, LOG_VAR_BOUND).exp(), factor)  # V3

    def _of_units(
        self, h: Tensor, said: NetworkGaussian, of_mean: Tensor, of_var: Tensor, of_factor: Tensor | None
    ) -> Float[Tensor, "n n_out"]:
        """Gradients of the last layer's units from those of what they say (V3, V4)."""
        of_h = torch.zeros_like(h)
        into = of_h.split(self.n_outputs, dim=-1)
        into[0].copy_(of_mean)
        into[1].copy_(of_var * _slope(said.var, LOG_VAR_BOUND))
        if said.sensor_factor is not None and of_factor is not None:
            into[2].copy_(of_factor * _slope(said.sensor_factor, LOG_FACTOR_BOUND))
        return of_h

    def _starting_weights(self, generator: torch.Generator | None) -> Tensor:
        """Weights `N(0, 1 / fan_in)`, biases 0."""
        parts = []
        for fan_in, fan_out in itertools.pairwise(self.sizes):
            parts.append(torch.randn(fan_in * fan_out, generator=generator) / math.sqrt(max(fan_in, 1)))
            parts.append(torch.zeros(fan_out))
        return torch.cat(parts)


def _bounded(raw: Tensor, bound: float) -> Tensor:
    return bound * torch.tanh(raw / bound)


def _slope(value: Tensor, bound: float) -> Tensor:
    """Derivative of `value = exp(_bounded(raw, bound))` with respect to `raw`."""
    return (1.0 - (value.log() / bound).square_()).mul_(value)
