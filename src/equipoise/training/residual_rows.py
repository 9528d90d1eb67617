"""Few rows that have the likelihood of many: residuals of a network's means, compressed by their second moments.

L1 and L2 are normal densities of a row's residuals `(y − f, t − B f)`. Rows with the same variances and the same
missing outputs enter through the number of rows and the sum of the squares and products of their residuals. The rows of
a triangular matrix whose square is that sum have it, too, and one further row without residuals counts for the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from equipoise.data import Rows
from equipoise.gaussian import DiagonalGaussian, VariancePosterior
from equipoise.network import LIKELIHOODS, ConstrainedBNN
from equipoise.training.variance_fit import VARIANCE_PRIOR, VarianceHead, log_var

MOST_KINDS = 4  # of rows, by their variances
SAME = 0.2  # range of log variances that counts as constant


@dataclass(frozen=True)
class RowKinds:
    """The rows of one member, in groups with the same missing outputs and nearly the same variances.

    Args:
        rows: The rows.
        operator: Coefficients of the balances, shared or `(n, m, n_y)`; None without balances.
        groups: Positions of the rows of each group; None if rows are not compressed.
        slope: By how much log v differs from its level, for each group, or for each row if there are none.
    """

    rows: Rows
    operator: Float[Tensor, "... m n_y"] | None
    groups: tuple[Tensor, ...] | None
    slope: Float[Tensor, "n_groups n_y"]

    @classmethod
    def of(cls, model: ConstrainedBNN, rows: Rows, head: VarianceHead) -> "RowKinds":
        """Group rows, unless their sensors or coefficients differ from row to row or the likelihood is not normal.

        Args:
            model: The model.
            rows: The rows.
            head: The member's variance head at the rows.
        """
        operator = rows.B
        if operator is None and model.conditioning is not None and rows.target is not None:
            operator = model.conditioning.B
        slope = log_var(head.level + head.units @ head.slopes) - log_var(head.level)
        exact = model.conditioning is not None and bool((model.conditioning.tolerance.median() == 0).any())
        known = model.sensor is None or bool((model.sensor.median() == 0).any())
        plain = type(model.likelihood) in {type(each) for each in LIKELIHOODS.values()}
        if not plain or rows.B is not None or rows.sensor_var is not None or (exact and known):
            return cls(rows, operator, None, slope)
        _, pattern = rows.y.isnan().unique(dim=0, return_inverse=True)
        kind = _kinds(slope) + MOST_KINDS * pattern
        groups = tuple((kind == each).nonzero().flatten() for each in kind.unique().tolist())
        return cls(rows, operator, groups, torch.stack([slope[group].mean(0) for group in groups]))

    def differences(self, means: Float[Tensor, "w n n_y"]) -> tuple[Float[Tensor, "w n n_y"], Float[Tensor, "w n m"]]:
        """Compute `y − f`, NaN where y is missing, and `t − B f`.

        Args:
            means: `f`.
        """
        y, target = self.rows.y - means, means.new_zeros(*means.shape[:-1], 0)
        if self.operator is not None:
            target = self.rows.target - (self.operator @ means.unsqueeze(-1)).squeeze(-1)  # type: ignore[operator]
        return y, target

    def residuals(self, means: Float[Tensor, "w n n_y"]) -> "ResidualRows":
        """Compute residuals of means, compressed where rows are in groups.

        Args:
            means: Means before conditioning, of w draws.
        """
        y, target = self.differences(means)
        if self.groups is None:
            return ResidualRows(y, target, means.new_ones(y.shape[:2]), self.slope.expand_as(y))
        parts = [
            _compressed(y[:, group], target[:, group], slope)
            for group, slope in zip(self.groups, self.slope, strict=True)
        ]
        return ResidualRows(*(torch.cat(each, 1) for each in zip(*parts, strict=True)))


@dataclass(frozen=True)
class ResidualRows:
    """Rows of residuals, for each of w draws of the means.

    Args:
        y: Measured outputs without means, NaN where they were not measured.
        target: Targets of the balances without `B f`.
        count: How often a row counts.
        slope: By how much log v differs from its level.
    """

    y: Float[Tensor, "w n n_y"]
    target: Float[Tensor, "w n m"]
    count: Float[Tensor, "w n"]
    slope: Float[Tensor, "w n n_y"]

    @classmethod
    def joined(cls, parts: Sequence["ResidualRows"]) -> "ResidualRows":
        """Join draws of several members, of which each may have another number of rows.

        Args:
            parts: Rows of each member.
        """
        n = max(part.count.shape[1] for part in parts)

        def padded(values: Tensor) -> Tensor:
            extra = values.new_zeros(values.shape[0], n - values.shape[1], *values.shape[2:])
            return torch.cat([values, extra], 1)

        names = ("y", "target", "count", "slope")
        return cls(*(torch.cat([padded(getattr(part, name)) for part in parts]) for name in names))

    def repeated(self, k: int) -> "ResidualRows":
        """Repeat each draw k times in turn."""
        return ResidualRows(*(each.repeat_interleave(k, 0) for each in (self.y, self.target, self.count, self.slope)))


def _kinds(slope: Float[Tensor, "n n_y"]) -> Int64[Tensor, " n"]:
    """Put rows into at most `MOST_KINDS` groups of nearly the same variances, by splitting the widest group."""
    kind = torch.zeros(len(slope), dtype=torch.long, device=slope.device)
    for number in range(1, MOST_KINDS):
        groups = [slope[kind == each] for each in range(number)]
        widths = [float((group.amax(0) - group.amin(0)).max()) for group in groups]
        widest = max(range(number), key=widths.__getitem__)
        if widths[widest] < SAME:
            break
        group = groups[widest]
        output = int((group.amax(0) - group.amin(0)).argmax())
        middle = 0.5 * (group[:, output].amax() + group[:, output].amin())
        kind[(kind == widest) & (slope[:, output] > middle)] = number
    return kind


def _compressed(
    y: Float[Tensor, "w n n_y"], target: Float[Tensor, "w n m"], slope: Float[Tensor, " n_y"]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return residuals, targets, counts and slopes of fewer rows with the same squares and products."""
    missing, n = y[0, 0].isnan(), y.shape[1]
    together = torch.cat([torch.where(missing, 0.0, y), target], -1)
    R = torch.linalg.qr(together, mode="r").R if n > together.shape[-1] else together
    few = torch.cat([R, torch.zeros_like(R[:, :1])], 1)
    count = few.new_ones(few.shape[:2])
    count[:, -1] = n - R.shape[1]
    y = torch.where(missing, torch.nan, few[..., : y.shape[-1]])
    return y, few[..., y.shape[-1] :], count, slope.expand_as(y)


