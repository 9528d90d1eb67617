"""Components of a predictive distribution: weighted Gaussians, one for each posterior draw and row."""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from equipoise.gaussian import Gaussian
from equipoise.network import Likelihood


@dataclass(frozen=True)
class Components:
    """Components of the mixture for a block of posterior draws at some rows, in standardized units.

    ::

        p(y | x) = Σ_d π_d(x) N(y; μ_d, Σ_d),    π_d ∝ exp(log_weight_d)                 (P1)

    Whatever a prediction answers is computed from its components.

    Args:
        rows: The rows.
        gaussian: Gaussians of the true outputs, conditioned on the balances if there are any, shape
            `(n_draws, n, n_y)`.
        sensor_var: Sensor variances to be added for measured values, broadcast against the Gaussians; 0 for true
            values.
        second: The Gaussians conditioned with a second draw of the tolerances; None where nobody asked for it, or
            without balances.
        log_weight: Logarithms of the weights for each draw and row, shape `(n_draws, n)`, up to one constant for
            all draws; None if all weights are equal.
        latent_scale: Factors, shape `(n_draws, n)`, by which the variances and tolerances of `gaussian` have been
            multiplied already, where a heavy-tailed distribution is a mixture of Gaussians of different widths; None
            if there are none.
        truncation: Limits between which the outputs lie; None, since no model has any yet.
    """

    rows: slice
    gaussian: Gaussian
    sensor_var: Tensor | float
    second: Gaussian | None = None
    log_weight: Float[Tensor, "n_draws n"] | None = None
    latent_scale: Float[Tensor, "n_draws n"] | None = None
    truncation: None = None

    def __len__(self) -> int:
        """Return the number of draws."""
        return len(self.gaussian.mean)

    @property
    def log_weights(self) -> Float[Tensor, "n_draws n"]:
        """Logarithms of the weights for each draw and row, zeros if all are equal."""
        mean = self.gaussian.mean
        zeros = mean.new_zeros(mean.shape[:-1])
        return zeros if self.log_weight is None else zeros + self.log_weight

    @property
    def std(self) -> Float[Tensor, "... n_y"]:
        """Standard deviations of the outputs, sensor noise included for measured values."""
        return (self.gaussian.var + self.sensor_var).sqrt()

    def log_prob(self, likelihood: Likelihood, y: Float[Tensor, "n n_y"]) -> Float[Tensor, "n_draws n"]:
        """Compute the log density of rows of outputs under each component, without its weight.

        Args:
            likelihood: The likelihood of the model.
            y: Outputs, NaN where they were not measured.
        """
        return likelihood(self.gaussian, y, self.sensor_var)

    def take(self, draw: Int[Tensor, " k"], row: Int[Tensor, " k"]) -> "Components":
        """Select one component for each pair of positions; the selected ones have equal weights.

        Args:
            draw, row: Positions of draws and rows.
        Returns: Components whose Gaussians have shape `(k, n_y)`.
        """
        w, shape = self.sensor_var, self.gaussian.mean.shape
        w = w.expand(shape)[draw, row] if isinstance(w, Tensor) else w
        scale = None if self.latent_scale is None else self.latent_scale[draw, row]
        second = None if self.second is None else self.second.take(draw, row)
        gaussian = self.gaussian.take(draw, row)
        return replace(self, gaussian=gaussian, sensor_var=w, second=second, log_weight=None, latent_scale=scale)


def log_mean_density(
    log_density: Float[Tensor, "n_draws n"], log_weight: Float[Tensor, "n_draws n"] | None = None
) -> Float[Tensor, " n"]:
    """Compute the log density of the mixture from those of its components (P1).

    Args:
        log_density: Log densities under all components.
        log_weight: Their log weights; equal ones by default.
    Returns: Log densities of rows.
    """
    if log_weight is None:
        return torch.logsumexp(log_density, 0) - math.log(len(log_density))  # P1
    return torch.logsumexp(log_density + log_weight, 0) - torch.logsumexp(log_weight, 0)  # P1
