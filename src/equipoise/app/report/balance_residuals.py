"""Residuals of each balance: of measured rows, and of the model's means and draws before and after conditioning."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from equipoise.balances import Equality
from equipoise.network import derived_seed
from equipoise.prediction import Predictive

Array = NDArray[np.float64]
DRAWS = 32
QUANTILES = (0.025, 0.25, 0.5, 0.75, 0.975)
DATA = "measured rows"
MEANS_BEFORE, MEANS_AFTER = "means, before", "means, after"
DRAWS_BEFORE, DRAWS_AFTER = "draws, before", "draws, after"
ONE_BY_ONE = "outputs drawn one by one, after"
WITHOUT = "draws of the model without balances"


@dataclass(frozen=True)
class ResidualSummary:
    """Mean, size and quantiles of the residuals of a balance, in its unit.

    Args:
        n: Number of residuals.
        mean, rms: Mean and root mean square.
        most: The absolute value that 95 % of them do not exceed; a single failed sensor does not change it.
        lower, low, median, high, upper: Quantiles at 2.5, 25, 50, 75 and 97.5 %.
    """

    n: int
    mean: float
    rms: float
    most: float
    lower: float
    low: float
    median: float
    high: float
    upper: float


@dataclass(frozen=True)
class BalanceResiduals:
    """Residuals `A x + B y − b` of one balance, in its own unit.

    Args:
        balance, unit, equation: Name, unit and equation of the balance.
        summaries: Summaries of residuals by kind: `DATA`, of measured rows in which every output of the balance was
            measured; `MEANS_BEFORE` and `DRAWS_BEFORE`, of means and draws of the network before conditioning;
            `MEANS_AFTER` and `DRAWS_AFTER`, of those after it; `ONE_BY_ONE`, of draws by a model with the marginal
            likelihood, which draws each output on its own; `WITHOUT`, of draws by a model without balances.
    """

    balance: str
    unit: str | None
    equation: str
    summaries: Mapping[str, ResidualSummary]


def balance_residuals(
    p: Predictive, Y: Array, baseline: Predictive | None = None, n: int = DRAWS
) -> tuple[BalanceResiduals, ...]:
    """Compute the residuals of each balance that a model was fitted with.

    Args:
        p: Predictive distribution of true values.
        Y: Measured values of the same rows, NaN where not measured, shape `(rows, n_y)`.
        baseline: Predictive distribution of a model without balances, for the same rows and outputs.
        n: Number of posterior draws; each gives one mean and one joint draw of the outputs for every row.
    Returns: One per balance; empty for a model without balances, or whose predictions do not use them.
    """
    constraint = p.standardizer.constraint
    if constraint is None or p.model.conditioning is None:
        return ()
    means, draws = unconditioned_residuals(p, n)
    residuals = {DATA: constraint.residual(p.X, Y), MEANS_BEFORE: means, DRAWS_BEFORE: draws}
    residuals |= {MEANS_AFTER: p.residual_of_means(n), DRAWS_AFTER: p.residual_of_samples(n, joint=True)}
    if not p.model.likelihood.is_joint:
        residuals[ONE_BY_ONE] = p.residual_of_samples(n, joint=False)
    if baseline is not None:
        residuals[WITHOUT] = constraint.residual(p.X, baseline.sample(n))
    return tuple(_summarise_balance(constraint, k, residuals) for k in range(constraint.n_balances))


def unconditioned_residuals(p: Predictive, n: int) -> tuple[Array, Array]:
    """Compute residuals of the network's means `μ` and of its draws `N(μ, diag(v))`, before conditioning.

    Args:
        p: Predictive distribution of a model with balances.
        n: Number of posterior draws.
    Returns: Residuals of means and of draws, each of shape `(n, rows, m)`, in the balances' units.
    """
    constraint = p.constraint
    generator = torch.Generator(p.device).manual_seed(derived_seed(p.seed, n, 3))
    means, draws = np.empty((2, n, len(p.X), constraint.n_balances))
    for rows in p.chunks():
        outputs = torch.empty(2, n, rows.stop - rows.start, len(p.outputs), dtype=torch.float64)
        for places, part in p.equal_draws(rows, range(n)):
            prior = part.gaussian.prior
            outputs[0][places], outputs[1][places] = prior.mean.cpu(), prior.sample(1, generator)[0].cpu()
        for residuals, y in zip((means, draws), outputs.numpy(), strict=True):
            residuals[:, rows] = constraint.residual(p.X[rows], p.standardizer.outputs_to_user(y))
    return means, draws


def _summarise_balance(constraint: Equality, k: int, residuals: Mapping[str, Array]) -> BalanceResiduals:
    summaries = {kind: summarise(values[..., k]) for kind, values in residuals.items()}
    return BalanceResiduals(constraint.names[k], constraint.units[k], constraint.equations[k], summaries)


def summarise(residuals: Array) -> ResidualSummary:
    """Summarise the residuals that are finite.

    Example:
        >>> summarise(np.array([3.0, np.nan, -3.0, 3.0]))
        ResidualSummary(n=3, mean=1.0, rms=3.0, most=3.0, lower=-2.7, low=0.0, median=3.0, high=3.0, upper=3.0)
    """
    z = residuals[np.isfinite(residuals)]
    if not len(z):
        return ResidualSummary(0, *[math.nan] * (3 + len(QUANTILES)))
    moments = (float(z.mean()), float(np.sqrt(np.square(z).mean())))
    return ResidualSummary(len(z), *moments, float(np.quantile(np.abs(z), 0.95)), *np.quantile(z, QUANTILES).tolist())