class VarianceDensity:
    """The log density of log variances given the means, with their priors.

    Coordinates are the levels of `log v`, one for each output, then the learned `ρ` and the learned `log ω`.

    Args:
        model: The model.
        residuals: Residuals of the means of w draws.

    Attributes:
        n_levels, n_tolerances, n_sensors: Numbers of coordinates of each kind.
    """

    def __init__(self, model: ConstrainedBNN, residuals: ResidualRows):
        self.model, self.rows = model, residuals
        self.tolerance, self.sensor = tolerance_of(model), model.sensor
        self.n_levels = model.network.n_outputs
        self.n_tolerances, self.n_sensors = n_learned(self.tolerance), n_learned(self.sensor)

    def __call__(self, values: Float[Tensor, "w d"]) -> Float[Tensor, " w"]:
        """Compute the log density of each draw at its own coordinates, up to a constant."""
        levels, rho, omega = self._split(values)
        density = self.likelihood(values, torch.zeros_like(self.rows.y))
        mean, std = VARIANCE_PRIOR
        prior = -0.5 * ((levels - mean) / std).square().sum(-1)
        prior = prior + log_prior(self.tolerance, rho) + log_prior(self.sensor, omega)
        return torch.where(self.rows.count != 0, self.rows.count * density, 0.0).sum(-1) + prior

    def likelihood(self, values: Float[Tensor, "w d"], means: Float[Tensor, "w n n_y"]) -> Float[Tensor, "w n"]:
        """Compute the log likelihood of each row, if it counts once.

        Args:
            values: Coordinates.
            means: Means in addition to those of which the rows are residuals.
        """
        levels, rho, omega = self._split(values)
        gaussian = self.model.condition(
            DiagonalGaussian(means, (levels.unsqueeze(1) + self.rows.slope).exp()),
            self.rows.target if self.rows.target.shape[-1] else None,
            variances_at(self.tolerance, rho),
        )
        w = variances_at(self.sensor, omega)
        return self.model.likelihood(gaussian, self.rows.y, 0.0 if w is None else w)

    def _split(self, values: Float[Tensor, "w d"]) -> tuple[Tensor, ...]:
        return values.split([self.n_levels, self.n_tolerances, self.n_sensors], -1)


def tolerance_of(model: ConstrainedBNN) -> VariancePosterior | None:
    """Return the posterior of a model's tolerances; None without balances."""
    return None if model.conditioning is None else model.conditioning.tolerance


def n_learned(posterior: VariancePosterior | None) -> int:
    """Return the number of variances that are learned."""
    return 0 if posterior is None else int(posterior.learned.sum())


def variances_at(posterior: VariancePosterior | None, rho: Float[Tensor, "w k"]) -> Float[Tensor, "w 1 k_all"] | None:
    """Compute all variances for draws of the logarithms of learned ones.

    Args:
        posterior: Of the variances; None without any.
        rho: Logarithms of those that are learned.
    """
    return None if posterior is None else posterior.at(all_logs(posterior, rho)).unsqueeze(1)


def all_logs(posterior: VariancePosterior, rho: Float[Tensor, "w k"]) -> Float[Tensor, "w k_all"]:
    """Return logarithms of all variances, 0 for those that are not learned; arguments are those of `variances_at`."""
    full = rho.new_zeros(len(rho), posterior.n_entries)
    return full.index_copy(1, posterior.learned.nonzero().flatten(), rho)


def log_prior(posterior: VariancePosterior | None, rho: Float[Tensor, "w k"]) -> Float[Tensor, " w"]:
    """Compute the log density of learned variances under their priors; arguments are those of `variances_at`."""
    total = rho.new_zeros(len(rho))
    if posterior is not None:
        for i, k in enumerate(posterior.learned.nonzero().flatten().tolist()):
            total = total + posterior.prior_log_prob(rho[:, i], k)
    return total
