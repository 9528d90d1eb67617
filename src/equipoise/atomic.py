"""Files that are there whole or not at all."""

import os
from collections.abc import Callable
from pathlib import Path


def write_atomically(path: Path, write: Callable) -> None:
    """Write a binary file beside its place and move it there: readers see the old one or the new one, never half."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
