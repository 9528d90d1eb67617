"""What benchmarks found, as tables and as one JSON file in which every benchmark keeps its last findings."""

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks import markdown, peers
from benchmarks.targets import TARGETS, Outcome
from equipoise.data.atomic_writing import write_atomically


@dataclass(frozen=True)
class Result:
    """Two times for the same work.

    Args:
        name: What was timed.
        other: What it was timed against.
        ours_ms, other_ms: Best process times.
        sizes: How large the problem was.
        note: What a reader of the ratio must know besides.
    """

    name: str
    other: str
    ours_ms: float
    other_ms: float
    sizes: Mapping[str, int]
    note: str = ""

    @property
    def ratio(self) -> float:
        """Our time over the other's: below 1 we are faster."""
        return self.ours_ms / self.other_ms


Findings = Mapping[str, Sequence[Result | Outcome]]  # by benchmark


def table(results: Sequence[Result]) -> str:
    """A markdown table, aligned for a terminal."""
    header = ("ours", "beside", "ours [ms]", "beside [ms]", "ours / beside", "note")
    rows = [(r.name, r.other, *map(markdown.number, (r.ours_ms, r.other_ms, r.ratio)), r.note) for r in results]
    return markdown.table(header, rows, right=(2, 3, 4))


def target_table(outcomes: Sequence[Outcome]) -> str:
    """All targets in their order, with those that were not measured in this run."""
    found = {outcome.name: outcome for outcome in outcomes}
    header = ("target", "ratio", "goal", "", "ours [ms]", "other [ms]", "spread", "beside", "note")
    rows = [_target_cells(found.get(target.name, Outcome(target.name, note="not run"))) for target in TARGETS]
    return markdown.table(header, rows, right=(1, 2, 4, 5, 6))


def _target_cells(outcome: Outcome) -> tuple[str, ...]:
    ratio, *times = map(markdown.number, (outcome.ratio, outcome.ours_ms, outcome.other_ms, outcome.spread))
    return (outcome.name, ratio, f"≤ {outcome.goal:g}", outcome.verdict, *times, outcome.beside, outcome.note)


def save(findings: Findings, path: Path, absent: Mapping[str, str]) -> None:
    """Targets, times, ratios, sizes, versions and machine; what other benchmarks found earlier stays in the file.

    Args:
        findings: What this run found.
        path: The file.
        absent: Peers that cannot be used, with the reasons.
    """
    kept = read(path)
    found = {
        "targets": _merged(kept["targets"], findings, Outcome),
        "versions": versions(),
        "absent": dict(absent),
        "machine": machine(),
        "results": _merged(kept["results"], findings, Result),
    }
    other = {name: part for name, part in kept.items() if name not in found}
    write_json(path, found | other)


def read(path: Path) -> dict:
    """What a results file holds; empty where there is none."""
    content = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return {"targets": [], "results": []} | content


def write_json(path: Path, content: Mapping) -> None:
    """Write a results file, whole or not at all."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text, whole or not at all."""
    write_atomically(path, lambda file: file.write(text.encode()))


def versions() -> dict[str, str]:
    """Of Python, of the library and what it computes with, and of the peers that are installed."""
    ours = {package: version(package) for package in ("equipoise", "torch", "numpy")}
    return {"python": platform.python_version()} | ours | peers.versions()


def machine() -> dict[str, str | int | float]:
    """In general terms: what a reader needs to judge times, and no name of a host."""
    return {
        "architecture": platform.machine(),
        "processor": _from_cpuinfo("model name"),
        "system": platform.system(),
        "cores": os.cpu_count() or 1,
        "clock_ghz": _clock_ghz(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "load": round(os.getloadavg()[1], 1),
        "torch_threads": 1,
    }


def _clock_ghz() -> float:
    """The clock that Linux reports; 0 where it does not."""
    return round(float(_from_cpuinfo("cpu MHz") or 0.0) / 1e3, 1)


def _from_cpuinfo(entry: str) -> str:
    """What Linux says of the first core; empty where there is no such entry."""
    path = Path("/proc/cpuinfo")
    found = re.search(rf"^{entry}\s*: (.+)", path.read_text("utf-8"), re.MULTILINE) if path.exists() else None
    return found.group(1).strip() if found else ""


def _merged(kept: Sequence[dict], findings: Findings, kind: type) -> list[dict]:
    """New entries of `kind` after the old ones that stay: benchmarks not run now, and targets not measured now."""
    new = [_entry(name, each) for name, found in findings.items() for each in found if isinstance(each, kind)]
    measured = {entry["name"] for entry in kept if entry["ratio"] is not None} if kind is Outcome else set()
    new = [entry for entry in new if entry["ratio"] is not None or entry["name"] not in measured]
    names = {entry["name"] for entry in new}
    replaced = (
        (lambda entry: entry["name"] in names) if kind is Outcome else (lambda entry: entry["benchmark"] in findings)
    )
    return [entry for entry in kept if "benchmark" in entry and not replaced(entry)] + new


def _entry(benchmark: str, found: Result | Outcome) -> dict:
    content = found.to_json() if isinstance(found, Outcome) else asdict(found) | {"ratio": found.ratio}
    return {"benchmark": benchmark} | content
