"""The study in a journal file: every trial is kept, so that a search goes on where it stopped, and so that several
processes, on several machines that see the file, work on it together.
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
from equipoise.app.tuning.trial_callback import PrunedError, Watch
from equipoise.errors import MissingPackageError
from equipoise.network import derived_seed
from equipoise.training import TrainingError

MISSING = "Tuning needs Optuna, but it is not installed. Run: pip install 'equipoise[tune]'."
STUDY = "equipoise"
COMPLETE_BEFORE_PRUNING = 5  # trials
NAMELESS = 10.0  # seconds after which a process has said that a trial is its own, or never will
STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}  # in the order of the table

Optuna = OptunaStudy = Trial = Any  # Optuna is imported when it is needed


class JournalStudy:
    """The trials in a journal.

    Args:
        optuna: The module.
        journal: The file; begun if there is none.
        fingerprint: Of the study; the journal of another one is refused.
        space: What is varied.
        seed: All that is suggested follows from it.
    """

    def __init__(self, optuna: Optuna, journal: Path, fingerprint: str, space: Space, seed: int):
        self.optuna, self.journal, self.space, self.seed = optuna, journal, space, seed
        self.study = _opened(optuna, journal, fingerprint)

    @property
    def finished(self) -> list:
        """Trials that ended by themselves, whichever way."""
        return [t for t in self.study.get_trials(deepcopy=False) if t.state.is_finished() and not _interrupted(t)]

    @property
    def n_finished(self) -> int:
        return len(self.finished)

    @property
    def begun(self) -> list:
        """Trials that are finished, or under way in this or another process."""
        self._give_up_orphans()
        return self.finished + self._in_state("RUNNING")

    def ask(self, first: Sequence[Mapping[str, Any]], n_trials: int) -> tuple[Trial, dict[str, Any]] | None:
        """The next trial and its values, those of `first` that were not tried yet, then the sampler's; None if enough
        are begun.

        In one process they depend on the seed and the trials finished so far alone: a study that was cut short
        proposes what it would have proposed anyway.
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

    def _give_up_orphans(self) -> None:
        """Trials under way whose process was killed are as good as interrupted; those of other machines may live."""
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
    def judged(self, trial: Trial, watch: Watch) -> Iterator[None]:
        """Write down how the trial ended."""
        state, notes = self.optuna.trial.TrialState, {}
        ended = {"state": state.FAIL}
        try:
            yield
            if not math.isfinite(watch.value):
                raise TrainingError(f"What it is judged by is {watch.value}.")
            ended = {"values": watch.value}
        except PrunedError:
            ended = {"state": state.PRUNED}
        except TrainingError as error:
            notes = {"reason": str(error)}
        finally:
            for name, value in {"epochs": watch.epochs, **notes}.items():
                trial.set_user_attr(name, value)
            self.study.tell(trial, **ended)

    def standing(self, epoch: int | None = None) -> dict[str, str]:
        """What the progress bar says."""
        values = [trial.value for trial in self._complete]
        best = {"best": f"{min(values):.4g}"} if values else {}
        return best if epoch is None else best | {"epoch": str(epoch)}

    def best(self) -> tuple[dict[str, Any], float]:
        """The parameters of the best trial, and what it was worth."""
        if not self._complete:
            raise TuningError(
                f"A study must complete one trial at least, but got {self.n_finished} finished ones in "
                f"'{self.journal}', none of them complete. Allow more trials or time, or widen the space."
            )
        trial = min(self._complete, key=lambda trial: trial.value)
        return self._decoded(trial), trial.value

    def table(self) -> pd.DataFrame:
        """One row per finished trial, best first."""
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
    """Without Optuna's messages about every step; its level is the caller's again afterwards."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)


def import_optuna() -> Optuna:
    """Optuna, or an error that says how to install it."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise MissingPackageError(MISSING) from None
    return optuna


def _opened(optuna: Optuna, journal: Path, fingerprint: str) -> OptunaStudy:
    """The study in the journal, begun if there is none."""
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
    """That of a study; of one that another process is just beginning, a moment later."""
    deadline = time.monotonic() + 5.0
    while (found := study.user_attrs.get("fingerprint")) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _this_process() -> str:
    return f"{os.getpid()}@{platform.node()}"


def _is_orphan(trial: Trial) -> bool:
    """Whether the process of a trial is gone; one that did not come to say who it is had a moment for it."""
    process = trial.user_attrs.get("process")
    if process is None:
        return (datetime.now() - trial.datetime_start).total_seconds() > NAMELESS
    return _is_gone(process)


def _is_gone(process: str) -> bool:
    """Whether a process of this machine has ended; of other machines nothing is known.

    Example:
        >>> _is_gone(_this_process()), _is_gone("1@elsewhere")
        (False, False)
    """
    pid, _, machine = process.partition("@")
    if machine != platform.node() or os.name != "posix":
        return False
    try:
        os.kill(int(pid), 0)  # asks, and does nothing
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _is_repeated(trial: Trial, earlier: Sequence) -> bool:
    """Whether another process was given the same of the values that are tried first."""
    key = trial.user_attrs.get("first")
    return key is not None and any(other.user_attrs.get("first") == key for other in earlier)


def _interrupted(trial: Trial) -> bool:
    """Whether a trial has no end of its own: it was given up, without a reason for a failure."""
    return trial.state.name == "FAIL" and "reason" not in trial.user_attrs
