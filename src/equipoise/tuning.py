"""Tuning: Optuna around the estimator. A journal file keeps every trial, so that a study goes on where it stopped, and
so that several processes, on several machines that see the file, work on it together.

Each trial fits the estimator with suggested values; what it is judged by is the expected negative log-likelihood per
held-out row, in standardized units, of the state that the fit kept. A trial that does worse than the median of those
before it is given up, but only in the last third of the ELBO phase. Training's first phase measures another quantity;
the warm-up of the KL would favour trials that prolong it; and after that small learning rates look better than they
are, because the others gain most as their rate falls.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import clone
from tqdm.auto import tqdm

from equipoise import frames
from equipoise.checkpoint import TrainingError
from equipoise.constraints import LinearConstraint
from equipoise.equations import did_you_mean
from equipoise.estimator import ConstrainedBNNRegressor
from equipoise.model import derived_seed
from equipoise.training import TrainingPlan

MISSING = "Tuning needs Optuna, but it is not installed. Run: pip install 'equipoise[tune]'."
STUDY = "equipoise"
REPORT_EVERY = 10  # epochs
COMPLETE_BEFORE_PRUNING = 5  # trials
PRUNE_AFTER = 2 / 3  # of the ELBO phase
STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}  # in the order of the table
FIXED = {"constraint", "training", "random_state", "device", "checkpoint", "verbose"}  # nothing to be tuned

Optuna = Study = Trial = Any  # Optuna is imported when it is needed


class TuningError(RuntimeError):
    """A study that cannot be run or continued, and why."""


@dataclass(frozen=True)
class Choice:
    """One of several values, without an order.

    Example:
        >>> Choice([(64, 64), (32, 32, 32)]).labels
        ('(64, 64)', '(32, 32, 32)')
    """

    options: Sequence[Any]

    def __post_init__(self):
        object.__setattr__(self, "options", tuple(self.options))
        if not self.options or len(set(self.labels)) < len(self.options):
            raise ValueError(f"Choice must have options that all differ, but got {list(self.options)!r}.")

    @property
    def labels(self) -> tuple:
        """The options as a journal can hold them: whatever is not a plain value by its text."""
        return tuple(o if o is None or isinstance(o, str | bool | int | float) else repr(o) for o in self.options)

    def suggest(self, trial: Trial, name: str) -> None:
        trial.suggest_categorical(name, self.labels)

    def encode(self, value: Any) -> Any:
        return self.labels[self.options.index(value)]

    def decode(self, label: Any) -> Any:
        return self.options[self.labels.index(label)]

    def __contains__(self, value: Any) -> bool:
        return value in self.options


@dataclass(frozen=True)
class _Range(ABC):
    low: float
    high: float
    log: bool = False

    def __post_init__(self):
        if not (self._number(self.low) and self._number(self.high) and self.low < self.high):
            raise ValueError(f"{type(self).__name__} must have low < high, both finite, but got {self!r}.")
        if self.log and self.low <= 0:
            raise ValueError(f"{type(self).__name__} with log=True must have low > 0, but got {self!r}.")

    @abstractmethod
    def _number(self, value: Any) -> bool: ...

    def encode(self, value: Any) -> Any:
        return value

    def decode(self, value: Any) -> Any:
        return value

    def __contains__(self, value: Any) -> bool:
        return self._number(value) and self.low <= value <= self.high


@dataclass(frozen=True)
class Uniform(_Range):
    """A number from `low` to `high`, evenly or, with `log`, evenly in its logarithm."""

    def _number(self, value: Any) -> bool:
        return isinstance(value, Real) and math.isfinite(value)

    def suggest(self, trial: Trial, name: str) -> None:
        trial.suggest_float(name, self.low, self.high, log=self.log)


@dataclass(frozen=True)
class Whole(_Range):
    """A whole number from `low` to `high`, evenly or, with `log`, evenly in its logarithm."""

    def _number(self, value: Any) -> bool:
        return isinstance(value, Integral)

    def suggest(self, trial: Trial, name: str) -> None:
        trial.suggest_int(name, int(self.low), int(self.high), log=self.log)


Space = Mapping[str, Choice | Uniform | Whole]


@dataclass(frozen=True, eq=False)
class TuningResult:
    """What a study has found so far.

    Attributes:
        parameters: The best values, by the names of the space.
        value: Their expected negative log-likelihood per held-out row, in standardized units.
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
    optuna = _optuna()
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    estimator = _for_trials(estimator, seed)
    _check(estimator, space, first, held_out, n_trials)
    fingerprint = _fingerprint(estimator, X, Y, space, held_out)
    with _quiet(optuna):
        study = _Study(optuna, Path(journal), fingerprint, space, seed)
        with tqdm(total=n_trials, initial=study.n_finished, desc="tune", unit="trial", disable=not verbose) as bar:
            while time.monotonic() < deadline and (asked := study.ask(first, n_trials)) is not None:
                trial, parameters = asked
                candidate = configured(estimator, parameters)
                watch = _Watch(trial, candidate, deadline, lambda epoch: bar.set_postfix(study.standing(epoch)))
                try:
                    with study.judged(trial, watch):
                        candidate.fit(X, Y, held_out=held_out, callback=watch)
                        watch.value = _kept_value(candidate)
                except _TimeUpError:
                    break
                bar.set_postfix(study.standing(), refresh=False)
                bar.update(study.n_finished - bar.n)
        return study.result(estimator)


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


