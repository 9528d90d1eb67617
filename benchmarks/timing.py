"""Fair timings on a busy machine: process time, contestants in turn, the best of many rounds."""

import gc
import time
from collections.abc import Callable, Mapping


def race(contestants: Mapping[str, Callable[[], object]], seconds: float, min_rounds: int = 2) -> dict[str, float]:
    """The best time of each contestant in milliseconds; a cold first call is not the best.

    Args:
        contestants: What to call, by name.
        seconds: Time after which no further round begins.
        min_rounds: Rounds that are run in any case.
    """
    best = dict.fromkeys(contestants, float("inf"))
    end, rounds = time.perf_counter() + seconds, 0
    gc.collect()
    gc.disable()
    try:
        while rounds < min_rounds or time.perf_counter() < end:
            for name, call in contestants.items():
                best[name] = min(best[name], _process_ms(call))
            rounds += 1
    finally:
        gc.enable()
    return best


def _process_ms(call: Callable[[], object]) -> float:
    start = time.process_time_ns()
    call()
    return (time.process_time_ns() - start) / 1e6
