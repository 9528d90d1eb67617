"""Priors and variational posteriors of tolerances, sensor variances and offsets.

A tolerance is the variance `r` of a balance's residual. `ρ = log r` has a Gaussian prior and a mean-field Gaussian
posterior. Sensor variances `w` are treated in the same way; offsets `δ` of balances are Gaussian themselves.
"""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from equipoise.errors import InputError
from equipoise.gaussian.randomness import antithetic_normal


@dataclass(frozen=True)
class TolerancePrior:
    """Gaussian prior of `ρ = log r`, where `r` is the variance of a balance's residual.

    Args:
        mean: Prior mean of `ρ`.
        std: Prior standard deviation of `ρ`.
        relative: Whether `r` is measured in units of the balance's squared scale `c_k²` (Z2), or in the square of the
            balance's own unit, as in the paper.

    Example:
        >>> TolerancePrior.paper()
        TolerancePrior(mean=-2.0, std=1.0, relative=False)
    """

    mean: float = -6.0
    std: float = 3.0
    relative: bool = True

    def __post_init__(self):
        if not (math.isfinite(self.mean) and math.isfinite(self.std) and self.std > 0):
            raise InputError(
                f"A TolerancePrior needs a finite mean and a positive std of log r, but got mean={self.mean}, "
                f"std={self.std}. For an exact balance pass the tolerance 0 instead."
            )

    @classmethod
    def paper(cls) -> "TolerancePrior":
        """Return the paper's prior, `ρ ~ N(−2, 1)` in the balance's own unit."""
        return cls(-2.0, 1.0, relative=False)


Tolerance = Any
"""None, a number, a `TolerancePrior`, or a mapping from balance names to these, checked by `tolerance_posterior`."""


class LogNormalVariance(nn.Module):
    """Variances `r = exp(ρ)` with prior `ρ ~ N(prior_mean, prior_std²)` and posterior `q(ρ) = N(loc, std²)`.

    The posterior starts at the prior, so that a posterior without training counts as not informed by the data. Entries
    with a `fixed` value have neither prior nor posterior.

    Args:
        prior_mean, prior_std: Prior of `ρ`, shape `(k,)`.
        fixed: Known variances, NaN where a variance is learned, shape `(k,)`.
        floor: Added to learned variances, so that they do not fall below rounding, shape `(k,)` or a number.

    Example:
        One variance is learned, the other is known to be 0.25.

        >>> q = LogNormalVariance(torch.zeros(2), torch.ones(2), torch.tensor([math.nan, 0.25]))
        >>> q.median().detach(), q.kl_terms().detach()
        (tensor([1.0000, 0.2500], dtype=torch.float64), tensor([0., 0.], dtype=torch.float64))
    """

    prior_mean: Tensor
    prior_std: Tensor
    fixed: Tensor
    learned: Tensor
    floor: Tensor

    def __init__(self, prior_mean: Tensor, prior_std: Tensor, fixed: Tensor, floor: Tensor | float = 0.0):
        super().__init__()
        prior_mean, prior_std, fixed = (part.detach().double() for part in (prior_mean, prior_std, fixed))
        self.register_buffer("prior_mean", prior_mean.clone())
        self.register_buffer("prior_std", prior_std.clone())
        self.register_buffer("learned", fixed.isnan())
        self.register_buffer("fixed", fixed.nan_to_num(0.0))
        self.register_buffer("floor", torch.as_tensor(floor, dtype=torch.float64).expand_as(fixed).clone())
        self.loc = nn.Parameter(prior_mean.clone())
        self.log_std = nn.Parameter(prior_std.log())

    @property
    def std(self) -> Float[Tensor, " k"]:
        """Posterior standard deviation of `ρ`, shape `(k,)`."""
        return self.log_std.exp()

    def at(self, rho: Float[Tensor, "... k"]) -> Float[Tensor, "... k"]:
        """Compute the variances at `ρ`, shape `(..., k)`; fixed variances do not depend on it."""
        return torch.where(self.learned, rho.exp() + self.floor, self.fixed)

    @property
    def n_entries(self) -> int:
        """Number of variances, k, learned or fixed."""
        return len(self.loc)

    def from_normal(self, normal: Float[Tensor, "... k"]) -> Float[Tensor, "... k"]:
        """Turn standard normal numbers into draws of the variances, increasing in each number.

        A constant number z gives the posterior's quantile at `Φ(z)`.

        Args:
            normal: One number for each variance.
        """
        return self.at(self.loc + self.std * normal)

    def draw(self, shape: Sequence[int] = (), generator: torch.Generator | None = None) -> Float[Tensor, "... k"]:
        """Draw variances from the posterior, differentiable with respect to its parameters.

        Args:
            shape: Leading shape of the draws.
            generator: Source of random numbers; torch's default by default.
        Returns:
            Variances, shape `(*shape, k)`.
        """
        return self.from_normal(_noise_like(self.loc, shape, generator))

    def draw_rows(self, n: int, generator: torch.Generator | None = None) -> Float[Tensor, "n k"]:
        """Draw variances for each row of a batch, with antithetic noise, differentiable with respect to the parameters.

        Args:
            n: Number of rows.
            generator: Source of random numbers; torch's default by default.
        Returns:
            Variances, shape `(n, k)`; fixed ones are the same in all rows.
        """
        return self.from_normal(_antithetic_like(self.loc, n, generator))

    def median(self) -> Float[Tensor, " k"]:
        """Compute the posterior medians of the variances, `exp(E[ρ])` plus the floor."""
        return self.at(self.loc)

    def kl_terms(self) -> Float[Tensor, " k"]:
        """Compute `KL(q(ρ) ‖ p(ρ))` of each entry in nats, 0 where fixed.

        ::

            KL = log(σ_p / σ_q) + (σ_q² + (μ_q − μ_p)²) / (2 σ_p²) − ½          (K2)
        """
        ratio = self.std / self.prior_std
        kl = 0.5 * (ratio.square() + ((self.loc - self.prior_mean) / self.prior_std).square() - 1.0) - ratio.log()  # K2
        return torch.where(self.learned, kl, 0.0)


