"""Findings: all numbers of a report on a fitted model, computed once from the model and a table of rows.

Large tables are thinned, always to the same rows: scores are computed from `SCORED_ROWS` at most, variance terms and
residuals of balances from `DECOMPOSED_ROWS`, figures show fewer still; `Findings` records these numbers of rows.
"""

import dataclasses
import platform
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from equipoise.app.report.balance_residuals import BalanceResiduals, balance_residuals
from equipoise.app.report.scores import (
    Calibration,
    Outliers,
    PlottedRows,
    Score,
    calibration,
    outliers,
    plotted_rows,
    score_outputs,
    select_rows,
)
from equipoise.app.report.tolerances import BalanceTolerance, SensorNoise, balance_tolerances, sensor_noise
from equipoise.balances import quoted_list
from equipoise.data import frames
from equipoise.errors import InputError
from equipoise.estimator import ConstrainedBNNRegressor
from equipoise.prediction import Ledger, Predictive
from equipoise.training import History

Array = NDArray[np.float64]
SCORED_ROWS = 20_000
DECOMPOSED_ROWS = 2_000
UNREPORTED_PARAMETERS = {  # those that change no number, or are reported elsewhere
    "checkpoint",
    "constraint",
    "device",
    "max_epochs",
    "training",
    "verbose",
}
PACKAGES = ("equipoise", "torch", "numpy", "scipy", "scikit-learn")


@dataclass(frozen=True, eq=False, repr=False)
class Findings:
    """All numbers of a report on a fitted model, in the user's units.

    Measured values are compared with predictions of measured values, sensor noise included.

    Args:
        n_rows, n_scored, n_decomposed: Number of rows of the table, of those that were scored, and of those whose
            variance and residuals were computed.
        inputs, known: Names of the network's inputs, and of columns that only enter balances.
        scores: Errors of each output.
        calibration: Coverage and histograms of each output.
        plotted: Rows for the figures.
        outliers: The rows with the worst predictions.
        residuals: Residuals of each balance.
        tolerances: Tolerance of each balance.
        sensors: Noise of each output's sensor.
        ledger: Variance terms of measured values by name, averaged over rows, as in `Ledger.to_frame`: shape `(n_y,)`.
        lost_without: By balance, the reduction lost if it alone were left out (D4), shape `(m, n_y)`.
        history: History of the training.
        seed, settings, versions: Seed, parameters and versions of packages that reproduce the model.
        n_extrapolated: Number of rows with inputs outside their range in training.
        extrapolated_inputs: Names of these inputs.
    """

    n_rows: int
    n_scored: int
    n_decomposed: int
    inputs: tuple[str, ...]
    known: tuple[str, ...]
    scores: tuple[Score, ...]
    calibration: Calibration
    plotted: PlottedRows
    outliers: Outliers
    residuals: tuple[BalanceResiduals, ...]
    tolerances: tuple[BalanceTolerance, ...]
    sensors: tuple[SensorNoise, ...]
    ledger: Mapping[str, Array]
    lost_without: Array
    history: History
    seed: int
    settings: Mapping[str, str]
    versions: Mapping[str, str]
    n_extrapolated: int = 0
    extrapolated_inputs: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Findings({self.n_scored} of {self.n_rows} rows; {', '.join(self.outputs)})"

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return tuple(score.output for score in self.scores)

    @property
    def balances(self) -> tuple[str, ...]:
        """Names of the balances."""
        return tuple(residuals.balance for residuals in self.residuals)

    @property
    def true_var(self) -> Array:
        """Predictive variance of the true value of each output, averaged over rows, shape `(n_y,)`."""
        return np.maximum(
            self.ledger["total"] - self.ledger["sensor"], 0.0
        )  # rounding errors may be negative where terms cancel

    @property
    def before_var(self) -> Array:
        """Predictive variance of each output's true value before conditioning on the balances (D3), shape `(n_y,)`."""
        return self.ledger["before"] - self.ledger["sensor"]

    @property
    def lost_share(self) -> Array:
        """Share of `before_var` that would come back if a balance alone were left out (D4), shape `(m, n_y)`."""
        return self.lost_without / self.before_var


