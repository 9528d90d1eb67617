"""The network: inputs and weight draws in, one diagonal Gaussian of the outputs per row and draw out."""

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

LOG_VAR_BOUND = 20.0  # of the logarithm of a variance, either way
LOG_FACTOR_BOUND = 4.0  # of the logarithm of a sensor factor


@dataclass(frozen=True)
class NetworkGaussian(DiagonalGaussian):
    """The network's output for rows: `y ~ N(μ, diag(v))`, and the factor of the sensor variances there.

    Args:
        mean, var: `μ` and `v`, shape `(..., n_y)`.
        sensor_factor: `κ` (V4), by which learned sensor variances are multiplied; None without a sensor head.
    """

    sensor_factor: Float[Tensor, "... n_y"] | None = None


class BayesianMLP(nn.Module):
    """A multilayer perceptron with a mean-field Gaussian posterior over all its weights and biases.

    The last layer has `2 n_y` units: means, and raw log-variances bounded smoothly::

        log v = 20 tanh(raw / 20)                                                 (V3)

    so that `v` is positive and finite whatever the weights. A sensor head of `n_y` more units makes the sensors' noise
    depend on the inputs, by a factor of at most seven in standard deviation, up or down::

        w(x) = ω κ(x),   log κ = 4 tanh(raw / 4)                                  (V4)

    Args:
        n_inputs, n_outputs: Widths of x and y.
        hidden: Widths of the hidden layers; empty for a linear model.
        activation: One of silu, tanh, relu, gelu.
        sensor_head: Whether sensor noise depends on the inputs.
        prior_std: Prior standard deviation of each weight and bias.
        init_std: Starting posterior standard deviation.
        generator: Randomness of the starting weights.

    Attributes:
        sizes: Number of inputs, widths of the hidden layers, and number of units of the last layer.
        posterior: Posterior of all weights and biases, layer by layer in one flat vector.

    Example:
        >>> network = BayesianMLP(3, 2, hidden=(8,), generator=torch.Generator().manual_seed(0))
        >>> network(torch.zeros(5, 3), torch.Generator().manual_seed(1)).mean.shape
        torch.Size([5, 2])
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
        """Compute one Gaussian per row, each with a weight draw of its own, by local reparameterisation.

        For a layer with inputs h the pre-activations are independent normals given h::

            a ~ N(h M + m, h² V + u),   W ~ N(M, V), bias ~ N(m, u)                (V2)

        so sampling them instead of the weights gives the same expectation of the loss with less noise.

        Args:
            x: Standardized inputs.
            generator: Randomness of the draws.
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
        """Compute `forward` without a graph, and the function that propagates gradients back.

        Args:
            x: Standardized inputs.
            generator: Randomness of the draws.
        Returns:
            The Gaussians, and a function from the loss's gradients with respect to `mean`, `var` and `sensor_factor`
            (None without a sensor head) to those with respect to the posterior's `loc` and `log_std`.
        """
        q = self.posterior
        h, pull = propagate_draws(q.loc, q.log_std, x, self._noise(x, generator), self.sizes, self.activation)
        gaussian = self._heads(h.detach())
        return gaussian, lambda *gradients: pull(self._gradient_of_units(h, gaussian, *gradients))

    def propagate_means(self, x: Float[Tensor, "n n_x"]) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Compute the means of `at_means` without a graph, and the function that propagates their gradient back.

        Args:
            x: Standardized inputs.
        Returns:
            Means `(n, n_y)`, and a function from the loss's gradient with respect to them to that of `loc`.
        """
        h, pull = propagate_means(self.posterior.loc, x, self.sizes, self.activation)
        rest = h.shape[-1] - self.n_outputs
        return h[:, : self.n_outputs], lambda of_mean: pull(nn.functional.pad(of_mean, (0, rest)))

    def at(self, weights: Float[Tensor, "n_draws P"], x: Float[Tensor, "n n_x"]) -> NetworkGaussian:
        """Evaluate the network at joint weight draws, each for all rows; Gaussians of shape `(n_draws, n, n_y)`."""
        h = x.expand(weights.shape[0], *x.shape)
        for i, (W, bias) in enumerate(self._layers(weights)):
            h = self._activate(torch.baddbmm(bias.unsqueeze(-2), h, W), i)
        return self._heads(h)

    def at_means(self, x: Float[Tensor, "n n_x"]) -> NetworkGaussian:
        """Evaluate the network at the posterior means of the weights; one Gaussian per row."""
        h = x
        for i, (W, bias) in enumerate(self._layers(self.posterior.loc)):
            h = self._activate(torch.addmm(bias, h, W), i)
        return self._heads(h)

    @torch.no_grad()
    def set_variance_head(self, var: Float[Tensor, " n_y"]) -> None:
        """Set the last layer so that the variance is `var` and the sensor factor 1 for every input."""
        W, bias = self._layers(self.posterior.loc)[-1]
        log_var = var.log().clamp(-0.9 * LOG_VAR_BOUND, 0.9 * LOG_VAR_BOUND)
        W[:, self.n_outputs :] = 0.0
        bias[self.n_outputs :] = 0.0
        bias[self.n_outputs : 2 * self.n_outputs] = LOG_VAR_BOUND * torch.atanh(log_var / LOG_VAR_BOUND)

    @torch.no_grad()
    def hold_means(self) -> None:
        """Set the gradients of the posterior means to zero, except those of the variance and sensor heads."""
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
        """Draw a standard normal number for each row and unit, layer by layer, flat."""
        return flat_antithetic_normals(len(x), self.sizes[1:], generator, x.dtype, x.device)

    def _heads(self, h: Tensor) -> NetworkGaussian:
        mean, raw, *rest = h.split(self.n_outputs, dim=-1)
        factor = _bounded(rest[0], LOG_FACTOR_BOUND).exp() if rest else None  # V4
        return NetworkGaussian(mean, _bounded(raw, LOG_VAR_BOUND).exp(), factor)  # V3

    def _gradient_of_units(
        self, h: Tensor, gaussian: NetworkGaussian, of_mean: Tensor, of_var: Tensor, of_factor: Tensor | None
    ) -> Float[Tensor, "n n_out"]:
        """Compute the gradient of the last layer's units from those of mean, variance and sensor factor (V3, V4)."""
        of_h = torch.zeros_like(h)
        heads = of_h.split(self.n_outputs, dim=-1)
        heads[0].copy_(of_mean)
        heads[1].copy_(of_var * _slope(gaussian.var, LOG_VAR_BOUND))
        if gaussian.sensor_factor is not None and of_factor is not None:
            heads[2].copy_(of_factor * _slope(gaussian.sensor_factor, LOG_FACTOR_BOUND))
        return of_h

    def _starting_weights(self, generator: torch.Generator | None) -> Tensor:
        """Draw weights from `N(0, 1 / fan_in)`; biases are 0."""
        parts = []
        for fan_in, fan_out in itertools.pairwise(self.sizes):
            parts.append(torch.randn(fan_in * fan_out, generator=generator) / math.sqrt(max(fan_in, 1)))
            parts.append(torch.zeros(fan_out))
        return torch.cat(parts)


def _bounded(raw: Tensor, bound: float) -> Tensor:
    return bound * torch.tanh(raw / bound)


def _slope(value: Tensor, bound: float) -> Tensor:
    """Differentiate `value = exp(_bounded(raw, bound))` with respect to `raw`."""
    return (1.0 - (value.log() / bound).square_()).mul_(value)
