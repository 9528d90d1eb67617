"""Tasks in processes and on a cluster: results by name, progress, failures, and what a kill costs."""

import contextlib
import functools
import os
import select
import signal
import subprocess
import sys

import joblib
import numpy as np
import pytest
from joblib.parallel import ThreadingBackend

from equipoise.training import task_pool
from equipoise.training.task_pool import FleetError, run_many


def square(number, progress):
    progress(0.5)
    progress(1.0)
    return number**2, os.getpid()


def fail(progress):
    raise ValueError("no such cell")


def go_on(pipe, progress):
    """Opens a named pipe, which waits for a reader, and then waits for a signal that nobody sends."""
    progress(0.5)
    with pipe.open("wb"):
        signal.pause()


def fail_beside(pipe, progress):
    """Raises when the task `go_on` is under way."""
    with pipe.open("rb"):
        raise ValueError("no such cell")


def has_ended(reading, seconds=60) -> bool:
    """Whether all processes that hold the writing end of a pipe end within a time; it is waited for no longer."""
    try:
        return os.read(reading, 1) == b""
    except BlockingIOError:
        return bool(select.select([reading], [], [], seconds)[0]) and os.read(reading, 1) == b""


def killed_once(flag, number, progress):
    """Ends its process on its first call."""
    flag.open("a").write(f"{number} ")
    if number == 1 and flag.read_text().split().count("1") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number**2, os.getpid()


def kill(progress):
    os.kill(os.getpid(), signal.SIGKILL)


def squares(n, task=square):
    return {f"task {number}": functools.partial(task, number) for number in range(n)}


def values(results):
    return {name: value for name, (value, _) in results.items()}


SQUARES = {"task 0": 0, "task 1": 1, "task 2": 4}


# --- On this machine --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_back_by_name_in_the_order_of_the_tasks(workers):
    done = run_many(squares(3), workers, verbose=False)
    assert list(values(done).items()) == list(SQUARES.items())
    assert {pid == os.getpid() for _, pid in done.values()} == {workers == 1}


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_task_raises_reaches_the_caller(workers):
    with pytest.raises(ValueError, match="no such cell"):
        run_many(squares(2) | {"bad": fail}, workers, verbose=False)


def test_a_failure_stops_tasks_that_are_still_running(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    tasks = {"slow": functools.partial(go_on, pipe), "bad": functools.partial(fail_beside, pipe)}
    with pytest.raises(ValueError, match="no such cell"):
        run_many(tasks, 2, verbose=False)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert has_ended(reading)
    os.close(reading)


def test_a_killed_process_costs_no_result_and_its_task_is_begun_again(tmp_path, capsys):
    flag = tmp_path / "calls"
    done = run_many(squares(3, functools.partial(killed_once, flag)), 2, verbose=False)
    assert values(done) == SQUARES
    calls = flag.read_text().split()
    assert calls.count("1") == 2
    assert "A process was killed" in capsys.readouterr().err


def test_tasks_that_kill_their_process_again_and_again_are_named(monkeypatch, capsys):
    monkeypatch.setattr(task_pool, "ATTEMPTS", 1)
    with pytest.raises(FleetError, match=r"but 1 times it was killed under 'greedy', 'other'\. Is memory short"):
        run_many({"greedy": kill, "other": kill}, 2, verbose=False)


def threads(progress):
    import torch

    return torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]