class _TimeUpError(Exception):
    """The time limit has come in the middle of a trial."""


class _PrunedError(Exception):
    """A trial does worse than others did, and is given up."""


class _Watch:
    """Follows the epochs of a trial: reports, gives up, ends in time."""

    def __init__(
        self, trial: Trial, candidate: ConstrainedBNNRegressor, deadline: float, show: Callable[[int], object]
    ):
        self.trial, self.deadline, self.show = trial, deadline, show
        plan = _plan_of(candidate)
        n_elbo = plan.epochs_of("elbo")
        self.warmup, self.prune_after = plan.kl_warmup * n_elbo, PRUNE_AFTER * n_elbo
        self.epochs, self.value = 0, math.nan
        self._comparable = 0  # epochs after the first phase

    def __call__(self, record: dict) -> None:
        if time.monotonic() >= self.deadline:
            raise _TimeUpError
        self.epochs += 1
        if self.epochs % REPORT_EVERY == 0:
            self.show(self.epochs)
        if record["phase"] == "means":
            return
        self._comparable += 1
        if self._comparable <= self.warmup or self._comparable % REPORT_EVERY:
            return
        self.trial.report(record["validation"], self._comparable)
        late = self._comparable >= self.prune_after and record["phase"] == "elbo"
        if late and self.trial.should_prune():
            raise _PrunedError


class _Study:
    """The trials in a journal."""

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
        running = self.study.get_trials(deepcopy=False, states=(self.optuna.trial.TrialState.RUNNING,))
        return self.finished + running

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
        for trial in self.study.get_trials(deepcopy=False, states=(self.optuna.trial.TrialState.RUNNING,)):
            if _is_gone(trial.user_attrs.get("process", "")):
                self._withdraw(trial.number)

    def _withdraw(self, number: int) -> None:
        self.study.tell(number, state=self.optuna.trial.TrialState.FAIL, skip_if_finished=True)

    def _enqueue_next(self, first: Sequence[Mapping[str, Any]]) -> None:
        if self.study.get_trials(deepcopy=False, states=(self.optuna.trial.TrialState.WAITING,)):
            return
        tried = {trial.user_attrs.get("first") for trial in self.begun}
        for parameters in first:
            encoded = {name: self.space[name].encode(value) for name, value in parameters.items()}
            key = json.dumps(encoded, sort_keys=True)
            if key not in tried:
                self.study.enqueue_trial(encoded, user_attrs={"first": key})
                return

    @contextmanager
    def judged(self, trial: Trial, watch: _Watch) -> Iterator[None]:
        """Write down how the trial ended."""
        state, notes = self.optuna.trial.TrialState, {}
        ended = {"state": state.FAIL}
        try:
            yield
            ended = {"values": watch.value}
        except _PrunedError:
            ended = {"state": state.PRUNED}
        except TrainingError as error:
            notes = {"reason": str(error)}
        except BaseException:
            notes = {"interrupted": True}
            raise
        finally:
            for name, value in {"epochs": watch.epochs, **notes}.items():
                trial.set_user_attr(name, value)
            self.study.tell(trial, **ended)

    def standing(self, epoch: int | None = None) -> dict[str, str]:
        """What the progress bar says."""
        values = [trial.value for trial in self._complete]
        best = {"best": f"{min(values):.4g}"} if values else {}
        return best if epoch is None else best | {"epoch": str(epoch)}

    def result(self, estimator: ConstrainedBNNRegressor) -> TuningResult:
        if not self._complete:
            raise TuningError(
                f"A study must complete one trial at least, but got {self.n_finished} finished ones in "
                f"'{self.journal}', none of them complete. Allow more trials or time, or widen the space."
            )
        best, trials = min(self._complete, key=lambda trial: trial.value), self._table()
        parameters, seconds = self._decoded(best), float(trials["seconds"].to_numpy().sum())
        return TuningResult(parameters, best.value, trials, seconds, configured(estimator, parameters))

    @property
    def _complete(self) -> list:
        return self.study.get_trials(deepcopy=False, states=(self.optuna.trial.TrialState.COMPLETE,))

    def _decoded(self, trial: Trial) -> dict[str, Any]:
        return {name: values.decode(trial.params[name]) for name, values in self.space.items()}

    def _table(self) -> pd.DataFrame:
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