def findings(
    model: ConstrainedBNNRegressor,
    X: Any,
    Y: Any,
    *,
    baseline: ConstrainedBNNRegressor | None = None,
    progress: bool = False,
) -> Findings:
    """Compute all numbers of a report on a fitted model; nothing on balances if its predictions do not use them.

    Args:
        model: A fitted model.
        X: Inputs and known columns, as for `predict`, shape `(n, n_columns)`.
        Y: Measured outputs, NaN where not measured, shape `(n, n_y)`, in the user's units. Rows that the model was not
            trained on give honest scores; those it was trained on flatter it.
        baseline: A model of the same outputs fitted without balances, for comparison.
        progress: Whether to show a progress bar.
    Returns: The findings, for `report`.
    Raises: InputError if Y does not fit to X or holds text, or if the baseline predicts other outputs.
    Example:
        >>> x = np.linspace(-1, 1, 64)[:, None]
        >>> model = ConstrainedBNNRegressor(hidden=(8,), max_epochs=20, n_draws=8, random_state=0).fit(x, x**2)
        >>> findings(model, x, x**2)
        Findings(64 of 64 rows; y0)
    """
    p = _predict_measured(model, X)
    p_baseline = None if baseline is None else _predict_with_baseline(baseline, X, p)
    Y = _measured_values(p, Y)
    steps = _steps(p, Y, p_baseline)
    parts = {name: step() for name, step in tqdm(steps.items(), desc="findings", unit="part", disable=not progress)}
    n_inputs, beyond = len(model.standardizer_.x_mean), model.standardizer_.beyond(np.asarray(p.X, dtype=float))
    return Findings(
        n_rows=len(Y),
        n_scored=min(len(Y), SCORED_ROWS),
        n_decomposed=min(len(Y), DECOMPOSED_ROWS),
        inputs=input_names(model)[:n_inputs],
        known=input_names(model)[n_inputs:],
        **parts.pop("ledger"),
        **parts,
        tolerances=balance_tolerances(model),
        sensors=sensor_noise(model),
        history=getattr(model, "history_", History()),
        seed=model.seed_,
        settings=_settings(model),
        versions=_versions(),
        n_extrapolated=int(beyond.any(axis=1).sum()),
        extrapolated_inputs=tuple(input_names(model)[j] for j in np.flatnonzero(beyond.any(axis=0))),
    )


def _steps(p: Predictive, Y: Array, p_baseline: Predictive | None) -> dict[str, Callable[[], Any]]:
    """Return the computations that take time, by the field of `Findings` that each of them fills."""
    many, few = thinned_rows(len(Y), SCORED_ROWS), thinned_rows(len(Y), DECOMPOSED_ROWS)
    p_many, p_few = select_rows(p, many), select_rows(p, few)
    baseline_many, baseline_few = (
        None if p_baseline is None else select_rows(p_baseline, rows) for rows in (many, few)
    )
    return {
        "scores": lambda: score_outputs(p_many, Y[many], baseline_many),
        "calibration": lambda: calibration(p_many, Y[many]),
        "outliers": lambda: _with_table_rows(outliers(p_many, Y[many]), many),
        "plotted": lambda: plotted_rows(p, Y),
        "ledger": lambda: _average_ledger(p_few.ledger(baseline_few)),
        "residuals": lambda: balance_residuals(
            _without_sensor_noise(p_few), Y[few], None if baseline_few is None else _without_sensor_noise(baseline_few)
        ),
    }


# --- Data -------------------------------------------------------------------------------------------------------------


def _predict_measured(model: ConstrainedBNNRegressor, X: Any) -> Predictive:
    """Predict the distribution of measured values; sensor noise given per training row enters by its average."""
    p = dataclasses.replace(model.predict_distribution(X), wrap=np.asarray)
    return p.measured(model.sensor_std_["std"].to_numpy() if p.sensors_per_row else None)


def _predict_with_baseline(baseline: ConstrainedBNNRegressor, X: Any, p: Predictive) -> Predictive:
    if baseline.output_names_ != p.outputs:
        raise InputError(
            f"baseline must predict the same outputs, {quoted_list(p.outputs)}, in this order, but got "
            f"{quoted_list(baseline.output_names_)}. Fit it on the same table."
        )
    return _predict_measured(baseline, frames.select(X, tuple(getattr(baseline, "feature_names_in_", ())), "X"))


