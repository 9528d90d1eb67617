"""Findings: every number of a report on a fitted model, computed once from the model and a table of rows.

Large tables are thinned, always to the same rows: scores are of `SCORED_ROWS` at most, decompositions and balances of
`DECOMPOSED_ROWS`, pictures of fewer still, and `Findings` says of how many. Words and pictures come later.
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

from equipoise.app.report.closure import Closure, closures
from equipoise.app.report.confidence import Sensor, Trust, sensors_of, trust_of
from equipoise.app.report.scores import (
    Calibration,
    Outliers,
    Pictured,
    Score,
    at_rows,
    calibration,
    outliers,
    pictured,
    scores,
)
from equipoise.balances import quoted_list
from equipoise.data import frames
from equipoise.errors import InputError
from equipoise.estimator import ConstrainedBNNRegressor
from equipoise.prediction import Ledger, Predictive
from equipoise.training import History

Array = NDArray[np.float64]
SCORED_ROWS = 20_000
DECOMPOSED_ROWS = 2_000
UNSAID = {
    "checkpoint",
    "constraint",
    "device",
    "max_epochs",
    "training",
    "verbose",
}  # change no number, or told elsewhere
PACKAGES = ("equipoise", "torch", "numpy", "scipy", "scikit-learn")


@dataclass(frozen=True, eq=False, repr=False)
class Findings:
    """What was found, in the user's units; what was measured is compared with `p.measured()`.

    Args:
        n_rows, n_scored, n_decomposed: Rows of the table, and how many of them scores and decompositions are of.
        inputs, known: Names of the network's inputs, and of columns that only enter balances.
        scores, calibration, pictured, outliers: Of the outputs, in their order.
        closures, trust: How far each balance is missed, and how far it can be trusted.
        sensors: Of each output.
        ledger: Variance terms of measured values by name, averaged over rows, as in `Ledger.to_frame`: shape `(n_y,)`.
        lost_without: By balance, the reduction lost if it alone were left out (D4), shape `(m, n_y)`.
        history: Of the training.
        seed, settings, versions: What it takes to do it again.
        n_beyond, beyond: How many rows have inputs beyond those trained on, and which inputs these are.
    """

    n_rows: int
    n_scored: int
    n_decomposed: int
    inputs: tuple[str, ...]
    known: tuple[str, ...]
    scores: tuple[Score, ...]
    calibration: Calibration
    pictured: Pictured
    outliers: Outliers
    closures: tuple[Closure, ...]
    trust: tuple[Trust, ...]
    sensors: tuple[Sensor, ...]
    ledger: Mapping[str, Array]
    lost_without: Array
    history: History
    seed: int
    settings: Mapping[str, str]
    versions: Mapping[str, str]
    n_beyond: int = 0
    beyond: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Findings({self.n_scored} of {self.n_rows} rows; {', '.join(self.outputs)})"

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return tuple(score.output for score in self.scores)

    @property
    def balances(self) -> tuple[str, ...]:
        """Names of the balances."""
        return tuple(closure.balance for closure in self.closures)

    @property
    def true_var(self) -> Array:
        """Predictive variance of the true value of each output, averaged over rows, shape `(n_y,)`."""
        return np.maximum(self.ledger["total"] - self.ledger["sensor"], 0.0)  # terms that cancel leave rounding

    @property
    def before_var(self) -> Array:
        """The same before conditioning on the balances (D3)."""
        return self.ledger["before"] - self.ledger["sensor"]

    @property
    def bought(self) -> Array:
        """What each balance alone takes away of the variance before conditioning, as a share, shape `(m, n_y)` (D4)."""
        return self.lost_without / self.before_var


def findings(
    model: ConstrainedBNNRegressor,
    X: Any,
    Y: Any,
    *,
    baseline: ConstrainedBNNRegressor | None = None,
    progress: bool = False,
) -> Findings:
    """Everything that a report on a fitted model needs.

    Args:
        model: Fitted.
        X: Inputs and known columns, as for `predict`.
        Y: What was measured, NaN where nothing was; rows that were not trained on say more than others.
        baseline: A model of the same outputs fitted without balances, to be put beside.
        progress: Show a progress bar.

    Example:
        >>> x = np.linspace(-1, 1, 64)[:, None]
        >>> model = ConstrainedBNNRegressor(hidden=(8,), max_epochs=20, n_draws=8, random_state=0).fit(x, x**2)
        >>> findings(model, x, x**2)
        Findings(64 of 64 rows; y0)
    """
    p = _predicted(model, X)
    beside = None if baseline is None else _beside(baseline, X, p)
    Y = _measured_values(p, Y)
    steps = _steps(p, Y, beside)
    parts = {name: step() for name, step in tqdm(steps.items(), desc="findings", unit="part", disable=not progress)}
    n_inputs, beyond = len(model.standardizer_.x_mean), model.standardizer_.beyond(np.asarray(p.X, dtype=float))
    return Findings(
        n_rows=len(Y),
        n_scored=min(len(Y), SCORED_ROWS),
        n_decomposed=min(len(Y), DECOMPOSED_ROWS),
        inputs=input_names(model)[:n_inputs],
        known=input_names(model)[n_inputs:],
        **parts.pop("account"),
        **parts,
        trust=trust_of(model),
        sensors=sensors_of(model),
        history=getattr(model, "history_", History()),
        seed=model.seed_,
        settings=_settings(model),
        versions=_versions(),
        n_beyond=int(beyond.any(axis=1).sum()),
        beyond=tuple(input_names(model)[j] for j in np.flatnonzero(beyond.any(axis=0))),
    )


def _steps(p: Predictive, Y: Array, beside: Predictive | None) -> dict[str, Callable[[], Any]]:
    """What takes time, by the name of the part it makes."""
    many, few = some_rows(len(Y), SCORED_ROWS), some_rows(len(Y), DECOMPOSED_ROWS)
    p_many, p_few = at_rows(p, many), at_rows(p, few)
    other_many, other_few = (None if beside is None else at_rows(beside, rows) for rows in (many, few))
    return {
        "scores": lambda: scores(p_many, Y[many], other_many),
        "calibration": lambda: calibration(p_many, Y[many]),
        "outliers": lambda: _placed(outliers(p_many, Y[many]), many),
        "pictured": lambda: pictured(p, Y),
        "account": lambda: _account(p_few.ledger(other_few)),
        "closures": lambda: closures(_true(p_few), Y[few], None if other_few is None else _true(other_few)),
    }


# --- Data -------------------------------------------------------------------------------------------------------------


def _predicted(model: ConstrainedBNNRegressor, X: Any) -> Predictive:
    """The distribution of what the sensors show; sensors that differed per training row are taken at their average."""
    p = dataclasses.replace(model.predict_distribution(X), wrap=np.asarray)
    return p.measured(model.sensor_std_["std"].to_numpy() if p.sensors_per_row else None)


def _beside(baseline: ConstrainedBNNRegressor, X: Any, p: Predictive) -> Predictive:
    if baseline.output_names_ != p.outputs:
        raise InputError(
            f"baseline must predict the same outputs, {quoted_list(p.outputs)}, in this order, but got "
            f"{quoted_list(baseline.output_names_)}. Fit it on the same table."
        )
    return _predicted(baseline, frames.select(X, tuple(getattr(baseline, "feature_names_in_", ())), "X"))


def _true(p: Predictive) -> Predictive:
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
    """The first entry that is no number, with its column and row."""
    for place, value in np.ndenumerate(np.asarray(data, dtype=object)):
        try:
            float("nan" if value is None else value)
        except (TypeError, ValueError):
            return f"{value!r} in column {names[place[-1] if len(place) == 2 else 0]!r}, row {place[0]}"
    return reprlib.repr(data)


def some_rows(n: int, most: int) -> NDArray[np.intp]:
    """Positions of at most `most` of `n` rows, in their order: picked at random, but always the same.

    Example:
        >>> some_rows(5, 10), len(some_rows(1000, 10))
        (array([0, 1, 2, 3, 4]), 10)
    """
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(n).choice(n, most, replace=False))


def _placed(found: Outliers, rows: NDArray[np.intp]) -> Outliers:
    """Positions among the scored rows become positions in the table."""
    worst = tuple(dataclasses.replace(outlier, row=int(rows[outlier.row])) for outlier in found.worst)
    return dataclasses.replace(found, worst=worst)


def input_names(model: ConstrainedBNNRegressor) -> tuple[str, ...]:
    """Names of the columns of X: inputs, then known columns."""
    if model.constraint_ is not None:
        return model.constraint_.columns
    made_up = [f"x{j}" for j in range(len(model.standardizer_.x_mean))]
    return tuple(map(str, getattr(model, "feature_names_in_", made_up)))


# --- What was learned, and how ----------------------------------------------------------------------------------------


def _account(ledger: Ledger) -> dict[str, Any]:
    terms = {
        str(name): column.to_numpy() for name, column in ledger.to_frame().items() if "lost without" not in str(name)
    }
    return {"ledger": terms, "lost_without": ledger.lost_without.mean(1)}


def _settings(model: ConstrainedBNNRegressor) -> dict[str, str]:
    """Parameters, and the plan that was followed, of which some numbers may come from elsewhere."""
    said = {name: value for name, value in model.get_params(deep=False).items() if name not in UNSAID}
    said |= {f"training: {name}": value for name, value in dataclasses.asdict(model.plan_).items()}
    return {name: value if isinstance(value, str) else _in_words(value) for name, value in said.items()}


def _in_words(value: Any, most: int = 400) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # a source tree that was never installed
            found[package] = "unknown"
    return found
