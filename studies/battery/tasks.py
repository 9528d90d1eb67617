"""One fit of the study with its evaluation, kept in files: whatever was finished is not done again."""

from __future__ import annotations

import hashlib
import io
import json
import math
import time
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from equipoise.data import Standardizer, write_atomically
from equipoise.network import BayesianMLP, derived_seed
from equipoise.rivals.cases.battery import KEYS, BatteryData, Settings, load, pybamm_version
from equipoise.training import Adam, Progress, Task, one_cycle, run_many
from studies.battery.evaluation import ModelEvaluation, evaluate, output_std
from studies.battery.models import MODELS, estimator
from studies.battery.results import ModelResults, Score, Tolerances

FORMAT = 2  # of the kept evaluations; one more when fits or scores change their meaning
SHARE_OF_FIT = 0.6  # of a task's time


class Variant(BaseModel):
    """Which rows a model is trained and tested on.

    Attributes:
        n_train: Only so many training rows.
        current, temperature: Leave the discharges with this current or temperature out, and test on them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    n_train: int | None = None
    current: float | None = None
    temperature: float | None = None

    def apply(self, data: BatteryData) -> BatteryData:
        if self.current is not None or self.temperature is not None:
            data = data.leave_out(self.current, self.temperature)
        if self.n_train is not None and self.n_train < len(data.train):
            data = data.fewer(self.n_train)
        return data


class Kept(BaseModel):
    """What is kept of a finished task."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fingerprint: str
    results: ModelResults
    tolerances: Tolerances | None
    seconds: float


