"""`python -m benchmarks.scaling [--quick]`: time and memory as the work grows, their slopes, and large hierarchies.

A slope is that of a straight line through the logarithms of times and sizes, over the upper half of a curve, where
fixed costs no longer hide it: 1 is linear. Every curve has a process of its own and goes from small to large, since the
peak memory of a process never falls.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks import markdown
from benchmarks.memory import peak_mb
from benchmarks.results import read, write_json
from benchmarks.timing import process_ms

RESULTS = Path(__file__).with_name("results.json")
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "scaling.svg"


@dataclass(frozen=True)
class Point:
    """One size of one curve: the best processor time, and the most memory held so far beyond what was held before."""

    size: int
    ms: float
    peak_mb: float


@dataclass(frozen=True)
class Curve:
    """What grows, what is done with it, and over which sizes.

    Args:
        name: Of the curve.
        axis: What the size counts.
        sizes: From small to large.
        work: Makes the work of a size.
    """

    name: str
    axis: str
    sizes: tuple[int, ...]
    work: Callable[[int], Callable[[], object]]


def predict_rows(n: int) -> Callable[[], object]:
    """Mean and variance of `n` rows, 32 draws."""
    p = _predictive(n, 32)
    return lambda: replace(p).mean


def predict_draws(n: int) -> Callable[[], object]:
    """Mean and variance of 1,000 rows, `n` draws."""
    p = _predictive(1000, n)
    return lambda: replace(p).mean


def _predictive(n_rows: int, n_draws: int):
    from benchmarks import cell
    from equipoise.data.scaling import Standardizer
    from equipoise.network.likelihood import joint
    from equipoise.prediction.predictive import Predictive

    X, Y = cell.data(n_rows)
    standardizer = Standardizer.fit(X, Y, cell.BALANCES)
    return Predictive(cell.model(standardizer, joint, sensor=True), standardizer, X, cell.BALANCES.outputs, n_draws)


def train_rows(n: int) -> Callable[[], object]:
    """An epoch over `n` rows in batches of 512: shuffle, gather, step."""
    import torch

    from benchmarks import cell, training
    from equipoise.data.scaling import Standardizer
    from equipoise.network.likelihood import joint
    from equipoise.training.objective import Objective
    from equipoise.training.optimizer import Adam

    X, Y = cell.data(n)
    standardizer = Standardizer.fit(X, Y, cell.BALANCES)
    rows, model = cell.rows(X, Y, standardizer), cell.model(standardizer, joint, sensor=True)
    optimizer, generator = Adam([{"params": list(model.parameters()), "lr": 1e-5}]), torch.Generator().manual_seed(0)
    objective = Objective(model)

    def epoch():
        for index in torch.randperm(n, generator=generator).split(training.BATCH):
            objective.backward(rows.take(index), n, generator)
            optimizer.step()

    return epoch


def train_width(width: int) -> Callable[[], object]:
    """A step of 512 rows with two hidden layers of `width`."""
    import torch

    from benchmarks import cell, training
    from equipoise.data.scaling import Standardizer
    from equipoise.network.likelihood import joint
    from equipoise.network.mlp import BayesianMLP

    X, Y = cell.data(training.BATCH)
    standardizer = Standardizer.fit(X, Y, cell.BALANCES)
    model = cell.model(standardizer, joint, sensor=True)
    model.network = BayesianMLP(3, 8, (width, width), generator=torch.Generator().manual_seed(0))
    return training.step(model, cell.rows(X, Y, standardizer))


def condition_outputs(n_y: int) -> Callable[[], object]:
    """Forward and backward of 64 rows with `n_y` outputs: a balance for every four, in blocks of two."""
    import torch

    m = n_y // 4
    B = torch.zeros(m, n_y, dtype=torch.float64)
    for k in range(m):
        B[k, 4 * k : 4 * k + 4] = 0.5
    B[torch.arange(0, m - 1, 2), torch.arange(4, n_y, 8)[: len(range(0, m - 1, 2))]] = 0.5
    return _conditioning(B, 64)


def condition_balances(m: int) -> Callable[[], object]:
    """Forward and backward of 8 rows of 1,000 outputs in a tree of `m` sums, which all hang together."""
    from benchmarks.conditioning import hierarchy

    return _conditioning(hierarchy(1000, m), 8)


def _conditioning(B, batch: int) -> Callable[[], object]:
    from benchmarks.conditioning import Problem
    from benchmarks.layers import ours

    problem, rule = Problem.random(B, batch), ours(B)
    return lambda: problem.forward_backward(rule)


CURVES = (
    Curve("prediction, 32 draws", "rows", (1_000, 10_000, 100_000, 1_000_000), predict_rows),
    Curve("an epoch of training", "rows", (1_000, 10_000, 100_000, 1_000_000), train_rows),
    Curve("prediction, 1,000 rows", "draws", (100, 300, 1_000, 3_000, 10_000), predict_draws),
    Curve("training step, 512 rows", "width", (32, 64, 128, 256, 512, 1_024), train_width),
    Curve("conditioning in blocks of 2, 64 rows", "outputs", (8, 40, 200, 1_000), condition_outputs),
    Curve("conditioning in one block, 8 rows", "balances", (1, 4, 20, 100, 400), condition_balances),
)


def measure(curve: Curve) -> list[Point]:
    """All points of a curve, in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_points, curve).result()


