"""FitTask: one fit of the study with its evaluation. The results are kept in files, so that it is not repeated."""

from __future__ import annotations

import hashlib
import io
import json
import math
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from equipoise import battery, run_many
from studies.battery.evaluation import ModelEvaluation, Progress, evaluate
from studies.battery.files import write_arrays, write_text
from studies.battery.models import MODELS, estimator
from studies.battery.results import ModelResults, Tolerances

FORMAT = 2  # of the kept evaluations; to be raised when fits or scores change their meaning
SHARE_OF_FIT = 0.6  # of the time of a task


class Variant(BaseModel):
    """A selection of the rows that a model is trained and tested on.

    Attributes:
        n_train: Number of training rows; None for all.
        current, temperature: Current in A or temperature in K of the discharges that are left out of training and
            tested on; None for the usual test rows.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    n_train: int | None = None
    current: float | None = None
    temperature: float | None = None

    def apply(self, data: battery.BatteryData) -> battery.BatteryData:
        """Select the rows."""
        if self.current is not None or self.temperature is not None:
            data = data.leave_out(self.current, self.temperature)
        if self.n_train is not None and self.n_train < len(data.train):
            data = data.fewer(self.n_train)
        return data


class Kept(BaseModel):
    """The content of the JSON file of a finished task; its arrays are in a file beside it.

    Attributes:
        fingerprint: Hash of everything that the evaluation depends on.
        results: Scores.
        tolerances: Learned tolerances; None for a model without balances.
        seconds: Time of fit and evaluation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    fingerprint: str
    results: ModelResults
    tolerances: Tolerances | None
    seconds: float


@dataclass(frozen=True)
class FitTask:
    """Fit and evaluate one model; a picklable task for `run_many`.

    Attributes:
        settings: Settings of the study.
        model: A key of `MODELS`.
        seed: Seed of noise, split, training and draws.
        folder: Folder in which checkpoints and evaluations are kept.
        cache: Folder in which simulations are kept.
        variant: Selection of rows.
    """

    settings: battery.Settings
    model: str
    seed: int
    folder: Path
    cache: Path
    variant: Variant = field(default_factory=Variant)

    def __call__(self, progress: Progress) -> ModelEvaluation:
        if (evaluation := self.read()) is None:
            evaluation, seconds = self._run(progress)
            self._write(evaluation, seconds)
        progress(1.0)
        return evaluation

    def read(self) -> ModelEvaluation | None:
        """Read the kept evaluation; return None if there is none that belongs to this task and can be read."""
        try:
            kept = Kept.model_validate_json(self._path(".json").read_text("utf-8"))
            with np.load(io.BytesIO(self._path(".npz").read_bytes()), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            return None
        return ModelEvaluation(kept.results, kept.tolerances, arrays) if kept.fingerprint == self.fingerprint else None

    def seconds(self) -> float:
        """Return the seconds that fit and evaluation took; NaN if they are not kept."""
        try:
            return Kept.model_validate_json(self._path(".json").read_text("utf-8")).seconds
        except (OSError, ValueError):
            return math.nan

    def data(self) -> battery.BatteryData:
        """Load the rows of this task."""
        return self.variant.apply(battery.load(self.settings.data_of(self.seed), self.cache))

    def _run(self, progress: Progress) -> tuple[ModelEvaluation, float]:
        start, data, settings = time.perf_counter(), self.data(), self.settings
        regressor = estimator(settings, self.model, self.seed, checkpoint=self._path(".ckpt"))
        rows = np.concatenate([data.train, data.validation])
        total = regressor.training.max_epochs if regressor.training else 1

        def show(record: dict) -> None:
            progress(SHARE_OF_FIT * min(1.0, (record["epoch"] + 1) / total))

        self.folder.mkdir(parents=True, exist_ok=True)
        held_out = np.arange(len(data.train), len(rows))
        regressor.fit(data.X.iloc[rows], data.Y.iloc[rows], held_out=held_out, callback=show)
        evaluation = evaluate(
            regressor,
            data,
            n_draws=settings.n_draws,
            violation_draws=settings.violation_draws,
            progress=lambda share: progress(SHARE_OF_FIT + (1 - SHARE_OF_FIT) * 0.999 * share),
        )
        history = {
            "history_phase": np.array([record["phase"] for record in regressor.history_.epochs]),
            "history_validation": np.array(
                [record.get("validation", math.nan) for record in regressor.history_.epochs]
            ),
        }
        rows_of = {"x_test": data.X, "y_test": data.Y, "truth_test": data.truth}
        tested = {name: table.iloc[data.test].to_numpy() for name, table in rows_of.items()}
        arrays = evaluation.arrays | history | tested
        return ModelEvaluation(evaluation.results, evaluation.tolerances, arrays), time.perf_counter() - start

    def _write(self, evaluation: ModelEvaluation, seconds: float) -> None:
        """Write the arrays and then the JSON file, whose presence means that both are there."""
        write_arrays(self._path(".npz"), evaluation.arrays)
        kept = Kept(
            fingerprint=self.fingerprint,
            results=evaluation.results,
            tolerances=evaluation.tolerances,
            seconds=seconds,
        )
        write_text(self._path(".json"), kept.model_dump_json())

    def _path(self, suffix: str) -> Path:
        return (
            self.folder
            / f"{self.model}-{(self._fit_fingerprint if suffix == '.ckpt' else self.fingerprint)[:10]}{suffix}"
        )

    @property
    def _fit_fingerprint(self) -> str:
        """Hash of everything that the fitted model depends on."""
        return digest(
            decisive_settings(self.settings), self.model, repr(MODELS[self.model]), self.seed, self.variant.model_dump()
        )

    @property
    def fingerprint(self) -> str:
        """Hash of everything that the evaluation depends on."""
        return digest(self._fit_fingerprint, self.settings.n_draws, self.settings.violation_draws)


def decisive_settings(settings: battery.Settings) -> list:
    """List what a fit depends on besides model, seed and rows: settings with the plan's defaults, and versions."""
    values = settings.model_dump(mode="json", exclude={"n_draws", "violation_draws", "training"})
    return [FORMAT, values, repr(settings.plan()), torch.__version__, battery.pybamm_version()]


def digest(*parts: Any) -> str:
    """Compute a hash of values that JSON can represent."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class KeptTask(Protocol):
    """A task for `run_many` that keeps its result in files."""

    def __call__(self, progress: Progress) -> Any:
        """Return the result, and keep it if it was not kept."""

    def read(self) -> Any | None:
        """Read the kept result; return None if there is none."""


def finish(tasks: Mapping[str, KeptTask], workers: int | None, verbose: bool) -> dict[str, Any]:
    """Return the results of all tasks by name; kept results are read, and only the other tasks run.

    Args:
        tasks: Tasks by name.
        workers: Number of processes; None for one on each core.
        verbose: Whether to show progress bars.
    """
    kept = {name: result for name, task in tasks.items() if (result := task.read()) is not None}
    unfinished: dict[str, Callable[[Progress], Any]] = {name: task for name, task in tasks.items() if name not in kept}
    return kept | run_many(unfinished, workers, verbose)
