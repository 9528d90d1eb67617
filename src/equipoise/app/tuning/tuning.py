"""Tuning: Optuna around the estimator.

Each trial fits the estimator with suggested values; what it is judged by is the negative log density per held-out row
under the mixture over weight draws, in standardized units, of the state that the fit kept.
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
from equipoise.app.tuning.journal_file import kept_in
from equipoise.app.tuning.optuna_study import JournalStudy, import_optuna, quiet
from equipoise.app.tuning.search_space import Space, check_first, check_space
from equipoise.app.tuning.trial_callback import TimeUpError, Watch
from equipoise.errors import InputError, check_count
from equipoise.estimator import ConstrainedBNNRegressor
from equipoise.training import TrainingPlan

FIXED = {"constraint", "training", "random_state", "device", "checkpoint", "verbose"}  # nothing to be tuned


@dataclass(frozen=True, eq=False)
class TuningResult:
    """What a study has found so far.

    Attributes:
        parameters: The best values, by the names of the space.
        value: Their negative log density per held-out row, in standardized units.
        trials: One row per finished trial, best first: its state, value, epochs, seconds and parameters, and the
            reason why it failed. The value of a pruned trial is the last one that it reported.
        seconds: Time that all finished trials took together.
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
    """Search a space of parameters for the best fit to held-out rows; a study in the journal is continued.

    Ctrl-C and the time limit lose the trial that is under way, and nothing else: the next start proposes it again. All
    trials start from the same seed, which is the estimator's `random_state` if that is a number.

    Args:
        estimator: Has the values of all parameters that are not in the space. It is not changed.
        X, Y: All rows, as for `fit`.
        space: What to vary, by name of a parameter of the estimator or of `TrainingPlan`.
        held_out: Positions of the rows that trials are judged by.
        n_trials: Trials in the journal, pruned and failed ones and those of earlier starts and other processes
            included, at which no other one is begun.
        journal: File that keeps the study; one of another study is refused. Any number of processes may work on it:
            start the same call in each. They share the trials; what is proposed then depends on who is done first.
        seed: All randomness follows from it.
        timeout: Seconds after which this call ends, None for no limit.
        first: Values to try before any others; what they leave out is suggested.
        verbose: Show a progress bar.
    """
    optuna = import_optuna()
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    estimator = _for_trials(estimator, seed)
    _check(estimator, space, first, held_out, n_trials)
    identity = fingerprint(estimator, X, Y, space, held_out)
    with quiet(optuna), kept_in(Path(journal)):
        study = JournalStudy(optuna, Path(journal), identity, space, seed)
        with tqdm(total=n_trials, initial=study.n_finished, desc="tune", unit="trial", disable=not verbose) as bar:
            while time.monotonic() < deadline and (asked := study.ask(first, n_trials)) is not None:
                trial, parameters = asked
                candidate = configured(estimator, parameters)
                watch = Watch(trial, candidate._plan(), deadline, lambda epoch: bar.set_postfix(study.standing(epoch)))
                try:
                    with study.judged(trial, watch):
                        candidate.fit(X, Y, held_out=held_out, callback=watch)
                        watch.value = _kept_value(candidate)
                except TimeUpError:
                    break
                bar.set_postfix(study.standing(), refresh=False)
                bar.update(study.n_finished - bar.n)
        return _result(study, estimator)


def configured(estimator: ConstrainedBNNRegressor, parameters: Mapping[str, Any]) -> ConstrainedBNNRegressor:
    """The estimator, not fitted, with these values of its own parameters and of its training plan.

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
    """A copy that every trial starts from: one seed for all, no checkpoint and no bar of its own."""
    given = estimator.random_state
    shared = int(given) if isinstance(given, Integral) else seed
    return configured(estimator, {"random_state": shared, "checkpoint": None, "verbose": False})


def _kept_value(fitted: ConstrainedBNNRegressor) -> float:
    """Negative log density per held-out row of the state that the fit kept."""
    history = fitted.history_
    judged = [record for record in history.epochs if record["phase"] != "means"]
    kept = [record for record in judged if record["epoch"] == history.best_epoch]
    return (kept or judged)[-1]["validation"]


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
