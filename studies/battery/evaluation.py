"""Evaluation of a fitted model on the test rows: the scores of results.json, and the arrays for its figures."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from equipoise import ConstrainedBNNRegressor, Ledger, Predictive, battery, metrics
from studies.battery.results import (
    HEATS,
    VOLTAGES,
    CoverageRecord,
    LedgerTerms,
    ModelResults,
    ModelsResults,
    ModelsTolerances,
    ObservationStd,
    Results,
    Scales,
    ScoreByOutput,
    SplitSizes,
    Tolerance,
    Tolerances,
    TrainingRecord,
    Variable,
    Versions,
    Violation,
    Violations,
)

Array = NDArray[np.float64]
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
FINE_LEVELS = np.linspace(0.01, 0.99, 99)  # of the calibration curves
PIT_BINS = 20
SHARE_OF_SCORES = 0.4  # of the time of an evaluation; the rest is for violations
DESCRIPTIONS = {
    "I [A]": "Applied current",
    "SOC": "State of charge",
    "T [K]": "Ambient temperature",
    "V [V]": "Terminal voltage",
    "V_OCV [V]": "Open-circuit voltage",
    "eta_p [V]": "Positive electrode overpotential",
    "eta_n [V]": "Negative electrode overpotential",
    "dV_IR [V]": "Ohmic (IR) drop",
    "Q_tot [W.m-3]": "Total volumetric heating",
    "Q_rev [W.m-3]": "Reversible heating",
    "Q_irr [W.m-3]": "Irreversible heating",
}

Progress = Callable[[float], None]


@dataclass(frozen=True, eq=False)
class ModelEvaluation:
    """One model's part of results.json, and the arrays for its figures.

    Attributes:
        results: All scores.
        tolerances: Learned tolerances; None for a model without balances.
        arrays: Arrays over the test rows, outputs in the order of `OUTPUTS`: `mean`, `lower` and `upper` (95 %
            intervals of measured values) and `pit`, each `(n, n_y)`; `calibration_levels` `(n_levels,)` and
            `calibration_coverage` `(n_levels, n_y)`; `violation_of_means` and `violation_of_draws`, histograms of k
            series of residuals, `(k, n_bins + 2)`, with the values outside of all bins in the first and last column;
            `violation_log10_edges`, the edges of the bins; `violation_series`, the names of the series.
    """

    results: ModelResults
    tolerances: Tolerances | None
    arrays: dict[str, NDArray]


def evaluate(
    estimator: ConstrainedBNNRegressor,
    data: battery.BatteryData,
    *,
    n_draws: int = 1000,
    violation_draws: int = 10_000,
    progress: Progress | None = None,
) -> ModelEvaluation:
    """Score a fitted model on the test rows.

    Args:
        estimator: A model that was fitted to training rows of `data`, with balances or without.
        data: All of the study's data.
        n_draws: Number of posterior draws for scores.
        violation_draws: Number of posterior draws for violations of the balances.
        progress: Called with the share of the evaluation that is done, up to 1.
    Returns: Scores, tolerances and arrays.
    """
    show = progress or (lambda share: None)
    X, Y = data.part("test")
    p = dataclasses.replace(estimator.predict_distribution(X), n_draws=n_draws)
    scale, answers = _scales(data), _predict(p.measured(), Y, data, lambda share: show(SHARE_OF_SCORES * share))
    of_means, of_draws = metrics.violations(
        p,
        violation_draws,
        battery.balances(),
        list(scale.model_dump().values()),
        lambda share: show(SHARE_OF_SCORES + (1 - SHARE_OF_SCORES) * share),
    )
    results = ModelResults(
        **_scores(answers, Y, data),
        violation_of_means=_violations(of_means, scale),
        violation_of_draws=_violations(of_draws, scale),
        sensor_std=_by_output(estimator.sensor_std_["std"]),
        history=_history(estimator),
    )
    return ModelEvaluation(results, _tolerances(estimator), _curves(answers) | _histograms(of_means, of_draws))


def assemble(
    evaluations: Mapping[str, ModelEvaluation],
    data: battery.BatteryData,
    *,
    seed: int,
    config: dict[str, Any],
    seconds: dict[str, float],
) -> Results:
    """Assemble the content of results.json.

    Args:
        evaluations: Evaluations by model, of all of `MODELS`.
        data: The data of all of them.
        seed: Seed of noise, split and training.
        config: All settings of the run.
        seconds: Time of each stage, and of the whole run as "total".
    """
    models = ModelsResults(**{name: evaluation.results for name, evaluation in evaluations.items()})
    learned = {name: e.tolerances for name, e in evaluations.items() if e.tolerances is not None}
    added = np.sqrt((data.noise_std.iloc[data.test] ** 2).mean())
    return Results(
        seed=seed,
        models=models,
        tolerances=ModelsTolerances(**learned),
        observation_std=ObservationStd(true=_by_output(added), learned=models.equipoise.observation_std),
        sensor_std=models.equipoise.sensor_std,
        output_std=_by_output(output_std(data)),
        scales=_scales(data),
        input_output_table=input_output_table(data),
        rows=SplitSizes(train=len(data.train), validation=len(data.validation), test=len(data.test)),
        config=config,
        seconds=seconds,
        versions=versions(),
    )


def output_std(data: battery.BatteryData) -> Array:
    """Compute the standard deviations of the measured training outputs, which normalise the scores, shape `(n_y,)`."""
    return data.Y.iloc[data.train].to_numpy().std(0)


def input_output_table(data: battery.BatteryData) -> tuple[Variable, ...]:
    """List the variables with their ranges over all rows; ranges of outputs are without noise."""
    return (
        *(_variable("input", name, data.X[name].to_numpy()) for name in battery.INPUTS),
        *(_variable("output", name, data.truth[name].to_numpy()) for name in battery.OUTPUTS),
    )


def versions() -> Versions:
    """Return the versions of the packages that the numbers depend on."""
    installed = {name: metadata.version(name) for name in ("torch", "numpy", "equipoise")}
    return Versions(python=platform.python_version(), pybamm=battery.pybamm_version(), **installed)


# --- Scores -----------------------------------------------------------------------------------------------------------


def _predict(p: Predictive, Y: pd.DataFrame, data: battery.BatteryData, progress: Progress) -> dict[str, Any]:
    """Compute everything that takes time of the distribution of measured values, in the data's units."""
    computations = {
        "ledger": p.ledger,
        "mean": lambda: np.asarray(p.mean),
        "interval": lambda: [np.asarray(bound) for bound in p.interval(0.95)],
        "pit": lambda: metrics.pit(p, Y),
        "crps": lambda: metrics.crps(p, Y).mean(0),
        "joint_nll": lambda: metrics.joint_nll(p, Y),
        "energy_score": lambda: float(metrics.energy_score(p, Y, output_std(data)).mean()),
    }
    answers = {}
    for number, (name, compute) in enumerate(computations.items(), 1):
        answers[name] = compute()
        progress(number / len(computations))
    return answers


