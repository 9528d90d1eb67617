"""Optuna's study in a journal file, which keeps every trial.

A search therefore continues where it stopped, and several processes, on all machines that see the file, share it.
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from equipoise.app.tuning.journal_file import TuningError, storage_in
from equipoise.app.tuning.search_space import Space
from equipoise.app.tuning.trial_callback import PrunedError, TrialCallback
from equipoise.errors import MissingPackageError
from equipoise.network import derived_seed
from equipoise.training import TrainingError

MISSING = "Tuning needs Optuna, but it is not installed. Run: pip install 'equipoise[tune]'."
STUDY = "equipoise"
COMPLETE_BEFORE_PRUNING = 5  # trials
CLAIM_SECONDS = 10.0  # a process that has not written its name to a trial by then never will
STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}  # in the order of the table

Optuna = OptunaStudy = Trial = Any  # Optuna is imported when it is needed


class JournalStudy:
    """An Optuna study whose trials are kept in a journal file.

    Args:
        optuna: The module.
        journal: The file; it is created if there is none.
        fingerprint: Fingerprint of the study; the journal of another study is refused.
        space: The search space.
        seed: Seed of all suggestions.
    """

    def __init__(self, optuna: Optuna, journal: Path, fingerprint: str, space: Space, seed: int):
        self.optuna, self.journal, self.space, self.seed = optuna, journal, space, seed
        self.study = _open_study(optuna, journal, fingerprint)

    @property
    def finished(self) -> list:
        """Trials that are complete, pruned or failed; interrupted ones do not count."""
        return [t for t in self.study.get_trials(deepcopy=False) if t.state.is_finished() and not _interrupted(t)]

    @property
    def n_finished(self) -> int:
        """Number of trials that are complete, pruned or failed."""
        return len(self.finished)

    @property
    def begun(self) -> list:
        """Trials that are finished, or running in this or another process."""
        self._withdraw_orphans()
        return self.finished + self._in_state("RUNNING")

    def ask(self, first: Sequence[Mapping[str, Any]], n_trials: int) -> tuple[Trial, dict[str, Any]] | None:
        """Start the next trial; return it with the values of its parameters, or None if enough trials are begun.

        The values of `first` are tried first, then the sampler suggests values. In one process they depend only on the
        seed and the trials finished so far: a study that was interrupted proposes the same values as one that was not.

        Args:
            first: Values by name of the parameter, for each of the first trials.
            n_trials: Number of trials in the journal after which none is started.
        """
        while len(self.begun) < n_trials:
            self._enqueue_next(first)
            trial = self.study.ask()
            trial.set_user_attr("process", _this_process())
            earlier = [other for other in self.begun if other.number < trial.number]
            if len(earlier) < n_trials and not _is_repeated(trial, earlier):
                self._suggest(trial, len(earlier))
                return trial, self._decoded(trial)
            self._withdraw(trial.number)  # another process was faster
        return None

    def _suggest(self, trial: Trial, n_earlier: int) -> None:
        seed = derived_seed(self.seed, n_earlier) % 2**32
        self.study.sampler = self.optuna.samplers.TPESampler(seed=seed, constant_liar=True)  # away from others' trials
        for name, values in self.space.items():
            values.suggest(trial, name)

    def _withdraw_orphans(self) -> None:
        """Mark running trials whose process was killed as interrupted; processes of other machines may be alive."""
        for trial in self._in_state("RUNNING"):
            if _is_orphan(trial):
                self._withdraw(trial.number)

    def _withdraw(self, number: int) -> None:
        self.study.tell(number, state=self.optuna.trial.TrialState.FAIL, skip_if_finished=True)

    def _enqueue_next(self, first: Sequence[Mapping[str, Any]]) -> None:
        if self._in_state("WAITING"):
            return
        tried = {trial.user_attrs.get("first") for trial in self.begun}
        for parameters in first:
            encoded = {name: self.space[name].encode(value) for name, value in parameters.items()}
            key = json.dumps(encoded, sort_keys=True)
            if key not in tried:
                self.study.enqueue_trial(encoded, user_attrs={"first": key})
                return

    @contextmanager
    def recorded(self, trial: Trial, callback: TrialCallback) -> Iterator[None]:
        """Record in the journal how a trial ended: complete, pruned, failed or interrupted.

        Args:
            trial: Optuna's trial.
            callback: Its callback, with the number of epochs and, at the end, the value of the trial.
        """
        state, notes = self.optuna.trial.TrialState, {}
        ended = {"state": state.FAIL}
        try:
            yield
            if not math.isfinite(callback.value):
                raise TrainingError(f"What it is judged by is {callback.value}.")
            ended = {"values": callback.value}
        except PrunedError:
            ended = {"state": state.PRUNED}
        except TrainingError as error:
            notes = {"reason": str(error)}
        finally:
            for name, value in {"epochs": callback.epochs, **notes}.items():
                trial.set_user_attr(name, value)
            self.study.tell(trial, **ended)

    def standing(self, epoch: int | None = None) -> dict[str, str]:
        """Return the entries of the progress bar: the best value and, if it is given, the epoch."""
        values = [trial.value for trial in self._complete]
        best = {"best": f"{min(values):.4g}"} if values else {}
        return best if epoch is None else best | {"epoch": str(epoch)}

    def best(self) -> tuple[dict[str, Any], float]:
        """Return the parameters of the best trial and its value.

        Raises: TuningError, if no trial is complete.
        """
        if not self._complete:
            raise TuningError(
                f"A study must complete one trial at least, but got {self.n_finished} finished ones in "
                f"'{self.journal}', none of them complete. Allow more trials or time, or widen the space."
            )
        trial = min(self._complete, key=lambda trial: trial.value)
        return self._decoded(trial), trial.value

    def table(self) -> pd.DataFrame:
        """Return the finished trials as a table, one row each, best first."""
        rows = [
            {
                "trial": trial.number,
                "state": STATES[trial.state.name],
                "value": math.nan if trial.value is None else trial.value,
                "epochs": trial.user_attrs["epochs"],
                "seconds": trial.duration.total_seconds(),
                **self._decoded(trial),
                "reason": trial.user_attrs.get("reason", ""),
            }
            for trial in self.finished
        ]
        ranks = {state: rank for rank, state in enumerate(STATES.values())}
        rows.sort(key=lambda row: (ranks[row["state"]], row["value"]))
        return pd.DataFrame(rows).set_index("trial")

    @property
    def _complete(self) -> list:
        return self._in_state("COMPLETE")

    def _in_state(self, state: str) -> list:
        return self.study.get_trials(deepcopy=False, states=(self.optuna.trial.TrialState[state],))

    def _decoded(self, trial: Trial) -> dict[str, Any]:
        return {name: values.decode(trial.params[name]) for name, values in self.space.items()}


@contextmanager
def quiet(optuna: Optuna) -> Iterator[None]:
    """Suppress Optuna's messages about every step; restore its log level afterwards."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)


