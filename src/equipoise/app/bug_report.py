"""How a program ends on an error: one sentence and an exit code, and for bugs of ours a file with the traceback.

`equipoise`, and the programs beside it that `python -m` starts, call `exit_code_of` alone.
"""

from __future__ import annotations

import platform
import shlex
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from equipoise.errors import EquipoiseError

WRONG_INPUT = 2  # an error that the library raised on purpose
BUG = 70  # EX_SOFTWARE of sysexits.h: an error inside the program


def exit_code_of(
    error: Exception, arguments: Sequence[str], *, program: str = "equipoise", debug: bool = False, advice: str = ""
) -> int:
    """Print what an error means to the user of a program, in one sentence, and return the exit code.

    An error that the library raises on purpose is wrong input: exit code 2. Any other is a bug of the library: the
    sentence names a file with the traceback; exit code 70.

    Args:
        error: The error that ended the program.
        arguments: The command line, without the program's name.
        program: The program's name, as its user calls it.
        debug: Whether to show the traceback, too.
        advice: A sentence that follows the message of wrong input.
    """
    if debug:
        traceback.print_exception(error)
    if not isinstance(error, EquipoiseError):
        return report_bug(error, arguments, program)
    print_error(f"{error} {advice}", program)
    return WRONG_INPUT


def print_error(text: str, program: str = "equipoise") -> None:
    """Print an error message in one line on standard error.

    Args:
        text: The message.
        program: Name of the program that prints it.
    """
    print(f"{program}: {' '.join(text.split())}", file=sys.stderr)


def report_bug(error: BaseException, arguments: Sequence[str], program: str = "equipoise") -> int:
    """Write the traceback of an unexpected error to a file, print where it is, and return the exit code.

    Args:
        error: An error that no part of the library raises on purpose.
        arguments: The command line, without the program's name.
        program: The program's name.
    Returns: `BUG`.
    """
    text = traceback_text(error, arguments, program)
    cause = f"{type(error).__name__}: {error}"
    rule = f"This is a bug in equipoise, not in its input ({cause})"
    try:
        handle, path = tempfile.mkstemp(prefix="equipoise-", suffix=".txt")
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:  # no folder for temporary files: the traceback must not be lost
        print_error(f"{rule}. Please report it with the text below.", program)
        print(text, file=sys.stderr)
    else:
        print_error(f"{rule}. Please report it with the traceback in '{path}'.", program)
    return BUG


def traceback_text(error: BaseException, arguments: Sequence[str], program: str = "equipoise") -> str:
    """Return the text of a bug report: versions, the command line and the traceback.

    Args:
        error: The unexpected error.
        arguments: The command line, without the program's name.
        program: The program's name.
    """
    versions = f"equipoise {_version()}, Python {platform.python_version()}, {platform.platform()}"
    command = shlex.join([*program.split(), *arguments])
    return "\n".join([versions, command, "", *traceback.format_exception(error)])


def _version() -> str:
    try:
        return version("equipoise")
    except PackageNotFoundError:  # a source tree that was never installed
        return "unknown"
