"""The mean-field Gaussian posterior of a flat vector of weights: its draws and its divergence from the prior."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

DRAW_BLOCK = 32  # draws that share one seeded stream: draw d depends neither on their number nor on chunks of rows


class MeanFieldGaussian(nn.Module):
    """The posterior `q(θ) = N(loc, diag(std²))` beside the prior `p(θ) = N(0, prior_std² I)`.

    Args:
        loc: Starting means, shape `(P,)`.
        prior_std: Standard deviation of the prior; the paper's is 1.
        init_std: Starting standard deviation of every weight.

    Example:
        >>> q = MeanFieldGaussian(torch.zeros(3), prior_std=1.0, init_std=1.0)
        >>> q.kl().item()
        0.0
    """

    def __init__(self, loc: Float[Tensor, " P"], prior_std: float = 1.0, init_std: float = 1e-2):
        super().__init__()
        self.prior_std = prior_std
        self.loc = nn.Parameter(loc.clone())
        self.log_std = nn.Parameter(torch.full_like(loc, init_std).log())

    @property
    def std(self) -> Float[Tensor, " P"]:
        """Standard deviation of each weight."""
        return self.log_std.exp()

    def kl(self) -> Float[Tensor, ""]:
        """Compute the divergence `KL(q(θ) ‖ p(θ))`, *summed* over weights, in nats.

        ::

            KL = Σ_i [ log(σ_p / σ_i) + (σ_i² + μ_i²) / (2 σ_p²) − ½ ]            (K1)
        """
        log_ratio = self.log_std.double() - math.log(self.prior_std)  # sums of thousands of terms, in float64
        squares = (2.0 * log_ratio).exp() + (self.loc.double() / self.prior_std).square()
        return (0.5 * squares - log_ratio - 0.5).sum()

    def draw(self, noise: Float[Tensor, "n_draws P"]) -> Float[Tensor, "n_draws P"]:
        """Return joint weight draws `θ = loc + std ⊙ ξ` for standard normal numbers `ξ` (V1)."""
        return self.loc + self.std * noise
