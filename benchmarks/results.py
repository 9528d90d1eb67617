"""What a benchmark found, as one table and one JSON file."""

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path


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


def table(results: Sequence[Result]) -> str:
    """A markdown table, aligned for a terminal."""
    header = ("ours", "beside", "ours [ms]", "beside [ms]", "ours / beside", "note")
    cells = [header, *(_cells(result) for result in results)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    right = [i in (2, 3, 4) for i in range(len(header))]
    rule = "|" + "|".join("-" * (w + 1) + (":" if r else "-") for w, r in zip(widths, right, strict=True)) + "|"
    first, *rest = (_line(row, widths, right) for row in cells)
    return "\n".join([first, rule, *rest])


def save(results: Sequence[Result], path: Path, quick: bool) -> None:
    """Names, times, ratios, sizes and versions."""
    found = {
        "quick": quick,
        "versions": {"python": platform.python_version()} | {p: version(p) for p in ("equipoise", "torch", "numpy")},
        "machine": {"architecture": platform.machine(), "system": platform.system(), "torch_threads": 1},
        "results": [asdict(result) | {"ratio": result.ratio} for result in results],
    }
    path.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _cells(result: Result) -> tuple[str, ...]:
    numbers = (_number(value) for value in (result.ours_ms, result.other_ms, result.ratio))
    return (result.name, result.other, *numbers, result.note)


def _number(value: float) -> str:
    """Three significant digits, without an exponent."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:,.{digits}f}"


def _line(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True))
    return f"| {' | '.join(padded)} |"
