"""Checkpoints of a training run: one file, replaced whole, opened without running code."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import torch

from equipoise.data import write_atomically
from equipoise.errors import EquipoiseError

FORMAT = 1
FIRST = 1.0  # seconds until a run is worth keeping


class TrainingError(EquipoiseError, RuntimeError):
    """Training cannot go on, and why."""


class Checkpoint:
    """Keeps the state of a run in a file.

    Args:
        path: The file, or None to keep nothing.
        fingerprint: Identifies the run; a file of another run is refused, not overwritten.
        seconds: Least time between two writes by `save_if_due`; the first comes after a second already.
    """

    def __init__(self, path: str | os.PathLike | None, fingerprint: str, seconds: float = 10.0):
        self.path = None if path is None else Path(path)
        self.fingerprint, self.seconds, self._due = fingerprint, seconds, time.monotonic() + min(FIRST, seconds)
        if self.path is not None and not self.path.parent.is_dir():
            raise TrainingError(f"The checkpoint's folder must exist, but got '{self.path.parent}'. Make it first.")

    def load(self) -> dict | None:
        """The state in the file; None if there is no file."""
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
        if self.path is not None:
            content = {"format": FORMAT, "fingerprint": self.fingerprint, "state": state}
            write_atomically(self.path, lambda file: torch.save(content, file))
            self._due = time.monotonic() + self.seconds

    def save_if_due(self, state: Callable[[], dict]) -> None:
        if self.path is not None and time.monotonic() >= self._due:
            self.save(state())
