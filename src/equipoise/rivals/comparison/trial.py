"""Trial: one method on one case with one seed. Its result is kept in a file, so that it is not repeated."""

from __future__ import annotations

import hashlib
import json
import math
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from equipoise.data import write_atomically
from equipoise.rivals.cases import Case, Split
from equipoise.rivals.methods.catalogue import Method
from equipoise.training import Progress, TrainingError

FORMAT = 3  # of the files; to be raised when methods or scores change their meaning


class TrialResult(BaseModel):
    """The result of a trial.

    Attributes:
        case, method, seed: Names of case and method, and the seed.
        scores: The scores by their names in `SCORES`; NaN where one does not exist.
        step_seconds: Seconds per training step by the QP layer and by the closed form; empty without the layer.
        penalty, dropout: The strength of the soft penalty and the probability of dropout; 0 in methods without.
        failure: Why there are no scores; empty if there are.
        fingerprint: Hash of everything that the result depends on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    case: str
    method: str
    seed: int
    scores: dict[str, float] = {}
    step_seconds: dict[str, float] = {}
    penalty: float = 0.0
    dropout: float = 0.0
    failure: str = ""
    fingerprint: str = ""


@dataclass(frozen=True)
class Trial:
    """A method to be fitted and scored; a picklable task for `run_many`.

    Args:
        case: The case to fit and test on.
        method: The method.
        seed: Seed of data and split, starting weights and draws.
        folder: Folder for results; None keeps nothing.
    """

    case: Case
    method: Method
    seed: int
    folder: Path | None = None

    def __call__(self, progress: Progress | None = None) -> TrialResult:
        """Return the result from its file, or fit, score and write it; `progress` is called at the end."""
        split = self.case.split(self.seed)
        fingerprint = self._fingerprint(split)
        result = self._read(fingerprint)
        if result is None:
            result = self._run(split).model_copy(update={"fingerprint": fingerprint})
            self._write(result)
        if progress is not None:
            progress(1.0)
        return result

    def _run(self, split: Split) -> TrialResult:
        from equipoise.rivals.comparison.scoring import score
        from equipoise.rivals.methods.regressor import MethodRegressor

        which = {"case": self.case.name, "method": self.method.name, "seed": self.seed}
        pair = {"inference": self.method.inference, "imposition": self.method.imposition}
        model = MethodRegressor(self.case.constraint, **pair, **self.case.options, random_state=self.seed)
        start = time.process_time()  # of this process: trials run side by side
        try:
            model.fit(split.fit.X, split.fit.Y, held_out=split.held_out)
            scores = score(model, self.case, split, time.process_time() - start)
        except (TrainingError, ImportError, ValueError) as error:  # other methods may still succeed
            return TrialResult(**which, failure=str(error))  # type: ignore[arg-type]
        extra = {"step_seconds": getattr(model, "step_seconds_", {})}
        extra |= {"penalty": model.penalty_, "dropout": model.dropout_}
        return TrialResult(**which, scores=scores, **extra)  # type: ignore[arg-type]

    def _read(self, fingerprint: str) -> TrialResult | None:
        if self.folder is None:
            return None
        try:
            result = TrialResult.model_validate_json(self._path.read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return result if result.fingerprint == fingerprint and not result.failure else None

    def _write(self, result: TrialResult) -> None:
        if self.folder is not None:
            keep(result, self.folder)

    @property
    def _path(self) -> Path:
        return _path_of(self.folder or Path(), self.case.name, self.method.name, self.seed)

    def _fingerprint(self, split: Split) -> str:
        """Compute a hash of data, balances, options, method and seed, and of the versions of torch and this package."""
        import torch

        from equipoise.rivals.methods.regressor import MethodRegressor

        options, balances = MethodRegressor(**self.case.options).get_params(deep=False), self.case.constraint
        parts: list[Any] = [FORMAT, self.method.name, self.seed, repr(sorted(options.items())), balances.names]
        parts += [balances.columns, balances.outputs, split.digest(), torch.__version__, version("equipoise")]
        joined = hashlib.sha256(json.dumps(parts).encode())
        for array in (balances.A, balances.B, balances.b):
            joined.update(np.ascontiguousarray(array).tobytes())
        return joined.hexdigest()


def keep(result: TrialResult, folder: Path, overwrite: bool = True) -> None:
    """Write the result of a trial to its file.

    Args:
        result: The result.
        folder: Folder for results of trials.
        overwrite: Whether to replace a file that is there.
    """
    path = _path_of(folder, result.case, result.method, result.seed)
    if overwrite or not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: file.write(result.model_dump_json(indent=1).encode()))


def _path_of(folder: Path, case: str, method: str, seed: int) -> Path:
    return folder / case / f"{method}-seed-{seed}.json"


def is_number(value: float | None) -> bool:
    """Tell whether a score exists and is finite."""
    return value is not None and math.isfinite(value)
