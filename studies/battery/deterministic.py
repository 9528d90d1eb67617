"""DeterministicTask: a network of the same size without any probability, a scale for the accuracy of the others.

It predicts means only, and is trained on squared error for as many epochs as the other models. It starts with the same
weights as they do.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

import equipoise as eq
from equipoise import battery
from studies.battery.evaluation import Progress, output_std
from studies.battery.files import write_text
from studies.battery.results import ScoreByOutput
from studies.battery.tasks import decisive_settings, digest


@dataclass(frozen=True)
class DeterministicTask:
    """Train and score the deterministic network; a picklable task for `run_many`.

    Attributes:
        settings: Settings of the study.
        seed: Seed of noise, split, starting weights and shuffling.
        folder: Folder in which the score is kept.
        cache: Folder in which simulations are kept.
    """

    settings: battery.Settings
    seed: int
    folder: Path
    cache: Path

    def __call__(self, progress: Progress) -> ScoreByOutput:
        if (score := self.read()) is None:
            score = self._run(progress)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(self._path, score.model_dump_json())
        progress(1.0)
        return score

    def read(self) -> ScoreByOutput | None:
        """Read the kept score; return None if there is none that can be read."""
        try:
            return ScoreByOutput.model_validate_json(self._path.read_text("utf-8"))
        except (OSError, ValueError):
            return None

    @property
    def _path(self) -> Path:
        return self.folder / f"deterministic-{digest(decisive_settings(self.settings), self.seed)[:10]}.json"

    def _run(self, progress: Progress) -> ScoreByOutput:
        data = battery.load(self.settings.data_of(self.seed), self.cache)
        X, Y, truth = (table.to_numpy() for table in (data.X, data.Y, data.truth))
        mean = self._fit(X[data.train], Y[data.train], progress).predict(X[data.test])
        error = ((mean - truth[data.test]) ** 2).mean(0) / output_std(data) ** 2
        return ScoreByOutput.of(dict(zip(battery.KEYS, error.tolist(), strict=True)))

    def _fit(self, X: np.ndarray, Y: np.ndarray, progress: Progress) -> Means:
        plan, settings = self.settings.plan(), self.settings
        return eq.fit_means(
            X,
            Y,
            hidden=settings.hidden,
            activation=settings.activation,
            training=plan,
            random_state=self.seed,
            callback=lambda record: progress(0.99 * (record["epoch"] + 1) / plan.max_epochs),
        )


class Means(Protocol):
    """What predicts the means."""

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return outputs `(n, n_y)` for inputs `(n, n_x)`."""
        ...