class GaussianOffset(nn.Module):
    """Offsets `δ` of the balances, `A x + B y = b + δ`: prior `N(0, 1)` in units of `c_k`, posterior `N(loc, std²)`.

    The posterior starts at 0 and narrower than the prior: draws as large as the balance's whole scale would dominate
    its residual, and its tolerance would grow to explain them.

    Args:
        n_balances: Number of balances, m.
        learned: Which balances have an offset, shape `(m,)`; all by default.

    Example:
        >>> q = GaussianOffset(2, torch.tensor([True, False]))
        >>> q.draw_rows(4).shape, q.at(torch.zeros(2)).detach()
        (torch.Size([4, 2]), tensor([0., 0.], dtype=torch.float64))
    """

    learned: Tensor

    def __init__(self, n_balances: int, learned: Tensor | None = None):
        super().__init__()
        everywhere = torch.ones(n_balances, dtype=torch.bool)
        self.register_buffer("learned", everywhere if learned is None else learned.clone())
        self.loc = nn.Parameter(torch.zeros(n_balances, dtype=torch.float64))
        self.log_std = nn.Parameter(torch.full((n_balances,), -2.0, dtype=torch.float64))

    @property
    def std(self) -> Float[Tensor, " m"]:
        """Posterior standard deviation of `δ`, shape `(m,)`."""
        return self.log_std.exp()

    def draw(self, shape: Sequence[int] = (), generator: torch.Generator | None = None) -> Float[Tensor, "... m"]:
        """Draw offsets from the posterior, differentiable with respect to its parameters.

        Args:
            shape: Leading shape of the draws.
            generator: Source of random numbers; torch's default by default.
        Returns:
            Offsets in units of `c_k`, shape `(*shape, m)`.
        """
        return self.at(_noise_like(self.loc, shape, generator))

    def draw_rows(self, n: int, generator: torch.Generator | None = None) -> Float[Tensor, "n m"]:
        """Draw offsets for each row of a batch, with antithetic noise, differentiable with respect to the parameters.

        Args:
            n: Number of rows.
            generator: Source of random numbers; torch's default by default.
        Returns:
            Offsets in units of `c_k`, shape `(n, m)`; 0 where none is learned.
        """
        return self.at(_antithetic_like(self.loc, n, generator))

    def at(self, noise: Float[Tensor, "... m"]) -> Float[Tensor, "... m"]:
        """Compute the offsets `loc + std · noise`, shape `(..., m)`; 0 where none is learned."""
        return torch.where(self.learned, self.loc + self.std * noise, 0.0)

    def kl_terms(self) -> Float[Tensor, " m"]:
        """Compute `KL(N(loc, std²) ‖ N(0, 1))` of each offset in nats, 0 where none is learned (K3)."""
        return torch.where(self.learned, 0.5 * (self.std.square() + self.loc.square() - 1.0) - self.log_std, 0.0)  # K3