def test_torch_has_one_thread_in_every_process_that_is_started(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert run_many({"a": threads, "b": threads}, 2, verbose=False) == {"a": (1, "1"), "b": (1, "1")}


PARENT = """
import multiprocessing, os, signal, sys
from equipoise.training.task_pool import _prepare_worker

def work(parent):
    signal.alarm(120)  # no process stays if this test fails
    _prepare_worker(parent)
    os.write(int(sys.argv[1]), b"x")
    signal.pause()  # unless the parent's end ends it

multiprocessing.get_context("fork").Process(target=work, args=(os.getpid(),)).start()
signal.alarm(120)
signal.pause()
"""


def test_processes_end_when_their_parent_is_killed():
    reading, writing = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", PARENT, str(writing)], pass_fds=[writing])
    os.close(writing)  # now only the two processes can write
    try:
        assert select.select([reading], [], [], 60)[0]
        assert os.read(reading, 1) == b"x"  # the worker is there
    finally:
        process.kill()
        process.wait()
    os.set_blocking(reading, False)
    assert has_ended(reading)
    os.close(reading)


WAITING = """
import os, signal, sys

if os.environ.setdefault("CALLER", str(os.getpid())) != str(os.getpid()):
    print("a process imports its modules", file=sys.stderr, flush=True)

def wait(progress):
    progress(0.5)
    signal.pause()
"""
INTERRUPTED = """
import signal, sys
from waiting import wait
from equipoise.training.task_pool import run_many

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores Ctrl-C
    tasks = {f"task {i}": wait for i in range(30)}
    try:
        run_many(tasks, workers=2)
    except KeyboardInterrupt:
        sys.exit("interrupted")
"""


@pytest.mark.parametrize("when", ["imports its modules", "50%"], ids=["while processes start", "while tasks run"])
def test_ctrl_c_with_many_tasks_waiting_ends_without_a_traceback(tmp_path, when):
    (tmp_path / "waiting.py").write_text(WAITING, "utf-8")
    (tmp_path / "many.py").write_text(INTERRUPTED, "utf-8")
    command, pipes = [sys.executable, "many.py"], {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True, **pipes) as run:
        shown = ""
        while when not in shown and (more := run.stderr.read(1)):
            shown += more
        assert when in shown
        os.killpg(run.pid, signal.SIGINT)  # as a terminal does: all processes get it
        try:
            _, rest = run.communicate(timeout=60)
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode == 1
    assert "interrupted" in rest
    assert "Traceback" not in rest


class AllTogether(ThreadingBackend):
    """Gives results when all are there, as Ray's does."""

    supports_return_generator = False


def test_a_backend_that_gives_results_all_together_is_one_to_send_tasks_to():
    joblib.register_parallel_backend("all together", AllTogether)
    with joblib.parallel_config(backend="all together"):
        assert values(run_many(squares(3), verbose=False)) == SQUARES
        with pytest.raises(ValueError, match="no such cell"):
            run_many({"bad": fail}, verbose=False)


def test_no_tasks_are_done_at_once():
    assert run_many({}, verbose=False) == {}


@pytest.mark.parametrize("workers", [1, 2])
def test_each_task_has_a_bar_that_fills(capsys, workers):
    run_many(squares(2), workers, verbose=True)
    shown = capsys.readouterr().err
    assert "task 0" in shown
    assert "2/2" in shown
    assert workers > 1 or " 50%" in shown  # elsewhere a result may be here before the news that it is half done


# --- On a cluster -----------------------------------------------------------------------------------------------------

one_server = pytest.mark.xdist_group("processes")  # as in process_group.py, which imports torch


@pytest.fixture(scope="module")
def cluster():
    """Two workers of Dask on this machine."""
    distributed, dask = pytest.importorskip("distributed"), pytest.importorskip("dask")
    from process_group import CONTEXT  # not above: the tasks do without torch

    quick = {"distributed.worker.multiprocessing-method": "forkserver", "distributed.admin.tick.limit": "60s"}
    CONTEXT.Process(target=int).start()  # the server that workers are forked from has torch
    with (
        dask.config.set(quick),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as workers,
        distributed.Client(workers) as client,
    ):
        yield client


def fitted(seed, progress):
    """Predictions of a small model, and where it was fitted."""
    from equipoise.estimator import ConstrainedBNNRegressor

    x = np.linspace(-1, 1, 60)[:, None]
    model = ConstrainedBNNRegressor(hidden=(4,), max_epochs=10, n_draws=8, random_state=seed).fit(x, np.sin(3 * x))
    progress(1.0)
    return model.predict(x), os.getpid()


@one_server
def test_fits_on_a_cluster_are_those_of_this_process_to_the_bit(cluster, long_training):
    tasks = squares(3, fitted)
    here = run_many(tasks, 1, verbose=False)
    with joblib.parallel_config(backend="dask"):
        there = run_many(tasks, verbose=False)
    assert os.getpid() not in {pid for _, pid in there.values()}
    for name, (prediction, _) in here.items():
        np.testing.assert_array_equal(there[name][0], prediction)


@one_server
def test_a_killed_worker_of_a_cluster_costs_no_result(cluster, tmp_path):
    flag = tmp_path / "calls"
    with joblib.parallel_config(backend="dask"), contextlib.redirect_stderr(None):
        done = run_many(squares(3, functools.partial(killed_once, flag)), verbose=False)
    assert values(done) == SQUARES
    assert flag.read_text().split().count("1") == 2


@one_server
def test_what_a_task_raises_on_a_cluster_reaches_the_caller(cluster):
    with joblib.parallel_config(backend="dask"), pytest.raises(ValueError, match="no such cell"):
        run_many({"bad": fail}, verbose=False)
