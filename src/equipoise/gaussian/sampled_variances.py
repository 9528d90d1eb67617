"""Variances whose posterior is a sample: draws that are kept, and belong together with other draws by their number."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.gaussian.variances import VariancePosterior, VariancePrior


class SampledVariances(VariancePosterior):
    """Variances `r = exp(ρ)` of which draws are kept, instead of numbers of a distribution.

    Draw number d belongs together with whatever else has been drawn with it, such as the weights of a network
    (`numbered`). Quantiles, moments and divergences are those of each variance by itself.

    Args:
        base: A posterior of the same variances, which has their priors; its moments become those of the draws.
        rho: Draws of `ρ`, shape `(n_kept, k)`; without effect where a variance is fixed.
        again: Second draws of `ρ` given all that belongs to the first but `ρ` itself (D2); the first by default.

    Example:
        >>> from equipoise.gaussian import LogNormalVariance
        >>> base = LogNormalVariance(torch.zeros(1), torch.ones(1), torch.tensor([torch.nan]))
        >>> q = SampledVariances(base, torch.tensor([[0.0], [-1.0], [1.0], [0.0]]))
        >>> q.numbered(torch.arange(2, 5), torch.zeros(3, 1))[:, 0].log()
        tensor([1., 0., 0.], dtype=torch.float64)
        >>> q.median()
        tensor([1.], dtype=torch.float64)
    """

    rho: Tensor
    rho_again: Tensor

    def __init__(
        self,
        base: VariancePosterior,
        rho: Float[Tensor, "n_kept k"],
        again: Float[Tensor, "n_kept k"] | None = None,
    ):
        super().__init__(torch.where(base.learned, torch.nan, base.fixed), base.floor)
        self.base = base
        rho = rho.detach().double().contiguous().clone()
        self.register_buffer("rho", rho)
        self.register_buffer("rho_again", rho.clone() if again is None else again.detach().double().clone())
        if len(rho) > 1:
            base.set_log_moments(rho.mean(0), rho.std(0).clamp_min(1e-6))

    @property
    def priors(self) -> tuple[VariancePrior | None, ...]:
        """Prior of each variance; None where it is kept in buffers, or fixed."""
        return self.base.priors

    def numbered(
        self, number: Tensor, normal: Float[Tensor, "n ... k"], again: bool = False
    ) -> Float[Tensor, "n ... k"]:
        """Return kept draws by number, from the first again after the last.

        Args:
            number: Numbers of the draws.
            normal: Numbers that decide nothing, but have the shape of the result.
            again: Whether these are the second draws.
        """
        kept = (self.rho_again if again else self.rho)[number.to(self.rho.device) % len(self.rho)]
        return self.at(kept.view(len(kept), *[1] * (normal.ndim - 2), -1)).expand(normal.shape)

    def from_normal(self, normal: Float[Tensor, "... k"]) -> Float[Tensor, "... k"]:
        """Compute the quantiles of the draws; the argument is that of `VariancePosterior.from_normal`."""
        place = torch.special.ndtr(normal.double()) * (len(self.rho) - 1)
        below = place.floor().clamp_max(max(len(self.rho) - 2, 0)).long()
        above = (below + 1).clamp_max(len(self.rho) - 1)
        ordered = self.rho.sort(0).values

        def taken(position: Tensor) -> Tensor:
            return ordered.gather(0, position.reshape(-1, self.n_entries)).view(position.shape)

        share = place - below
        return self.at((1.0 - share) * taken(below) + share * taken(above))

    def kl_terms(self) -> Float[Tensor, " k"]:
        """Return the divergences of normal distributions of `ρ` with the moments of the draws."""
        return self.base.kl_terms()

    def kl_at_start(self) -> Float[Tensor, " k"]:
        """Return the divergence of each variance before any data."""
        return self.base.kl_at_start()

    def std_at_start(self) -> Float[Tensor, " k"]:
        """Return the standard deviation of each `ρ` before any data."""
        return self.base.std_at_start()

    def prior_log_moments(self) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
        """Return mean and standard deviation of each `ρ` under its prior."""
        return self.base.prior_log_moments()

    def prior_log_prob(self, rho: Float[Tensor, " n"], k: int) -> Float[Tensor, " n"]:
        """Compute the log density of a prior; arguments are those of `VariancePosterior.prior_log_prob`."""
        return self.base.prior_log_prob(rho, k)

    def log_moments(self) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
        """Return mean and standard deviation of each `ρ` over the draws."""
        return self.rho.mean(0), self.rho.std(0)

    def moments(self) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
        """Return mean and standard deviation of each variance over the draws."""
        r = self.at(self.rho)
        return r.mean(0), r.std(0)

    def start_at(self, var: Float[Tensor, " k"], *, log_std: float | None = None, below_prior: bool = False) -> None:
        """Refuse: draws have been made, and training starts from a distribution.

        Args:
            var, log_std, below_prior: Those of `VariancePosterior.start_at`.
        """
        raise self._refusal()

    def set_log_moments(self, mean: Float[Tensor, " k"], std: Float[Tensor, " k"]) -> None:
        """Refuse: draws have been made, and training starts from a distribution.

        Args:
            mean, std: Those of `VariancePosterior.set_log_moments`.
        """
        raise self._refusal()

    def _refusal(self) -> Any:
        return NotImplementedError("kept draws of variances cannot be moved; train a model that has none")
