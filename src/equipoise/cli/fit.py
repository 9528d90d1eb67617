"""`equipoise fit`: train the model that a job describes, and keep it in one file."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.cli.screen import is_watched, number, remark, say, table

if TYPE_CHECKING:
    from equipoise.cli.rows import RowsOfTable
    from equipoise.estimator import ConstrainedBNNRegressor
    from equipoise.job import Job

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

    A fit that is cut short keeps a checkpoint (….ckpt) and goes on with --resume to the very same model.
    """
    from equipoise.job import Job

    described = Job.load(job)
    target = output or job.with_suffix(".safetensors")
    files = _Files(target)
    files.check(resume, anew)
    from equipoise.cli.rows import fingerprint, rows_of_job

    rows = rows_of_job(described)
    _warn(described, rows)
    overrides: dict[str, Any] = dict(QUICK) if quick else {}
    overrides |= {"random_state": seed} if seed is not None else {}
    overrides |= {"device": device} if device is not None else {}
    model = described.estimator(checkpoint=files.checkpoint, verbose=is_watched(), **overrides)
    X = rows.X[list(described.x_columns)]
    start = time.perf_counter()
    with _recording(files.history, tensorboard, resume) as record:
        try:
            model.fit(X, rows.Y, callback=record)
        except KeyboardInterrupt:
            say(f"Interrupted. Go on with: equipoise fit {job} -o {target} --resume")
            raise
    seconds = time.perf_counter() - start
    scores = _scores(model, X, rows)
    notes = {"data": described.data.name, "data_sha256": fingerprint(described.data), "rows": len(X), "quick": quick}
    from equipoise import artifact

    artifact.save(model, target, job=described.text, notes=notes | _flat(scores))
    files.finish(model)
    _summarise(model, scores, target, files, seconds, quick)


class _Files:
    """The files of a fit: model, checkpoint, history."""

    def __init__(self, target: Path):
        self.target = target
        self.checkpoint = target.with_name(f"{target.name}.ckpt")
        self.history = target.with_name(f"{target.stem}.run.jsonl")

    def check(self, resume: bool, anew: bool) -> None:
        from equipoise.description import ArtifactError

        if not self.target.parent.is_dir():
            raise ArtifactError(f"The folder of '{self.target}' must exist, but got none. Make it first.")
        if self.target.is_dir():
            raise ArtifactError(f"The model's file must not be a folder, but got '{self.target}'. Give a file name.")
        if anew:
            self.checkpoint.unlink(missing_ok=True)
        elif self.checkpoint.exists() and not resume:
            advice = "Add --resume to go on with it, or --anew to start again."
            raise ArtifactError(f"'{self.checkpoint}' is there from a fit that was cut short. {advice}")

    def finish(self, model: ConstrainedBNNRegressor) -> None:
        """The whole history, also of a fit that was resumed; the checkpoint has done its service."""
        from equipoise.artifact import write

        text = "".join(json.dumps(record) + "\n" for record in model.history_.epochs)
        write(self.history, lambda file: file.write(text.encode()))
        self.checkpoint.unlink(missing_ok=True)


class _recording:  # noqa: N801
    """Appends each epoch to the history file while training runs, and to TensorBoard's if asked for."""

    def __init__(self, history: Path, folder: Path | None, resume: bool):
        self.history, self.mode = history, "a" if resume else "w"
        self.board = None if folder is None else _board(folder)

    def __enter__(self) -> Callable[[dict], None]:
        self.file = open(self.history, self.mode, encoding="utf-8", buffering=1)
        return self._record

    def _record(self, record: dict) -> None:
        self.file.write(json.dumps(record) + "\n")
        if self.board is not None:
            for name, value in record.items():
                if isinstance(value, float):
                    self.board.add_scalar(name, value, record["epoch"])

    def __exit__(self, *exception: object) -> None:
        self.file.close()
        if self.board is not None:
            self.board.close()


def _board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        from equipoise.description import ArtifactError

        raise ArtifactError(
            "--tensorboard needs TensorBoard, but it is not installed. pip install tensorboard"
        ) from None
    return SummaryWriter(str(folder))


def _warn(job: Job, rows: RowsOfTable) -> None:
    """What check would say, in short."""
    from equipoise.cli.check import diagnosis_of, few_rows

    if (text := few_rows(job, rows)) is not None:
        remark(text)
    if job.balances:
        for warning in diagnosis_of(job, rows).warnings:
            remark(warning)


def _scores(model: ConstrainedBNNRegressor, X: Any, rows: RowsOfTable) -> dict[str, dict[str, float]]:
    """By output, over the rows that were held out to decide when to stop."""
    from equipoise.cli.evaluate import scores_of_outputs

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


def _summarise(
    model: ConstrainedBNNRegressor, scores: dict, target: Path, files: _Files, seconds: float, quick: bool
) -> None:
    from equipoise.cli.evaluate import show_scores

    if scores:
        show_scores(f"{len(model.held_out_)} rows held out to decide when to stop", scores)
    show_tolerances(model.tolerances_.reset_index().to_dict("records"))
    epochs = model.history_.epochs
    say(f"{len(epochs)} epochs in {seconds:.0f} s; kept that of epoch {model.history_.best_epoch}.")
    if quick:
        remark("--quick is for a first look; fit without it for results.")
    say(f"Written: {target}, {files.history}")


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
