"""Processes that train together, as `torchrun` starts them, for tests: they import torch once for all."""

import multiprocessing
import os

import torch
from torch import distributed as dist

from equipoise.distributed import joined

PATIENCE = 60.0  # seconds for what takes a few
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["equipoise.tuning", "equipoise.job", "equipoise.cli", "torch._dynamo", "distributed", "pytest"]
)


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
    for _, told in ends:
        told.close()
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
