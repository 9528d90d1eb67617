"""How a command ends when it is not let to its end: by Ctrl-C, by SIGTERM, or because nobody reads what it says."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from typer.core import TyperGroup

INTERRUPTED, UNREAD, TERMINATED = 130, 141, 143  # as shells tell SIGINT, SIGPIPE and SIGTERM
IN_WORDS = {INTERRUPTED: "interrupted", TERMINATED: "terminated"}


class Ended(Exception):  # noqa: N818
    """A command that was ended, with its exit code."""

    def __init__(self, code: int):
        super().__init__(code)
        self.code = code


class Commands(TyperGroup):
    """Commands whose endings come through to the caller; typer itself would end silently, with 1 for a broken pipe."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _told():  # the help is shown here
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with _told():
            return super().invoke(ctx)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:
        raise Ended(INTERRUPTED) from error
    except BrokenPipeError as error:
        raise Ended(UNREAD) from error


@contextmanager
def terminable() -> Iterator[None]:
    """Lets SIGTERM end the process as Ctrl-C does, so that half-written files are taken away.

    A handler that somebody else has set stays. So does the default in processes of torchrun: it has them wait for each
    other where Python's handlers are not heard.
    """
    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    main_thread = threading.current_thread() is threading.main_thread()
    if not (alone and main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL):
        yield
        return
    signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def forget_output() -> None:
    """Nobody reads on: what is left to be said goes nowhere, or Python would complain of it at its end."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _end(*_: Any) -> None:
    raise SystemExit(TERMINATED)
