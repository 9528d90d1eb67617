"""`equipoise fit`: train the model that a job describes, and keep it in one file."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.app.commands.board import Board
from equipoise.app.commands.bug_report import SOFTWARE
from equipoise.app.commands.screen import is_watched, number, remark, say, table
from equipoise.errors import EquipoiseError

if TYPE_CHECKING:
    from equipoise.app.commands.rows import RowsOfTable
    from equipoise.app.job import Job
    from equipoise.estimator import ConstrainedBNNRegressor

HELD_OUT = "held-out"  # begins the names of scores among the notes of a model file
QUICK = {"hidden": (32,), "max_epochs": 60, "n_draws": 64}


def run(
    job: Annotated[Path, typer.Argument(help="The job file.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The model file; beside the job file by default.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a fit that was cut short.")] = False,
    anew: Annotated[bool, typer.Option("--anew", help="Forget a fit that was cut short, and start again.")] = False,
    seed: Annotated[int | None, typer.Option(help="Instead of the job's seed.", min=0)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A first look: small network, 60 epochs.")] = False,
    device: Annotated[str | None, typer.Option(help="Where torch computes, for instance cuda.")] = None,
    tensorboard: Annotated[Path | None, typer.Option(help="Folder for TensorBoard's records.")] = None,
) -> None:
    """Train a model and write it to one file, with the history of the training beside it (….run.jsonl).

    A fit that is cut short keeps a checkpoint (….ckpt) and goes on with --resume to the very same model. Several
    processes train one model together: torchrun --nproc-per-node 2 -m equipoise fit JOB.
    """
    with _together() as (rank, processes):
        files = _Files(output or job.with_suffix(".safetensors"))
        if rank > 0:
            _follow(job, files, seed, quick, device, processes)
        else:
            _fit(job, files, resume, anew, seed, quick, device, tensorboard, processes)


def _fit(
    job: Path,
    files: _Files,
    resume: bool,
    anew: bool,
    seed: int | None,
    quick: bool,
    device: str | None,
    tensorboard: Path | None,
    processes: int,
) -> None:
    from equipoise.app.commands.check import diagnosis_of
    from equipoise.app.commands.rows import check_output, fingerprint, job_to_learn, rows_of_job
    from equipoise.artifact import model_file as artifact

    described = job_to_learn(job)
    check_output(files.target, job, described.data)
    files.check(resume, anew)
    if quick:
        _keep_whole_fit(files.target)
    rows = rows_of_job(described)
    _check_rows(described, rows)
    for warning in diagnosis_of(described, rows).warnings:
        remark(warning)
    model = _estimator(described, files.checkpoint, seed, quick, device)
    model.set_params(verbose=is_watched())
    start, X = time.perf_counter(), rows.X[list(described.x_columns)]
    again = f"{line(job, files.target, seed, quick, device, processes)} --resume"
    with _kept(files, again), _recording(files.running, tensorboard) as record:
        files.start(anew)
        model.fit(X, rows.Y, callback=record)
    seconds = time.perf_counter() - start
    scores = _scores(model, X, rows)
    notes = {"data": described.data.name, "data_sha256": fingerprint(described.data), "rows": len(X), "quick": quick}
    notes |= {"rows left out": rows.left_out} if rows.left_out else {}
    notes |= {"job file": _seen_from(files.target, job), **_unusual(device, processes)}
    artifact.save(model, files.target, job=described.text, notes=notes | _flat(scores))
    files.finish(model)
    _summarise(model, scores, files, seconds, quick)


def _keep_whole_fit(target: Path) -> None:
    """Raise if a first look would take the place of a model that was fitted without --quick."""
    from equipoise.artifact import ArtifactError, describe

    try:
        whole = describe(target).notes.get("quick") is False
    except ArtifactError:  # no model there, or nothing that could be lost
        return
    if whole:
        rule = f"--quick must not replace a whole fit, but got '{target}'"
        raise ArtifactError(f"{rule}. Give another name with -o, or fit without --quick.")


def _check_rows(job: Job, rows: RowsOfTable) -> None:
    from equipoise.app.tables import TableError
    from equipoise.data import LEAST_MEASURED

    if len(rows.Y) < LEAST_MEASURED:
        rule = f"'{job.data.name}' must hold {LEAST_MEASURED} rows at least to learn from"
        raise TableError(f"{rule}, but got {len(rows.Y)}. Add more.")


def _follow(job: Path, files: _Files, seed: int | None, quick: bool, device: str | None, processes: int) -> None:
    """What a process that is not the first does: the same training, of which it keeps nothing, and tells nothing unless
    it is the one that is left.
    """
    from equipoise.app.commands.rows import job_to_learn, rows_of_job
    from equipoise.training import LostProcessError

    described = job_to_learn(job)
    rows = rows_of_job(described)
    _check_rows(described, rows)
    model = _estimator(described, None, seed, quick, device)
    try:
        model.fit(rows.X[list(described.x_columns)], rows.Y)
    except LostProcessError as error:
        again = f"{line(job, files.target, seed, quick, device, processes)} --resume"
        raise LostProcessError(f"{error} {files.left(again)}") from error


@contextmanager
def _together() -> Iterator[tuple[int, int]]:
    """Number of this process and how many there are. Of those that fail the first tells why; others end silently."""
    if os.environ.get("WORLD_SIZE", "1") == "1":  # not by torchrun; torch takes seconds to import
        yield 0, 1
        return
    from equipoise.training import joined

    with joined() as group:
        try:
            yield group.rank, group.size
        except Exception as error:
            if not group.tells_first():
                raise SystemExit(2 if isinstance(error, EquipoiseError) else SOFTWARE) from None
            raise


def _estimator(
    job: Job, checkpoint: Path | None, seed: int | None, quick: bool, device: str | None
) -> ConstrainedBNNRegressor:
    from equipoise.app.commands.device import check_device
    from equipoise.training import current

    overrides: dict[str, Any] = dict(QUICK) if quick else {}
    overrides |= {"random_state": seed} if seed is not None else {}
    overrides |= {"device": device} if device is not None else {}
    model = job.estimator(checkpoint=checkpoint, **overrides)
    model.set_params(device=current().own_device(model.device))
    check_device(model.device)
    return model


def _seen_from(target: Path, job: Path) -> str:
    """Where the job file is, from the folder of the model.

    Example:
        >>> _seen_from(Path("m"), Path("cell.toml")), _seen_from(Path("models/m"), Path("jobs/cell.toml"))
        ('cell.toml', '../jobs/cell.toml')
    """
    with suppress(ValueError):  # on another drive
        return Path(os.path.relpath(job, target.parent)).as_posix()
    return job.name


def _unusual(device: str | None, processes: int) -> dict[str, str | int]:
    """How a fit was made, as far as it was said."""
    said = {} if device is None else {"device": device}
    return said | ({} if processes == 1 else {"processes": processes})


def line(job: Path, target: Path, seed: int | None, quick: bool, device: str | None = None, processes: int = 1) -> str:
    """The command line of a fit.

    Example:
        >>> line(Path("my cell.toml"), Path("cell.safetensors"), 3, False)
        "equipoise fit 'my cell.toml' -o cell.safetensors --seed 3"
        >>> line(Path("cell.toml"), Path("cell.safetensors"), None, False, "cuda", processes=2)
        'torchrun --nproc-per-node 2 -m equipoise fit cell.toml -o cell.safetensors --device cuda'
    """
    options = [*(["--seed", str(seed)] if seed is not None else []), *(["--quick"] if quick else [])]
    options += [] if device is None else ["--device", device]
    here = os.environ.get("LOCAL_WORLD_SIZE", str(processes))  # of several machines, each starts its own
    together = ["torchrun", "--nproc-per-node", here, "-m", "equipoise"]
    program = together if processes > 1 else ["equipoise"]
    return shlex.join([*program, "fit", str(job), "-o", str(target), *options])


class _Files:
    """The files of a fit: model and history, which appear together when it is done; checkpoint and running history."""

    def __init__(self, target: Path):
        self.target = target
        self.checkpoint = target.parent / f"{target.name}.ckpt"
        self.history = target.parent / f"{target.stem}.run.jsonl"
        self.running = target.parent / f"{target.stem}.run.jsonl.part"

    def check(self, resume: bool, anew: bool) -> None:
        from equipoise.artifact import ArtifactError

        if resume and anew:
            raise ArtifactError("--resume and --anew exclude each other, but got both. Leave one of them out.")
        if not self.target.parent.is_dir():
            raise ArtifactError(f"The folder of '{self.target}' must exist, but got none. Make it first.")
        if self.target.is_dir():
            raise ArtifactError(f"The model's file must not be a folder, but got '{self.target}'. Give a file name.")
        if self.target.exists() and not self.target.is_file():
            rule = f"The model's file must not be a device or a pipe, but got '{self.target}'"
            raise ArtifactError(f"{rule}. Give a file name.")
        self._check_writable()
        if self.checkpoint.exists() and not (resume or anew):
            advice = "Add --resume to go on with it, or --anew to start again."
            raise ArtifactError(f"'{self.checkpoint}' is there from a fit that was cut short. {advice}")
        if resume and not self.checkpoint.exists():
            remark(f"there is no '{self.checkpoint}' to go on from: the fit starts from its beginning.")

    def _check_writable(self) -> None:
        """Now, not after hours of training."""
        from equipoise.artifact import ArtifactError

        try:
            with tempfile.TemporaryFile(dir=self.target.parent):
                pass
        except OSError as error:
            rule = f"The folder of '{self.target}' must be writable, but got: {error.strerror or error}"
            raise ArtifactError(f"{rule}. Give another place with -o.") from error

    def start(self, anew: bool) -> None:
        if anew:
            self.checkpoint.unlink(missing_ok=True)

    def left(self, again: str) -> str:
        """What is left of a fit that was cut short."""
        return f"Go on with: {again}" if self.checkpoint.exists() else "Nothing is kept: no checkpoint was due yet."

    def tidy(self) -> None:
        """A running history is of use only together with a checkpoint."""
        if not self.checkpoint.exists():
            self.running.unlink(missing_ok=True)

    def finish(self, model: ConstrainedBNNRegressor) -> None:
        """The whole history, also of a fit that was resumed; the checkpoint has done its service."""
        from equipoise.artifact import write

        text = "".join(json.dumps(record) + "\n" for record in model.history_.epochs)
        write(self.history, lambda file: file.write(text.encode()))
        self.running.unlink(missing_ok=True)
        self.checkpoint.unlink(missing_ok=True)


@contextmanager
def _kept(files: _Files, again: str) -> Iterator[None]:
    """Says what is left of a fit that is cut short."""
    from equipoise.artifact import ArtifactError
    from equipoise.training import LostProcessError

    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        remark(files.left(again))
        raise
    except LostProcessError as error:
        raise LostProcessError(f"{error} {files.left(again)}") from error
    except OSError as error:
        rule = f"The fit of '{files.target}' must be kept as it goes, but got: {error.strerror or error}"
        raise ArtifactError(f"{rule}. Make room, or give another place with -o. {files.left(again)}") from error
    finally:
        files.tidy()


class _recording:  # noqa: N801
    """Writes down each epoch while training runs, and for TensorBoard if asked for."""

    def __init__(self, path: Path, folder: Path | None):
        self.path, self.begun, self.board = path, False, Board(folder)

    def __enter__(self) -> Callable[[dict], None]:
        self.board.__enter__()
        return self._record

    def _record(self, record: dict) -> None:
        if not self.begun:
            self._begin(record["epoch"])
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        self.board.add(record)

    def _begin(self, epoch: int) -> None:
        """Keep earlier epochs only: those since the last checkpoint of a fit that was cut short are run once more."""
        lines = self.path.read_text("utf-8").splitlines(keepends=True) if epoch and self.path.exists() else []
        self.path.write_text("".join(lines[:epoch]), "utf-8")
        self.begun = True

    def __exit__(self, *exception: object) -> None:
        self.board.__exit__(*exception)


def _scores(model: ConstrainedBNNRegressor, X: Any, rows: RowsOfTable) -> dict[str, dict[str, float]]:
    """By output, over the rows that were held out to decide when to stop."""
    from equipoise.app.commands.evaluate import scores_of_outputs

    held_out = model.held_out_
    return scores_of_outputs(model, X.iloc[held_out], rows.Y.iloc[held_out]) if len(held_out) else {}


def _flat(scores: dict[str, dict[str, float]]) -> dict[str, float]:
    """Scores as notes of a model file, which are single values."""
    return {f"{HELD_OUT} {name} of {output}": value for output, some in scores.items() for name, value in some.items()}


def scores_in(notes: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The scores among the notes of a model file, by output.

    Example:
        >>> scores_in(_flat({"V [V]": {"rmse": 0.1}}) | {"rows": 300})
        {'V [V]': {'rmse': 0.1}}
    """
    scores: dict[str, dict[str, float]] = {}
    for key, value in notes.items():
        if key.startswith(f"{HELD_OUT} "):
            name, _, output = key.removeprefix(f"{HELD_OUT} ").partition(" of ")
            scores.setdefault(output, {})[name] = value
    return scores


