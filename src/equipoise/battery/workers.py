"""Many long tasks on all cores: one process each, a progress bar for every task, and a clean end on Ctrl-C."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from tqdm.auto import tqdm

Progress = Callable[[float], None]
Task = Callable[[Progress], Any]
POLL_SECONDS = 0.2


def run_all(tasks: Mapping[str, Task], workers: int | None = None, verbose: bool = True) -> dict[str, Any]:
    """Run all tasks and return their results by name.

    Args:
        tasks: Picklable callables by name; each gets a function that it tells the share that is done, up to 1.
        workers: Processes; by default one for each core this process may use. With 1 tasks run here, in their order, on
            as many threads as torch is set to.
        verbose: Show a progress bar for each running task and one for all.
    Raises: What a task raised, after the others that were running have been stopped. Tasks keep their own
        checkpoints, so that the next start continues.
    """
    workers = min(workers or _cores(), max(len(tasks), 1))
    with _bars(tasks, verbose) as show:
        if workers == 1:
            return {name: task(lambda share, name=name: show(name, share)) for name, task in tasks.items()}
        return _in_processes(tasks, workers, show)


def _cores() -> int:
    """Cores that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_processes(tasks: Mapping[str, Task], workers: int, show: Callable[[str, float], None]) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")  # forked torch threads hang
    with context.Manager() as manager:
        told: Any = manager.Queue()
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_quiet_worker)
        try:
            futures = {name: pool.submit(_call, task, name, told) for name, task in tasks.items()}
            _watch(futures, told, show)
            return {name: future.result() for name, future in futures.items()}
        except BaseException:
            for process in list((getattr(pool, "_processes", None) or {}).values()):
                process.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _watch(futures: Mapping[str, Future], told: Any, show: Callable[[str, float], None]) -> None:
    """Pass on what tasks tell until all are done; raise what the first that failed raised."""
    while True:
        done = [future for future in futures.values() if future.done()]
        for future in done:
            future.result()
        try:
            show(*told.get(timeout=POLL_SECONDS))
        except queue.Empty:
            if len(done) == len(futures):
                return


def _call(task: Task, name: str, told: Any) -> Any:
    return task(lambda share: told.put((name, share)))


def _quiet_worker() -> None:
    """Ctrl-C is the parent's to handle; a worker whose parent was killed ends too; one thread for torch."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch

    torch.set_num_threads(1)


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _bars(tasks: Mapping[str, Task], verbose: bool) -> Iterator[Callable[[str, float], None]]:
    width = max((len(name) for name in tasks), default=0)
    bars: dict[str, tqdm] = {}
    total = tqdm(total=len(tasks), desc=f"{'all':<{width}}", unit="task", disable=not verbose or len(tasks) < 2)
    form = "{desc} {percentage:3.0f}%|{bar:30}| {elapsed} < {remaining}"

    def show(name: str, share: float) -> None:
        if name not in bars:
            bars[name] = tqdm(total=1.0, desc=f"{name:<{width}}", bar_format=form, disable=not verbose, leave=False)
        bar = bars[name]
        if bar.n >= 1.0:
            return
        bar.n = min(share, 1.0)
        bar.refresh()
        if share >= 1.0:
            bar.close()
            total.update()

    try:
        yield show
    finally:
        for bar in (*bars.values(), total):
            bar.close()
