"""`equipoise fit`: train the model that a job describes, and keep it in one file."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.app.bug_report import BUG, WRONG_INPUT
from equipoise.app.commands.check import diagnose_job
from equipoise.app.commands.console import is_interactive, print_note, print_text
from equipoise.app.commands.fit_files import EpochLog, FitFiles
from equipoise.app.commands.model_summary import Scores, output_scores, print_scores, print_tolerances, score_notes
from equipoise.app.commands.shared_options import Device, JobFile, check_output
from equipoise.app.commands.table_rows import TableRows, file_sha256, read_job_rows
from equipoise.app.commands.training_job import load_training_job
from equipoise.errors import EquipoiseError, check_device

if TYPE_CHECKING:
    from equipoise.app.job import Job
    from equipoise.estimator import ConstrainedBNNRegressor

QUICK = {"hidden": (32,), "max_epochs": 60, "n_draws": 64}


def run(
    job: JobFile,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The model file; beside the job file by default.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a fit that was cut short.")] = False,
    anew: Annotated[bool, typer.Option("--anew", help="Forget a fit that was cut short, and start again.")] = False,
    seed: Annotated[int | None, typer.Option(help="Instead of the job's seed.", min=0)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A first look: small network, 60 epochs.")] = False,
    device: Device = None,
    tensorboard: Annotated[Path | None, typer.Option(help="Folder for TensorBoard's records.")] = None,
) -> None:
    """Train a model and write it to one file, with the history of the training beside it (….run.jsonl).

    A fit that is cut short keeps a checkpoint (….ckpt) and goes on with --resume to the very same model. Several
    processes train one model together: torchrun --nproc-per-node 2 -m equipoise fit JOB.
    """
    with _process_group() as (rank, n_processes):
        files = FitFiles(output or job.with_suffix(".safetensors"))
        options = FitOptions(seed, quick, device, n_processes)
        if rank > 0:
            _train_along(job, files, options)
        else:
            _fit(job, files, options, resume, anew, tensorboard)


@dataclass(frozen=True)
class FitOptions:
    """Changes that the command line makes to the fit that a job file describes.

    Args:
        seed: Instead of the job's seed.
        quick: A first look: small network, 60 epochs.
        device: Where torch computes, instead of the job's device.
        n_processes: How many processes train the model together.
    """

    seed: int | None = None
    quick: bool = False
    device: str | None = None
    n_processes: int = 1

    def command(self, job: Path, model: Path) -> str:
        """Return the command line of a fit.

        Args:
            job: The job file.
            model: The model file that the fit writes.
        Example:
            >>> FitOptions(seed=3).command(Path("my cell.toml"), Path("cell.safetensors"))
            "equipoise fit 'my cell.toml' -o cell.safetensors --seed 3"
            >>> FitOptions(device="cuda", n_processes=2).command(Path("cell.toml"), Path("cell.safetensors"))
            'torchrun --nproc-per-node 2 -m equipoise fit cell.toml -o cell.safetensors --device cuda'
        """
        options = [*(["--seed", str(self.seed)] if self.seed is not None else []), *(["--quick"] if self.quick else [])]
        options += [] if self.device is None else ["--device", self.device]
        here = os.environ.get("LOCAL_WORLD_SIZE", str(self.n_processes))  # of several machines, each starts its own
        joint = ["torchrun", "--nproc-per-node", here, "-m", "equipoise"]
        program = joint if self.n_processes > 1 else ["equipoise"]
        return shlex.join([*program, "fit", str(job), "-o", str(model), *options])

    def notes(self) -> dict[str, str | int]:
        """Return device and number of processes as notes for the model file, where they are not the usual ones."""
        notes: dict[str, str | int] = {} if self.device is None else {"device": self.device}
        return notes | ({} if self.n_processes == 1 else {"processes": self.n_processes})


def _fit(job: Path, files: FitFiles, options: FitOptions, resume: bool, anew: bool, tensorboard: Path | None) -> None:
    """Train a model alone or as the first of several processes, write its files and print the summary."""
    from equipoise.artifact import model_file as artifact

    described = load_training_job(job)
    check_output(files.model, job, described.data)
    files.check(resume, anew)
    if options.quick:
        files.check_not_whole_fit()
    rows = read_job_rows(described)
    _check_enough_rows(described, rows)
    for warning in diagnose_job(described, rows).warnings:
        print_note(warning)
    model = _estimator(described, files.checkpoint, options)
    model.set_params(verbose=is_interactive())
    start, X = time.perf_counter(), rows.X[list(described.x_columns)]
    resuming = f"{options.command(job, files.model)} --resume"
    with files.resumable(resuming), EpochLog(files.running_history, tensorboard) as record:
        if anew:
            files.remove_checkpoint()
        model.fit(X, rows.Y, callback=record)
    seconds = time.perf_counter() - start
    scores = _held_out_scores(model, X, rows)
    notes = _notes(job, described, files, options, rows) | score_notes(scores)
    artifact.save(model, files.model, job=described.text, notes=notes)
    files.finish(model)
    _print_summary(model, scores, files, seconds, options.quick)


def _notes(job: Path, described: Job, files: FitFiles, options: FitOptions, rows: TableRows) -> dict[str, Any]:
    """Return the notes of the model file on how it was made."""

    notes = {"data": described.data.name, "data_sha256": file_sha256(described.data), "rows": len(rows.X)}
    notes |= {"quick": options.quick} | ({"rows left out": rows.n_incomplete} if rows.n_incomplete else {})
    return notes | {"job file": _relative_path(job, files.model.parent), **options.notes()}


def _check_enough_rows(job: Job, rows: TableRows) -> None:
    from equipoise.app.tables import TableError
    from equipoise.data import LEAST_MEASURED

    if len(rows.Y) < LEAST_MEASURED:
        rule = f"'{job.data.name}' must hold {LEAST_MEASURED} rows at least to learn from"
        raise TableError(f"{rule}, but got {len(rows.Y)}. Add more.")


def _train_along(job: Path, files: FitFiles, options: FitOptions) -> None:
    """Take part in a joint training as a process that is not the first: write no file and print nothing.

    Raises: LostProcessError with the advice on how to go on, since this process may be the only one that is left.
    """
    from equipoise.training import LostProcessError

    described = load_training_job(job)
    rows = read_job_rows(described)
    _check_enough_rows(described, rows)
    model = _estimator(described, None, options)
    try:
        model.fit(rows.X[list(described.x_columns)], rows.Y)
    except LostProcessError as error:
        resuming = f"{options.command(job, files.model)} --resume"
        raise LostProcessError(f"{error} {files.advice(resuming)}") from error


@contextmanager
def _process_group() -> Iterator[tuple[int, int]]:
    """Join the processes that torchrun started, and yield the number of this one and how many there are.

    If several of them fail, the first prints its error; the others end without a word.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":  # not started by torchrun; torch takes seconds to import
        yield 0, 1
        return
    from equipoise.training import joined

    with joined() as group:
        try:
            yield group.rank, group.size
        except Exception as error:
            if not group.tells_first():
                raise SystemExit(WRONG_INPUT if isinstance(error, EquipoiseError) else BUG) from None
            raise


