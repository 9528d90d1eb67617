"""The program `equipoise`: all commands under one name, and the exit codes of their errors.

An error that the library raises on purpose becomes one sentence and exit code 2; anything else is a bug of the library,
which becomes one sentence, a file with the traceback and exit code 70. With --debug both show a traceback.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from functools import cache
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from equipoise.app.bug_report import WRONG_INPUT, exit_code_of, print_error
from equipoise.app.commands import check, compare, evaluate, export, fit, info, init, predict, reconcile, report, tune
from equipoise.app.commands.console import flush_output, replace_unencodable
from equipoise.app.commands.exit_codes import (
    BROKEN_PIPE,
    MESSAGES,
    CommandExit,
    CommandGroup,
    discard_output,
    exit_on_sigterm,
)

app = typer.Typer(
    name="equipoise",
    cls=CommandGroup,
    help="Bayesian neural networks that obey known balances: from a table and a few equations to a model.",
    epilog="A first model: equipoise init data.csv, edit data.toml, then check, fit, predict and report. "
    "Exit codes: 0 done, 1 a balance does not hold (check), 2 wrong input, 70 a bug in equipoise, "
    "130 interrupted, 141 nobody read on, 143 terminated.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (init, check, fit, predict, evaluate, reconcile, report, info, tune, compare, export):
    app.command(command.__name__.rpartition(".")[2])(command.run)


def _show_version(requested: bool) -> bool:
    if requested:
        from importlib.metadata import version

        typer.echo(f"equipoise {version('equipoise')}")
        raise typer.Exit
    return requested


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    pass


@cache
def _parser() -> Any:
    """Build the parser of all commands once; `app` is not called itself, as it replaces `sys.excepthook`."""
    return typer.main.get_command(app)


def _print_exit(code: int) -> int:
    """Print the message of an exit code, if there is one, and return the code."""
    if code == BROKEN_PIPE:
        discard_output()
    elif code in MESSAGES:
        print_error(MESSAGES[code])
    return code


def _collect_garbage_less() -> None:
    """Collect garbage less often: imports leave none, and looking for it took a quarter of a command's start."""
    gc.set_threshold(10_000)
    atexit.register(gc.freeze)


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code; a command line without any words prints the help.

    Args:
        arguments: The command line without the program's name. By default that of the process; garbage collection is
            then set for the whole process.
    Returns: The exit code, as the help of `equipoise` lists them.

    Example:
        >>> main(["--version"])
        equipoise ...
        0
    """
    if arguments is None:
        _collect_garbage_less()
    arguments = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    replace_unencodable()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # torch's threads that wait leave the core to others
    try:
        with exit_on_sigterm():
            code = int(_parser()(arguments, prog_name="equipoise", standalone_mode=False) or 0)
            flush_output()
            return code
    except TyperException as error:  # in the command line itself: an unknown command, a missing argument
        print_error(getattr(error, "format_message", lambda: str(error))())
        return WRONG_INPUT
    except (CommandExit, SystemExit) as end:  # the latter after shell completion, or by SIGTERM
        return _print_exit(int(end.code or 0))
    except BrokenPipeError:
        return _print_exit(BROKEN_PIPE)
    except Exception as error:
        return exit_code_of(error, arguments, debug="--debug" in arguments)
