"""Checkpoints of a training run: one file, replaced whole, opened without running code."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import torch

from equipoise.data import write_atomically
from equipoise.errors import EquipoiseError

FORMAT = 1
FIRST_SECONDS = 1.0  # until the first write by `save_if_due`


class TrainingError(EquipoiseError, RuntimeError):
    """Raised where training cannot go on, with the reason and a remedy."""


class Checkpoint:
    """Keeps the state of a training run in a file.

    Args:
        path: The file; None for no checkpoints.
        fingerprint: Identifies the run: a digest of rows, plan, seed and model, which `TrainingRun.fingerprint` in
            `loop.py` makes. A file of another run is refused, not overwritten.
        seconds: Least time between two writes by `save_if_due`; the first comes after `FIRST_SECONDS` at the latest.
    Raises:
        TrainingError: If the file's folder does not exist.
    """

    def __init__(self, path: str | os.PathLike | None, fingerprint: str, seconds: float = 10.0):
        self.path = None if path is None else Path(path)
        self.fingerprint, self.seconds, self._due = fingerprint, seconds, time.monotonic() + min(FIRST_SECONDS, seconds)
        if self.path is not None and not self.path.parent.is_dir():
            raise TrainingError(f"The checkpoint's folder must exist, but got '{self.path.parent}'. Make it first.")

    def load(self) -> dict | None:
        """Return the state in the file, None if there is no file.

        Raises:
            TrainingError: If the file is damaged or belongs to another run.
        """
        if self.path is None or not self.path.exists():
            return None
        try:
            content = torch.load(self.path, weights_only=True)  # tensors and plain values only: no code is run
            same = content["format"] == FORMAT and content["fingerprint"] == self.fingerprint
            state = content["state"]
        except Exception as error:
            message = f"'{self.path}' is not a readable checkpoint ({type(error).__name__}). Delete it to start anew."
            raise TrainingError(message) from error
        if not same:
            raise TrainingError(
                f"The checkpoint '{self.path}' belongs to another run (other data, settings, seed or version). "
                "Delete it (on the command line: --anew), or give another file name."
            )
        return state

    def save(self, state: dict) -> None:
        """Write the state to the file, replacing an earlier one as a whole."""
        if self.path is not None:
            content = {"format": FORMAT, "fingerprint": self.fingerprint, "state": state}
            write_atomically(self.path, lambda file: torch.save(content, file))
            self._due = time.monotonic() + self.seconds

    def save_if_due(self, state: Callable[[], dict]) -> None:
        """Write the state if enough time has passed since the last write; `state` is called only then."""
        if self.path is not None and time.monotonic() >= self._due:
            self.save(state())
