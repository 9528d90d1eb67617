"""What `fit` records for TensorBoard: a convenience, which must not cost a training whatever becomes of it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from equipoise.app.commands.screen import remark


class Board:
    """Writes the numbers of each epoch for TensorBoard, as long as that can be done.

    Args:
        folder: Where to; None for nowhere.
    """

    def __init__(self, folder: Path | None):
        self.folder, self.writer = folder, None

    def __enter__(self) -> Board:
        self._hook, threading.excepthook = threading.excepthook, self._heard
        if self.folder is not None:
            try:
                self.writer = _writer(self.folder)
            except BaseException:
                self._restore()
                raise
        return self

    def add(self, record: dict) -> None:
        """Record an epoch; if that fails, say so and go on without."""
        if self.writer is None:
            return
        try:
            for name, value in record.items():
                if isinstance(value, float):
                    self.writer.add_scalar(name, value, record["epoch"])
        except OSError as error:
            self._give_up(error)

    def __exit__(self, *exception: object) -> None:
        if self.writer is not None:
            try:
                self.writer.close()
            except OSError as error:
                self._give_up(error)
        self._restore()

    def _give_up(self, error: OSError) -> None:
        self.writer = None
        remark(f"What was recorded for TensorBoard in '{self.folder}' is not whole: {error.strerror or error}.")

    def _heard(self, failure: Any) -> None:
        """TensorBoard writes in a thread, whose errors also come to where it is called."""
        if self.folder is None or not issubclass(failure.exc_type, OSError):
            self._hook(failure)

    def _restore(self) -> None:
        threading.excepthook = self._hook


def _writer(folder: Path) -> Any:
    from equipoise.artifact import ArtifactError

    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        rule = "--tensorboard needs TensorBoard, but it is not installed"
        raise ArtifactError(f"{rule}. Run: pip install tensorboard.") from None
    try:
        return SummaryWriter(str(folder))
    except OSError as error:
        rule = f"--tensorboard must name a folder that can be written to, but got '{folder}': {error.strerror or error}"
        raise ArtifactError(f"{rule}. Give another one.") from error
