"""Contracts of unknown variances: priors of `ρ = log r`, and posteriors that are trained, of tolerances and sensors.

A prior says how likely a variance is before the data, and makes a posterior of variances that share it. A posterior is
all that the rest of the library knows of learned variances: draws, medians, divergences, starting values, and the
numbers that tables, reports and the record of a training show. Posteriors whose `ρ` is Gaussian need a prior alone.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from equipoise.gaussian.randomness import antithetic_normal

NODES = 64  # of a Gauss–Hermite rule: exact for polynomials of degree 127 under a normal density
RHO_RANGE = (-200.0, 120.0)  # of log r, over which a prior's moments are integrated
RHO_STEP = 0.01


@dataclass(frozen=True)
class EvidenceGrid:
    """Values of one variance over its prior and near its posterior, at which the likelihood is to be compared.

    Args:
        variances: Variances: `n_over_prior` over the prior, then others near the posterior's centre.
        log_prior: Log density of their `ρ` under the prior, up to a constant.
        n_over_prior: Number of values over the prior.
        centre: Position of the posterior's centre.
    """

    variances: Float[Tensor, " n"]
    log_prior: Float[Tensor, " n"]
    n_over_prior: int
    centre: int


class VariancePosterior(nn.Module, ABC):
    """Approximate posterior of k variances `r`; some of them may have fixed values instead.

    Its parameters and buffers are the numbers that a model file keeps.

    Args:
        fixed: Known variances, NaN where a variance is learned, shape `(k,)`.
        floor: Added to learned variances, so that they do not fall below rounding, shape `(k,)` or a number.
        prior: Numbers of the prior by name, shape `(k,)` each, which become buffers.

    Attributes:
        learned: Which variances are learned, shape `(k,)`.
        fixed: Known variances, 0 where a variance is learned.
        floor: Smallest value of learned variances.
    """

    learned: Tensor
    fixed: Tensor
    floor: Tensor

    def __init__(self, fixed: Tensor, floor: Tensor | float = 0.0, **prior: Tensor):
        super().__init__()
        for name, values in prior.items():
            self.register_buffer(name, values.detach().double().clone())
        fixed = fixed.detach().double()
        self.register_buffer("learned", fixed.isnan())
        self.register_buffer("fixed", fixed.nan_to_num(0.0))
        self.register_buffer("floor", torch.as_tensor(floor, dtype=torch.float64).expand_as(fixed).clone())

    @property
    def n_entries(self) -> int:
        """Number of variances, k, learned or fixed."""
        return len(self.fixed)

    @property
    def priors(self) -> tuple["VariancePrior | None", ...]:
        """Prior of each variance that a model file has to name; None where it is kept in buffers, or fixed."""
        return (None,) * self.n_entries

    @abstractmethod
    def from_normal(self, normal: Float[Tensor, "... k"]) -> Float[Tensor, "... k"]:
        """Turn standard normal numbers into draws of the variances, increasing in each number, with the floor.

        A constant number z gives the posterior's quantile at `Φ(z)`. Differentiable with respect to all parameters.

        Args:
            normal: One number for each variance.
        """

    @abstractmethod
    def kl_terms(self) -> Float[Tensor, " k"]:
        """Compute the divergence `KL(q ‖ p)` of each variance from its prior in nats, 0 where fixed."""

    @abstractmethod
    def start_at(self, var: Float[Tensor, " k"], *, log_std: float | None = None, below_prior: bool = False) -> None:
        """Set the medians of learned variances to starting values; entries that are not finite stay as they are.

        Args:
            var: The values.
            log_std: Logarithm of the standard deviation of `ρ` to start with; as it is by default.
            below_prior: Whether to start at the prior's centre where `var` is larger.
        """

    @abstractmethod
    def set_log_moments(self, mean: Float[Tensor, " k"], std: Float[Tensor, " k"]) -> None:
        """Set mean and standard deviation of the `ρ` of learned variances, as a Laplace approximation does.

        Args:
            mean, std: The values, as of `log_moments`.
        """

    @abstractmethod
    def prior_log_moments(self) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
        """Return mean and standard deviation of each `ρ` under its prior."""

    @abstractmethod
    def prior_log_prob(self, rho: Float[Tensor, " n"], k: int) -> Float[Tensor, " n"]:
        """Compute the log density of `ρ = log r` under the prior of one variance, up to a constant.

        Args:
            rho: Values of `ρ`.
            k: Position of the variance.
        """

    def at(self, rho: Float[Tensor, "... k"]) -> Float[Tensor, "... k"]:
        """Compute the variances at `ρ`, shape `(..., k)`; fixed variances do not depend on it."""
        return torch.where(self.learned, rho.exp() + self.floor, self.fixed)

    def kl_at_start(self) -> Float[Tensor, " k"]:
        """Return the divergence of each variance before any data: 0 if the posterior starts at the prior."""
        return torch.zeros_like(self.fixed)

    def std_at_start(self) -> Float[Tensor, " k"]:
        """Return the standard deviation of each `ρ` before any data."""
        return self.prior_log_moments()[1]

    def median(self) -> Float[Tensor, " k"]:
        """Compute the posterior medians of the variances."""
        return self.from_normal(torch.zeros_like(self.fixed))

    def draw(self, shape: Sequence[int] = (), generator: torch.Generator | None = None) -> Float[Tensor, "... k"]:
        """Draw variances from the posterior, differentiable with respect to its parameters.

        Args:
            shape: Leading shape of the draws.
            generator: Source of random numbers; torch's default by default.
        Returns:
            Variances, shape `(*shape, k)`.
        """
        like = {"dtype": self.fixed.dtype, "device": self.fixed.device}
        return self.from_normal(torch.randn((*shape, self.n_entries), generator=generator, **like))

    def numbered(
        self, number: Tensor, normal: Float[Tensor, "n ... k"], again: bool = False
    ) -> Float[Tensor, "n ... k"]:
        """Return draws by number: of a distribution, by its quantiles; others may have kept draws.

        Args:
            number: Numbers of n posterior draws, as of the weights.
            normal: Standard normal numbers, which have been drawn for these.
            again: Whether these are second draws of the variances for the same weights.
        """
        return self.from_normal(normal)

    def draw_rows(self, n: int, generator: torch.Generator | None = None) -> Float[Tensor, "n k"]:
        """Draw variances for each row of a batch, with antithetic noise, differentiable with respect to the parameters.

        Args:
            n: Number of rows.
            generator: Source of random numbers; torch's default by default.
        Returns:
            Variances, shape `(n, k)`; fixed ones are the same in all rows.
        """
        shape = (n, self.n_entries)
        return self.from_normal(antithetic_normal(shape, generator, self.fixed.dtype, self.fixed.device))

    @torch.no_grad()
    def log_moments(self) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
        """Compute mean and standard deviation of each `ρ`, by quadrature unless a class has them."""
        return _moments(self._at_nodes().clamp_min(torch.finfo(torch.float64).tiny).log())

    @torch.no_grad()
    def moments(self) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
        """Compute mean and standard deviation of each variance, by quadrature unless a class knows them."""
        return _moments(self._at_nodes())

    def _at_nodes(self) -> Float[Tensor, "n k"]:
        return self.from_normal(_nodes().to(self.fixed).unsqueeze(-1).expand(-1, self.n_entries))

    @torch.no_grad()
    def evidence_grid(self, k: int, n_points: int) -> EvidenceGrid:
        """Return values of one learned variance at which to compare likelihoods.

        Args:
            k: Position of the variance.
            n_points: Number of values over the prior's mean ± 3 standard deviations of `ρ`; five more lie within 2
                standard deviations of the posterior's mean.
        """
        (prior_mean, prior_std), (mean, std) = (
            (float(part[k]) for part in moments) for moments in (self.prior_log_moments(), self.log_moments())
        )
        over, near = prior_mean + prior_std * np.linspace(-3, 3, n_points), mean + std * np.linspace(-2, 2, 5)
        rho = torch.as_tensor(np.concatenate([over, near])).to(self.fixed)
        variances = rho.exp() + self.floor[k]
        return EvidenceGrid(variances, self.prior_log_prob(rho, k), n_points, n_points + 2)

    @torch.no_grad()
    def summary(self, k: int, scale: float) -> dict[str, Any]:
        """Summarise one variance for tables, in the square of a unit.

        Args:
            k: Position of the variance.
            scale: Size of one in the unit: variances are multiplied by its square.
        Returns:
            Its `kind` ("learned", "fixed" or "exact"), mean and standard deviation of `ρ` (`mu_rho`, `sigma_rho`) and
            of `r`, the paper's first-order ones, `√r` with its 95 % interval (`tol_std`), the divergence `kl`, and how
            far the spread has contracted.
        """
        if not bool(self.learned[k]):
            return _fixed_summary(float(self.fixed[k]), scale)
        return {"kind": "learned"} | self._learned_summary(k, scale)

    def _learned_summary(self, k: int, scale: float) -> dict[str, Any]:
        (relative, std), (mean_r, std_r) = (
            (float(part[k]) for part in moments) for moments in (self.log_moments(), self.moments())
        )
        middle, lower, upper = (float(self.from_normal(torch.full_like(self.fixed, z))[k]) for z in (0.0, -1.96, 1.96))
        mu = relative + 2.0 * math.log(scale)
        return {
            "mu_rho": mu,
            "sigma_rho": std,
            "mu_rho_relative": relative,
            "mean_r": mean_r * scale**2,
            "std_r": std_r * scale**2,
            "paper_mean_r": math.exp(mu),
            "paper_std_r": std * math.exp(mu),
            "tol_std": math.sqrt(middle) * scale,
            "tol_std_lower": math.sqrt(lower) * scale,
            "tol_std_upper": math.sqrt(upper) * scale,
            "kl": float(self.kl_terms()[k]),
            "contraction": self._contraction(k, std),
        }

    def _contraction(self, k: int, std: float) -> float:
        return 1.0 - (std / float(self.std_at_start()[k])) ** 2


class GaussianLogVariance(VariancePosterior):
    """Variances `r = exp(ρ)` with posterior `q(ρ) = N(loc, std²)`; a class that derives from it has the prior.

    Args:
        loc, std: Mean and standard deviation of `ρ` at the start, shape `(k,)`.
        fixed, floor, prior: As of `VariancePosterior`.
    """

    def __init__(self, loc: Tensor, std: Tensor, fixed: Tensor, floor: Tensor | float = 0.0, **prior: Tensor):
        super().__init__(fixed, floor, **prior)
        self.loc = nn.Parameter(loc.detach().double().clone())
        self.log_std = nn.Parameter(std.detach().double().log())

    @property
    def std(self) -> Float[Tensor, " k"]:
        """Posterior standard deviation of `ρ`, shape `(k,)`."""
        return self.log_std.exp()

    def from_normal(self, normal: Float[Tensor, "... k"]) -> Float[Tensor, "... k"]:
        """Compute `exp(loc + std ξ)` plus the floor; the argument is that of `VariancePosterior.from_normal`."""
        return self.at(self.loc + self.std * normal)

    def median(self) -> Float[Tensor, " k"]:
        """Compute the posterior medians of the variances, `exp(E[ρ])` plus the floor."""
        return self.at(self.loc)

    def log_moments(self) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
        """Return mean and standard deviation of each `ρ`, without the floor."""
        return self.loc.detach(), self.std.detach()

    @torch.no_grad()
    def start_at(self, var: Float[Tensor, " k"], *, log_std: float | None = None, below_prior: bool = False) -> None:
        """Set the means of `ρ`; arguments are those of `VariancePosterior.start_at`."""
        start = var.clamp_min(torch.finfo(var.dtype).tiny).log()
        if below_prior:
            start = torch.minimum(self._prior_centre(), start)
        self.loc.copy_(torch.where(self.learned & var.isfinite(), start, self.loc))
        if log_std is not None:
            self.log_std.fill_(log_std)

    @torch.no_grad()
    def set_log_moments(self, mean: Float[Tensor, " k"], std: Float[Tensor, " k"]) -> None:
        """Set mean and standard deviation; arguments are those of `VariancePosterior.set_log_moments`."""
        keeps_std = std == self.std  # whose logarithm need not be taken again
        self.loc.copy_(torch.where(self.learned, mean, self.loc))
        self.log_std.copy_(torch.where(self.learned & ~keeps_std, std.log(), self.log_std))

    def _prior_centre(self) -> Float[Tensor, " k"]:
        return self.prior_log_moments()[0]

    def _learned_summary(self, k: int, scale: float) -> dict[str, Any]:
        """Summarise by the closed forms of a log-normal variable, without the floor (K4)."""
        relative, std = float(self.loc[k]), float(self.std[k])
        mu = relative + 2.0 * math.log(scale)
        mean_r, std_r = log_normal_moments(mu, std)
        return {
            "mu_rho": mu,
            "sigma_rho": std,
            "mu_rho_relative": relative,
            "mean_r": mean_r,
            "std_r": std_r,
            "paper_mean_r": math.exp(mu),
            "paper_std_r": std * math.exp(mu),
            "tol_std": math.exp(0.5 * mu),
            "tol_std_lower": math.exp(0.5 * (mu - 1.96 * std)),
            "tol_std_upper": math.exp(0.5 * (mu + 1.96 * std)),
            "kl": float(self.kl_terms()[k]),
            "contraction": self._contraction(k, std),
        }


class VariancePrior(ABC):
    """Prior of a variance `r`, such as the tolerance of a balance: a density of `ρ = log r`.

    Attributes:
        name: Name in messages and model files.
        relative: Whether `r` is measured in units of the balance's squared scale `c_k²` (Z2), or in the square of the
            balance's own unit.
    """

    name: ClassVar[str]
    relative: bool = True

    @abstractmethod
    def log_prob(self, rho: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Compute the log density of `ρ = log r`, finite everywhere and differentiable.

        A density `p(s)` of the standard deviation `s = √r` has `log p(ρ) = log p(s) + log(s / 2)`.

        Args:
            rho: Values of `ρ` in float64.
        """

    def expected_log_prob(self, mean: Float[Tensor, " k"], std: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
        """Compute `E[log p(ρ)]` over `ρ ~ N(mean, std²)`, by quadrature unless a class knows it in closed form.

        Args:
            mean, std: Mean and standard deviation of `ρ`.
        """
        nodes, weights = _nodes().to(mean), _weights().to(mean)
        return (weights.unsqueeze(-1) * self.log_prob(mean + std * nodes.unsqueeze(-1))).sum(0)

    def log_moments(self) -> tuple[float, float]:
        """Compute mean and standard deviation of `ρ`, by quadrature unless a class knows them."""
        rho = torch.arange(*RHO_RANGE, RHO_STEP, dtype=torch.float64)
        weights = self.log_prob(rho).softmax(0)
        mean = float((weights * rho).sum())
        return mean, math.sqrt(float((weights * (rho - mean).square()).sum()))

    def settings(self) -> dict[str, Any]:
        """Return arguments with which the class makes the prior again, as JSON can hold them."""
        return {}

    def posterior(self, log_unit: Float[Tensor, " k"], floor: Float[Tensor, " k"]) -> VariancePosterior:
        """Make a posterior of variances that all have this prior; by default one whose `ρ` is Gaussian.

        Args:
            log_unit: Logarithms of the variance that the prior takes for 1, in the posterior's units: 0 where it is
                relative, else `−2 log c_k`.
            floor: Smallest values of the variances.
        Returns: The posterior, which starts as close to the prior as it can.
        """
        return PriorMatchedVariance(self, log_unit, floor)

    def __repr__(self) -> str:
        """Show the prior with its settings."""
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.settings().items())})"


