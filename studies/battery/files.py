"""Files of the study, each written as a whole: a reader sees the old content or the new, never a part of it."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file under another name and move it to its place.

    Args:
        path: The file; replaced if it exists.
        content: Its bytes.
    """
    place = path.resolve()
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, place)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8.

    Args:
        path: The file; replaced if it exists.
        text: Its text.
    """
    write_bytes(path, text.encode())


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays by name into one compressed npz file.

    Args:
        path: The file; replaced if it exists.
        arrays: The arrays by name.
    """
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write_bytes(path, content.getvalue())
