"""`python -m studies.battery reproduce | study`: the paper's battery study from the command line."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from equipoise import FleetError, battery, exit_code_of
from studies.battery.models import MODELS
from studies.battery.reproduce import reproduce
from studies.battery.study import PARTS, study


def parser() -> argparse.ArgumentParser:
    """Make the parser of the commands and their options."""
    top = argparse.ArgumentParser(
        prog="python -m studies.battery",
        description="The paper's battery study: simulate a cell, train the models, compare them.",
        epilog="A run that was interrupted goes on where it stopped when it is started again with the same options.",
    )
    commands = top.add_subparsers(dest="command", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--folder", type=Path, default=Path("runs/battery"), help="where everything goes (%(default)s)")
    shared.add_argument(
        "--config", choices=("full", "small"), default="full", help="settings.toml's part (%(default)s)"
    )
    shared.add_argument("--seeds", type=_positive, default=1, metavar="N", help="seeds 1 to N (%(default)s)")
    shared.add_argument("--workers", type=_positive, metavar="N", help="processes (one for each core)")
    shared.add_argument("--parameter-set", metavar="NAME", help="PyBaMM parameter set, such as Marquis2019 (Ai2020)")
    shared.add_argument("--contact-resistance", type=float, metavar="OHM", help="in Ω (0.05)")
    shared.add_argument("--debug", action="store_true", help="show where an error comes from")
    shared.add_argument("--c-rates", action="store_true", help="take the paper's currents for C-rates")
    commands.add_parser("reproduce", parents=[shared], help="the paper's tables, and more, beside its printed numbers")
    more = commands.add_parser("study", parents=[shared], help="ablation, fewer rows, whole discharges left out")
    more.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS[:3], help="which (%(default)s)")
    more.add_argument("--models", nargs="+", choices=tuple(MODELS), help="only these (all that a part compares)")
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return 0, after an error the code of `equipoise.exit_code_of`, after Ctrl-C 130."""
    options = parser().parse_args(arguments)
    start = time.perf_counter()
    try:
        settings, seeds = _settings(options), range(1, options.seeds + 1)
        if options.command == "reproduce":
            reproduce(settings, options.folder, seeds, workers=options.workers)
            print(f"{options.folder / 'report.html'} after {time.perf_counter() - start:.0f} s ({len(seeds)} seed(s))")
        else:
            study(settings, options.folder, options.parts, seeds, models=options.models, workers=options.workers)
            print(f"{options.folder / 'study.md'} after {time.perf_counter() - start:.0f} s")
    except KeyboardInterrupt:
        print("Stopped. Start again with the same options to go on.", file=sys.stderr)
        return 130
    except Exception as error:
        words = sys.argv[1:] if arguments is None else arguments
        advice = "Start again with the same options to go on." if isinstance(error, FleetError) else ""
        program = "python -m studies.battery"
        return exit_code_of(error, words, program=program, debug=options.debug, advice=advice)
    return 0


def _settings(options: argparse.Namespace) -> battery.Settings:
    settings = battery.Settings.named(options.config)
    changes = {"parameter_set": options.parameter_set, "contact_resistance": options.contact_resistance}
    cell = {name: value for name, value in changes.items() if value is not None}
    if options.c_rates:
        cell["currents_are_c_rates"] = True
    return settings.with_cell(**cell)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, but got {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