def _opened(optuna: Optuna, journal: Path, fingerprint: str) -> Study:
    """The study in the journal, begun if there is none."""
    journal.parent.mkdir(parents=True, exist_ok=True)
    try:
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(journal)))
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


def _fingerprint_in(study: Study) -> str | None:
    """That of a study; of one that another process is just beginning, a moment later."""
    deadline = time.monotonic() + 5.0
    while (found := study.user_attrs.get("fingerprint")) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _this_process() -> str:
    return f"{os.getpid()}@{platform.node()}"


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


@contextmanager
def _quiet(optuna: Optuna) -> Iterator[None]:
    """Without Optuna's messages about every step; its level is the caller's again afterwards."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)


def _optuna() -> Optuna:
    try:
        import optuna
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise ImportError(MISSING) from None
    return optuna


def _is_repeated(trial: Trial, earlier: Sequence) -> bool:
    """Whether another process was given the same of the values that are tried first."""
    key = trial.user_attrs.get("first")
    return key is not None and any(other.user_attrs.get("first") == key for other in earlier)


def _interrupted(trial: Trial) -> bool:
    return trial.user_attrs.get("interrupted", False) or "epochs" not in trial.user_attrs


def _for_trials(estimator: ConstrainedBNNRegressor, seed: int) -> ConstrainedBNNRegressor:
    """A copy that every trial starts from: one seed for all, no checkpoint and no bar of its own."""
    given = estimator.random_state
    shared = int(given) if isinstance(given, Integral) else seed
    return configured(estimator, {"random_state": shared, "checkpoint": None, "verbose": False})


def _plan_of(estimator: ConstrainedBNNRegressor) -> TrainingPlan:
    plan = estimator.training or TrainingPlan()
    return plan if estimator.max_epochs is None else replace(plan, max_epochs=int(estimator.max_epochs))


def _kept_value(fitted: ConstrainedBNNRegressor) -> float:
    """Expected negative log-likelihood per held-out row of the state that the fit kept."""
    history = fitted.history_
    judged = [record for record in history.epochs if record["phase"] != "means"]
    kept = [record for record in judged if record["epoch"] == history.best_epoch]
    return (kept or judged)[-1]["validation"]


def _check(
    estimator: ConstrainedBNNRegressor,
    space: Space,
    first: Sequence[Mapping[str, Any]],
    held_out: ArrayLike,
    n_trials: int,
) -> None:
    known = sorted({*estimator.get_params(deep=False), *(field.name for field in fields(TrainingPlan))} - FIXED)
    if not space:
        raise ValueError("space must name one parameter at least, but got none.")
    for name, values in space.items():
        if name not in known:
            message = "space must name parameters of the estimator or of TrainingPlan"
            raise ValueError(f"{message}, but got {name!r}. {did_you_mean(name, known)}")
        if not isinstance(values, Choice | Uniform | Whole):
            raise TypeError(f"space[{name!r}] must be a Choice, Uniform or Whole, but got {values!r}.")
    for name, value in (item for parameters in first for item in parameters.items()):
        if name not in space:
            raise ValueError(
                f"first must name parameters of the space, but got {name!r}. {did_you_mean(name, list(space))}"
            )
        if value not in space[name]:
            raise ValueError(f"first must have values in the space, but got {value!r} for {name!r}: {space[name]!r}.")
    if np.size(np.asarray(held_out)) == 0:
        raise ValueError("held_out must name rows to judge trials by, but got none.")
    if not (isinstance(n_trials, Integral) and n_trials >= 1):
        raise ValueError(f"n_trials must be a whole number of at least 1, but got {n_trials!r}.")


def _fingerprint(estimator: ConstrainedBNNRegressor, X: Any, Y: Any, space: Space, held_out: ArrayLike) -> str:
    """What must be the same for a study to be continued: data, space, and the estimator's other parameters."""
    others = {name: value for name, value in estimator.get_params(deep=False).items() if name not in {*space, "device"}}
    data = [np.asarray(X, dtype=float), np.asarray(Y, dtype=float), np.unique(np.asarray(held_out))]
    columns = (frames.columns_of(X), frames.columns_of(Y))
    text = "\n".join(map(_described, (sorted(space.items()), sorted(others.items()), *columns, *data)))
    return hashlib.sha256(text.encode()).hexdigest()


def _described(value: Any) -> str:
    """Text that differs when the value does: that of arrays leaves nothing out."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    if isinstance(value, LinearConstraint):
        return " ".join(map(_described, (repr(value), value.A, value.B, value.b)))
    if isinstance(value, Mapping):
        return _described(list(value.items()))
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_described, value))}]"
    return repr(value)
