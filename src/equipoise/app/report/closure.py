"""Closure: how far measured rows, the network and its predictions miss each balance, before and after conditioning."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from equipoise.balances import LinearConstraint
from equipoise.gaussian import ConditionedGaussian
from equipoise.network import derived_seed, joint
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
class Spread:
    """How residuals are spread.

    Args:
        n: How many.
        mean, rms: Their mean, and the root of their mean square.
        most: The size that 95 % of them do not exceed; one failed sensor does not move it.
        lower, low, median, high, upper: Their quantiles at 2.5, 25, 50, 75 and 97.5 %.
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
class Closure:
    """Residuals `A x + B y − b` of one balance, in its own unit.

    Args:
        balance, unit, equation: Which.
        residuals: Of measured rows (those in which every output of the balance was measured), of means and draws of
            the network before conditioning, and of the same after it, by kind. A model with the marginal likelihood
            also has those of its own draws, `ONE_BY_ONE`.
    """

    balance: str
    unit: str | None
    equation: str
    residuals: Mapping[str, Spread]


def closures(p: Predictive, Y: Array, baseline: Predictive | None = None, n: int = DRAWS) -> tuple[Closure, ...]:
    """The closure of each balance that a model was fitted with; nothing for a model without balances.

    Args:
        p: Of true values.
        Y: What was measured in the same rows, NaN where nothing was, shape `(rows, n_y)`.
        baseline: Of a model without balances, for the same rows and outputs.
        n: Posterior draws; each gives one mean and one joint draw of the outputs for every row.
    """
    constraint = p.standardizer.constraint
    if constraint is None:
        return ()
    means, draws = residuals_before(p, n)
    found = {DATA: constraint.residual(p.X, Y), MEANS_BEFORE: means, DRAWS_BEFORE: draws}
    found |= {MEANS_AFTER: p.residual_of_means(n), DRAWS_AFTER: p.residual_of_samples(n, joint=True)}
    if p.model.likelihood is not joint:
        found[ONE_BY_ONE] = p.residual_of_samples(n, joint=False)
    if baseline is not None:
        found[WITHOUT] = constraint.residual(p.X, baseline.sample(n))
    return tuple(_closure(constraint, k, found) for k in range(constraint.n_balances))


def residuals_before(p: Predictive, n: int) -> tuple[Array, Array]:
    """Residuals of the network's means `μ` and of its draws `N(μ, diag(v))`, before conditioning.

    Returns: Two arrays of shape `(n, rows, m)`.
    """
    constraint = p._constraint
    generator = torch.Generator(p._device).manual_seed(derived_seed(p.seed, n, 3))
    few = dataclasses.replace(p, n_draws=n)
    means, draws = np.empty((2, n, len(p.X), constraint.n_balances))
    for rows in few._chunks():
        first = 0
        for gaussian, _, _ in few._components(rows):
            prior = gaussian.prior if isinstance(gaussian, ConditionedGaussian) else gaussian
            for result, y in ((means, prior.mean), (draws, prior.sample(1, generator)[0])):
                in_user_units = p.standardizer.outputs_to_user(y.cpu().numpy())
                result[first : first + len(y), rows] = constraint.residual(p.X[rows], in_user_units)
            first += len(prior.mean)
    return means, draws


def _closure(constraint: LinearConstraint, k: int, found: Mapping[str, Array]) -> Closure:
    spreads = {kind: spread(residuals[..., k]) for kind, residuals in found.items()}
    return Closure(constraint.names[k], constraint.units[k], constraint.equations[k], spreads)


def spread(residuals: Array) -> Spread:
    """Of the residuals that are not NaN.

    Example:
        >>> spread(np.array([3.0, np.nan, -3.0, 3.0]))
        Spread(n=3, mean=1.0, rms=3.0, most=3.0, lower=-2.7, low=0.0, median=3.0, high=3.0, upper=3.0)
    """
    z = residuals[np.isfinite(residuals)]
    if not len(z):
        return Spread(0, *[math.nan] * (3 + len(QUANTILES)))
    moments = (float(z.mean()), float(np.sqrt(np.square(z).mean())))
    return Spread(len(z), *moments, float(np.quantile(np.abs(z), 0.95)), *np.quantile(z, QUANTILES).tolist())