def import_optuna() -> Optuna:
    """Return the module Optuna; raise MissingPackageError, which says how to install it, if it is missing."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise MissingPackageError(MISSING) from None
    return optuna


def _open_study(optuna: Optuna, journal: Path, fingerprint: str) -> OptunaStudy:
    """Load the study in the journal, or create it if there is none; raise TuningError if it is another study."""
    try:
        storage = storage_in(optuna, journal)
        names = optuna.get_all_study_names(storage)
    except (ValueError, TypeError, LookupError) as error:
        message = f"'{journal}' is not a readable journal ({type(error).__name__}). Delete it, or give another name."
        raise TuningError(message) from error
    pruner = optuna.pruners.MedianPruner(n_startup_trials=COMPLETE_BEFORE_PRUNING)
    if not names:
        with suppress(optuna.exceptions.DuplicatedStudyError):  # another process just began it
            optuna.create_study(storage=storage, study_name=STUDY).set_user_attr("fingerprint", fingerprint)
    if set(names) <= {STUDY}:
        study = optuna.load_study(storage=storage, study_name=STUDY, pruner=pruner)
        if _fingerprint_in(study) == fingerprint:
            return study
    raise TuningError(
        f"The journal '{journal}' belongs to another study (other data, space or estimator). "
        "Delete it, or give another file name."
    )


def _fingerprint_in(study: OptunaStudy) -> str | None:
    """Return the fingerprint of a study; wait up to 5 seconds for it, as another process may just create the study."""
    deadline = time.monotonic() + 5.0
    while (fingerprint := study.user_attrs.get("fingerprint")) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return fingerprint


def _this_process() -> str:
    return f"{os.getpid()}@{platform.node()}"


def _is_orphan(trial: Trial) -> bool:
    """Return whether the process of a running trial has ended, or has not written its name to the trial in time."""
    process = trial.user_attrs.get("process")
    if process is None:
        return (datetime.now() - trial.datetime_start).total_seconds() > CLAIM_SECONDS
    return _is_gone(process)


def _is_gone(process: str) -> bool:
    """Return whether a process of this machine has ended; False for other machines, of which nothing is known.

    Example:
        >>> _is_gone(_this_process()), _is_gone("1@elsewhere")
        (False, False)
    """
    pid, _, machine = process.partition("@")
    if machine != platform.node() or os.name != "posix":
        return False
    try:
        os.kill(int(pid), 0)  # signal 0 only checks that the process exists
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _is_repeated(trial: Trial, earlier: Sequence) -> bool:
    """Return whether an earlier trial, of another process, has the same of the values that are tried first."""
    key = trial.user_attrs.get("first")
    return key is not None and any(other.user_attrs.get("first") == key for other in earlier)


def _interrupted(trial: Trial) -> bool:
    """Return whether a trial was interrupted: its state is failed, but without a reason."""
    return trial.state.name == "FAIL" and "reason" not in trial.user_attrs
