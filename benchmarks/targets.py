"""The speed that the library promises beside everything a user could pick instead: named ratios, each with its goal.

A ratio is our time over the other's in the same run, on one thread. Every contestant's answer is checked against ours
before it is timed: `layers`, `steps`, `quality` and `predictors` do that and give an `Outcome` for each target.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.timing import Laps


@dataclass(frozen=True)
class Target:
    """A promise.

    Args:
        name: Its name in results.json.
        ours, other: What is timed, and what it is timed against.
        goal: The largest ratio that keeps it.
    """

    name: str
    ours: str
    other: str
    goal: float


TARGETS = (
    Target("train_step_vs_plain_torch", "training step, the slower of L1 and L2", "plain torch step", 1.3),
    Target("train_step_vs_numpyro", "the same", "NumPyro's jitted scan of the same constrained model", 1.0),
    Target("time_to_quality_vs_best_peer", "time to a fixed validation NLL, battery data", "the fastest peer", 1.0),
    Target("conditioning_vs_fixed_projection", "conditioning (8, 2)", "fixed projection of mean and variance", 3.0),
    Target("conditioning_vs_textbook", "conditioning (30, 10) and (100, 50), the worse", "Cholesky by autograd", 0.5),
    Target("conditioning_vs_cvxpylayers", "conditioning (8, 2)", "cvxpylayers", 0.01),
    Target("conditioning_vs_qpth", "conditioning (8, 2)", "qpth", 0.01),
    Target("predict_vs_bare_gemm", "mean + ledger, 1,000 draws × 4,200 rows", "bare products and activations", 1.5),
    Target("predict_vs_best_peer", "the same", "mean + variance by the fastest peer", 0.8),
)
GOALS: Mapping[str, Target] = {target.name: target for target in TARGETS}


@dataclass(frozen=True)
class Outcome:
    """What became of a target in one run; times and ratio are None where it could not be measured.

    Args:
        name: Of the target.
        ours_ms, other_ms: Best process times.
        spread: Interquartile range of the ratio over rounds.
        beside: Who the other was, in this run.
        note: What a reader of the ratio must know besides, or why there is none.
    """

    name: str
    ours_ms: float | None = None
    other_ms: float | None = None
    spread: float | None = None
    beside: str = ""
    note: str = ""

    def __post_init__(self):
        if self.name not in GOALS:
            close = difflib.get_close_matches(self.name, GOALS, 1, 0.0)[0]
            raise ValueError(f"An outcome must be of a known target, but got {self.name!r}. Did you mean {close!r}?")

    @classmethod
    def of(cls, name: str, run: Laps, ours: str, other: str, *, per: int = 1, note: str = "") -> "Outcome":
        """The ratio of two contestants of a run; `per` is how often each of their calls did the work."""
        times = run.best(ours) / per, run.best(other) / per
        return cls(name, *times, run.spread(ours, other), other, note)

    @property
    def goal(self) -> float:
        return GOALS[self.name].goal

    @property
    def ratio(self) -> float | None:
        """Our time over the other's: below 1 we are faster."""
        return None if self.ours_ms is None or self.other_ms is None else self.ours_ms / self.other_ms

    @property
    def verdict(self) -> str:
        """Whether the promise was kept."""
        return "–" if self.ratio is None else "met" if self.ratio <= self.goal else "missed"

    def to_json(self) -> dict:
        shown = {"name": self.name, "ratio": self.ratio, "goal": self.goal}
        shown |= {"ours_ms": self.ours_ms, "other_ms": self.other_ms, "spread": self.spread}
        return shown | {"beside": self.beside, "note": self.note}


def worse(outcomes: Sequence[Outcome]) -> Outcome:
    """The one with the largest ratio."""
    return max(outcomes, key=lambda outcome: outcome.ratio or 0.0)
