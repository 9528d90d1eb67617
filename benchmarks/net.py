"""`python -m benchmarks.net --old COMMIT`: does this source tree still compute what an earlier commit computed?

`net_driver.py` fits eight small seeded cases with the public face of the library, once with the sources of the old
commit (in a temporary worktree) and once with those of this tree, with the same interpreter on the same machine. The
results are compared in one of three ways:

- `bits` (default): every array and every text must be the same, but for what a newer format of model files adds to
  their header. For changes that only move and rename code.
- `rounding`: for changes that merge copies of the same arithmetic. Training is short, because it amplifies rounding,
  and how much is measured rather than guessed: the old tree also fits inputs of which about the last bit of single
  precision is changed, and numbers may differ by `MARGIN` times the largest difference that this makes to a quantity of
  the same group in any case. They may always differ by `FLOOR`. All this is relative to the quantity's scale: its
  largest value, for each entry of the last axis (an output) of its own.
- `seeds`: for changes of the random numbers. Summaries of both trees over ten paired seeds must agree within two
  standard errors of the mean difference. Of a hundred such summaries seven or eight are outside by chance; so what lies
  outside is tried again with ten other seeds, and then once more, and fails if it is outside, on one side, three times.

The new tree also opens the old one's model files, goes on from the old one's checkpoints (not with `seeds`: a
checkpoint belongs to one scheme of random numbers), and opens the model files in the old commit's `tests/models`.
"""

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
ROOT = Path(__file__).resolve().parents[1]
DRIVER = Path(__file__).with_name("net_driver.py")
CASES = (
    "marginal",
    "learned sensors",
    "given sensors",
    "exact",
    "offset",
    "no balances",
    "missing outputs",
    "coupled balances",
)
EPOCHS = {"bits": 40, "rounding": 10, "seeds": 120}
MARGIN = 8.0
FLOOR = 2.0**-42  # 1024 times the rounding of double precision
STANDARD_ERRORS, ROUNDS, SEEDS_A_ROUND = 2.0, 3, 10
NEGLIGIBLE = 1e-6  # differences between means over seeds, relative to the summary's size, that need no explanation
LEAST_SCALE = {"residual_": 1.0}  # residuals of exact balances are rounding themselves: beside them stand the data

SUMMARIES: dict[str, Callable[[Array], Any]] = {
    "mean: mean": np.mean,
    "std: std": np.mean,
    "interval: 90 %": lambda bounds: np.mean(bounds[1] - bounds[0]),
    "moments of samples: mean": np.mean,
    "moments of samples: std": np.mean,
    "covariance: covariance": np.mean,
    "log density: log_prob of measured values": np.mean,
    "ledger: terms": lambda terms: terms.mean(axis=(1, 2)),
    "tolerances: tol_std": lambda std: np.log(std[std > 0]).sum(),
    "sensors: std": np.mean,
    "reconcile: mean": np.mean,
    "reconcile: std": np.mean,
    "reconcile: statistic": np.mean,
    "old file: mean, mean": np.mean,
    "old file: std, std": np.mean,
    "old file: log density, log_prob of measured values": np.mean,
}

Results = dict[str, dict[str, Any]]  # case, "group: detail" → array or texts


@dataclass(frozen=True)
class Finding:
    """How far a quantity of one case is from what it was.

    Args:
        case, quantity: Names.
        difference: The largest, relative to the quantity's scale, infinite where texts or shapes differ; or that of
            the mean over seeds, with its sign, in standard errors.
        limit: What it may be.
    """

    case: str
    quantity: str
    difference: float
    limit: float

    @property
    def group(self) -> str:
        """Name of the group of quantities, which is a line of the table."""
        return self.quantity.split(":")[0]

    @property
    def is_outside(self) -> bool:
        """Whether the difference is more than it may be."""
        return not abs(self.difference) <= self.limit


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print a table; 1 if anything is outside."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory() as scratch, worktree(options.old, Path(scratch)) as old_tree:
        trees = Trees(old_tree, options.new.resolve(), Path(scratch), options.cases, EPOCHS[options.mode])
        findings = {"bits": bits, "rounding": rounding, "seeds": seeds}[options.mode](trees)
    print(report(findings))
    return int(any(finding.is_outside for finding in findings))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.net", description=__doc__.split("\n")[0])
    parser.add_argument("--old", required=True, metavar="COMMIT", help="the commit to compare with")
    parser.add_argument(
        "--new", type=Path, default=ROOT, metavar="TREE", help="source tree to look at; default: this one"
    )
    parser.add_argument("--mode", choices=EPOCHS, default="bits")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help=", ".join(CASES))
    return parser.parse_args(arguments)


# --- Running ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def worktree(commit: str, folder: Path, repository: Path = ROOT) -> Iterator[Path]:
    """Check a commit out into a folder inside `folder`, for the length of the block."""
    path = folder / "tree"
    git = ["git", "-C", str(repository), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(path), commit], check=True)
    try:
        yield path
    finally:
        subprocess.run([*git, "remove", "--force", str(path)], check=True)


