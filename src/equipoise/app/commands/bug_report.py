"""Errors that the library does not raise on purpose: one sentence, and a file with the traceback for a bug report."""

from __future__ import annotations

import platform
import shlex
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib.metadata import version

from equipoise.app.commands.console import print_error
from equipoise.app.commands.exit_codes import BUG


def report_bug(error: BaseException, arguments: Sequence[str]) -> int:
    """Write the traceback of an unexpected error to a file, print where it is, and return the exit code.

    Args:
        error: An error that no part of the library raises on purpose.
        arguments: The command line, without the program's name.
    Returns: `exit_codes.BUG`.
    """
    text = traceback_text(error, arguments)
    cause = f"{type(error).__name__}: {error}"
    rule = f"This is a bug in equipoise, not in what was given to it ({cause})"
    try:
        handle, path = tempfile.mkstemp(prefix="equipoise-", suffix=".txt")
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:  # no folder for temporary files: the traceback must not be lost
        print_error(f"{rule}. Please report it with the text below.")
        print(text, file=sys.stderr)
    else:
        print_error(f"{rule}. Please report it with the traceback in '{path}'.")
    return BUG


def traceback_text(error: BaseException, arguments: Sequence[str]) -> str:
    """Return the text of a bug report: versions, the command line and the traceback.

    Args:
        error: The unexpected error.
        arguments: The command line, without the program's name.
    """
    versions = f"equipoise {version('equipoise')}, Python {platform.python_version()}, {platform.platform()}"
    command = shlex.join(["equipoise", *arguments])
    return "\n".join([versions, command, "", *traceback.format_exception(error)])
