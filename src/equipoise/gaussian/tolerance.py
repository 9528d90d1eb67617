"""Priors and variational posteriors of tolerances, sensor variances and offsets.

A tolerance is the variance `r` of a balance's residual. `ρ = log r` has a Gaussian prior and a mean-field Gaussian
posterior. Sensor variances `w` are treated in the same way; offsets `δ` of balances are Gaussian themselves.
"""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from equipoise.errors import InputError
from equipoise.gaussian.randomness import antithetic_normal
from equipoise.gaussian.variances import GaussianLogVariance, VariancePosterior, VariancePrior, VariancesByPrior


@dataclass(frozen=True)
class TolerancePrior(VariancePrior):
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

    name: ClassVar[str] = "log-normal"
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

    def log_prob(self, rho: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Compute the log density of `ρ`; the argument is that of `VariancePrior.log_prob`."""
        return -0.5 * ((rho - self.mean) / self.std).square() - math.log(self.std) - 0.5 * math.log(2 * math.pi)

    def log_moments(self) -> tuple[float, float]:
        """Return mean and standard deviation of `ρ`."""
        return self.mean, self.std

    def settings(self) -> dict[str, Any]:
        """Return mean, standard deviation and unit."""
        return asdict(self)

    def posterior(self, log_unit: Float[Tensor, " k"], floor: Float[Tensor, " k"]) -> "LogNormalVariance":
        """Make a posterior that starts at the prior; arguments are those of `VariancePrior.posterior`."""
        std = torch.full_like(log_unit, self.std)
        return LogNormalVariance(self.mean + log_unit, std, torch.full_like(std, math.nan), floor)


PRIORS: Mapping[str, type[VariancePrior]] = {TolerancePrior.name: TolerancePrior}


Tolerance = Any
"""None, a number, a `VariancePrior`, or a mapping from balance names to these, checked by `tolerance_posterior`."""


class LogNormalVariance(GaussianLogVariance):
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

    def __init__(self, prior_mean: Tensor, prior_std: Tensor, fixed: Tensor, floor: Tensor | float = 0.0):
        super().__init__(prior_mean, prior_std, fixed, floor, prior_mean=prior_mean, prior_std=prior_std)

    def kl_terms(self) -> Float[Tensor, " k"]:
        """Compute `KL(q(ρ) ‖ p(ρ))` of each entry in nats, 0 where fixed.

        ::

            KL = log(σ_p / σ_q) + (σ_q² + (μ_q − μ_p)²) / (2 σ_p²) − ½          (K2)
        """
        ratio = self.std / self.prior_std
        kl = 0.5 * (ratio.square() + ((self.loc - self.prior_mean) / self.prior_std).square() - 1.0) - ratio.log()  # K2
        return torch.where(self.learned, kl, 0.0)

    def prior_log_moments(self) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
        """Return mean and standard deviation of each `ρ` under the prior."""
        return self.prior_mean, self.prior_std

    def prior_log_prob(self, rho: Float[Tensor, " n"], k: int) -> Float[Tensor, " n"]:
        """Compute the log density of the prior; arguments are those of `VariancePosterior.prior_log_prob`."""
        return -0.5 * ((rho - self.prior_mean[k]) / self.prior_std[k]).square()


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
) -> VariancePosterior:
    """Make the posterior of *relative* tolerances `r / c_k²` from the tolerance that the user gave for each balance.

    Args:
        tolerance: `None` (learned, default prior), `0` (exact), a standard deviation in the balance's own unit, a
            `VariancePrior` such as `TolerancePrior`, or a mapping from balance names to these (unnamed balances are
            learned).
        names: Names of the m balances.
        row_scale: Scales `c_k` in the balances' own units, shape `(m,)` (Z2).
        floor: Smallest relative variance of a learned tolerance, shape `(m,)` or a number.
    Returns:
        The posterior of m relative variances, which starts at the prior; given tolerances are fixed in it. It is a
        `LogNormalVariance` unless a balance has a prior of another kind.
    Raises:
        InputError: If a tolerance is negative or not a number, or a name is not that of a balance.

    Example:
        >>> q = tolerance_posterior({"mass": 0.1}, ["mass", "heat"], torch.tensor([2.0, 5.0]))
        >>> q.learned, q.fixed
        (tensor([False,  True]), tensor([0.0025, 0.0000], dtype=torch.float64))
    """
    entries = [_normalise(entry, name) for entry, name in zip(_per_balance(tolerance, names), names, strict=True)]
    row_scale = row_scale.double()
    floors = torch.as_tensor(floor, dtype=torch.float64, device=row_scale.device).expand_as(row_scale)
    groups: list[tuple[VariancePrior | None, list[int]]] = []
    for k, entry in enumerate(entries):
        prior = entry if isinstance(entry, VariancePrior) and type(entry) is not TolerancePrior else None
        same = (group for other, group in groups if _are_equal(prior, other))
        if (group := next(same, None)) is None:
            groups.append((prior, group := []))
        group.append(k)
    parts = []
    for prior, group in groups:
        scale, least = row_scale[group], floors[group]
        if prior is None:
            parts.append((None, group, _log_normal([entries[k] for k in group], scale, least)))
        else:
            log_unit = torch.zeros_like(scale) if prior.relative else -2.0 * scale.log()
            parts.append((prior, group, prior.posterior(log_unit, least)))
    if all(prior is None for prior, _ in groups):
        return parts[0][2] if parts else _log_normal([], row_scale, floors)
    return VariancesByPrior(parts)


def _are_equal(prior: VariancePrior | None, other: VariancePrior | None) -> bool:
    """Return whether two priors are the same, so that variances can share a posterior."""
    if prior is None or other is None:
        return prior is other
    return type(prior) is type(other) and prior.settings() == other.settings()


def _log_normal(
    entries: Sequence[VariancePrior | float], row_scale: Float[Tensor, " k"], floor: Float[Tensor, " k"]
) -> LogNormalVariance:
    """Make the posterior of tolerances that have a log-normal prior or a fixed value."""
    log_scale2 = 2.0 * row_scale.log()
    priors = [entry if isinstance(entry, TolerancePrior) else TolerancePrior() for entry in entries]
    prior_mean = torch.tensor([p.mean for p in priors], dtype=torch.float64)
    own_unit = torch.tensor([not p.relative for p in priors], dtype=torch.bool)
    fixed = torch.tensor([e if isinstance(e, float) else math.nan for e in entries], dtype=torch.float64)
    return LogNormalVariance(
        torch.where(own_unit, prior_mean - log_scale2, prior_mean),
        torch.tensor([p.std for p in priors], dtype=torch.float64),
        (fixed / row_scale).square(),
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


def _normalise(entry, name: str) -> VariancePrior | float:
    if entry is None:
        return TolerancePrior()
    if isinstance(entry, VariancePrior):
        check_prior_kind(entry)
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


def check_prior_kind(prior: VariancePrior) -> None:
    """Raise an InputError unless the class of a prior has a name of its own.

    Args:
        prior: The prior.
    """
    kind, name = type(prior), getattr(prior, "name", None)
    if not (isinstance(name, str) and name) or PRIORS.get(name, kind) is not kind:
        rule = f"{kind.__name__} must have a name of its own, but got {name!r}"
        raise InputError(f"{rule}. Give the class an attribute name, another one than those of the library.")
