"""Scores of a fitted method on the test rows: accuracy, calibration, joint distribution, balances and cost."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from equipoise.prediction import metrics

if TYPE_CHECKING:
    from equipoise.prediction import Predictive
    from equipoise.rivals.cases import Case, Split
    from equipoise.rivals.methods.regressor import MethodRegressor

Array = NDArray[np.float64]
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
OFF = 1e-9  # larger relative residuals of draws are more than rounding errors
DRAWS = 100  # draws of output vectors for residuals

# Scores and their descriptions. Outputs are normalised by the standard deviations of the rows that were fitted.
SCORES = {
    "rmse": "RMSE against what was measured, in standard deviations of each output, mean over outputs",
    "rmse_true": "the same against the truth, where it is known",
    "crps": "continuous ranked probability score, likewise",
    "energy_score": "energy score of whole rows",
    "joint_nll": "negative log density of whole rows, in nats per row; none where draws obey and measurements do not",
    "coverage": "share of measured values inside their 95 % intervals",
    "width": "width of the 95 % intervals, in standard deviations of each output",
    "calibration_error": "mean distance between nominal and actual coverage, over ten levels",
    "residual_of_mean": "mean residual of the predicted mean, in units of the balance's scale",
    "residual_of_draws": "mean residual of draws of the true values",
    "worst_draw": "largest residual of a draw",
    "fit_seconds": "training time in s of one core",
    "row_seconds": "time for mean and standard deviation of one row, of one core",
    "parameters": "how many numbers were trained",
}
LOWER_IS_BETTER = ("rmse", "rmse_true", "crps", "energy_score", "joint_nll", "calibration_error")


def score(model: MethodRegressor, case: Case, split: Split, fit_seconds: float) -> dict[str, float]:
    """Compute all of `SCORES` on the test rows; a score that does not exist is NaN.

    Args:
        model: A method that was fitted to `split.fit`.
        case: Gives the balances for residuals, also of methods that were fitted without them.
        split: Gives the test rows.
        fit_seconds: Time of the fit in seconds, which is one of the scores.
    """
    from equipoise.data import obeyed_to_rounding  # imports torch, which a list of the scores does not need

    test, std = split.test, np.nanstd(split.fit.Y.to_numpy(float), 0)
    std = np.where(std > 0, std, 1.0)  # constant outputs keep their unit
    X = test.X.to_numpy(float)
    start = time.process_time()
    p = model.predict_distribution(test.X)
    mean = np.asarray(p.mean, dtype=float)
    row_seconds = (time.process_time() - start) / len(mean)
    measured, Y = p.measured(), test.Y.to_numpy(float)
    exact = obeyed_to_rounding(case.constraint, X, Y, float(np.finfo(float).eps))
    residuals = np.abs(p.residual_of_samples(DRAWS, constraint=case.constraint)) / case.constraint.scale(std)
    return {
        "rmse": _rmse(mean, Y, std),
        "rmse_true": math.nan if test.truth is None else _rmse(mean, test.truth.to_numpy(float), std),
        "crps": float(np.nanmean(np.nanmean(metrics.crps(measured, Y), 0) / std)),
        "energy_score": float(np.nanmean(metrics.energy_score(measured, Y, std))),
        "joint_nll": _joint_nll(measured, Y, residuals[..., exact]),
        **_calibration(measured, Y, std),
        "residual_of_mean": float(np.mean(np.abs(case.constraint.residual(X, mean)) / case.constraint.scale(std))),
        "residual_of_draws": float(residuals.mean()),
        "worst_draw": float(residuals.max()),
        "fit_seconds": fit_seconds,
        "row_seconds": row_seconds,
        "parameters": float(model.n_parameters_),
    }


def _rmse(mean: Array, Y: Array, std: Array) -> float:
    return float(np.mean(np.sqrt(np.nanmean((mean - Y) ** 2, 0)) / std))


def _joint_nll(p: Predictive, Y: Array, residuals: Array) -> float:
    """Return the joint NLL, or NaN where densities of different methods cannot be compared.

    That is so if all rows obey a balance and draws do not, or if all draws obey one and rows do not.

    Args:
        p: Distribution of measured outputs.
        Y: Measured outputs.
        residuals: Relative residuals of draws in the balances that all rows obey.
    """
    if residuals.max(initial=0.0) > OFF:
        return math.nan
    nll = metrics.joint_nll(p, Y)
    return nll if math.isfinite(nll) else math.nan


def _calibration(p: Predictive, Y: Array, std: Array) -> dict[str, float]:
    covered = metrics.coverage_of_pit(metrics.pit(p, Y), LEVELS)
    distance = np.abs(covered - np.array(LEVELS)[:, None])
    width = metrics.interval_width(p) / std
    return {
        "coverage": float(np.nanmean(covered[-1])),
        "width": float(width.mean()),
        "calibration_error": float(np.nanmean(distance)),
    }