class PriorMatchedVariance(GaussianLogVariance):
    """Variances whose `ρ` has any prior and a Gaussian posterior, which starts where its divergence is smallest.

    Args:
        prior: The prior of all variances.
        log_unit, floor: As of `VariancePrior.posterior`.
    """

    log_unit: Tensor
    start_mean: Tensor
    start_std: Tensor
    start_kl: Tensor

    def __init__(self, prior: VariancePrior, log_unit: Tensor, floor: Tensor | float = 0.0):
        log_unit = log_unit.detach().double()
        mean, std, kl = (torch.full_like(log_unit, value) for value in _closest_normal(prior))
        unknown = torch.full_like(log_unit, math.nan)
        numbers = {"log_unit": log_unit, "start_mean": mean + log_unit, "start_std": std, "start_kl": kl}
        super().__init__(mean + log_unit, std, unknown, floor, **numbers)
        self._prior = prior

    def kl_terms(self) -> Float[Tensor, " k"]:
        """Compute `KL(q(ρ) ‖ p(ρ)) = −H(q) − E_q[log p(ρ)]` of each variance (K8)."""
        entropy = 0.5 * math.log(2 * math.pi * math.e) + self.log_std
        return -entropy - self._prior.expected_log_prob(self.loc - self.log_unit, self.std)  # K8

    def prior_log_moments(self) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
        """Return mean and standard deviation of each `ρ` under the prior."""
        mean, std = self._prior.log_moments()
        return mean + self.log_unit, torch.full_like(self.log_unit, std)

    def prior_log_prob(self, rho: Float[Tensor, " n"], k: int) -> Float[Tensor, " n"]:
        """Compute the log density of the prior; arguments are those of `VariancePosterior.prior_log_prob`."""
        return self._prior.log_prob(rho - self.log_unit[k])

    def kl_at_start(self) -> Float[Tensor, " k"]:
        """Return the divergence of the closest normal."""
        return self.start_kl

    def std_at_start(self) -> Float[Tensor, " k"]:
        """Return the standard deviation of the closest normal."""
        return self.start_std

    def _prior_centre(self) -> Float[Tensor, " k"]:
        return self.start_mean


