"""Tuning: search for the estimator's best hyperparameters by Optuna.

Each trial fits the estimator with suggested values. Its value is the negative log density per held-out row under the
mixture over weight draws, in standardized units, of the state that the fit kept; smaller is better.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import clone
from tqdm.auto import tqdm

from equipoise.app.tuning.fingerprint import fingerprint
from equipoise.app.tuning.journal_file import named_in_errors
from equipoise.app.tuning.optuna_study import JournalStudy, import_optuna, quiet
from equipoise.app.tuning.search_space import Space, check_first, check_space
from equipoise.app.tuning.trial_callback import TimeUpError, TrialCallback
from equipoise.errors import InputError, check_count
from equipoise.estimator import ConstrainedBNNRegressor
from equipoise.training import TrainingPlan

FIXED = {"constraint", "training", "random_state", "device", "checkpoint", "verbose"}  # parameters that cannot be tuned


@dataclass(frozen=True, eq=False)
class TuningResult:
    """The best parameters and all trials of a study so far.

    Attributes:
        parameters: The best values, by the names of the space.
        value: Negative log density per held-out row with these values, in standardized units.
        trials: One row per finished trial, best first: its state, value, epochs, seconds and parameters, and the
            reason why it failed. The value of a pruned trial is the last one that it reported.
        seconds: Total time of all finished trials.
        estimator: The estimator with the best values, not fitted.
    """

    parameters: dict[str, Any]
    value: float
    trials: pd.DataFrame
    seconds: float
    estimator: ConstrainedBNNRegressor


def tune(
    estimator: ConstrainedBNNRegressor,
    X: Any,
    Y: Any,
    space: Space,
    *,
    held_out: ArrayLike,
    n_trials: int,
    journal: str | os.PathLike,
    seed: int = 0,
    timeout: float | None = None,
    first: Sequence[Mapping[str, Any]] = (),
    verbose: bool = False,
) -> TuningResult:
    """Search a space of parameters for the best fit to held-out rows; continue the study if the journal has one.

    Ctrl-C and the time limit lose only the trial that is running: the next start proposes it again. All trials start
    from the same seed, which is the estimator's `random_state` if that is a number.

    Args:
        estimator: The estimator with the values of all parameters that are not in the space. It is not changed.
        X, Y: All rows, as for `fit`, in their own units, shape `(n, n_x)` and `(n, n_y)`.
        space: `Choice`, `Uniform` or `Whole` by name of a parameter of the estimator or of `TrainingPlan`.
        held_out: Positions of the rows by which trials are judged.
        n_trials: Number of trials after which the search ends; pruned and failed trials, and those of earlier starts
            and other processes, count.
        journal: File that keeps the study; that of another study is refused. Any number of processes may share it:
            start the same call in each. The order in which they finish trials then changes what is proposed.
        seed: Seed of all randomness.
        timeout: Seconds after which this call ends; None for no limit.
        first: Values to try before any others, by name, for each of the first trials; missing ones are suggested.
        verbose: Whether to show a progress bar.
    Returns: The best parameters and all trials.
    Raises: TuningError, if the journal cannot be used or no trial is complete; InputError, if arguments are wrong.
    """
    optuna = import_optuna()
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    estimator = _for_trials(estimator, seed)
    _check(estimator, space, first, held_out, n_trials)
    identity = fingerprint(estimator, X, Y, space, held_out)
    with quiet(optuna), named_in_errors(Path(journal)):
        study = JournalStudy(optuna, Path(journal), identity, space, seed)
        with tqdm(total=n_trials, initial=study.n_finished, desc="tune", unit="trial", disable=not verbose) as bar:
            while time.monotonic() < deadline and (proposal := study.ask(first, n_trials)) is not None:
                trial, parameters = proposal
                candidate = configured(estimator, parameters)
                callback = TrialCallback(
                    trial, candidate._plan(), deadline, show=lambda epoch: bar.set_postfix(study.standing(epoch))
                )
                try:
                    with study.recorded(trial, callback):
                        candidate.fit(X, Y, held_out=held_out, callback=callback)
                        callback.value = _kept_value(candidate)
                except TimeUpError:
                    break
                bar.set_postfix(study.standing(), refresh=False)
                bar.update(study.n_finished - bar.n)
        return _result(study, estimator)


def configured(estimator: ConstrainedBNNRegressor, parameters: Mapping[str, Any]) -> ConstrainedBNNRegressor:
    """Copy an estimator, not fitted, and set parameters of the copy and of its training plan.

    Args:
        estimator: The estimator; it is not changed.
        parameters: Values by name of a parameter of the estimator or of `TrainingPlan`.
    Returns: An estimator that is not fitted.
    Example:
        >>> configured(ConstrainedBNNRegressor(), {"hidden": (8,), "std_rate": 5.0}).training.std_rate
        5.0
    """
    known = set(estimator.get_params(deep=False))
    own = {name: value for name, value in parameters.items() if name in known}
    planned = {name: value for name, value in parameters.items() if name not in known}
    if planned:
        own["training"] = replace(estimator.training or TrainingPlan(), **planned)
    copy: Any = clone(estimator)
    return copy.set_params(**own)


def _for_trials(estimator: ConstrainedBNNRegressor, seed: int) -> ConstrainedBNNRegressor:
    """Copy the estimator for all trials: with the same seed, without a checkpoint and a progress bar."""
    random_state = estimator.random_state
    shared = int(random_state) if isinstance(random_state, Integral) else seed
    return configured(estimator, {"random_state": shared, "checkpoint": None, "verbose": False})


def _kept_value(fitted: ConstrainedBNNRegressor) -> float:
    """Return the negative log density per held-out row of the state that the fit kept."""
    history = fitted.history_
    comparable = [record for record in history.epochs if record["phase"] != "means"]
    kept = [record for record in comparable if record["epoch"] == history.best_epoch]
    return (kept or comparable)[-1]["validation"]


def _result(study: JournalStudy, estimator: ConstrainedBNNRegressor) -> TuningResult:
    (parameters, value), trials = study.best(), study.table()
    seconds = float(trials["seconds"].to_numpy().sum())
    return TuningResult(parameters, value, trials, seconds, configured(estimator, parameters))


def _check(
    estimator: ConstrainedBNNRegressor,
    space: Space,
    first: Sequence[Mapping[str, Any]],
    held_out: ArrayLike,
    n_trials: int,
) -> None:
    check_space(space, {*estimator.get_params(deep=False), *(field.name for field in fields(TrainingPlan))} - FIXED)
    check_first(first, space)
    if np.size(np.asarray(held_out)) == 0:
        raise InputError("held_out must name rows to judge trials by, but got none.")
    check_count("n_trials", n_trials)