def _without_sensor_noise(p: Predictive) -> Predictive:
    return dataclasses.replace(p, sensor_var=None)


def _measured_values(p: Predictive, Y: Any) -> Array:
    chosen = frames.select(Y, p.outputs, "Y")
    try:
        values = np.asarray(chosen, dtype=float)
    except (TypeError, ValueError) as error:
        got = _text_in(chosen, p.outputs)
        raise InputError(f"Y must hold numbers, NaN where not measured, but got {got}. Correct it.") from error
    values = values.reshape(-1, 1) if values.ndim == 1 and len(p.outputs) == 1 else values
    if values.shape != (expected := (len(p.X), len(p.outputs))):
        got = f"shape {values.shape}"
        raise InputError(f"Y must have shape {expected}, a row of outputs for each of X, but got {got}. Give both.")
    for i, j in np.argwhere(np.isinf(values))[:1]:
        where = f"{values[i, j]} in column {p.outputs[j]!r}, row {i}"
        raise InputError(f"Y must hold finite numbers, NaN where not measured, but got {where}. Correct it.")
    return values


def _text_in(data: Any, names: tuple[str, ...]) -> str:
    """Describe the first entry of a table of outputs that is not a number, for a message.

    Args:
        data: The table, shape `(n, n_y)`, or one output, shape `(n,)`.
        names: Names of the outputs.
    Returns: The entry with its column and row, such as "'off' in column 'V', row 3"; the shortened table where all
        entries are numbers.
    """
    for position, value in np.ndenumerate(np.asarray(data, dtype=object)):
        try:
            float("nan" if value is None else value)
        except (TypeError, ValueError):
            return f"{value!r} in column {names[position[-1] if len(position) == 2 else 0]!r}, row {position[0]}"
    return reprlib.repr(data)


def thinned_rows(n: int, most: int) -> NDArray[np.intp]:
    """Pick at most `most` of `n` rows at random, always the same ones, and return their positions in order.

    Args:
        n: Number of rows.
        most: Largest number of rows to pick.
    Example:
        >>> thinned_rows(5, 10), len(thinned_rows(1000, 10))
        (array([0, 1, 2, 3, 4]), 10)
    """
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(n).choice(n, most, replace=False))


def _with_table_rows(outliers: Outliers, rows: NDArray[np.intp]) -> Outliers:
    """Convert positions among the scored rows to positions in the table."""
    worst = tuple(dataclasses.replace(outlier, row=int(rows[outlier.row])) for outlier in outliers.worst)
    return dataclasses.replace(outliers, worst=worst)


def input_names(model: ConstrainedBNNRegressor) -> tuple[str, ...]:
    """Return the names of the columns of X that a fitted model expects: inputs, then known columns."""
    if model.constraint_ is not None:
        return model.constraint_.columns
    numbered = [f"x{j}" for j in range(len(model.standardizer_.x_mean))]
    return tuple(map(str, getattr(model, "feature_names_in_", numbered)))


# --- What was learned, and how ----------------------------------------------------------------------------------------


def _average_ledger(ledger: Ledger) -> dict[str, Any]:
    terms = {
        str(name): column.to_numpy() for name, column in ledger.to_frame().items() if "lost without" not in str(name)
    }
    return {"ledger": terms, "lost_without": ledger.lost_without.mean(1)}


def _settings(model: ConstrainedBNNRegressor) -> dict[str, str]:
    """Collect the model's parameters and those of its training plan, as text by name."""
    settings = {
        name: value for name, value in model.get_params(deep=False).items() if name not in UNREPORTED_PARAMETERS
    }
    settings |= {f"training: {name}": value for name, value in dataclasses.asdict(model.plan_).items()}
    return {name: value if isinstance(value, str) else _shortened_repr(value) for name, value in settings.items()}


def _shortened_repr(value: Any, most: int = 400) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _versions() -> dict[str, str]:
    versions = {"Python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # a source tree that was never installed
            versions[package] = "unknown"
    return versions
