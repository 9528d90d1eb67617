"""BayesianMLP: inputs and weight draws in, one diagonal Gaussian per draw out."""

import itertools
import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from equipoise.gaussian import DiagonalGaussian
from equipoise.variational import MeanFieldGaussian

ACTIVATIONS = {
    "silu": nn.functional.silu,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "gelu": nn.functional.gelu,
}
LOG_VAR_BOUND = 20.0


class BayesianMLP(nn.Module):
    """A multilayer perceptron with a mean-field Gaussian posterior over all its weights and biases.

    The last layer has `2 n_y` units: means, and raw log-variances bounded smoothly::

        log v = 20 tanh(raw / 20)                                                 (V3)

    so that `v` is positive and finite whatever the weights.

    Args:
        n_inputs, n_outputs: Widths of x and y.
        hidden: Widths of the hidden layers; empty for a linear model.
        activation: One of silu, tanh, relu, gelu.
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
        prior_std: float = 1.0,
        init_std: float = 1e-2,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        self.n_outputs = n_outputs
        self.activation = activation
        self.sizes = (n_inputs, *hidden, 2 * n_outputs)
        self.posterior = MeanFieldGaussian(self._starting_weights(generator), prior_std, init_std)

    def forward(self, x: Float[Tensor, "n n_x"], generator: torch.Generator | None = None) -> DiagonalGaussian:
        """One Gaussian per row, each row with its own weight draw, by local reparameterisation.

        For a layer with inputs h the pre-activations are independent normals given h::

            a ~ N(h M + m, h² V + u),   W ~ N(M, V), bias ~ N(m, u)                (V2)

        so sampling them instead of the weights gives the same expectation of the loss with less noise.
        """
        noise = torch.randn(
            (x.shape[0], sum(self.sizes[1:])), dtype=x.dtype, device=x.device, generator=generator
        ).split(self.sizes[1:], dim=-1)
        loc, var = self.posterior.loc, (2.0 * self.posterior.log_std).exp()
        h = x
        for i, ((W, bias), (W_var, bias_var)) in enumerate(zip(self._layers(loc), self._layers(var), strict=True)):
            mean = torch.addmm(bias, h, W)
            h = mean + torch.addmm(bias_var, h.square(), W_var).sqrt() * noise[i]
            h = self._activate(h, i)
        return self._heads(h)

    def at(self, weights: Float[Tensor, "n_draws P"], x: Float[Tensor, "n n_x"]) -> DiagonalGaussian:
        """Gaussians of shape `(n_draws, n, n_y)` for joint weight draws, in batched matrix products."""
        h = x.expand(weights.shape[0], *x.shape)
        for i, (W, bias) in enumerate(self._layers(weights)):
            h = self._activate(torch.baddbmm(bias.unsqueeze(-2), h, W), i)
        return self._heads(h)

    def at_means(self, x: Float[Tensor, "n n_x"]) -> DiagonalGaussian:
        """The Gaussian at the posterior means of the weights."""
        h = x
        for i, (W, bias) in enumerate(self._layers(self.posterior.loc)):
            h = self._activate(torch.addmm(bias, h, W), i)
        return self._heads(h)

    @torch.no_grad()
    def set_variance_head(self, var: Float[Tensor, " n_y"]) -> None:
        """Make the network say `var` for every input, whatever it said before."""
        W, bias = self._layers(self.posterior.loc)[-1]
        log_var = var.log().clamp(-0.9 * LOG_VAR_BOUND, 0.9 * LOG_VAR_BOUND)
        W[:, self.n_outputs :] = 0.0
        bias[self.n_outputs :] = LOG_VAR_BOUND * torch.atanh(log_var / LOG_VAR_BOUND)

    def _layers(self, flat: Float[Tensor, "... P"]) -> list[tuple[Tensor, Tensor]]:
        """Views of a flat parameter vector: `(W, bias)` of each layer, `W` of shape `(..., fan_in, fan_out)`."""
        layers, start = [], 0
        for fan_in, fan_out in itertools.pairwise(self.sizes):
            end = start + fan_in * fan_out
            layers.append((flat[..., start:end].unflatten(-1, (fan_in, fan_out)), flat[..., end : end + fan_out]))
            start = end + fan_out
        return layers

    def _activate(self, h: Tensor, layer: int) -> Tensor:
        return ACTIVATIONS[self.activation](h) if layer < len(self.sizes) - 2 else h

    def _heads(self, h: Tensor) -> DiagonalGaussian:
        mean, raw = h.split(self.n_outputs, dim=-1)
        return DiagonalGaussian(mean, (LOG_VAR_BOUND * torch.tanh(raw / LOG_VAR_BOUND)).exp())

    def _starting_weights(self, generator: torch.Generator | None) -> Tensor:
        """Weights `N(0, 1 / fan_in)`, biases 0."""
        parts = []
        for fan_in, fan_out in itertools.pairwise(self.sizes):
            parts.append(torch.randn(fan_in * fan_out, generator=generator) / math.sqrt(max(fan_in, 1)))
            parts.append(torch.zeros(fan_out))
        return torch.cat(parts)
