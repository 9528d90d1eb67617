"""The network: inputs and weight draws in, one diagonal Gaussian of the outputs per row and draw out."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from equipoise.gaussian import DiagonalGaussian, flat_antithetic_normals
from equipoise.network.layers import (
    ACTIVATIONS,
    CompiledDraws,
    CompiledMeans,
    can_differentiate,
    is_compiled,
    layer_views,
    split_units,
)
from equipoise.network.posterior import MeanFieldGaussian, PosteriorFactory

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
    """A multilayer perceptron with a posterior over all its weights and biases.

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
        posterior: Makes the posterior from starting weights, sizes, prior_std and init_std.

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
        posterior: PosteriorFactory = MeanFieldGaussian,
    ):
        super().__init__()
        self.n_outputs = n_outputs
        self.activation = activation
        self.sizes = (n_inputs, *hidden, (3 if sensor_head else 2) * n_outputs)
        self.posterior = posterior(self.starting_weights(generator), self.sizes, prior_std, init_std)

    def forward(self, x: Float[Tensor, "n n_x"], generator: torch.Generator | None = None) -> NetworkGaussian:
        """Compute one Gaussian per row, each with a weight draw of its own where the posterior has layer moments.

        For a layer with inputs h the pre-activations are independent normals given h::

            a ~ N(h M + m, h² V + u),   W ~ N(M, V), bias ~ N(m, u)                (V2)

        so sampling them instead of the weights gives the same expectation of the loss with less noise (local
        reparameterisation). With a posterior that lacks such moments all rows share one draw.

        Args:
            x: Standardized inputs.
            generator: Randomness of the draws.
        """
        q = self.posterior
        if not q.has_layer_moments:
            return self.heads(self._units(x, self._affine(q.draw(1, generator)[0])))
        noise = self._noise(x, generator)
        if isinstance(q, MeanFieldGaussian) and q.twin and self._has_twin(x):
            return self.heads(CompiledDraws.apply(q.loc, q.log_std, x, noise, self.sizes, self.activation))
        xi = split_units(noise, len(x), self.sizes)

        def layer(i: int, h: Tensor) -> Tensor:
            mean, var = q.layer_moments(i, h)
            return mean + var.sqrt() * xi[i]

        return self.heads(self._units(x, layer))

    def at(
        self,
        weights: Float[Tensor, "n_draws P"],
        x: Float[Tensor, "... n n_x"],
        masks: Sequence[Float[Tensor, "n_draws n _"]] | None = None,
    ) -> NetworkGaussian:
        """Evaluate the network at joint weight draws; Gaussians of shape `(n_draws, n, n_y)`.

        Args:
            weights: A flat weight vector for each draw.
            x: Inputs of all draws, or of each draw its own, shape `(n_draws, n, n_x)`.
            masks: Factors of the hidden units, one array for each hidden layer, as in dropout.
        """
        shared = x if x.ndim == 3 else x.expand(len(weights), *x.shape)
        return self.heads(self._units(shared, self._affine(weights), masks))

    def at_means(self, x: Float[Tensor, "n n_x"]) -> NetworkGaussian:
        """Evaluate the network at the posterior means of the weights; one Gaussian per row."""
        return self.heads(self._units_at_means(x))

    def mean_at_means(self, x: Float[Tensor, "n n_x"]) -> Float[Tensor, "n n_y"]:
        """Evaluate only the mean head at the posterior means of the weights."""
        return self._units_at_means(x)[:, : self.n_outputs]

    def features(self, weights: Float[Tensor, " P"], x: Float[Tensor, "n n_x"]) -> Float[Tensor, "n h"]:
        """Evaluate the units of the last hidden layer at one weight vector.

        Args:
            weights: The flat weight vector.
            x: Standardized inputs, which are returned where the network has no hidden layer.
        """
        return self._units(x, self._affine(weights), n_layers=len(self.sizes) - 2)

    def heads(self, units: Float[Tensor, "... n_out"]) -> NetworkGaussian:
        """Compute means, variances (V3) and, with a sensor head, sensor factors (V4) from the last layer's units."""
        mean, raw, *rest = units.split(self.n_outputs, dim=-1)
        factor = _bounded(rest[0], LOG_FACTOR_BOUND).exp() if rest else None  # V4
        return NetworkGaussian(mean, _bounded(raw, LOG_VAR_BOUND).exp(), factor)  # V3

    def layers(self, flat: Float[Tensor, "... P"]) -> list[tuple[Tensor, Tensor]]:
        """Return views `(W, bias)` of each layer in a flat vector of weights."""
        return layer_views(flat, self.sizes)

    @torch.no_grad()
    def set_variance_head(self, var: Float[Tensor, " n_y"]) -> None:
        """Set the last layer so that the variance is `var` and the sensor factor 1 for every input."""
        W, bias = self.layers(self.posterior.loc)[-1]
        log_var = var.log().clamp(-0.9 * LOG_VAR_BOUND, 0.9 * LOG_VAR_BOUND)
        W[:, self.n_outputs :] = 0.0
        bias[self.n_outputs :] = 0.0
        bias[self.n_outputs : 2 * self.n_outputs] = LOG_VAR_BOUND * torch.atanh(log_var / LOG_VAR_BOUND)

    @torch.no_grad()
    def hold_means(self) -> None:
        """Set the gradients of the posterior means to zero, except those of the variance and sensor heads."""
        if (grad := self.posterior.loc.grad) is not None:
            W, bias = self.layers(grad)[-1]
            kept = W[:, self.n_outputs :].clone(), bias[self.n_outputs :].clone()
            grad.zero_()
            W[:, self.n_outputs :], bias[self.n_outputs :] = kept

    def _units(
        self,
        x: Tensor,
        layer: Callable[[int, Tensor], Tensor],
        masks: Sequence[Tensor] | None = None,
        n_layers: int | None = None,
    ) -> Tensor:
        """Pass rows through the layers: the definition of the forward pass.

        Args:
            x: Inputs, shape `(..., n, n_x)`.
            layer: Computes the pre-activations of layer number i from its inputs.
            masks: Factors of the hidden units.
            n_layers: Number of layers; all by default.
        """
        h, last = x, len(self.sizes) - 2
        for i in range(last + 1 if n_layers is None else n_layers):
            h = layer(i, h)
            if i < last:
                h = ACTIVATIONS[self.activation](h)
                h = h if masks is None else h * masks[i]
        return h

    def _units_at_means(self, x: Float[Tensor, "n n_x"]) -> Float[Tensor, "n n_out"]:
        loc = self.posterior.loc
        if self._has_twin(x):
            return CompiledMeans.apply(loc, x, self.sizes, self.activation)
        return self._units(x, self._affine(loc))

    def _affine(self, weights: Float[Tensor, "... P"]) -> Callable[[int, Tensor], Tensor]:
        """Return the function that computes the pre-activations of a layer for given weights."""
        parts = self.layers(weights)

        def layer(i: int, h: Tensor) -> Tensor:
            W, bias = parts[i]
            return torch.addmm(bias, h, W) if W.ndim == 2 else torch.baddbmm(bias.unsqueeze(-2), h, W)

        return layer

    def _has_twin(self, x: Tensor) -> bool:
        return is_compiled(self.posterior.loc, self.sizes, self.activation) and can_differentiate(x)

    def _noise(self, x: Tensor, generator: torch.Generator | None) -> Float[Tensor, " units"]:
        """Draw a standard normal number for each row and unit, layer by layer, flat."""
        return flat_antithetic_normals(len(x), self.sizes[1:], generator, x.dtype, x.device)

    def starting_weights(self, generator: torch.Generator | None) -> Tensor:
        """Draw weights from `N(0, 1 / fan_in)`; biases are 0."""
        parts = []
        for fan_in, fan_out in itertools.pairwise(self.sizes):
            parts.append(torch.randn(fan_in * fan_out, generator=generator) / math.sqrt(max(fan_in, 1)))
            parts.append(torch.zeros(fan_out))
        return torch.cat(parts)


def _bounded(raw: Tensor, bound: float) -> Tensor:
    return bound * torch.tanh(raw / bound)