def _points(curve: Curve) -> list[Point]:
    import torch

    torch.set_num_threads(1)
    curve.work(curve.sizes[0])()  # what the first call of everything needs is no part of a point
    return list(_each(curve, peak_mb()))


def _each(curve: Curve, before: float) -> Iterator[Point]:
    for size in curve.sizes:
        work, end, times = curve.work(size), time.perf_counter() + 2.0, []
        while not times or (time.perf_counter() < end and len(times) < 20):
            times.append(process_ms(work))
        yield Point(size, min(times), peak_mb() - before)


def slope(points: Sequence[Point]) -> float:
    """Of time over size, in logarithms, over the upper half of the curve.

    Example:
        >>> slope([Point(1, 5.0, 0.0), Point(10, 6.0, 0.0), Point(100, 60.0, 0.0)])
        1.0
    """
    upper = points[-max(2, (len(points) + 1) // 2) :]
    sizes, times = np.log([[p.size, p.ms] for p in upper]).T
    return round(float(np.polyfit(sizes, times, 1)[0]), 6)


def table(found: dict[str, list[Point]]) -> str:
    """One line per curve."""
    header = ("work", "grows", "from", "to", "time [ms]", "slope", "peak memory [MB]")
    rows = [
        (
            curve.name,
            curve.axis,
            f"{points[0].size:,}",
            f"{points[-1].size:,}",
            f"{markdown.number(points[0].ms)} – {markdown.number(points[-1].ms)}",
            f"{slope(points):.2f}",
            f"+{points[0].peak_mb:,.0f} – +{points[-1].peak_mb:,.0f}",
        )
        for curve in CURVES
        if (points := found.get(curve.name))
    ]
    return markdown.table(header, rows, right=(2, 3, 4, 5, 6))


def draw(found: dict[str, list[Point]], path: Path) -> None:
    """Time and memory over size, one panel per curve."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    for axes, curve in zip(figure.subplots(2, 3).flat, CURVES, strict=True):
        points = found[curve.name]
        sizes = [p.size for p in points]
        axes.loglog(sizes, [p.ms for p in points], "o-", color="tab:blue")
        axes.loglog(sizes, [points[-1].ms * n / sizes[-1] for n in sizes], ":", color="grey")
        axes.set(title=f"{curve.name}: slope {slope(points):.2f}", xlabel=curve.axis)
        axes.set_ylabel("processor time [ms]", color="tab:blue")
        axes.title.set_fontsize(8)
        memory = axes.twinx()
        memory.plot(sizes, [p.peak_mb for p in points], "s--", color="tab:orange", markersize=3)
        memory.set_ylabel("peak memory [+MB]", color="tab:orange")
        memory.set_ylim(bottom=0, top=max(50.0, 1.1 * max(p.peak_mb for p in points)))
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": "scaling"}
    ):  # text stays text: smaller, and the same again
        figure.savefig(path, metadata={"Date": None})


def main(arguments: Sequence[str] | None = None) -> None:
    from benchmarks import hierarchies

    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="the two smallest sizes of each curve; nothing is written")
    quick = parser.parse_args(arguments).quick
    curves = [replace(curve, sizes=curve.sizes[:2]) if quick else curve for curve in CURVES]
    found = {curve.name: measure(curve) for curve in curves}
    print(table(found))
    large = hierarchies.run(quick)
    print("\n" + hierarchies.sentences(large))
    if not quick:
        draw(found, FIGURE)
        shown = [{"name": name, "points": [asdict(p) for p in points]} for name, points in found.items()]
        write_json(RESULTS, read(RESULTS) | {"scaling": shown, "hierarchies": large})


if __name__ == "__main__":
    main()
