"""Tasks in processes: results by name, progress, failures."""

import functools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from equipoise.battery.workers import run_all


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


def squares(n):
    return {f"task {number}": functools.partial(square, number) for number in range(n)}


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_back_by_name(workers):
    done = run_all(squares(3), workers, verbose=False)
    assert {name: value for name, (value, _) in done.items()} == {"task 0": 0, "task 1": 1, "task 2": 4}
    here = {pid == os.getpid() for _, pid in done.values()}
    assert here == {workers == 1}


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_task_raises_reaches_the_caller(workers):
    with pytest.raises(ValueError, match="no such cell"):
        run_all(squares(2) | {"bad": fail}, workers, verbose=False)


def test_a_failure_stops_tasks_that_are_still_telling(tmp_path):
    flag = tmp_path / "flag"
    with pytest.raises(ValueError, match="no such cell"):
        run_all({"slow": functools.partial(go_on, flag), "bad": fail}, 2, verbose=False)
    assert not flag.exists()


PARENT = """
import multiprocessing, os, pathlib, sys, time
from equipoise.battery.workers import _quiet_worker

def work():
    _quiet_worker()
    pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
    time.sleep(60)  # unless the parent's end ends it

multiprocessing.get_context("fork").Process(target=work).start()  # forked, to import the package once only
time.sleep(60)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_workers_end_when_their_parent_is_killed(tmp_path):
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


def test_no_tasks_are_done_at_once():
    assert run_all({}, verbose=False) == {}


def test_each_task_has_a_bar_that_fills(capsys):
    run_all(squares(2), 1, verbose=True)
    shown = capsys.readouterr().err
    assert "task 0" in shown
    assert "2/2" in shown
