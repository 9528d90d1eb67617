"""Files that are there whole or not at all."""

import errno
import os
from collections.abc import Callable
from pathlib import Path


def write_atomically(path: Path, write: Callable) -> None:
    """Write a binary file beside its place and move it there: readers see the old one or the new one, never half."""
    place = write_target(path)
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, place)
    finally:
        part.unlink(missing_ok=True)


def write_target(path: Path) -> Path:
    """Where a file is to be replaced: of a link, what it points to. Raises OSError for devices and pipes: whoever has
    the rights to would otherwise put a file in the place of `/dev/null`.
    """
    place = path.resolve() if path.is_symlink() else path
    if place.exists() and not (place.is_file() or place.is_dir()):
        raise OSError(errno.EINVAL, "it is a device or a pipe, not a file")
    return place