def _scores(answers: dict[str, Any], Y: pd.DataFrame, data: battery.BatteryData) -> dict[str, Any]:
    """Compute the normalised scores from the results of `_predict`."""
    s, ledger, truth = output_std(data), answers["ledger"], data.truth.iloc[data.test]
    lower, upper = answers["interval"]
    mse_noisy, mse_true = (((answers["mean"] - values.to_numpy()) ** 2).mean(0) / s**2 for values in (Y, truth))
    noise, spread = _noise_var(ledger), ledger.epistemic + ledger.shift + ledger.interaction
    return {
        "mse_noisy": _score(mse_noisy),
        "mse_true": _score(mse_true),
        "mse_true_voltages": _mean_of(mse_true, VOLTAGES),
        "mse_true_heats": _mean_of(mse_true, HEATS),
        "coverage": _score(metrics.coverage_of_pit(answers["pit"], 0.95)[0]),
        "interval_width": _score((upper - lower).mean(0) / s),
        "aleatoric": _score(np.sqrt(noise).mean(0) / s),
        "epistemic": _score(np.sqrt(spread.clip(0)).mean(0) / s),
        "crps": _score(answers["crps"] / s),
        "joint_nll": answers["joint_nll"],
        "energy_score": answers["energy_score"],
        "observation_std": _by_output(np.sqrt(noise.mean(0))),
        "calibration": _calibration(answers["pit"]),
        "ledger": _ledger(ledger, s),
    }