def _noise_like(loc: Tensor, shape: Sequence[int], generator: torch.Generator | None) -> Float[Tensor, "... k"]:
    return torch.randn((*shape, len(loc)), generator=generator, dtype=loc.dtype, device=loc.device)


def _antithetic_like(loc: Tensor, n: int, generator: torch.Generator | None) -> Float[Tensor, "n k"]:
    return antithetic_normal((n, len(loc)), generator, loc.dtype, loc.device)


def tolerance_posterior(
    tolerance: Tolerance, names: Sequence[str], row_scale: Float[Tensor, " m"], floor: Tensor | float = 0.0
) -> LogNormalVariance:
    """Make the posterior of *relative* tolerances `r / c_k²` from the tolerance that the user gave for each balance.

    Args:
        tolerance: `None` (learned, default prior), `0` (exact), a standard deviation in the balance's own unit, a
            `TolerancePrior`, or a mapping from balance names to these (unnamed balances are learned).
        names: Names of the m balances.
        row_scale: Scales `c_k` in the balances' own units, shape `(m,)` (Z2).
        floor: Smallest relative variance of a learned tolerance, shape `(m,)` or a number.
    Returns:
        The posterior of m relative variances, which starts at the prior; given tolerances are fixed in it.
    Raises:
        InputError: If a tolerance is negative or not a number, or a name is not that of a balance.

    Example:
        >>> q = tolerance_posterior({"mass": 0.1}, ["mass", "heat"], torch.tensor([2.0, 5.0]))
        >>> q.learned, q.fixed
        (tensor([False,  True]), tensor([0.0025, 0.0000], dtype=torch.float64))
    """
    entries = [_normalise(entry, name) for entry, name in zip(_per_balance(tolerance, names), names, strict=True)]
    log_scale2 = 2.0 * row_scale.double().log()
    priors = [entry if isinstance(entry, TolerancePrior) else TolerancePrior() for entry in entries]
    prior_mean = torch.tensor([p.mean for p in priors], dtype=torch.float64)
    own_unit = torch.tensor([not p.relative for p in priors])
    fixed = torch.tensor([math.nan if isinstance(e, TolerancePrior) else e for e in entries], dtype=torch.float64)
    return LogNormalVariance(
        torch.where(own_unit, prior_mean - log_scale2, prior_mean),
        torch.tensor([p.std for p in priors], dtype=torch.float64),
        (fixed / row_scale.double()).square(),
        floor,
    )


def _per_balance(tolerance: Tolerance, names: Sequence[str]) -> list:
    if not isinstance(tolerance, Mapping):
        return [tolerance] * len(names)
    for name in tolerance:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=1)
            hint = f"Did you mean '{near[0]}'?" if near else f"The balances are: {', '.join(map(repr, names))}."
            raise InputError(f"tolerance names the balances it applies to, but got {name!r}. {hint}")
    return [tolerance.get(name) for name in names]


def _normalise(entry, name: str) -> TolerancePrior | float:
    if entry is None:
        return TolerancePrior()
    if isinstance(entry, TolerancePrior):
        return entry
    try:
        value = float(entry)
    except (TypeError, ValueError):
        value = math.nan
    if isinstance(entry, bool) or not (math.isfinite(value) and value >= 0):
        raise InputError(
            f"The tolerance of balance '{name}' must be None, 0, a positive standard deviation in the balance's unit "
            f"or a TolerancePrior, but got {entry!r}."
        )
    return value


def log_normal_moments(mu: float, std: float) -> tuple[float, float]:
    """Compute mean and standard deviation of the log-normal variable `exp(ρ)`, `ρ ~ N(mu, std²)` (K4).

    Args:
        mu, std: Mean and standard deviation of `ρ`.
    Returns:
        Mean and standard deviation of `exp(ρ)`.

    Example:
        >>> mean, std = log_normal_moments(0.0, 1.0)
        >>> round(mean, 4), round(std, 4)
        (1.6487, 2.1612)
    """
    mean = math.exp(mu + 0.5 * std**2)
    return mean, mean * math.sqrt(math.expm1(std**2))  # K4
