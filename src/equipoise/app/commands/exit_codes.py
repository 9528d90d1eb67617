"""Exit codes of commands, and how signals, broken pipes and Ctrl-C become exit codes.

`command_line.main` decides what gets which of them; errors get theirs in `app/bug_report.py`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from typer.core import TyperGroup

BALANCE_VIOLATED = 1  # `check` is done, and a balance does not hold
INTERRUPTED, BROKEN_PIPE, TERMINATED = 130, 141, 143  # as shells report SIGINT, SIGPIPE and SIGTERM
MESSAGES = {INTERRUPTED: "interrupted", TERMINATED: "terminated"}


class CommandExit(Exception):  # noqa: N818
    """Ctrl-C or a broken pipe ended a command.

    Args:
        code: The exit code.
    """

    def __init__(self, code: int):
        super().__init__(code)
        self.code = code


class CommandGroup(TyperGroup):
    """Commands that raise `CommandExit` on Ctrl-C and broken pipes; typer's own group ends the process, with 1."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Parse a command line, or print the help; arguments are those of `TyperGroup.make_context`."""
        with _command_exits():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command of a parsed command line."""
        with _command_exits():
            return super().invoke(ctx)


@contextmanager
def _command_exits() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:
        raise CommandExit(INTERRUPTED) from error
    except BrokenPipeError as error:
        raise CommandExit(BROKEN_PIPE) from error


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Make SIGTERM raise SystemExit while the context is open, so that half-written files are removed.

    A handler that the calling program has set stays. So does the default handler in processes of torchrun: there
    processes wait for each other in code that does not call Python's handlers.
    """
    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    main_thread = threading.current_thread() is threading.main_thread()
    if not (alone and main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL):
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(*_: Any) -> None:
    raise SystemExit(TERMINATED)


def discard_output() -> None:
    """Send standard output to the null device, since Python complains at its end of what a broken pipe did not take."""
    with suppress(OSError):
        null_device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_device, sys.stdout.fileno())
        os.close(null_device)
