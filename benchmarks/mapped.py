"""`python -m benchmarks.mapped [--rows N]`: a fit from arrays in files beside the same fit from memory.

Memory is what a process holds of its own (RssAnon of Linux), since pages of a mapped file are counted as resident too
but given back whenever others need them; it is sampled every few milliseconds. Each fit has a process of its own. What
the allocator keeps of freed memory differs from run to run, so each is repeated, and the range is shown.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmarks import markdown

SAMPLE_SECONDS = 0.005

T = TypeVar("T")


@dataclass(frozen=True)
class Usage:
    """What a fit took.

    Args:
        peak_mb: The most memory that it held beyond what the process held before it had any data.
        epoch_seconds: Mean time of an epoch on the clock.
        seconds: Processor time of the whole fit.
        weights: Means of the fitted weights, to be compared.
    """

    peak_mb: float
    epoch_seconds: float
    seconds: float
    weights: np.ndarray


class Watch:
    """The largest amount of memory of its own that this process holds while it is watched."""

    def __enter__(self) -> "Watch":
        self.peak_mb, self._done = own_mb(), threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            self.peak_mb = max(self.peak_mb, own_mb())

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._thread.join()


def own_mb() -> float:
    """Memory of this process that no file backs, in megabytes."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1e3


def make(folder: Path, n_rows: int) -> None:
    """The battery cell's inputs and outputs, one file each."""
    from benchmarks import cell

    for name, values in zip(("x", "y"), cell.data(n_rows), strict=True):
        np.save(folder / f"{name}.npy", values)


def fit(folder: Path, in_memory: bool, epochs: int) -> Usage:
    """Fit the default network, from files or from arrays."""
    import torch

    import equipoise as eq
    from benchmarks import cell

    torch.set_num_threads(1)
    model = eq.ConstrainedBNNRegressor(cell.BALANCES, max_epochs=epochs, random_state=0)
    few = cell.data(200)
    eq.ConstrainedBNNRegressor(cell.BALANCES, max_epochs=2, random_state=0).fit(*few)  # what is imported late
    before = own_mb()
    with Watch() as watch:
        X, Y = (np.load(folder / f"{name}.npy", mmap_mode=None if in_memory else "r") for name in ("x", "y"))
        start = time.process_time()
        model.fit(X, Y)
        seconds = time.process_time() - start
    weights = model.model_.network.posterior.loc.detach().numpy()
    return Usage(watch.peak_mb - before, float(np.mean(model.history_.column("seconds"))), seconds, weights)


def table(found: dict[str, list[Usage]], n_rows: int) -> str:
    """One line for the fits of a kind, from the smallest value to the largest."""
    header = ("arrays", "peak memory [MB]", "rows/s of an epoch", "processor time [s]")
    rows = [
        (
            name,
            _range([u.peak_mb for u in usages]),
            _range([n_rows / u.epoch_seconds for u in usages]),
            _range([u.seconds for u in usages]),
        )
        for name, usages in found.items()
    ]
    return markdown.table(header, rows, right=(1, 2, 3))


def _range(values: Sequence[float]) -> str:
    return f"{min(values):,.0f} – {max(values):,.0f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mapped", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    found: dict[str, list[Usage]] = {"in files": [], "in memory": []}
    with tempfile.TemporaryDirectory() as name:
        _elsewhere(make, Path(name), options.rows)
        for _ in range(options.repeats):
            for kind, usages in found.items():
                usages.append(_elsewhere(fit, Path(name), kind == "in memory", options.epochs))
    print(table(found, options.rows))
    weights = np.array([usage.weights for usages in found.values() for usage in usages])
    print(f"\nLargest difference of a weight between any two of them: {np.ptp(weights, axis=0).max():.2g}")


def _elsewhere(function: Callable[..., T], *arguments: Any) -> T:
    """Call in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


if __name__ == "__main__":
    main()
