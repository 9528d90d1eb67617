"""Many long tasks, such as fits, run on all cores or on a cluster; each result is kept once it is there.

Tasks run through joblib: on the cores of this machine unless joblib's settings name another backend. So a cluster takes
one line of the user's code::

    with joblib.parallel_config(backend="dask"):
        results = run_many(tasks)

If a process is killed, no result is lost: tasks that were running are started again.
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
ATTEMPTS = 3  # to run tasks whose process was killed
POLL_SECONDS = 0.2


class FleetError(EquipoiseError, RuntimeError):
    """Raised where tasks cannot be finished, with their names and the reason."""


def run_many(tasks: Mapping[str, Task], workers: int | None = None, verbose: bool = True) -> dict[str, Any]:
    """Run all tasks and return their results by name, in the order of the tasks.

    Torch computes on one thread in every process that is started, so that one process per core uses all cores.

    Args:
        tasks: Picklable callables by name; each is called with a function that it may call with the share of its work
            that is done, up to 1.
        workers: Processes on this machine; by default one for each core this process may use. With 1 tasks run in this
            process, in their order, on as many threads as torch is set to. On a cluster the cluster decides.
        verbose: Show a progress bar for each running task (on this machine) and one for all.
    Returns:
        Results by name.
    Raises:
        Exception: Whatever a task raised, after the others that were running have been stopped.
        FleetError: With the names of tasks whose processes were killed again and again.

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
            with _progress_queue(show, verbose) as queue:
                done = _in_processes(tasks, workers, queue, show)
    return {name: done[name] for name in tasks}


def _cores() -> int:
    """Return the number of cores that this process may use, or of all if the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _on_cluster() -> bool:
    """Return whether joblib is set to send tasks elsewhere than to processes of its own."""
    backend, _ = get_active_backend()
    return type(backend).__name__ not in ("LokyBackend", "SequentialBackend")


def _in_processes(
    tasks: Mapping[str, Task], workers: int, queue: Any, show: Callable[[str, float], None]
) -> dict[str, Any]:
    done: dict[str, Any] = {}
    settings: Any = {"initializer": _prepare_worker, "initargs": (os.getpid(),), "inner_max_num_threads": 1}
    for _ in range(ATTEMPTS):
        left = {name: task for name, task in tasks.items() if name not in done}
        try:
            with parallel_config(backend="loky", **settings):
                _gather(_results(left, workers, queue), show, done)
            return done
        except BrokenProcessPool:
            tqdm.write("A process was killed; tasks that were under way are begun again.", file=sys.stderr)
    names = ", ".join(repr(name) for name in tasks if name not in done)
    rule = f"Tasks must not end their process, but {ATTEMPTS} times it was killed under {names}"
    raise FleetError(f"{rule}. Is memory short?")


def _gather(opened: Any, show: Callable[[str, float], None], done: dict[str, Any]) -> None:
    """Add results to `done` as they come, so that those before a failure stay."""
    with opened as results:
        for name, result in results:
            done[name] = result
            show(name, 1.0)


@contextmanager
def _results(tasks: Mapping[str, Task], workers: int | None, queue: Any = None) -> Iterator[Any]:
    """Yield names and results in the order in which tasks end; leaving the block stops the others."""
    settings: Any = {"return_as": "generator_unordered", "batch_size": 1, "pre_dispatch": "2 * n_jobs"}
    calls = (delayed(_call)(name, task, os.getpid(), queue) for name, task in tasks.items())
    if not getattr(get_active_backend()[0], "supports_return_generator", False):  # Ray
        all_workers: Any = {"n_jobs": -1, "batch_size": 1}  # its default is one worker; results come all at once
        yield Parallel(**all_workers)(calls)
        return
    with ExitStack() as stack:
        with _children_without_interrupt():  # processes start with the first tasks
            running: Any = Parallel(n_jobs=workers, **settings)(calls)
            stack.enter_context(closing(running))
        yield running


def _call(name: str, task: Task, caller: int, queue: Any) -> tuple[str, Any]:
    if os.getpid() != caller:
        _use_one_thread()
    return name, task(lambda share: None if queue is None else queue.put((name, share)))


@contextmanager
def _children_without_interrupt() -> Iterator[None]:
    """Start processes that ignore Ctrl-C from their very start; in this process it takes effect after the block.

    Child processes inherit the signals that this thread blocks. Starting them is not interrupted, which would leave
    processes behind.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # started within the block, it would end the blocking
    interrupts: list[int] = []
    main = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not None
    handler = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number)) if main else None
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if main:
            signal.signal(signal.SIGINT, handler)
    if interrupts:
        signal.raise_signal(signal.SIGINT)


def _prepare_worker(parent: int) -> None:
    """Make this process ignore Ctrl-C, which its parent handles, and end if its parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _use_one_thread() -> None:
    """Set torch to one thread; if it is imported later, a variable in joblib's and Dask's processes does so."""
    if "torch" in sys.modules:
        import torch  # waits where another thread of a Dask worker is still importing it

        torch.set_num_threads(1)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os._exit(1)


@contextmanager
def _progress_queue(show: Callable[[str, float], None], verbose: bool) -> Iterator[Any]:
    """Open a queue through which processes report their progress to `show`; None if it is not shown."""
    if not verbose:
        yield None
        return
    with ExitStack() as stack:
        with _children_without_interrupt():
            manager = stack.enter_context(get_context("spawn").Manager())  # forked torch threads hang
        queue = manager.Queue()
        listener = threading.Thread(target=_listen, args=(queue, show), daemon=True)
        listener.start()
        try:
            yield queue
        finally:
            queue.put(None)
            listener.join()


def _listen(queue: Any, show: Callable[[str, float], None]) -> None:
    while (progress := queue.get()) is not None:
        show(*progress)


@contextmanager
def _bars(tasks: Mapping[str, Task], verbose: bool) -> Iterator[Callable[[str, float], None]]:
    """Show progress bars; yield the function that sets the share of a task that is done."""
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