def _summarise(model: ConstrainedBNNRegressor, scores: dict, files: _Files, seconds: float, quick: bool) -> None:
    from equipoise.app.commands.evaluate import show_scores

    if scores:
        show_scores(f"{len(model.held_out_)} rows held out to decide when to stop", scores)
    show_tolerances(model.tolerances_.reset_index().to_dict("records"))
    epochs, best = model.history_.epochs, model.history_.best_epoch
    say(f"{len(epochs)} epochs in {seconds:.0f} s; kept the state of {f'epoch {best}' if best >= 0 else 'the last'}.")
    if quick:
        remark("--quick is for a first look; fit without it for results.")
    say(f"Written: {files.target}, {files.history}")


def show_tolerances(balances: list[dict[str, Any]]) -> None:
    """How far each balance can be trusted."""
    if not balances:
        return
    header = ["balance", "verdict", "unit", "tolerance (sd)", "95 % interval", "KL [nats]"]
    lines = []
    for balance in balances:
        interval = f"{number(balance['tol_std_lower'])} – {number(balance['tol_std_upper'])}"
        told = [number(balance["tol_std"]), interval, number(balance["kl"])]
        lines.append([str(balance["balance"]), str(balance["verdict"]), str(balance["unit"] or ""), *told])
    table("Balances", header, lines, left=3)
    for balance in balances:
        if balance["note"]:
            remark(f"balance '{balance['balance']}': {balance['note']}")
