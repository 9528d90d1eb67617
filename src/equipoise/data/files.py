"""Files that are there whole or not at all."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from equipoise.errors import EquipoiseError


class WriteError(EquipoiseError, OSError):
    """A file cannot be written, for instance because the disk is full; `strerror` holds the system's reason."""

    def __init__(self, path: Path, cause: OSError):
        reason = str(cause.strerror or cause)
        super().__init__(f"'{path}' must be writable, but got: {reason}. Make room, or name another place.")
        self.strerror = reason


def write_atomically(path: Path, write: Callable) -> None:
    """Write a binary file beside its place and move it there: readers see the old one or the new one, never half.

    Args:
        path: Where the file is to be; a link is followed.
        write: Writes the content to the open binary file that it is called with.
    Raises:
        WriteError: The file cannot be written, or its place is a device or a pipe.
    """
    try:
        _write_beside(place_of(path), write)
    except OSError as error:
        raise WriteError(path, error) from error


def _write_beside(place: Path, write: Callable) -> None:
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, place)
    finally:
        part.unlink(missing_ok=True)


def place_of(path: Path) -> Path:
    """Where a file is to be replaced: of a link, what it points to. Raises OSError for devices and pipes: whoever has
    the rights to would otherwise put a file in the place of `/dev/null`.
    """
    place = path.resolve() if path.is_symlink() else path
    if place.exists() and not (place.is_file() or place.is_dir()):
        raise OSError(errno.EINVAL, "it is a device or a pipe, not a file")
    return place
