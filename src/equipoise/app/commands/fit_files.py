"""The files of a fit: the model and its history, which appear together when it is done; until then a checkpoint and the
running history.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from equipoise.app.commands.console import print_note
from equipoise.app.commands.tensorboard import TensorBoardLog

if TYPE_CHECKING:
    from equipoise.estimator import ConstrainedBNNRegressor


class FitFiles:
    """The files of a fit, beside each other in one folder.

    Args:
        model: The model file.

    Attributes:
        checkpoint: The state of an unfinished training, with which `--resume` goes on.
        history: The numbers of each epoch, one JSON object per line.
        running_history: The same of an unfinished training.
    """

    def __init__(self, model: Path):
        self.model = model
        self.checkpoint = model.parent / f"{model.name}.ckpt"
        self.history = model.parent / f"{model.stem}.run.jsonl"
        self.running_history = model.parent / f"{model.stem}.run.jsonl.part"

    def check(self, resume: bool, anew: bool) -> None:
        """Raise ArtifactError unless the fit may write its files, and an earlier checkpoint is resumed or forgotten.

        Args:
            resume: Go on from the checkpoint.
            anew: Forget the checkpoint.
        """
        from equipoise.artifact import ArtifactError

        if resume and anew:
            raise ArtifactError("--resume and --anew exclude each other, but got both. Leave one of them out.")
        if not self.model.parent.is_dir():
            raise ArtifactError(f"The folder of '{self.model}' must exist, but got none. Make it first.")
        if self.model.is_dir():
            raise ArtifactError(f"The model's file must not be a folder, but got '{self.model}'. Give a file name.")
        if self.model.exists() and not self.model.is_file():
            rule = f"The model's file must not be a device or a pipe, but got '{self.model}'"
            raise ArtifactError(f"{rule}. Give a file name.")
        self._check_writable()
        if self.checkpoint.exists() and not (resume or anew):
            advice = "Add --resume to go on with it, or --anew to start again."
            raise ArtifactError(f"'{self.checkpoint}' is there from a fit that was cut short. {advice}")
        if resume and not self.checkpoint.exists():
            print_note(f"there is no '{self.checkpoint}' to go on from: the fit starts from its beginning.")

    def _check_writable(self) -> None:
        """Raise ArtifactError now, not after hours of training, if no file can be written into the folder."""
        from equipoise.artifact import ArtifactError

        try:
            with tempfile.TemporaryFile(dir=self.model.parent):
                pass
        except OSError as error:
            rule = f"The folder of '{self.model}' must be writable, but got: {error.strerror or error}"
            raise ArtifactError(f"{rule}. Give another place with -o.") from error

    def check_not_whole_fit(self) -> None:
        """Raise ArtifactError if `--quick` would replace a model that was fitted without it."""
        from equipoise.artifact import ArtifactError, describe

        try:
            whole = describe(self.model).notes.get("quick") is False
        except ArtifactError:  # there is no model, or nothing that could be lost
            return
        if whole:
            rule = f"--quick must not replace a whole fit, but got '{self.model}'"
            raise ArtifactError(f"{rule}. Give another name with -o, or fit without --quick.")

    def remove_checkpoint(self) -> None:
        """Remove the checkpoint of an earlier fit, if there is one."""
        self.checkpoint.unlink(missing_ok=True)

    def advice(self, resuming: str) -> str:
        """Return a sentence on how to go on with an unfinished fit.

        Args:
            resuming: The command line that goes on from the checkpoint.
        """
        return f"Go on with: {resuming}" if self.checkpoint.exists() else "Nothing is kept: no checkpoint was due yet."

    @contextmanager
    def resumable(self, resuming: str) -> Iterator[None]:
        """Print or add to the error, if the training inside is cut short, the command line that goes on with it.

        Args:
            resuming: The command line that goes on from the checkpoint.
        Raises: ArtifactError, if checkpoint or running history cannot be written; LostProcessError with the advice.
        """
        from equipoise.artifact import ArtifactError
        from equipoise.training import LostProcessError

        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            print_note(self.advice(resuming))
            raise
        except LostProcessError as error:
            raise LostProcessError(f"{error} {self.advice(resuming)}") from error
        except OSError as error:
            rule = f"The fit of '{self.model}' must be kept as it goes, but got: {error.strerror or error}"
            raise ArtifactError(f"{rule}. Make room, or give another place with -o. {self.advice(resuming)}") from error
        finally:
            if not self.checkpoint.exists():  # without it the running history is of no use
                self.running_history.unlink(missing_ok=True)

    def finish(self, model: ConstrainedBNNRegressor) -> None:
        """Write the whole history, also that of a fit that was resumed, and remove what an unfinished fit needs."""
        from equipoise.artifact import write

        text = "".join(json.dumps(record) + "\n" for record in model.history_.epochs)
        write(self.history, lambda file: file.write(text.encode()))
        self.running_history.unlink(missing_ok=True)
        self.checkpoint.unlink(missing_ok=True)


class EpochLog:
    """Context that appends each epoch of a training to the running history, and to TensorBoard's records.

    Args:
        path: The running history.
        tensorboard: The folder for TensorBoard's records; None for no records.
    """

    def __init__(self, path: Path, tensorboard: Path | None):
        self.path, self.begun, self.tensorboard = path, False, TensorBoardLog(tensorboard)

    def __enter__(self) -> Callable[[dict], None]:
        self.tensorboard.__enter__()
        return self._record

    def _record(self, record: dict) -> None:
        if not self.begun:
            self._keep_earlier_epochs(record["epoch"])
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        self.tensorboard.add(record)

    def _keep_earlier_epochs(self, epoch: int) -> None:
        """Remove the epochs from this one on, which a resumed fit runs once more, from the running history."""
        lines = self.path.read_text("utf-8").splitlines(keepends=True) if epoch and self.path.exists() else []
        self.path.write_text("".join(lines[:epoch]), "utf-8")
        self.begun = True

    def __exit__(self, *exception: object) -> None:
        self.tensorboard.__exit__(*exception)
