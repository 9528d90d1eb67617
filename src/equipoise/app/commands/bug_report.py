"""Errors that nobody raised on purpose: one sentence that says so, and a file with the traceback for a bug report."""

from __future__ import annotations

import platform
import shlex
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib.metadata import version

from equipoise.app.commands.screen import problem

SOFTWARE = 70  # EX_SOFTWARE of sysexits.h: an error inside the program


def report_bug(error: BaseException, arguments: Sequence[str]) -> int:
    """Write the traceback of an unexpected error to a file, say where it is, and return the exit code.

    Args:
        error: An error that no part of the library raises on purpose.
        arguments: The command line, without the program's name.
    Returns: `SOFTWARE`.
    """
    text = traceback_text(error, arguments)
    cause = f"{type(error).__name__}: {error}"
    rule = f"This is a bug in equipoise, not in what was given to it ({cause})"
    try:
        handle, path = tempfile.mkstemp(prefix="equipoise-", suffix=".txt")
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:  # no folder for temporary files: the traceback must not be lost
        problem(f"{rule}. Please report it with the text below.")
        print(text, file=sys.stderr)
    else:
        problem(f"{rule}. Please report it with the traceback in '{path}'.")
    return SOFTWARE


def traceback_text(error: BaseException, arguments: Sequence[str]) -> str:
    """Return what a bug report needs: versions, the command line and the traceback."""
    versions = f"equipoise {version('equipoise')}, Python {platform.python_version()}, {platform.platform()}"
    line = shlex.join(["equipoise", *arguments])
    return "\n".join([versions, line, "", *traceback.format_exception(error)])
