"""Many long tasks, fits above all, on all cores or on a cluster, each kept once it is done.

Tasks run through joblib: on the cores of this machine unless its settings say otherwise. So a cluster is one line of
the user's, and none of ours::

    with joblib.parallel_config(backend="dask"):
        results = run_many(tasks)

A process that is killed costs the time of tasks under way and no result: these are begun again.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, contextmanager
from multiprocessing import get_context, resource_tracker
from typing import Any

from joblib import Parallel, delayed, parallel_config
from joblib.parallel import get_active_backend
from tqdm.auto import tqdm

from equipoise.errors import EquipoiseError

Progress = Callable[[float], None]
Task = Callable[[Progress], Any]
ATTEMPTS = 3  # at tasks whose process was killed
POLL_SECONDS = 0.2


class FleetError(EquipoiseError, RuntimeError):
    """Tasks that cannot be brought to their end, and why."""


def run_many(tasks: Mapping[str, Task], workers: int | None = None, verbose: bool = True) -> dict[str, Any]:
    """Run all tasks and return their results by name, in the order of the tasks.

    Torch computes on one thread in every process that is started: as many processes as cores use them all.

    Args:
        tasks: Picklable callables by name; each gets a function that it tells the share that is done, up to 1.
        workers: Processes on this machine; by default one for each core this process may use. With 1 tasks run here, in
            their order, on as many threads as torch is set to. On a cluster the cluster decides.
        verbose: Show a progress bar for each running task (on this machine) and one for all.
    Raises: What a task raised, after the others that were running have been stopped; FleetError with the names of tasks
        whose processes were killed again and again.

    Example:
        >>> run_many({"a": lambda progress: 1, "b": lambda progress: 2}, workers=1, verbose=False)
        {'a': 1, 'b': 2}
    """
    workers = min(workers or _cores(), max(len(tasks), 1))
    done: dict[str, Any] = {}
    with _bars(tasks, verbose) as show:
        if _on_cluster():
            _gather(_results(tasks, None), show, done)
        elif workers == 1:
            done = {name: task(lambda share, name=name: show(name, share)) for name, task in tasks.items()}
        else:
            with _listening(show, verbose) as told:
                done = _in_processes(tasks, workers, told, show)
    return {name: done[name] for name in tasks}


def _cores() -> int:
    """Cores that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _on_cluster() -> bool:
    """Whether joblib was told to send tasks elsewhere than to processes of its own."""
    backend, _ = get_active_backend()
    return type(backend).__name__ not in ("LokyBackend", "SequentialBackend")


def _in_processes(
    tasks: Mapping[str, Task], workers: int, told: Any, show: Callable[[str, float], None]
) -> dict[str, Any]:
    done: dict[str, Any] = {}
    settings: Any = {"initializer": _settle, "initargs": (os.getpid(),), "inner_max_num_threads": 1}
    for _ in range(ATTEMPTS):
        left = {name: task for name, task in tasks.items() if name not in done}
        try:
            with parallel_config(backend="loky", **settings):
                _gather(_results(left, workers, told), show, done)
            return done
        except BrokenProcessPool:
            tqdm.write("A process was killed; tasks that were under way are begun again.", file=sys.stderr)
    names = ", ".join(repr(name) for name in tasks if name not in done)
    rule = f"Tasks must not end their process, but {ATTEMPTS} times it was killed under {names}"
    raise FleetError(f"{rule}. Is memory short?")


def _gather(opened: Any, show: Callable[[str, float], None], done: dict[str, Any]) -> None:
    """Add results to `done` as they come: those that came before a failure stay."""
    with opened as results:
        for name, result in results:
            done[name] = result
            show(name, 1.0)


@contextmanager
def _results(tasks: Mapping[str, Task], workers: int | None, told: Any = None) -> Iterator[Any]:
    """Names and results in the order in which tasks end; leaving it stops the others."""
    settings: Any = {"return_as": "generator_unordered", "batch_size": 1, "pre_dispatch": "2 * n_jobs"}
    calls = (delayed(_call)(name, task, os.getpid(), told) for name, task in tasks.items())
    if not getattr(get_active_backend()[0], "supports_return_generator", False):  # Ray
        everywhere: Any = {"n_jobs": -1, "batch_size": 1}  # it takes one worker unless told, and gives results together
        yield Parallel(**everywhere)(calls)
        return
    with ExitStack() as stack:
        with _deaf_children():  # processes start with the first tasks
            running: Any = Parallel(n_jobs=workers, **settings)(calls)
            stack.enter_context(closing(running))
        yield running


def _call(name: str, task: Task, caller: int, told: Any) -> tuple[str, Any]:
    if os.getpid() != caller:
        _one_thread()
    return name, task(lambda share: None if told is None else told.put((name, share)))


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Processes that start in this block never hear Ctrl-C, not even while they import; here it waits for the end.

    They inherit what this thread blocks. What starts them is not interrupted half-way, which would leave them behind.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # which would end the blocking, if it were started in the block
    heard: list[int] = []
    main = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not None
    handler = signal.signal(signal.SIGINT, lambda number, _: heard.append(number)) if main else None
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if main:
            signal.signal(signal.SIGINT, handler)
    if heard:
        signal.raise_signal(signal.SIGINT)


def _settle(parent: int) -> None:
    """Ctrl-C is the parent's to handle; a process whose parent was killed ends too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _one_thread() -> None:
    """For torch; where a task imports it later, joblib's and Dask's processes have the variable that says so."""
    if "torch" in sys.modules:
        import torch  # waits where another thread of a Dask worker is still importing it

        torch.set_num_threads(1)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os._exit(1)


@contextmanager
def _listening(show: Callable[[str, float], None], verbose: bool) -> Iterator[Any]:
    """A queue into which processes tell how far they are; None if nobody looks."""
    if not verbose:
        yield None
        return
    with ExitStack() as stack:
        with _deaf_children():
            manager = stack.enter_context(get_context("spawn").Manager())  # forked torch threads hang
        told = manager.Queue()
        listener = threading.Thread(target=_listen, args=(told, show), daemon=True)
        listener.start()
        try:
            yield told
        finally:
            told.put(None)
            listener.join()


def _listen(told: Any, show: Callable[[str, float], None]) -> None:
    while (news := told.get()) is not None:
        show(*news)


@contextmanager
def _bars(tasks: Mapping[str, Task], verbose: bool) -> Iterator[Callable[[str, float], None]]:
    width = max((len(name) for name in tasks), default=0)
    bars: dict[str, tqdm] = {}
    total = tqdm(total=len(tasks), desc=f"{'all':<{width}}", unit="task", disable=not verbose or len(tasks) < 2)
    form = "{desc} {percentage:3.0f}%|{bar:30}| {elapsed} < {remaining}"
    lock = threading.Lock()

    def show(name: str, share: float) -> None:
        with lock:
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
