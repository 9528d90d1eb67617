"""Fair timings on a busy machine: process time, contestants in turn, the best of many rounds."""

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Call = Callable[[], object]


@dataclass(frozen=True)
class Laps:
    """The times of all contestants in milliseconds, round by round; a cold first call is not the best.

    Args:
        ms: Times by name, one per round.

    Example:
        >>> laps = Laps({"ours": [9.0, 1.0, 2.0], "other": [4.0, 4.0, 4.0]})
        >>> laps.best("ours"), laps.ratio("ours", "other")
        (1.0, 0.25)
    """

    ms: Mapping[str, list[float]]

    def best(self, name: str) -> float:
        """The shortest time: what disturbs a measurement only ever adds to it."""
        return min(self.ms[name])

    def ratio(self, ours: str, other: str) -> float:
        """Best time over best time."""
        return self.best(ours) / self.best(other)

    def spread(self, ours: str, other: str) -> float | None:
        """Interquartile range of the ratio over rounds, without the cold first; None of fewer than three."""
        ratios = np.divide(self.ms[ours], self.ms[other])[1:]
        return None if len(ratios) < 3 else float(np.subtract(*np.quantile(ratios, [0.75, 0.25])))


def laps(contestants: Mapping[str, Call], seconds: float, min_rounds: int = 2) -> Laps:
    """Call all contestants in turn, again and again.

    Args:
        contestants: What to call, by name.
        seconds: Time after which no further round begins.
        min_rounds: Rounds that are run in any case.
    """
    ms: dict[str, list[float]] = {name: [] for name in contestants}
    end, rounds = time.perf_counter() + seconds, 0
    gc.collect()
    gc.disable()
    try:
        while rounds < min_rounds or time.perf_counter() < end:
            for name, call in contestants.items():
                ms[name].append(process_ms(call))
            rounds += 1
    finally:
        gc.enable()
    return Laps(ms)


def race(contestants: Mapping[str, Call], seconds: float, min_rounds: int = 2) -> dict[str, float]:
    """The best time of each contestant in milliseconds."""
    run = laps(contestants, seconds, min_rounds)
    return {name: run.best(name) for name in contestants}


def process_ms(call: Call) -> float:
    """Processor time of one call, of all threads of this process."""
    start = time.process_time_ns()
    call()
    return (time.process_time_ns() - start) / 1e6


def repeated(call: Callable[[], object], times: int) -> Callable[[], object]:
    """The same call several times."""

    def many():
        for _ in range(times):
            call()

    return many
