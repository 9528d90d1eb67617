"""Where the time of a training step goes: by autograd over the definition of the ELBO, and in compiled code.

The definition, `ConstrainedBNN.negative_elbo`, is what training differentiated at first, and what the tests of the
compiled step still compare with.
"""

import itertools
from collections.abc import Callable

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks import cell, training
from benchmarks.anatomy_table import ELEMENTWISE, KINDS, Anatomy, kind_of
from benchmarks.timing import laps, repeated
from equipoise.data.rows import Rows
from equipoise.data.scaling import Standardizer
from equipoise.fast.matrix_products import multiply
from equipoise.fast.training_step import fill_noise
from equipoise.network.likelihood import joint
from equipoise.network.model import ConstrainedBNN
from equipoise.training.optimizer import Adam

STEPS = 20


def run(quick: bool) -> dict[str, Anatomy]:
    """Milliseconds and operators of a step before and after, and how the time divides."""
    torch.set_num_threads(1)
    X, Y = cell.data(training.BATCH)
    standardizer = Standardizer.fit(X, Y, cell.BALANCES)
    rows = cell.rows(X, Y, standardizer)
    models = {name: cell.model(standardizer, joint, sensor=True) for name in ("before", "after")}
    steps = {"before": by_autograd(models["before"], rows), "after": training.step(models["after"], rows)}
    optimizer = Adam([{"params": list(models["after"].parameters()), "lr": 1e-5}])
    alone = {"random numbers": random_numbers(), "matrix products": products(models["after"]), "Adam": optimizer.step}
    repeats = {name: repeated(call, STEPS) for name, call in (steps | alone).items()}
    timed = laps(repeats, 0.1 if quick else 10.0)
    ms = {name: timed.best(name) / STEPS for name in repeats}
    return {"before": _profiled(steps["before"], ms), "after": _taken_apart(steps["after"], ms)}


def random_numbers() -> Callable[[], object]:
    """Those of a step: of all units, of two tolerances and of eight sensors, for every row."""
    n, widths = training.BATCH, [np.array(cell.network().sizes[1:]), np.array([2]), np.array([8])]
    memory = [np.empty(n * int(each.sum()), np.float32) for each in widths]
    return lambda: [fill_noise(1, (n, 0), n, each, room) for each, room in zip(widths, memory, strict=True)]


def products(model: ConstrainedBNN) -> Callable[[], object]:
    """Those of a step: for means and for variances, forward, back to the weights, and through them."""
    n, calls = training.BATCH, []
    for layer, (fan_in, width) in enumerate(itertools.pairwise(model.network.sizes)):
        h, W, a = (np.ones(k, np.float32) for k in (n * fan_in, fan_in * width, n * width))
        each = [(a, h, False, W, n, fan_in, width), (W.copy(), h, True, a.copy(), fan_in, n, width)]
        each += [(h.copy(), a.copy(), False, W, n, width, fan_in)] if layer else []
        calls += 2 * each
    return lambda: [multiply(*call) for call in calls]


def by_autograd(model: ConstrainedBNN, rows: Rows) -> Callable[[], object]:
    """A step with the gradient of the ELBO's definition."""
    optimizer = Adam([{"params": list(model.parameters()), "lr": 1e-5}])
    generator = torch.Generator().manual_seed(0)

    def call():
        optimizer.zero_grad()
        model.negative_elbo(rows, training.N_ROWS, generator).per_row().backward()
        optimizer.step()

    return call


def _profiled(call: Callable[[], object], ms: dict[str, float]) -> Anatomy:
    """Random numbers as they are alone, which the profiler does not see, and its shares of the rest."""
    events, operators = _events(call)
    parts = dict.fromkeys((*KINDS, ELEMENTWISE), 0.0)
    for event in events:
        parts[kind_of(event.key)] += event.self_cpu_time_total
    left = (ms["before"] - ms["random numbers"]) / sum(parts.values())
    parts = {kind: left * part for kind, part in parts.items()} | {"random numbers": ms["random numbers"]}
    return {"ms": ms["before"], "operators": operators, "parts": parts}


def _taken_apart(call: Callable[[], object], ms: dict[str, float]) -> Anatomy:
    """Parts as they are alone, and what is left."""
    parts = {kind: ms[kind] for kind in KINDS}
    parts[ELEMENTWISE] = ms["after"] - sum(parts.values())
    return {"ms": ms["after"], "operators": _events(call)[1], "parts": parts}


def _events(call: Callable[[], object]) -> tuple[list, int]:
    """What the profiler saw of some steps, and how many of torch's operators are in one."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        repeated(call, STEPS)()
    events = list(found.key_averages())
    return events, sum(event.count for event in events if event.key.startswith("aten::")) // STEPS
