"""`python -m benchmarks.processes`: what a training step takes in one process and in two, and where the time goes.

The step is that of a fit (the ELBO phase, sensors learned) for the battery cell's problem. Times are the shortest of
many, on one thread per process: of the processor for the step and its random numbers, and, because the sum of gradients
waits for others, on the clock for the sum and the step. The clock's are of use only where every process has a core.
"""

import os
import socket
import time
from collections.abc import Callable
from multiprocessing import get_context

BATCHES = (512, 4_096, 32_768)
STEPS = {512: 300, 4_096: 60, 32_768: 12}


def main() -> None:
    columns = (
        "batch",
        "processes",
        "step, processor [ms]",
        "random [ms]",
        "sum, clock [ms]",
        "step, clock [ms]",
    )
    print(" | ".join(columns))
    for batch in BATCHES:
        for size in (1, 2):
            times = " | ".join(f"{ms:.2f}" for ms in _measured(batch, size))
            print(f"{batch:,} | {size} | {times}", flush=True)


def _measured(batch: int, size: int) -> tuple[float, ...]:
    """Milliseconds in the first of `size` processes, in the order of the columns."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = get_context("spawn")
    queue = context.SimpleQueue()
    members = [context.Process(target=_member, args=(rank, size, port, batch, queue)) for rank in range(size)]
    for member in members:
        member.start()
    result = queue.get()
    for member in members:
        member.join()
    return result


def _member(rank: int, size: int, port: int, batch: int, told) -> None:
    os.environ |= {"RANK": f"{rank}", "WORLD_SIZE": f"{size}", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}"}
    import torch

    torch.set_num_threads(1)
    from benchmarks import cell
    from equipoise.data.scaling import Standardizer
    from equipoise.gaussian.randomness import antithetic_normal
    from equipoise.network.likelihood import joint
    from equipoise.training.distributed import joined
    from equipoise.training.loop import _Run
    from equipoise.training.plan import TrainingPlan

    X, Y = cell.data(batch)
    standardizer = Standardizer.fit(X, Y, cell.BALANCES)
    rows = cell.rows(X, Y, standardizer)
    with joined() as group:
        run = _Run(cell.model(standardizer, joint, sensor=True), rows, None, TrainingPlan(learning_rate=1e-6), 0, group)
        run.progress.phase = "elbo"
        run.optimizer = run._new_optimizer()
        generator, index = run._generator(0), torch.arange(batch)
        width, n = sum(run.model.network.sizes[1:]), STEPS[batch]
        step = _shortest(lambda: run._step(index, 0.5, generator), n)
        noise = _shortest(lambda: antithetic_normal((batch, width), generator), n)
        reduce = _shortest(lambda: group.sum_gradients(run._trained, torch.zeros(())), n)
        if rank == 0:
            told.put((step[0], noise[0], reduce[1], step[1]))


def _shortest(call: Callable[[], object], n: int) -> tuple[float, float]:
    """Milliseconds of the processor and on the clock."""
    clocks, times = (time.process_time, time.perf_counter), []
    for _ in range(n):
        start = [clock() for clock in clocks]
        call()
        times.append([clock() - begun for clock, begun in zip(clocks, start, strict=True)])
    processor, wall = (1e3 * min(column) for column in zip(*times, strict=True))
    return processor, wall


if __name__ == "__main__":
    main()
