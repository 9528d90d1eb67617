"""Where the time of a training step goes: by autograd over the definition of the ELBO, and by the gradient by hand.

The definition, `ConstrainedBNN.negative_elbo`, is what training differentiated before `equipoise.gradient` was written,
and what its tests still compare with.
"""

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks import cell, training
from benchmarks.anatomy_table import ELEMENTWISE, KINDS, Anatomy, kind_of
from benchmarks.steps import repeated
from benchmarks.timing import laps
from equipoise.likelihood import joint
from equipoise.model import ConstrainedBNN, Rows
from equipoise.optimizer import Adam
from equipoise.scaling import Standardizer

STEPS = 20


def run(quick: bool) -> dict[str, Anatomy]:
    """Milliseconds and operators of a step before and after, and how the time divides."""
    torch.set_num_threads(1)
    X, Y = cell.data(training.BATCH)
    standardizer = Standardizer.fit(X, Y, cell.BALANCES)
    rows = cell.rows(X, Y, standardizer)
    models = {name: cell.model(standardizer, joint, sensor=True) for name in ("before", "after")}
    calls = {"before": by_autograd(models["before"], rows), "after": training.step(models["after"], rows)}
    timed = laps({name: repeated(call, STEPS) for name, call in calls.items()}, 0.1 if quick else 10.0)
    return {name: _anatomy(call, timed.best(name) / STEPS) for name, call in calls.items()}


def by_autograd(model: ConstrainedBNN, rows: Rows) -> Callable[[], object]:
    """A step with the gradient of the ELBO's definition."""
    optimizer = Adam([{"params": list(model.parameters()), "lr": 1e-5}])
    generator = torch.Generator().manual_seed(0)

    def call():
        optimizer.zero_grad()
        model.negative_elbo(rows, training.N_ROWS, generator).per_row().backward()
        optimizer.step()

    return call


def _anatomy(call: Callable[[], object], ms: float) -> Anatomy:
    """The profiler's shares of the time that the step takes without a profiler."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        repeated(call, STEPS)()
    events, total = found.key_averages(), 0.0
    parts = dict.fromkeys((*KINDS, ELEMENTWISE), 0.0)
    for event in events:
        parts[kind_of(event.key)] += event.self_cpu_time_total
        total += event.self_cpu_time_total
    operators = sum(event.count for event in events if event.key.startswith("aten::")) // STEPS
    return {"ms": ms, "operators": operators, "parts": {kind: ms * part / total for kind, part in parts.items()}}
