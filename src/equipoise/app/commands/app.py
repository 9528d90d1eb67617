"""All commands under one name, and what becomes of their errors.

An error that the library raises on purpose becomes one sentence and exit code 2; anything else is a bug of the library,
which becomes one sentence, a file with the traceback and exit code 70. With --debug both show a traceback.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import traceback
from functools import cache
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from equipoise.app.commands import check, compare, evaluate, export, fit, info, init, predict, reconcile, report, tune
from equipoise.app.commands.bug_report import report_bug
from equipoise.app.commands.endings import IN_WORDS, UNREAD, Commands, Ended, forget_output, terminable
from equipoise.app.commands.screen import end_output, problem, say_what_can_be_said
from equipoise.errors import EquipoiseError

app = typer.Typer(
    name="equipoise",
    cls=Commands,
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


def _show_version(wanted: bool) -> bool:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"equipoise {version('equipoise')}")
        raise typer.Exit
    return wanted


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    pass


@cache
def _commands() -> Any:
    """All commands, put together once; called as it is, `app` would also replace the hook for uncaught exceptions."""
    return typer.main.get_command(app)


def _told(code: int) -> int:
    """An exit code, with the words for it if there are any."""
    if code == UNREAD:
        forget_output()
    elif code in IN_WORDS:
        problem(IN_WORDS[code])
    return code


def _hurry() -> None:
    """Look for garbage less often: imports leave none, and looking for it took a quarter of a command's start."""
    gc.set_threshold(10_000)
    atexit.register(gc.freeze)


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code; without any words it shows the help.

    Args:
        arguments: Without the program's name; by default those of the process, which is then the command's own.
    """
    if arguments is None:
        _hurry()
    arguments = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    say_what_can_be_said()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # torch's threads that wait leave the core to others
    try:
        with terminable():
            code = int(_commands()(arguments, prog_name="equipoise", standalone_mode=False) or 0)
            end_output()
            return code
    except TyperException as error:  # of the line itself: an unknown command, a missing argument
        problem(getattr(error, "format_message", lambda: str(error))())
        return 2
    except (Ended, SystemExit) as ended:  # the latter after shell completion, or by SIGTERM
        return _told(int(ended.code or 0))
    except BrokenPipeError:
        return _told(UNREAD)
    except Exception as error:
        if "--debug" in arguments:
            traceback.print_exc()
        if not isinstance(error, EquipoiseError):
            return report_bug(error, arguments)
        problem(str(error))
        return 2
