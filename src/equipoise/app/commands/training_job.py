"""The job file of a command that learns, and its refusal: of columns before balances, of a plant's job with advice."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from equipoise.app.job import Job


def load_training_job(path: Path) -> Job:
    """Load a job file from which a model can be learned.

    Raises: JobError, if it is not one; the message names missing columns first, and for the job of a plant the command
        that uses it.
    """
    from equipoise.app.job import Job, JobError, Plant

    try:
        return Job.load(path)
    except JobError as error:
        _check_columns(path)
        try:
            Plant.load(path)
        except JobError:
            raise error from None
        command = shlex.join(["equipoise", "reconcile", str(path)])
        raise JobError(f"{error} If it is the job of a plant, use: {command}") from error


def _check_columns(path: Path) -> None:
    """Raise JobError if a job's columns are not in its table, which may be the cause of other errors in the job."""
    import tomllib

    from equipoise.app.job import Job, JobError
    from equipoise.app.tables import TableError, header

    try:
        values = tomllib.loads(path.read_text("utf-8-sig"))
        job = Job(**{key: values[key] for key in ("data", "inputs", "outputs", "known") if key in values})
        job._file, names = path.name, header(path.parent / job.data)
    except (OSError, ValueError, TypeError, JobError, TableError):
        return
    job.check_header(names)
