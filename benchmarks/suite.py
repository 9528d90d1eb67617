"""The benchmarks by name, each run in a process of its own: none inherits another's peak memory."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from typing import Any, TypeVar

from benchmarks import peers
from benchmarks.results import Result
from benchmarks.targets import Outcome

TARGETS = ("layers", "steps", "predictors", "quality")  # these give the named targets
NAMES = (*TARGETS, "conditioning", "training", "prediction", "streaming", "reconciliation")

T = TypeVar("T")


def run(name: str, quick: bool) -> list[Result | Outcome]:
    """What one benchmark found, with torch on one thread."""
    return _elsewhere(_results, name, quick)


def absences() -> dict[str, str]:
    """The peers that cannot be used, each with its reason."""
    return _elsewhere(peers.absences)


def anatomy() -> dict:
    """Where the time of a training step goes."""
    return _elsewhere(_anatomy)


def _elsewhere(function: Callable[..., T], *arguments: Any) -> T:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def _results(name: str, quick: bool) -> list[Result | Outcome]:
    import torch  # only in the process that measures

    torch.set_num_threads(1)
    return list(import_module(f"benchmarks.{name}").run(quick))


def _anatomy() -> dict:
    from benchmarks import anatomy

    return anatomy.run(quick=False)