@dataclass(frozen=True)
class FitTask:
    """Fit and evaluate one model; a picklable task for `run_many`.

    Attributes:
        settings: Of the study.
        model: One of `MODELS`.
        seed: Of noise, split, training and draws.
        folder: Where checkpoints and evaluations are kept.
        cache: Where simulations are kept.
        variant: Which rows.
    """

    settings: Settings
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
        """The kept evaluation; None if there is none that belongs to this task and can be read."""
        try:
            kept = Kept.model_validate_json(self._path(".json").read_text("utf-8"))
            with np.load(io.BytesIO(self._path(".npz").read_bytes()), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            return None
        return ModelEvaluation(kept.results, kept.tolerances, arrays) if kept.fingerprint == self.fingerprint else None

    def seconds(self) -> float:
        """How long fit and evaluation took; NaN if they are not kept."""
        try:
            return Kept.model_validate_json(self._path(".json").read_text("utf-8")).seconds
        except (OSError, ValueError):
            return math.nan

    def data(self) -> BatteryData:
        return self.variant.apply(load(self.settings.data_of(self.seed), self.cache))

    def _run(self, progress: Progress) -> tuple[ModelEvaluation, float]:
        start, data, settings = time.perf_counter(), self.data(), self.settings
        regressor = estimator(settings, self.model, self.seed, checkpoint=self._path(".ckpt"))
        rows = np.concatenate([data.train, data.validation])
        total = regressor.training.max_epochs if regressor.training else 1

        def told(record: dict) -> None:
            progress(SHARE_OF_FIT * min(1.0, (record["epoch"] + 1) / total))

        self.folder.mkdir(parents=True, exist_ok=True)
        held_out = np.arange(len(data.train), len(rows))
        regressor.fit(data.X.iloc[rows], data.Y.iloc[rows], held_out=held_out, callback=told)
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
        """Arrays first: the other file says that all is there."""
        keep_arrays(self._path(".npz"), evaluation.arrays)
        kept = Kept(
            fingerprint=self.fingerprint,
            results=evaluation.results,
            tolerances=evaluation.tolerances,
            seconds=seconds,
        )
        write_atomically(self._path(".json"), lambda file: file.write(kept.model_dump_json().encode()))

    def _path(self, suffix: str) -> Path:
        return self.folder / f"{self.model}-{(self._of_fit if suffix == '.ckpt' else self.fingerprint)[:10]}{suffix}"

    @property
    def _of_fit(self) -> str:
        """What decides the fitted model."""
        return _digest(
            _decisive(self.settings), self.model, repr(MODELS[self.model]), self.seed, self.variant.model_dump()
        )

    @property
    def fingerprint(self) -> str:
        """What decides the evaluation."""
        return _digest(self._of_fit, self.settings.n_draws, self.settings.violation_draws)


def _decisive(settings: Settings) -> list:
    """All that decides a fit besides model, seed and rows: settings with the plan's defaults, and versions."""
    said = settings.model_dump(mode="json", exclude={"n_draws", "violation_draws", "training"})
    return [FORMAT, said, repr(settings.plan()), torch.__version__, pybamm_version()]


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class DeterministicTask:
    """The same network without any probability, trained on squared error for as many epochs: a scale for accuracy."""

    settings: Settings
    seed: int
    folder: Path
    cache: Path

    def __call__(self, progress: Progress) -> Score:
        if (kept := self.read()) is None:
            kept = self._run(progress)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, lambda file: file.write(kept.model_dump_json().encode()))
        progress(1.0)
        return kept

    def read(self) -> Score | None:
        """The kept score; None if there is none that can be read."""
        try:
            return Score.model_validate_json(self._path.read_text("utf-8"))
        except (OSError, ValueError):
            return None

    @property
    def _path(self) -> Path:
        return self.folder / f"deterministic-{_digest(_decisive(self.settings), self.seed)[:10]}.json"

    def _run(self, progress: Progress) -> Score:
        data = load(self.settings.data_of(self.seed), self.cache)
        X, Y, truth = (table.to_numpy() for table in (data.X, data.Y, data.truth))
        scale = Standardizer.fit(X[data.train], Y[data.train], None)
        x, y = (torch.as_tensor(values, dtype=torch.float32) for values in (scale.inputs(X), scale.outputs(Y)))
        network = self._trained(x[data.train], y[data.train], progress)
        with torch.no_grad():
            mean = scale.outputs_to_user(network.at_means(x[data.test]).mean.double().numpy())
        error = ((mean - truth[data.test]) ** 2).mean(0) / output_std(data) ** 2
        return Score.of(dict(zip(KEYS, error.tolist(), strict=True)))

    def _trained(self, x: torch.Tensor, y: torch.Tensor, progress: Progress) -> BayesianMLP:
        plan, generator = self.settings.plan(), torch.Generator().manual_seed(derived_seed(self.seed, 5))
        network = BayesianMLP(
            x.shape[1], y.shape[1], self.settings.hidden, self.settings.activation, generator=generator
        )
        optimizer = Adam([{"params": [network.posterior.loc]}])
        for epoch in range(plan.max_epochs):
            batches = torch.randperm(len(x), generator=generator).split(plan.rows_per_step(len(x)))
            for i, index in enumerate(batches):
                fraction = (epoch + i / len(batches)) / plan.max_epochs
                optimizer.param_groups[0]["lr"] = plan.mean_learning_rate * one_cycle(fraction)
                optimizer.zero_grad()
                (network.at_means(x[index]).mean - y[index]).square().mean().backward()
                optimizer.step()
            progress(0.99 * (epoch + 1) / plan.max_epochs)
        return network


def finish(tasks: Mapping[str, FitTask | DeterministicTask], workers: int | None, verbose: bool) -> dict[str, Any]:
    """Results of all tasks by name; those that are kept are read, and only the others run."""
    kept = {name: found for name, task in tasks.items() if (found := task.read()) is not None}
    todo: dict[str, Task] = {name: task for name, task in tasks.items() if name not in kept}
    return kept | run_many(todo, workers, verbose)


def keep_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Write arrays into one compressed file."""
    write_atomically(path, lambda file: np.savez_compressed(file, **arrays))
