"""`python -m benchmarks [--quick] [--only NAME]`: time the library beside its peers and print one table of ratios."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import suite
from benchmarks.results import Result, save, table

RESULTS = Path(__file__).with_name("results.json")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Time the library beside its peers.")
    parser.add_argument("--quick", action="store_true", help="small sizes, few repeats: does everything run and agree?")
    parser.add_argument("--only", choices=suite.NAMES, help="run one benchmark instead of all")
    options = parser.parse_args(arguments)

    results: list[Result] = []
    for name in [options.only] if options.only else suite.NAMES:
        print(f"{name} ...", file=sys.stderr, flush=True)
        results += suite.run(name, options.quick)
    print(table(results))
    save(results, RESULTS, options.quick)


if __name__ == "__main__":
    main()
