"""Files that are written whole or not at all."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from equipoise.errors import EquipoiseError


class WriteError(EquipoiseError, OSError):
    """A file cannot be written, for instance because the disk is full.

    Args:
        path: The file.
        reason: The system's reason, also kept as `strerror`.
    """

    def __init__(self, path: Path, reason: str):
        super().__init__(f"'{path}' must be writable, but got: {reason}. Make room, or name another place.")
        self.path, self.strerror = path, reason

    def __reduce__(self) -> tuple:  # an OSError is pickled with its message for an argument
        return WriteError, (self.path, self.strerror)


def write_atomically(path: Path, write: Callable) -> None:
    """Write a binary file under another name and rename it, so that readers see the old or the new one, never half.

    Args:
        path: The file; replaced if it exists, and the file that it points to if it is a link.
        write: Called with the open binary file.
    Raises: WriteError, if the file cannot be written, or is a device or a pipe.
    """
    try:
        _replace(write_target(path), write)
    except OSError as error:
        raise WriteError(path, str(error.strerror or error)) from error


def _replace(target: Path, write: Callable) -> None:
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def write_target(path: Path) -> Path:
    """Return the path of the file to replace: `path`, or the file that it points to if it is a link.

    Raises: OSError, for devices and pipes: a user with the rights to would otherwise replace `/dev/null` by a file.
    """
    target = path.resolve() if path.is_symlink() else path
    if target.exists() and not (target.is_file() or target.is_dir()):
        raise OSError(errno.EINVAL, "it is a device or a pipe, not a file")
    return target
