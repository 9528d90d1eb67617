"""Records of a training for TensorBoard: a convenience, whose failures must not end the training."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from equipoise.app.commands.console import print_note


class TensorBoardLog:
    """Writes the numbers of each epoch for TensorBoard, and stops writing after the first error of the disk.

    Args:
        folder: The folder for the records; None writes nothing.
    """

    def __init__(self, folder: Path | None):
        self.folder, self.writer = folder, None

    def __enter__(self) -> TensorBoardLog:
        self._thread_hook, threading.excepthook = threading.excepthook, self._ignore_disk_errors
        if self.folder is not None:
            try:
                self.writer = _summary_writer(self.folder)
            except BaseException:
                self._restore_thread_hook()
                raise
        return self

    def add(self, record: dict) -> None:
        """Write the numbers of an epoch; if the disk refuses them, print a note and write nothing from now on.

        Args:
            record: Values by name; those that are floats are written, at the step that its "epoch" counts.
        """
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
        self._restore_thread_hook()

    def _give_up(self, error: OSError) -> None:
        self.writer = None
        print_note(f"What was recorded for TensorBoard in '{self.folder}' is not whole: {error.strerror or error}.")

    def _ignore_disk_errors(self, failure: Any) -> None:
        """Ignore errors of the disk in TensorBoard's thread, as `add` and `close` raise them once more."""
        if self.folder is None or not issubclass(failure.exc_type, OSError):
            self._thread_hook(failure)

    def _restore_thread_hook(self) -> None:
        threading.excepthook = self._thread_hook


def _summary_writer(folder: Path) -> Any:
    """Open TensorBoard's writer for a folder. Raises ArtifactError if it is not installed, or the folder unusable."""
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
