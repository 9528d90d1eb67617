"""Reconciliation beside the least that any program must do, and beside a loop over the rows."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

import equipoise as eq
from benchmarks.memory import peak_mb
from benchmarks.results import Result
from benchmarks.timing import race

Array = NDArray[np.float64]
LOOPED = 200  # rows of the loop, whose time is scaled to all rows


def run(quick: bool) -> Iterator[Result]:
    """A large plant with few rows, and many rows of a small one: values, half-widths, tests and logbook."""
    yield from _beside_peers("large plant", *plant(80, 37, 40) if quick else plant(800, 370, 40))
    yield from _beside_peers("long table", *plant(28, 11, 20_000 if quick else 1_000_000))


def plant(n: int, m: int, rows: int) -> tuple[eq.LinearConstraint, Array, Array]:
    """Balances with few streams each, standard deviations, and rows that obey the balances but for noise."""
    rng = np.random.default_rng(0)
    B = np.zeros((m, n))
    B[np.arange(m), rng.permutation(n)[:m]] = 1.0  # a stream of its own makes each balance independent
    own = B.copy()
    for k in range(m):
        others = rng.choice(np.flatnonzero(own.sum(axis=0) == 0), 4, replace=False)
        B[k, others] = rng.choice([-1.0, 1.0], 4)
    free = own.sum(axis=0) == 0
    values, std = np.empty((rows, n)), rng.uniform(0.05, 0.2, n)
    for piece in np.array_split(values, max(1, rows // 10_000)):  # no second table in memory
        piece[:, free] = rng.uniform(1, 10, (len(piece), int(free.sum())))
        piece[:, own.argmax(axis=1)] = -piece[:, free] @ B[:, free].T
        piece += std * rng.standard_normal(piece.shape)
    names = [f"s{j}" for j in range(n)]
    return eq.LinearConstraint(B, outputs=names), std, values


def _beside_peers(title: str, constraint: eq.LinearConstraint, std: Array, values: Array) -> Iterator[Result]:
    rows, few = len(values), min(LOOPED, len(values))
    alone = peak_mb()
    calls: dict[str, Callable[[], object]] = {
        "values": lambda: eq.reconcile(values, std, constraint).values,
        "everything": lambda: _everything(values, std, constraint),
        "one product": _product(values, std, constraint),
        "loop": lambda: [_row(row, std, constraint.B, constraint.b) for row in values[:few]],
    }
    _check_agreement(values[:few], std, constraint)
    calls["values"]()
    memory = peak_mb()
    calls["everything"]()
    sizes = {"n_y": constraint.n_outputs, "m": constraint.n_balances, "n_rows": rows, "looped_rows": few}
    sizes |= {"data_mb": round(values.nbytes / 2**20), "peak_mb": round(peak_mb()), "base_mb": round(alone)}
    best = race(calls, 0.0, min_rounds=2)
    name = f"{title}: {constraint.n_outputs} variables, {constraint.n_balances} balances, {rows:,} rows"
    loop = best["loop"] * rows / few
    for what, peak in (("values", memory), ("everything", peak_mb())):
        note = f"peak memory {peak:,.0f} MB, of which data and start {alone:,.0f} MB"
        yield Result(f"{name}, {what}", "one product", best[what], best["one product"], sizes, note)
        yield Result(f"{name}, {what}", "loop over rows", best[what], loop, sizes, f"loop: {few} rows × {rows // few}")


def _everything(values: Array, std: Array, constraint: eq.LinearConstraint) -> object:
    """What the command line calculates: values, half-widths, all tests, and the account of them."""
    result = eq.reconcile(values, std, constraint)
    return result.values, result.half_widths, result.adjustments, result.logbook()


def _product(values: Array, std: Array, constraint: eq.LinearConstraint) -> Callable[[], object]:
    """The floor: a projection matrix that is known already, times all rows, plus a constant."""
    B, var = constraint.B, np.square(std)
    K = var[:, None] * np.linalg.solve((B * var) @ B.T, B).T
    P, constant = np.eye(len(std)) - K @ B, K @ constraint.b
    return lambda: values @ P.T + constant


def _row(row: Array, std: Array, B: Array, b: Array) -> tuple[Array, float]:
    """One row by the textbook: reconciled values and the statistic of the global test."""
    var, missed = np.square(std), b - B @ row
    weights = np.linalg.solve((B * var) @ B.T, missed)
    return row + var * (B.T @ weights), float(missed @ weights)


def _check_agreement(values: Array, std: Array, constraint: eq.LinearConstraint) -> None:
    result = eq.reconcile(values, std, constraint)
    alone = [_row(row, std, constraint.B, constraint.b) for row in values]
    np.testing.assert_allclose(result.values, [row for row, _ in alone], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(result.statistic, [statistic for _, statistic in alone], rtol=1e-8)