@dataclass(frozen=True)
class Trees:
    """The two source trees, and the driver's runs on them.

    Args:
        old, new: Folders that hold `src/equipoise`.
        scratch: Folder for results.
        cases: Names of cases.
        epochs: Length of training.
    """

    old: Path
    new: Path
    scratch: Path
    cases: Sequence[str]
    epochs: int

    def run(self, side: str, name: str, *more: str, cases: Sequence[str] = ()) -> Path:
        """Run the driver with the sources of one side ("old" or "new"); the folder with its results."""
        tree, out = {"old": self.old, "new": self.new}[side], self.scratch / name
        print(f"{name}: fits with {tree / 'src'} ...", file=sys.stderr, flush=True)
        command = [sys.executable, "-P", str(DRIVER), "--out", str(out), "--epochs", str(self.epochs), *more]
        environment = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [*command, "--cases", *(cases or self.cases)], env=environment, stdout=subprocess.PIPE, text=True
        )
        if done.returncode != 0:
            raise SystemExit(f"The cases must run on both trees, but with {tree / 'src'} they end as shown above.")
        used = Path(done.stdout.splitlines()[0]).resolve()
        if not used.is_relative_to(tree.resolve()):
            raise SystemExit(f"The sources of {tree} must be imported, but these were: {used}.")
        return out


def _fixtures(tree: Path) -> list[str]:
    """Options that name the folder with model files of earlier versions."""
    folders = {path.parent for path in (tree / "tests").rglob("*.safetensors")}
    return [part for folder in sorted(folders)[:1] for part in ("--fixtures", str(folder))]


def read(folder: Path) -> Results:
    """Read what the driver wrote for one seed, or for the model files of earlier versions."""
    results: Results = {}
    for path in sorted(folder.rglob("arrays.npz")):
        with np.load(path) as arrays:
            results[path.parent.name] = {name: arrays[name] for name in arrays}
        results[path.parent.name] |= json.loads(path.with_name("texts.json").read_text("utf-8"))
    return results


# --- Three ways to compare --------------------------------------------------------------------------------------------


def bits(trees: Trees) -> list[Finding]:
    """Every array and every text must be the same."""
    fixtures = _fixtures(trees.old)
    old = trees.run("old", "old", *fixtures)
    new = trees.run("new", "new", *fixtures, "--earlier", str(old))
    return [Finding(*where, difference(*pair), 0.0) for where, pair in paired(read(old), read(new))]


def rounding(trees: Trees) -> list[Finding]:
    """Numbers may differ as much as a change of the last bit of the inputs can explain."""
    fixtures = _fixtures(trees.old)
    old = trees.run("old", "old", *fixtures)
    stirred = trees.run("old", "old, last bit changed", *fixtures, "--last-bit")
    new = trees.run("new", "new", *fixtures, "--earlier", str(old))
    limits = limits_of_groups(read(old), read(stirred))
    findings = (Finding(*where, difference(*pair), FLOOR) for where, pair in paired(read(old), read(new)))
    return [Finding(f.case, f.quantity, f.difference, limits.get(f.group, FLOOR)) for f in findings]


def limits_of_groups(old: Results, stirred: Results) -> dict[str, float]:
    """The limit of each group of quantities: `MARGIN` times the largest difference between two runs of one tree."""
    limits: dict[str, float] = {}
    for where, pair in paired(old, stirred):
        group, changed = Finding(*where, 0.0, 0.0).group, difference(*pair)
        if math.isfinite(changed):
            limits[group] = max(limits.get(group, FLOOR), MARGIN * changed)
    return limits


def seeds(trees: Trees) -> list[Finding]:
    """Summaries over paired seeds must agree, at one of three attempts, within two standard errors."""
    kept: list[Finding] = []
    cases = list(trees.cases)
    for turn in range(ROUNDS):
        numbers = [str(seed) for seed in range(turn * SEEDS_A_ROUND, (turn + 1) * SEEDS_A_ROUND)]
        more = ("--no-checkpoints", "--seeds", *numbers)
        old = trees.run("old", f"old-{turn}", *more, cases=cases)
        new = trees.run("new", f"new-{turn}", *more, "--earlier", str(old), cases=cases)
        found = of_seeds([summaries(read(old / n)) for n in numbers], [summaries(read(new / n)) for n in numbers])
        kept = outside_again(kept, found) if turn else found
        cases = sorted({finding.case for finding in kept if finding.is_outside})
        if not cases:
            break
    return kept


def summaries(results: Results) -> dict[tuple[str, str], float]:
    """A few numbers that say what one seed's results are like."""
    found = {}
    for case, quantities in results.items():
        for name in SUMMARIES.keys() & quantities.keys():
            values = np.atleast_1d(SUMMARIES[name](quantities[name])) if quantities[name].size else np.zeros(0)
            names = [name] if len(values) == 1 else [f"{name} {k}" for k in range(len(values))]
            found |= {(case, each): float(value) for each, value in zip(names, values, strict=True)}
    return found


