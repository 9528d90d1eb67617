"""Mean-field Gaussian posterior over one flat vector of weights: draws and KL."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

DRAW_BLOCK = 32  # draws that share one seeded stream; draw d is the same whatever the number of draws or chunk size


class MeanFieldGaussian(nn.Module):
    """`q(θ) = N(loc, diag(std²))` beside the prior `p(θ) = N(0, prior_std² I)`.

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
        return self.log_std.exp()

    def kl(self) -> Float[Tensor, ""]:
        """`KL(q(θ) ‖ p(θ))`, *summed* over weights, in nats.

        ::

            KL = Σ_i [ log(σ_p / σ_i) + (σ_i² + μ_i²) / (2 σ_p²) − ½ ]            (K1)
        """
        return _Divergence.apply(self.loc, self.log_std, self.prior_std)  # type: ignore[return-value]

    def draw(self, noise: Float[Tensor, "n_draws P"]) -> Float[Tensor, "n_draws P"]:
        """Joint weight draws `θ = loc + std ⊙ ξ` for standard normal `ξ` (V1)."""
        return self.loc + self.std * noise


def first_derivative_only() -> None:
    """Refuse in a closed-form backward what would silently be wrong: its own derivative."""
    if torch.is_grad_enabled():
        raise RuntimeError("The training objective has no second derivatives. Use create_graph=False.")


class _Divergence(torch.autograd.Function):
    """(K1) with its gradient, sums in float64."""

    @staticmethod
    def forward(ctx: Any, loc: Tensor, log_std: Tensor, prior_std: float) -> Tensor:
        log_ratio = log_std.double().sub_(math.log(prior_std))
        ratio = (2.0 * log_ratio).exp_()
        ctx.save_for_backward(loc, ratio)
        ctx.precision = prior_std**-2
        squares = ratio.sum() + ctx.precision * torch.linalg.vector_norm(loc, dtype=torch.float64).square()
        return 0.5 * squares - log_ratio.sum() - 0.5 * loc.numel()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        first_derivative_only()
        loc, ratio = ctx.saved_tensors
        return loc * (ctx.precision * grad).to(loc.dtype), ((ratio - 1.0) * grad).to(loc.dtype), None
