"""Processes of their own, alone or together as `torchrun` starts them, for tests: they import torch once for all."""

import multiprocessing
import os
import runpy
import sys

import pytest
import torch
from torch import distributed as dist

from equipoise.training.distributed import joined

PATIENCE = 60.0  # seconds for what takes a few
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        *(
            "equipoise.app.commands.command_line",
            "equipoise.app.job",
            "equipoise.app.tables.conversion",
            "equipoise.app.tables.memory_map",
            "equipoise.app.tables.time_column",
            "equipoise.app.tables.writing",
            "equipoise.diagnosis",
            "equipoise.artifact.model_file",
        ),
        *(
            "equipoise.app.tuning",
            "equipoise.app.report.model_report",
            "pint",
            "pyarrow.pandas_compat",
            "rich.table",
            "pytest",
        ),
    ]
)

one_server = pytest.mark.xdist_group("processes")  # one worker has the server that processes are forked from


def command(words, folder, out, err):
    """The exit code of `python -m equipoise` with these arguments, in a folder, with files for what it prints."""
    process = CONTEXT.Process(target=_command, args=(words, folder, out, err))
    process.start()
    process.join(PATIENCE)
    return process.exitcode


def _command(words, folder, out, err):
    os.chdir(folder)
    for stream, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    torch.set_num_threads(1)
    sys.argv = ["equipoise", *words]
    runpy.run_module("equipoise", run_name="__main__", alter_sys=True)


def new_store():
    """What processes meet by; it outlives them, as torchrun's does."""
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def together(task, *arguments, size=2, store=None, start=0):
    """What `task` gives in each of the processes: its exception if it fails, "killed" if the process was.

    They may be the ones that are started again, with the `store` of those before.
    """
    store = store or new_store()
    ends = [CONTEXT.Pipe(duplex=False) for _ in range(size)]
    started = [
        CONTEXT.Process(target=_member, args=(r, size, store.port, start, ends[r][1], task, arguments))
        for r in range(size)
    ]
    for process in started:
        process.start()
    for _, text in ends:
        text.close()
    results = [_received(end) for end, _ in ends]
    for process in started:
        process.join(PATIENCE)
        assert not process.is_alive()
    return results


def in_group(task, *arguments):
    """The same of a task whose first argument is the group."""
    with joined() as group:
        return task(group, *arguments)


def _received(end):
    try:
        return end.recv() if end.poll(PATIENCE) else TimeoutError()
    except EOFError:
        return "killed"


def _member(rank, size, port, start, told, task, arguments):
    os.environ |= {"RANK": f"{rank}", "WORLD_SIZE": f"{size}", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}"}
    os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": f"{start}"}
    torch.set_num_threads(1)
    try:
        told.send(task(*arguments))
    except Exception as error:
        told.send(error)
