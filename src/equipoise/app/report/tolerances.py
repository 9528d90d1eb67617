"""Tolerances of balances and noise of sensors that a fitted model reports, in the user's units."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from equipoise.balances import column_unit
from equipoise.estimator import ConstrainedBNNRegressor
from equipoise.gaussian import VariancePosterior

DENSITY_POINTS = np.linspace(-3.5, 3.5, 121)


@dataclass(frozen=True)
class BalanceTolerance:
    """Tolerance of a balance in its own unit: a row of `model.tolerances_`, and the prior.

    Args:
        balance, unit: Name and unit of the balance.
        kind: "exact", "exact to rounding", "fixed" or "learned".
        verdict, note: How far the balance can be trusted, in a few words, and a remark.
        biased: Whether its residual differs systematically from 0.
        tol_std, tol_std_lower, tol_std_upper: The tolerance √r, and its 95 % interval.
        noise_std: Standard deviation of the residual of measured rows due to tolerance and sensor noise together.
        kl, contraction: How much the data taught: KL(posterior‖prior) of log r in nats, and 1 − its variance ratio.
        mu_rho, sigma_rho: Posterior mean and standard deviation of log r.
        prior_mu_rho, prior_sigma_rho: Prior mean and standard deviation of log r; NaN where nothing was learned.
        offset, offset_std: Learned offset of the balance and its standard deviation; 0 where there is none.
        prior_density: Density of log r under the prior at `DENSITY_POINTS` standard deviations from its mean; None
            where the prior is log-normal, or nothing was learned.
    """

    balance: str
    unit: str | None
    kind: str
    verdict: str
    note: str
    biased: bool
    tol_std: float
    tol_std_lower: float
    tol_std_upper: float
    noise_std: float
    kl: float
    contraction: float
    mu_rho: float
    sigma_rho: float
    prior_mu_rho: float
    prior_sigma_rho: float
    offset: float
    offset_std: float
    prior_density: tuple[float, ...] | None = None


@dataclass(frozen=True)
class SensorNoise:
    """Noise of the sensor that measures an output, in the output's unit: a row of `model.sensor_std_`.

    Args:
        output, unit: Name and unit of the output.
        kind: "learned", "given", "given per row" or "none".
        std, lower, upper: Standard deviation of the noise, and its 95 % interval if it was learned.
    """

    output: str
    unit: str | None
    kind: str
    std: float
    lower: float
    upper: float


def balance_tolerances(model: ConstrainedBNNRegressor) -> tuple[BalanceTolerance, ...]:
    """Collect the tolerance of each balance of a fitted model; empty for a model without balances."""
    layer, constraint = model.model_.conditioning, model.constraint_
    if layer is None or constraint is None:
        return ()
    q, log_scale2 = layer.tolerance, 2 * np.log(model.standardizer_.row_scale)
    mean, std = (part.cpu().numpy() for part in q.prior_log_moments())
    prior = {"prior_mu_rho": mean + log_scale2, "prior_sigma_rho": std}
    learned = q.learned.cpu().numpy()
    table = model.tolerances_.assign(**{name: np.where(learned, values, math.nan) for name, values in prior.items()})
    densities = tuple(None if each is None else _prior_density(q, k) for k, each in enumerate(q.priors))
    return _records(BalanceTolerance, table, balance=constraint.names, unit=constraint.units, prior_density=densities)


def _prior_density(q: VariancePosterior, k: int) -> tuple[float, ...]:
    """Compute the density of log r under the prior of one tolerance; it is the same in all units."""
    mean, std = (float(part[k]) for part in q.prior_log_moments())
    rho = mean + std * DENSITY_POINTS
    log_prob = q.prior_log_prob(torch.as_tensor(rho).to(q.fixed), k).cpu().numpy()
    density = np.exp(log_prob - log_prob.max())
    return tuple((density / np.trapezoid(density, rho)).tolist())


def sensor_noise(model: ConstrainedBNNRegressor) -> tuple[SensorNoise, ...]:
    """Collect the sensor noise of each output of a fitted model."""
    names = model.output_names_
    return _records(SensorNoise, model.sensor_std_, output=names, unit=tuple(map(column_unit, names)))


def _records(kind: type[Any], table: pd.DataFrame, **columns: tuple[Any, ...]) -> tuple[Any, ...]:
    """Turn the rows of a table into instances of a dataclass; fields that are not its columns come from `columns`."""
    names = [field.name for field in dataclasses.fields(kind)]
    values = [list(columns[name]) if name in columns else table[name].tolist() for name in names]
    return tuple(kind(*row) for row in zip(*values, strict=True))
