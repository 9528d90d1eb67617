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
from typing import TYPE_CHECKING, Any

from equipoise.app.commands.console import is_interactive, print_note
from equipoise.app.commands.prediction_table import PredictionOptions, write_table
from equipoise.app.commands.row_counts import RowCounts
from equipoise.app.commands.table_rows import file_sha256

if TYPE_CHECKING:
    from equipoise.estimator import ConstrainedBNNRegressor

SETTINGS_FILE = ".equipoise-predict.json"  # in the folder: the model and the options that its tables were made with


class Engine(StrEnum):
    """The engine that predicts several tables at a time."""

    processes = "processes"
    dask = "dask"


@dataclass(frozen=True)
class TableTask:
    """The prediction of one table: a picklable task for `run_many`.

    Args:
        model: The model file.
        data: The table.
        output: The file of its predictions.
        options: What is predicted.
    """

    model: Path
    data: Path
    output: Path
    options: PredictionOptions

    def __call__(self, progress: Callable[[float], None]) -> RowCounts:
        """Write the predictions, report the share that is done, and return the counts of the table's rows."""
        model = _load_model(self.model, self.model.stat().st_mtime_ns, self.options.device)
        counts = write_table(model, self.data, self.output, self.options)
        progress(1.0)
        return counts


@lru_cache(maxsize=1)
def _load_model(path: Path, modified: int, device: str | None) -> ConstrainedBNNRegressor:
    """Load a model once for all tables that a process predicts.

    Args:
        path: The model file.
        modified: When it was modified, in nanoseconds, so that a new model in the same file is loaded again.
        device: Where torch computes.
    """
    from equipoise.app.commands.open_model import open_model

    return open_model(path, device)


def predict_tables(
    model: Path,
    data: Sequence[Path],
    folder: Path,
    options: PredictionOptions,
    *,
    resume: bool = False,
    engine: Engine | None = None,
    workers: int | None = None,
) -> tuple[int, RowCounts]:
    """Write the predictions of every table to a file of the same name in a folder.

    Args:
        model: The model file.
        data: The tables; their file names must differ.
        folder: The folder; it is made if it does not exist.
        options: What is predicted for every row.
        resume: Skip tables whose predictions exist, made with the same model and options.
        engine: Side by side in processes of this machine or on a Dask cluster; None for one after the other.
        workers: How many processes; by default one for each core.
    Returns: How many tables were predicted, and the counts of their rows.
    Raises: TableError, if the folder cannot be used, or has predictions of another model or other options.
    """
    from equipoise.training import run_many

    _check_paths(model, data, folder)
    tasks = [TableTask(model.resolve(), path.resolve(), folder.resolve() / path.name, options) for path in data]
    pending: Any = {task.data.name: task for task in _prepare_folder(tasks, folder, resume)}
    with _clean_folder(tasks, folder), _processes(engine, workers) as n_processes:
        counts = run_many(pending, n_processes, verbose=is_interactive())
    return len(counts), sum(counts.values(), start=RowCounts())


def _check_paths(model: Path, data: Sequence[Path], folder: Path) -> None:
    """Raise TableError if two tables have one name, or a file that is read would be overwritten, or no folder fits."""
    from equipoise.app.tables import DELIMITERS, TableError, check_source

    by_name: dict[str, Path] = {}
    sources = {path.resolve() for path in (model, *data)}
    for path in data:
        check_source(path)
        if by_name.setdefault(path.name, path) is not path:
            rule = f"Tables must have different file names, but got '{by_name[path.name]}' and '{path}'"
            raise TableError(f"{rule}. Predict them into different folders.")
        if (folder / path.name).resolve() in sources:
            rule = f"--output must not be the folder of what is read, but got '{folder}', where '{path.name}' is"
            raise TableError(f"{rule}. Name another folder.")
    if not folder.is_dir() and (folder.exists() or folder.suffix.lower() in {*DELIMITERS, ".parquet"}):
        raise TableError(f"--output must be a folder for several tables, but got '{folder}'. Name a folder.")
    if not folder.resolve().parent.is_dir():
        raise TableError(f"The folder of '{folder}' must exist, but got none. Make it first.")


def _prepare_folder(tasks: Sequence[TableTask], folder: Path, resume: bool) -> list[TableTask]:
    """Make the folder, write model and options into its settings file, and return the tasks that are left to do.

    Raises: TableError, if there are predictions that must not be added to, or the folder cannot be written to.
    """
    from equipoise.app.tables import TableError
    from equipoise.data import write_atomically

    settings = json.dumps({"model": file_sha256(tasks[0].model), **asdict(tasks[0].options)}, sort_keys=True)
    settings_file, done = folder / SETTINGS_FILE, [task for task in tasks if task.output.exists()]
    if done and not resume:
        advice = "Add --resume to predict only what is missing, or name another folder"
        raise TableError(f"Results must not be there yet, but got '{done[0].output}'. {advice}.")
    if done and _read_text(settings_file) != settings:
        rule = f"--resume must go on with the same model and options, but '{folder}' was made with others"
        raise TableError(f"{rule}. Name another folder.")
    try:
        folder.mkdir(exist_ok=True)
        write_atomically(settings_file, lambda file: file.write(settings.encode()))
    except OSError as error:
        rule = f"--output must be a folder that can be written to, but got '{folder}': {error.strerror or error}"
        raise TableError(f"{rule}. Name another folder.") from error
    return [task for task in tasks if task not in done]


def _read_text(path: Path) -> str | None:
    """Return the text of a file, or None if there is none that can be read."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


@contextmanager
def _clean_folder(tasks: Sequence[TableTask], folder: Path) -> Iterator[None]:
    """Remove half-written files at the end, also those of killed processes; after an error print how much is done."""
    try:
        yield
    except BaseException:
        n_done = sum(task.output.exists() for task in tasks)
        print_note(f"{n_done} of {len(tasks)} tables are in '{folder}'; go on with --resume.")
        raise
    finally:
        for task in tasks:
            for half_written in folder.glob(f".{task.output.name}.*.part"):
                half_written.unlink(missing_ok=True)


@contextmanager
def _processes(engine: Engine | None, workers: int | None) -> Iterator[int | None]:
    """Set up the engine, and yield the number of processes of this machine; None where Dask's cluster decides."""
    if engine is not Engine.dask:
        yield 1 if engine is None else workers
        return
    import joblib

    with _dask_client(workers), joblib.parallel_config(backend="dask"):
        yield None


@contextmanager
def _dask_client(workers: int | None) -> Iterator[Any]:
    """Connect to the cluster that DASK_SCHEDULER_ADDRESS names, or else start one on this machine; yield its client.

    Raises: ArtifactError, if Dask is not installed, or the cluster cannot be reached.
    """
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