def _estimator(job: Job, checkpoint: Path | None, options: FitOptions) -> ConstrainedBNNRegressor:
    """Return the unfitted estimator of a job, with the changes of the command line."""
    from equipoise.training import current

    overrides: dict[str, Any] = dict(QUICK) if options.quick else {}
    overrides |= {"random_state": options.seed} if options.seed is not None else {}
    overrides |= {"device": options.device} if options.device is not None else {}
    model = job.estimator(checkpoint=checkpoint, **overrides)
    model.set_params(device=current().own_device(model.device))
    check_device(model.device)
    return model


def _relative_path(path: Path, folder: Path) -> str:
    """Return the path of a file as seen from a folder; its name alone if it is on another drive.

    Example:
        >>> _relative_path(Path("cell.toml"), Path(".")), _relative_path(Path("jobs/cell.toml"), Path("models"))
        ('cell.toml', '../jobs/cell.toml')
    """
    with suppress(ValueError):  # on another drive
        return Path(os.path.relpath(path, folder)).as_posix()
    return path.name


def _held_out_scores(model: ConstrainedBNNRegressor, X: Any, rows: TableRows) -> Scores:
    """Score the outputs over the rows that were held out to decide when to stop; nothing if there are none."""
    held_out = model.held_out_
    return output_scores(model, X.iloc[held_out], rows.Y.iloc[held_out]) if len(held_out) else {}


def _print_summary(
    model: ConstrainedBNNRegressor, scores: Scores, files: FitFiles, seconds: float, quick: bool
) -> None:
    if scores:
        print_scores(f"{len(model.held_out_)} rows held out to decide when to stop", scores)
    print_tolerances(model.tolerances_.reset_index().to_dict("records"))
    epochs, best = model.history_.epochs, model.history_.best_epoch
    state = f"epoch {best}" if best >= 0 else "the last"
    print_text(f"{len(epochs)} epochs in {seconds:.0f} s; kept the state of {state}.")
    if quick:
        print_note("--quick is for a first look; fit without it for results.")
    print_text(f"Written: {files.model}, {files.history}")