def _curves(answers: dict[str, Any]) -> dict[str, NDArray]:
    lower, upper = answers["interval"]
    coverage = metrics.coverage_of_pit(answers["pit"], FINE_LEVELS)
    arrays = {"mean": answers["mean"], "lower": lower, "upper": upper, "pit": answers["pit"]}
    return arrays | {"calibration_levels": FINE_LEVELS, "calibration_coverage": coverage}


def _noise_var(ledger: Ledger) -> Array:
    """Compute `E[v_C] + E[w]`, shape `(n, n_y)`: the variance of noise, without differences between draws."""
    return (ledger.aleatoric - ledger.reduction).clip(0) + ledger.sensor


def _calibration(pit: Array) -> CoverageRecord:
    shares = metrics.coverage_of_pit(pit, LEVELS)
    counts = [np.histogram(column, bins=PIT_BINS, range=(0, 1))[0] for column in pit.T]
    return CoverageRecord(levels=LEVELS, coverage=_by_output(shares.T), pit_counts=_by_output(counts))


def _ledger(ledger: Ledger, s: Array) -> dict[str, LedgerTerms]:
    """Average the terms of each output over rows, in units of its training variance."""
    frame = ledger.to_frame().div(s**2, axis=0)
    frame.index = pd.Index(list(battery.KEYS))
    lost = {name: f"lost without {name}" for name in ledger.balances}
    return {
        str(key): LedgerTerms(
            **{name: terms[name] for name in LedgerTerms.model_fields if name in terms},
            lost_without={name: terms[column] for name, column in lost.items()},
        )
        for key, terms in frame.to_dict(orient="index").items()
    }


def _history(estimator: ConstrainedBNNRegressor) -> TrainingRecord:
    history = estimator.history_
    return TrainingRecord(
        epochs=len(history.epochs),
        best_epoch=history.best_epoch,
        seconds=sum(history.column("seconds")),
        stopped=history.stopped,
    )


# --- Balances ---------------------------------------------------------------------------------------------------------


def _scales(data: battery.BatteryData) -> Scales:
    constraint = battery.balances()
    return Scales(**dict(zip(constraint.names, constraint.scale(output_std(data)).tolist(), strict=True)))


def _tolerances(estimator: ConstrainedBNNRegressor) -> Tolerances | None:
    if estimator.tolerances_.empty:
        return None
    rows = estimator.tolerances_.reindex(columns=list(Tolerance.model_fields)).to_dict(orient="index")
    return Tolerances(**{str(name): Tolerance(**row) for name, row in rows.items()})  # type: ignore[arg-type]


def _violations(sizes: metrics.Magnitudes, scale: Scales) -> Violations:
    """Summarise the sizes of residuals; those of one balance are also given relative to its scale."""
    numbers = zip(sizes.mean.tolist(), sizes.median.tolist(), sizes.sd_over_draws.tolist(), strict=True)
    series = dict(zip(sizes.names, numbers, strict=True))
    for name, c in scale.model_dump().items():
        mean, median, sd = series[name]
        series[f"{name}_relative"] = (mean / c, median / c, sd / c)
    kinds = {name: Violation(mean=mean, median=median, sd_over_draws=sd) for name, (mean, median, sd) in series.items()}
    return Violations(**kinds)


def _histograms(of_means: metrics.Magnitudes, of_draws: metrics.Magnitudes) -> dict[str, NDArray]:
    return {
        "violation_series": np.array(of_means.names),
        "violation_log10_edges": metrics.LOG10_EDGES,
        "violation_of_means": of_means.counts,
        "violation_of_draws": of_draws.counts,
    }


# --- Parts ------------------------------------------------------------------------------------------------------------


def _by_output(values: Any) -> Any:
    """Name the values of the outputs by their keys."""
    return dict(zip(battery.KEYS, np.asarray(values).tolist(), strict=True))


def _score(values: Array) -> ScoreByOutput:
    return ScoreByOutput.of(_by_output(values))


def _mean_of(values: Array, keys: tuple[str, ...]) -> float:
    return float(np.mean([_by_output(values)[key] for key in keys]))


def _variable(role: Any, name: str, values: NDArray) -> Variable:
    symbol, _, unit = name.partition(" ")
    return Variable(
        role=role,
        symbol=symbol,
        description=DESCRIPTIONS[name],
        unit=unit.strip("[]"),
        min=float(values.min()),
        max=float(values.max()),
    )
