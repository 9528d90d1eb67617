"""The file of a journal: what a full disk does to it is told, and does not cost the trials before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from equipoise.errors import EquipoiseError

Optuna = Storage = Any  # Optuna is imported when it is needed


class TuningError(EquipoiseError, RuntimeError):
    """A study that cannot be run or continued, and why."""


@contextmanager
def kept_in(journal: Path) -> Iterator[None]:
    """Says of a journal that cannot be written that it is the one; nothing empty is left behind."""
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
    """Optuna's storage in a journal, which is begun if there is none."""
    journal.parent.mkdir(parents=True, exist_ok=True)
    files = optuna.storages.journal
    if journal.is_file():
        lock = files.JournalFileSymlinkLock(str(journal))  # the one that others take to write
        lock.acquire()
        try:
            _drop_torn_line(journal)
        finally:
            lock.release()
    return optuna.storages.JournalStorage(files.JournalFileBackend(str(journal)))


def _drop_torn_line(journal: Path) -> None:
    """Take away a last line that was not written to its end: with the next one behind it, neither could be read."""
    *lines, last = journal.read_bytes().split(b"\n")
    if last and all(map(_is_entry, lines)):
        with open(journal, "r+b") as file:
            file.truncate(sum(len(line) + 1 for line in lines))


def _is_entry(line: bytes) -> bool:
    """Whether a line is one of a journal; other files are nobody's to change."""
    try:
        return "op_code" in json.loads(line)
    except (ValueError, TypeError):
        return False
