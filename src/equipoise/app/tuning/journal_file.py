"""The journal file of a study: errors of writing are reported, and a line cut short by a full disk is removed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from equipoise.errors import EquipoiseError

Optuna = Storage = Any  # Optuna is imported when it is needed


class TuningError(EquipoiseError, RuntimeError):
    """A study that cannot be run or continued; the message says why."""


@contextmanager
def named_in_errors(journal: Path) -> Iterator[None]:
    """Turn an OSError into a TuningError that names the journal, and remove the journal if it is empty."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        with suppress(OSError):
            if not journal.stat().st_size:
                journal.unlink()
        rule = f"The journal '{journal}' must be writable, but got: {error.strerror or error}"
        raise TuningError(
            f"{rule}. Make room or give another name; the same line goes on with what is kept."
        ) from error


def storage_in(optuna: Optuna, journal: Path) -> Storage:
    """Open Optuna's storage in a journal file, which is created if there is none.

    Args:
        optuna: The module.
        journal: Path of the file; a last line that was cut short is removed from it.
    """
    journal.parent.mkdir(parents=True, exist_ok=True)
    files = optuna.storages.journal
    if journal.is_file():
        lock = files.JournalFileSymlinkLock(str(journal))  # the lock that other processes take to write
        lock.acquire()
        try:
            _drop_torn_line(journal)
        finally:
            lock.release()
    return optuna.storages.JournalStorage(files.JournalFileBackend(str(journal)))


def _drop_torn_line(journal: Path) -> None:
    """Remove a last line that was not written to its end: with the next one behind it, neither could be read."""
    *lines, last = journal.read_bytes().split(b"\n")
    if last and all(map(_is_entry, lines)):
        with open(journal, "r+b") as file:
            file.truncate(sum(len(line) + 1 for line in lines))


def _is_entry(line: bytes) -> bool:
    """Return whether a line is an entry of a journal; files without such lines are not changed."""
    try:
        return "op_code" in json.loads(line)
    except (ValueError, TypeError):
        return False
