"""The benchmarks by name, each run in a process of its own: none inherits another's peak memory."""

from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context

from benchmarks.results import Result

NAMES = ("conditioning", "training", "prediction", "streaming", "reconciliation")


def run(name: str, quick: bool) -> list[Result]:
    """What one benchmark found, with torch on one thread."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_run_here, name, quick).result()


def _run_here(name: str, quick: bool) -> list[Result]:
    import torch  # only in the process that measures

    torch.set_num_threads(1)
    return list(import_module(f"benchmarks.{name}").run(quick))
