"""One method on one case with one seed, kept in a file of its own: what was finished is not done again."""

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

FORMAT = 3  # of what is kept; one more when methods or scores change their meaning


class TrialResult(BaseModel):
    """What a trial found.

    Attributes:
        case, method, seed: Which it was.
        scores: By name, as `SCORES` says; NaN where there is none.
        step_seconds: Of the QP layer and of the closed form, where the layer was used.
        penalty, dropout: The strength of the soft penalty and the probability of dropout that were taken.
        failure: Why there are no scores.
        fingerprint: Of everything that decides it.
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
    """Fit and score one method; picklable, for joblib.

    Args:
        case: On what.
        method: What.
        seed: Of data or split, start and draws.
        folder: Where results are kept; None keeps nothing.
    """

    case: Case
    method: Method
    seed: int
    folder: Path | None = None

    def __call__(self, progress: Progress | None = None) -> TrialResult:
        """The kept result, or a new one, which is kept; `progress` is told at the end."""
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
        start = time.process_time()  # trials run side by side, and may have to wait for each other
        try:
            model.fit(split.fit.X, split.fit.Y, held_out=split.held_out)
            scores = score(model, self.case, split, time.process_time() - start)
        except (TrainingError, ImportError, ValueError) as error:  # what one method cannot do, others may
            return TrialResult(**which, failure=str(error))  # type: ignore[arg-type]
        extra = {"step_seconds": getattr(model, "step_seconds_", {})}
        extra |= {"penalty": model.penalty_, "dropout": model.dropout_}
        return TrialResult(**which, scores=scores, **extra)  # type: ignore[arg-type]

    def _read(self, fingerprint: str) -> TrialResult | None:
        if self.folder is None:
            return None
        try:
            kept = TrialResult.model_validate_json(self._path.read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return kept if kept.fingerprint == fingerprint and not kept.failure else None

    def _write(self, result: TrialResult) -> None:
        if self.folder is not None:
            keep(result, self.folder)

    @property
    def _path(self) -> Path:
        return _place(self.folder or Path(), self.case.name, self.method.name, self.seed)

    def _fingerprint(self, split: Split) -> str:
        """Changes with data, balances, options and method, and with the versions of torch and of this package."""
        import torch

        from equipoise.rivals.methods.regressor import MethodRegressor

        options, balances = MethodRegressor(**self.case.options).get_params(deep=False), self.case.constraint
        said: list[Any] = [FORMAT, self.method.name, self.seed, repr(sorted(options.items())), balances.names]
        said += [balances.columns, balances.outputs, split.digest(), torch.__version__, version("equipoise")]
        joined = hashlib.sha256(json.dumps(said).encode())
        for part in (balances.A, balances.B, balances.b):
            joined.update(np.ascontiguousarray(part).tobytes())
        return joined.hexdigest()


def keep(result: TrialResult, folder: Path, anew: bool = True) -> None:
    """Write what a trial found to where it is looked for; unless `anew`, only if nothing is there."""
    path = _place(folder, result.case, result.method, result.seed)
    if anew or not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: file.write(result.model_dump_json(indent=1).encode()))


def _place(folder: Path, case: str, method: str, seed: int) -> Path:
    return folder / case / f"{method}-seed-{seed}.json"


def is_number(value: float | None) -> bool:
    """Whether a score is there."""
    return value is not None and math.isfinite(value)