def of_seeds(old: Sequence[dict], new: Sequence[dict]) -> list[Finding]:
    """The mean difference of each summary over paired seeds, in its standard errors."""
    findings = []
    for where in sorted(old[0].keys() | new[0].keys()):
        if any(where not in seed for seed in (*old, *new)):
            findings.append(Finding(*where, math.inf, STANDARD_ERRORS))
            continue
        before = np.array([seed[where] for seed in old])
        change = np.array([seed[where] for seed in new]) - before
        error = change.std(ddof=1) / math.sqrt(len(change))
        small = abs(change.mean()) <= NEGLIGIBLE * np.abs(before).max()
        findings.append(Finding(*where, 0.0 if small else float(change.mean() / max(error, 1e-300)), STANDARD_ERRORS))
    return findings


def outside_again(earlier: Sequence[Finding], again: Sequence[Finding]) -> list[Finding]:
    """Findings that were outside, replaced by those of other seeds; only what is outside on the same side stays so."""
    others = {(finding.case, finding.quantity): finding for finding in again}
    kept = []
    for finding in earlier:
        other = others.get((finding.case, finding.quantity), finding)
        same_side = finding.difference * other.difference > 0 or math.isinf(other.difference)
        settled = other if same_side or not other.is_outside else Finding(finding.case, finding.quantity, 0.0, 2.0)
        kept.append(settled if finding.is_outside else finding)
    return kept


# --- Differences ------------------------------------------------------------------------------------------------------


def paired(old: Results, new: Results) -> Iterator[tuple[tuple[str, str], tuple[Any, Any, str]]]:
    """Yield case and quantity, and both values with the quantity's name; None where one side lacks it."""
    for case in sorted(old.keys() | new.keys()):
        before, after = old.get(case, {}), new.get(case, {})
        for name in [*before, *(after.keys() - before.keys())]:
            if not _is_new_in_header(name, before):
                yield (case, name), (before.get(name), after.get(name), name)


def _is_new_in_header(name: str, before: dict[str, Any]) -> bool:
    """Whether only the new tree writes this into a model file's header, whose format has a version of its own."""
    group, _, detail = name.partition(": ")
    return group == "file header" and (name not in before or detail == "format_version")


def difference(old: Any, new: Any, name: str = "") -> float:
    """The largest difference relative to the scale of each column; 0 only for the same bits, NaN for NaN."""
    if not (isinstance(old, np.ndarray) and isinstance(new, np.ndarray)):
        return 0.0 if type(old) is type(new) and old == new else math.inf
    if (old.shape, old.dtype) != (new.shape, new.dtype):
        return math.inf
    if old.tobytes() == new.tobytes():
        return 0.0
    old, new = old.astype(float), new.astype(float)
    if not np.array_equal(np.isfinite(old), np.isfinite(new)) or not same_at_infinity(old, new):
        return math.inf
    finite = np.isfinite(old)
    change = np.abs(np.where(finite, new, 0.0) - np.where(finite, old, 0.0))
    return float(max((change / scale(np.where(finite, old, 0.0), name)).max(), np.finfo(float).tiny))


def same_at_infinity(old: Array, new: Array) -> bool:
    """Whether NaN and both infinities stand at the same places."""
    return np.array_equal(old[~np.isfinite(old)], new[~np.isfinite(new)], equal_nan=True)


def scale(values: Array, name: str = "") -> Array:
    """The largest magnitude of each column of a table, or of a whole vector."""
    axes = tuple(range(max(values.ndim - 1, 1)))
    largest = np.abs(values).max(axis=axes, keepdims=True)
    least = max([least for part, least in LEAST_SCALE.items() if part in name], default=0.0)
    return np.maximum(largest, max(least, np.finfo(float).tiny))


# --- Report -----------------------------------------------------------------------------------------------------------


def report(findings: Sequence[Finding]) -> str:
    """A table of the largest differences, group by case, and a line for each quantity that is outside."""
    cases = list(dict.fromkeys(finding.case for finding in findings))
    groups = list(dict.fromkeys(finding.group for finding in findings))
    rows = [["", *cases, "limit"]]
    for group in groups:
        mine = [finding for finding in findings if finding.group == group]
        cells = [_cell([finding for finding in mine if finding.case == case]) for case in cases]
        rows.append([group, *cells, f"{max(finding.limit for finding in mine):.1g}"])
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    outside = [finding for finding in findings if finding.is_outside]
    lines += ["", *(f"outside: {f.case}, {f.quantity}: {f.difference:.3g} > {f.limit:.3g}" for f in outside)]
    lines.append(f"{len(findings)} quantities compared, {len(outside)} outside (!).")
    return "\n".join(lines)


def _cell(findings: Sequence[Finding]) -> str:
    """The largest difference in a cell of the table, marked where something in it is outside."""
    if not findings:
        return "-"
    worst = max(abs(finding.difference) for finding in findings)
    return f"{worst:.1g}" + (" !" if any(finding.is_outside for finding in findings) else "")


if __name__ == "__main__":
    sys.exit(main())