class VariancesByPrior(VariancePosterior):
    """Variances with priors of several kinds: for each group of equal priors the posterior that they make.

    Args:
        parts: For each group its prior (None if a model file need not name it), the positions of its variances, and
            their posterior.
    """

    order: Tensor
    parts: nn.ModuleList

    def __init__(self, parts: Sequence[tuple[VariancePrior | None, Sequence[int], VariancePosterior]]):
        positions = [torch.as_tensor(entries, dtype=torch.int64) for _, entries, _ in parts]
        order = torch.cat(positions).argsort()
        of_parts = [torch.where(q.learned, math.nan, q.fixed) for _, _, q in parts]
        super().__init__(torch.cat(of_parts)[order], torch.cat([q.floor for _, _, q in parts])[order])
        self.parts = nn.ModuleList(q for _, _, q in parts)
        self.register_buffer("order", order, persistent=False)
        self._entries = [entries.tolist() for entries in positions]
        self._priors = [prior for prior, _, _ in parts]

    @property
    def priors(self) -> tuple[VariancePrior | None, ...]:
        """Prior of each variance; None where it is kept in buffers, or fixed."""
        return tuple(self._priors[self._place(k)[0]] for k in range(self.n_entries))

    def from_normal(self, normal: Float[Tensor, "... k"]) -> Float[Tensor, "... k"]:
        """Turn standard normal numbers into draws; the argument is that of `VariancePosterior.from_normal`."""
        draws = [self._part(i).from_normal(normal[..., entries]) for i, entries in enumerate(self._entries)]
        return torch.cat(draws, -1)[..., self.order]

    def kl_terms(self) -> Float[Tensor, " k"]:
        """Compute the divergence of each variance from its prior in nats, 0 where fixed."""
        return self._joined(lambda q: q.kl_terms())

    def kl_at_start(self) -> Float[Tensor, " k"]:
        """Return the divergence of each variance before any data."""
        return self._joined(lambda q: q.kl_at_start())

    def std_at_start(self) -> Float[Tensor, " k"]:
        """Return the standard deviation of each `ρ` before any data."""
        return self._joined(lambda q: q.std_at_start())

    def prior_log_moments(self) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
        """Return mean and standard deviation of each `ρ` under its prior."""
        return self._joined(lambda q: q.prior_log_moments()[0]), self._joined(lambda q: q.prior_log_moments()[1])

    def log_moments(self) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
        """Return mean and standard deviation of each `ρ` under the posterior."""
        return self._joined(lambda q: q.log_moments()[0]), self._joined(lambda q: q.log_moments()[1])

    def moments(self) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
        """Return mean and standard deviation of each variance."""
        return self._joined(lambda q: q.moments()[0]), self._joined(lambda q: q.moments()[1])

    def prior_log_prob(self, rho: Float[Tensor, " n"], k: int) -> Float[Tensor, " n"]:
        """Compute the log density of a prior; arguments are those of `VariancePosterior.prior_log_prob`."""
        part, place = self._place(k)
        return self._part(part).prior_log_prob(rho, place)

    @torch.no_grad()
    def start_at(self, var: Float[Tensor, " k"], *, log_std: float | None = None, below_prior: bool = False) -> None:
        """Set the starting values of all parts; arguments are those of `VariancePosterior.start_at`."""
        for i, entries in enumerate(self._entries):
            self._part(i).start_at(var[entries], log_std=log_std, below_prior=below_prior)

    @torch.no_grad()
    def set_log_moments(self, mean: Float[Tensor, " k"], std: Float[Tensor, " k"]) -> None:
        """Set the moments of all parts; arguments are those of `VariancePosterior.set_log_moments`."""
        for i, entries in enumerate(self._entries):
            self._part(i).set_log_moments(mean[entries], std[entries])

    def _learned_summary(self, k: int, scale: float) -> dict[str, Any]:
        part, place = self._place(k)
        return self._part(part)._learned_summary(place, scale)

    def _joined(self, values: Callable[[Any], Tensor]) -> Float[Tensor, " k"]:
        return torch.cat([values(q) for q in self.parts])[self.order]

    def _part(self, i: int) -> VariancePosterior:
        return self.parts[i]  # type: ignore[return-value]

    def _place(self, k: int) -> tuple[int, int]:
        """Return the part that has a variance, and the variance's position in it."""
        return next((i, entries.index(k)) for i, entries in enumerate(self._entries) if k in entries)


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


