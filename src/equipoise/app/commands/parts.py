"""Many tables predicted into one folder: a file for each, whole or not at all, one after the other or side by side.

Each table is predicted as if it were alone; also its random draws, which depend on a row's position in its own table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from equipoise.app.commands.extent import Extent
from equipoise.app.commands.screen import is_watched, remark

NOTE = ".equipoise-predict.json"  # in the folder: what its tables were made with


class Engine(StrEnum):
    """What predicts several tables at a time."""

    processes = "processes"
    dask = "dask"


@dataclass(frozen=True)
class Asked:
    """What is asked of every row, as on the command line."""

    measured: bool = False
    level: float = 0.95
    samples: int = 0
    ledger: bool = False
    device: str | None = None
    skip_incomplete: bool = False


@dataclass(frozen=True)
class Part:
    """One table to be predicted: a picklable task for `run_many`."""

    model: Path
    data: Path
    output: Path
    asked: Asked

    def __call__(self, progress: Callable[[float], None]) -> Extent:
        """Its rows."""
        from equipoise.app.commands.predict import write_table

        loaded = _loaded(self.model, self.model.stat().st_mtime_ns, self.asked.device)
        extent = write_table(loaded, self.data, self.output, self.asked)
        progress(1.0)
        return extent


@lru_cache(maxsize=1)
def _loaded(model: Path, modified: int, device: str | None) -> Any:
    """The model, read once for all tables that a process predicts."""
    from equipoise.artifact import model_file as artifact

    return artifact.load(model, device)


def predict_parts(
    model: Path,
    data: Sequence[Path],
    folder: Path,
    asked: Asked,
    *,
    resume: bool = False,
    engine: Engine | None = None,
    workers: int | None = None,
) -> tuple[int, Extent]:
    """Write the predictions of every table to a file of the same name in `folder`.

    Args:
        model: The model file.
        data: The tables; their file names must differ.
        folder: Made if it is not there.
        asked: Of every row.
        resume: Leave those alone that are there, made with the same model and options.
        engine: Side by side in processes of this machine or on a Dask cluster; None for one after the other.
        workers: How many processes; by default one for each core.
    Returns: How many tables were predicted, and their rows.
    """
    from equipoise.training import run_many

    _check(model, data, folder)
    parts = [Part(model.resolve(), path.resolve(), folder.resolve() / path.name, asked) for path in data]
    tasks: Any = {part.data.name: part for part in _begin(parts, folder, resume)}
    with _left_clean(parts, folder), _running(engine, workers) as processes:
        done = run_many(tasks, processes, verbose=is_watched())
    return len(done), sum(done.values(), start=Extent())


def _check(model: Path, data: Sequence[Path], folder: Path) -> None:
    from equipoise.app.tables import DELIMITERS, TableError, check_source

    seen: dict[str, Path] = {}
    sources = {path.resolve() for path in (model, *data)}
    for path in data:
        check_source(path)
        if seen.setdefault(path.name, path) is not path:
            rule = f"Tables must have different file names, but got '{seen[path.name]}' and '{path}'"
            raise TableError(f"{rule}. Predict them into different folders.")
        if (folder / path.name).resolve() in sources:
            rule = f"--output must not be the folder of what is read, but got '{folder}', where '{path.name}' is"
            raise TableError(f"{rule}. Name another folder.")
    if not folder.is_dir() and (folder.exists() or folder.suffix.lower() in {*DELIMITERS, ".parquet"}):
        raise TableError(f"--output must be a folder for several tables, but got '{folder}'. Name a folder.")
    if not folder.resolve().parent.is_dir():
        raise TableError(f"The folder of '{folder}' must exist, but got none. Make it first.")


def _begin(parts: Sequence[Part], folder: Path, resume: bool) -> list[Part]:
    """The tables that are left to do; from now on the folder says what its tables are made with."""
    from equipoise.app.commands.rows import fingerprint
    from equipoise.app.tables import TableError
    from equipoise.data import write_atomically

    said = json.dumps({"model": fingerprint(parts[0].model), **asdict(parts[0].asked)}, sort_keys=True)
    note, there = folder / NOTE, [part for part in parts if part.output.exists()]
    if there and not resume:
        advice = "Add --resume to predict only what is missing, or name another folder"
        raise TableError(f"Results must not be there yet, but got '{there[0].output}'. {advice}.")
    if there and _text_of(note) != said:
        rule = f"--resume must go on with the same model and options, but '{folder}' was made with others"
        raise TableError(f"{rule}. Name another folder.")
    try:
        folder.mkdir(exist_ok=True)
        write_atomically(note, lambda file: file.write(said.encode()))
    except OSError as error:
        rule = f"--output must be a folder that can be written to, but got '{folder}': {error.strerror or error}"
        raise TableError(f"{rule}. Name another folder.") from error
    return [part for part in parts if part not in there]


def _text_of(note: Path) -> str | None:
    """Return what a note says, or None where there is none that can be read."""
    try:
        return note.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


@contextmanager
def _left_clean(parts: Sequence[Part], folder: Path) -> Iterator[None]:
    """Nothing half-written stays behind, also of processes that were killed; says what is left of a failure."""
    try:
        yield
    except BaseException:
        n_done = sum(part.output.exists() for part in parts)
        remark(f"{n_done} of {len(parts)} tables are in '{folder}'; go on with --resume.")
        raise
    finally:
        for part in parts:
            for piece in folder.glob(f".{part.output.name}.*.part"):
                piece.unlink(missing_ok=True)


@contextmanager
def _running(engine: Engine | None, workers: int | None) -> Iterator[int | None]:
    """How many processes of this machine; with Dask its cluster decides."""
    if engine is not Engine.dask:
        yield 1 if engine is None else workers
        return
    import joblib

    with _dask_client(workers), joblib.parallel_config(backend="dask"):
        yield None


@contextmanager
def _dask_client(workers: int | None) -> Iterator[Any]:
    """That of the cluster that DASK_SCHEDULER_ADDRESS names, or of one on this machine."""
    from equipoise.artifact import ArtifactError

    try:
        import distributed
        from dask import config
    except ImportError:
        advice = "pip install 'equipoise[cluster]'"
        raise ArtifactError(f"--engine dask needs Dask, but it is not installed. {advice}") from None
    if address := config.get("scheduler-address", None):
        try:
            client = distributed.Client()
        except OSError as error:  # its TimeoutError too
            rule = f"The Dask scheduler at '{address}' must be reachable, but got: {error}"
            raise ArtifactError(f"{rule}. Start it, or unset DASK_SCHEDULER_ADDRESS.") from error
        with client:
            yield client
        return
    settings: Any = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster) as client:
        yield client
