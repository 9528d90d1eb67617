"""`python -m benchmarks [--quick] [--only NAME]`: time the library beside its peers and print tables of ratios."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import suite
from benchmarks.results import Result, read, save, table, target_table, write_json
from benchmarks.targets import Outcome

RESULTS = Path(__file__).with_name("results.json")


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    findings: dict[str, list[Result | Outcome]] = {}
    absent = suite.absences()
    for name in _chosen(options.only):
        print(f"{name} ...", file=sys.stderr, flush=True)
        findings[name] = suite.run(name, options.quick)
        if not options.quick:
            save(findings, RESULTS, absent)
    print(report([each for found in findings.values() for each in found], absent))
    if options.quick:
        print("\nThe sizes were small: that everything runs and agrees means something, ratios and verdicts do not.")
    elif options.only in (None, "targets"):
        write_json(RESULTS, read(RESULTS) | {"anatomy": suite.anatomy()})


def report(found: Sequence[Result | Outcome], absent: Mapping[str, str]) -> str:
    """The table of targets, the peers that are missing, and the table of everything else."""
    outcomes = [each for each in found if isinstance(each, Outcome)]
    results = [each for each in found if isinstance(each, Result)]
    parts = [target_table(outcomes), *(f"{package}: {why}" for package, why in absent.items())] if outcomes else []
    return "\n\n".join([*parts, *([table(results)] if results else [])])


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Time the library beside its peers.")
    quick = "small sizes, few repeats: does everything run and agree? Nothing is written"
    parser.add_argument("--quick", action="store_true", help=quick)
    names = ("targets", *suite.NAMES)
    parser.add_argument("--only", choices=names, help="run one benchmark, or those of the targets, instead of all")
    return parser.parse_args(arguments)


def _chosen(only: str | None) -> Sequence[str]:
    return suite.NAMES if only is None else suite.TARGETS if only == "targets" else (only,)


if __name__ == "__main__":
    main()
