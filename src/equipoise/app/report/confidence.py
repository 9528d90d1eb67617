"""Confidence: what a fitted model says of its balances and sensors, line by line, in the user's units."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from equipoise.balances import column_unit
from equipoise.estimator import ConstrainedBNNRegressor


@dataclass(frozen=True)
class Trust:
    """How far a balance can be trusted, in its own unit; a line of `model.tolerances_`, and its prior.

    Args:
        balance, unit: Which.
        kind: "exact", "exact to rounding", "fixed" or "learned".
        verdict, note: What is to be said of it.
        biased: Whether its residual is systematically off.
        tol_std, tol_std_lower, tol_std_upper: The tolerance √r, and its 95 % interval.
        noise_std: What tolerance and sensors together let the residual scatter by.
        kl, contraction: What the data taught: nats, and the share of the prior's variance of log r that is gone.
        mu_rho, sigma_rho: Posterior mean and standard deviation of log r,
        prior_mu_rho, prior_sigma_rho: and those of its prior; NaN where nothing was learned.
        offset, offset_std: The learned offset; 0 where there is none.
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


@dataclass(frozen=True)
class Sensor:
    """What is known of the sensor behind an output, in its unit; a line of `model.sensor_std_`.

    Args:
        output, unit: Which.
        kind: "learned", "given", "given per row" or "none".
        std, lower, upper: Its standard deviation, and a 95 % interval if it was learned.
    """

    output: str
    unit: str | None
    kind: str
    std: float
    lower: float
    upper: float


def trust_of(model: ConstrainedBNNRegressor) -> tuple[Trust, ...]:
    """One for each balance of a fitted model."""
    layer, constraint = model.model_.conditioning, model.constraint_
    if layer is None or constraint is None:
        return ()
    q, log_scale2 = layer.tolerance, 2 * np.log(model.standardizer_.row_scale)
    prior = {"prior_mu_rho": q.prior_mean.cpu().numpy() + log_scale2, "prior_sigma_rho": q.prior_std.cpu().numpy()}
    learned = q.learned.cpu().numpy()
    table = model.tolerances_.assign(**{name: np.where(learned, part, math.nan) for name, part in prior.items()})
    return _lines(Trust, table, balance=constraint.names, unit=constraint.units)


def sensors_of(model: ConstrainedBNNRegressor) -> tuple[Sensor, ...]:
    """One for each output of a fitted model."""
    names = model.output_names_
    return _lines(Sensor, model.sensor_std_, output=names, unit=tuple(map(column_unit, names)))


def _lines(kind: type[Any], table: pd.DataFrame, **more: tuple[Any, ...]) -> tuple[Any, ...]:
    """The lines of a table as values of a dataclass, from the columns that are fields of it, and from others."""
    names = [field.name for field in dataclasses.fields(kind)]
    columns = [list(more[name]) if name in more else table[name].tolist() for name in names]
    return tuple(kind(*line) for line in zip(*columns, strict=True))