def _closest_normal(prior: VariancePrior) -> tuple[float, float, float]:
    """Return mean and standard deviation of the normal that diverges least from a prior of `ρ`, and its divergence."""
    mean, std = prior.log_moments()
    parameters = torch.tensor([mean, math.log(std)], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([parameters], max_iter=200, tolerance_change=0.0, line_search_fn="strong_wolfe")

    def divergence() -> Tensor:
        mean, log_std = parameters.reshape(2, 1)
        return (-prior.expected_log_prob(mean, log_std.exp()) - log_std).sum()

    def differentiate() -> float:
        (parameters.grad,) = torch.autograd.grad(loss := divergence(), [parameters])
        return float(loss.detach())

    with torch.enable_grad():
        optimizer.step(differentiate)
        kl = float(divergence().detach()) - 0.5 * math.log(2 * math.pi * math.e)
    mean, log_std = parameters.tolist()
    return mean, math.exp(log_std), kl


def _fixed_summary(relative: float, scale: float) -> dict[str, Any]:
    r = relative * scale**2
    mu = math.log(r) if r > 0 else -math.inf
    return {
        "kind": "fixed" if r > 0 else "exact",
        "mu_rho": mu,
        "sigma_rho": 0.0,
        "mu_rho_relative": mu - 2 * math.log(scale),
        "mean_r": r,
        "std_r": 0.0,
        "paper_mean_r": r,
        "paper_std_r": 0.0,
        "tol_std": math.sqrt(r),
        "tol_std_lower": math.sqrt(r),
        "tol_std_upper": math.sqrt(r),
        "kl": 0.0,
        "contraction": 0.0,
    }


@cache
def _rule() -> tuple[Tensor, Tensor]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return torch.as_tensor(nodes), torch.as_tensor(weights / weights.sum())


def _nodes() -> Float[Tensor, " n"]:
    return _rule()[0]


def _weights() -> Float[Tensor, " n"]:
    return _rule()[1]


def _moments(values: Float[Tensor, "n k"]) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
    """Compute mean and standard deviation of a function of a standard normal number from its values at the nodes."""
    weights = _weights().to(values).unsqueeze(-1)
    mean = (weights * values).sum(0)
    return mean, (weights * (values - mean).square()).sum(0).sqrt()
