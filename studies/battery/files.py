"""Files of the study, each written as a whole: a reader sees the old content or the new, never a part of it."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from equipoise import write_atomically


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all.

    Args:
        path: The file; replaced if it exists.
        content: Its bytes.
    """
    write_atomically(path, lambda file: file.write(content))


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
