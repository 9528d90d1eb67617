"""Tasks in processes and on a cluster: results by name, progress, failures, and what a kill costs."""

import contextlib
import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

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


def go_on(flag, progress):
    for _ in range(600):  # a minute, if nobody stops it
        time.sleep(0.1)
        progress(0.5)
    flag.write_text("went on to its end")


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
    flag = tmp_path / "flag"
    with pytest.raises(ValueError, match="no such cell"):
        run_many({"slow": functools.partial(go_on, flag), "bad": fail}, 2, verbose=False)
    assert not flag.exists()


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
import multiprocessing, os, pathlib, sys, time
from equipoise.training.task_pool import _prepare_worker

def work(parent):
    _prepare_worker(parent)
    pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
    time.sleep(60)  # unless the parent's end ends it

multiprocessing.get_context("fork").Process(target=work, args=(os.getpid(),)).start()
time.sleep(60)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_processes_end_when_their_parent_is_killed(tmp_path):
    file = tmp_path / "pid"
    process = subprocess.Popen([sys.executable, "-c", PARENT, file])
    try:
        assert within(60, lambda: file.exists() and file.read_text())
    finally:
        process.kill()
        process.wait()
    worker = int(file.read_text())
    assert within(10, lambda: not Path(f"/proc/{worker}").exists() or "Z" in state_of(worker))


def within(seconds, condition) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


INTERRUPTED = """
import functools, pathlib, signal, sys
sys.path.insert(0, {here!r})
from test_task_pool import go_on
from equipoise.training.task_pool import run_many

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores Ctrl-C
    tasks = {{f"task {{i}}": functools.partial(go_on, pathlib.Path("never")) for i in range(30)}}
    try:
        run_many(tasks, workers=2)
    except KeyboardInterrupt:
        sys.exit("interrupted")
"""


@pytest.mark.parametrize("when", ["all", "50%"], ids=["while processes start", "while tasks run"])
def test_ctrl_c_with_many_tasks_waiting_ends_without_a_traceback(tmp_path, when):
    (tmp_path / "many.py").write_text(INTERRUPTED.format(here=str(Path(__file__).parent)), "utf-8")
    command, pipes = [sys.executable, "many.py"], {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True, **pipes) as run:
        shown = ""
        while when not in shown and (more := run.stderr.read(1)):
            shown += more
        time.sleep(0.3 if when == "all" else 0.0)  # processes import their modules
        os.killpg(run.pid, signal.SIGINT)  # as a terminal does: all processes get it
        try:
            _, told = run.communicate(timeout=60)
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode == 1
    assert "interrupted" in told
    assert "Traceback" not in told
    assert not (tmp_path / "never").exists()


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
