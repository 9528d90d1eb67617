"""`equipoise predict` on a million rows of a table: rows per second, and memory that does not grow with the table."""

import contextlib
import io
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import equipoise as eq
from benchmarks.memory import peak_mb
from benchmarks.results import Result
from equipoise.app import tables
from equipoise.app.commands import main

INPUTS, OUTPUTS = ("hour", "load"), ("total", "a", "b")
HIDDEN, N_DRAWS = 32, 64
JOB = f"""
data = "flows.csv"
inputs = {list(INPUTS)}
outputs = {list(OUTPUTS)}
balances = {{ mass = "total = a + b" }}
tolerances = {{ mass = 0 }}
model = {{ hidden = [{HIDDEN}], n_draws = {N_DRAWS}, max_epochs = 40 }}
"""
PIECE = 50_000  # rows of a table that are made at a time

T = TypeVar("T")


def run(quick: bool) -> Iterator[Result]:
    """A table, and one many times as long: mean, standard deviation and interval of three outputs, from csv to csv."""
    few, many = (20_000, 60_000) if quick else (100_000, 1_000_000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _fit(folder)
        short, long = (_predict(folder, n_rows) for n_rows in (few, many))
    rate = (many - few) / (long.seconds - short.seconds)
    sizes = {"n_rows": many, "peer_rows": few, "n_draws": N_DRAWS, "n_x": len(INPUTS), "n_y": len(OUTPUTS), "m": 1}
    sizes |= {"hidden_layers": 1, "width": HIDDEN, "rows_per_second": round(rate)}
    sizes |= {"peak_mb": round(long.peak_mb), "peer_peak_mb": round(short.peak_mb)}
    note = f"{rate:,.0f} rows/s once started; peak memory {long.peak_mb:.0f} MB, beside {short.peak_mb:.0f} MB"
    times = 1e3 * long.seconds, 1e3 * short.seconds * many / few
    yield Result(f"equipoise predict, {many:,} rows", f"{few:,} rows × {many // few}", *times, sizes, note)


@dataclass(frozen=True)
class Usage:
    """What a command took: processor time, with the start of its process, and the most memory that it held."""

    seconds: float
    peak_mb: float


def _fit(folder: Path) -> None:
    """A small model of two flows and their total."""
    rng = np.random.default_rng(0)
    X = _inputs(rng, 500)
    a, b = 5 + np.sin(X[:, 0] / 4), X[:, 1] ** 2
    Y = np.column_stack([a + b, a, b]) + 0.1 * rng.standard_normal((500, 3))
    _save(folder / "flows.csv", (*INPUTS, *OUTPUTS), [np.hstack([X, Y])])
    (folder / "flows.toml").write_text(JOB, encoding="utf-8")
    _elsewhere(_command, "fit", str(folder / "flows.toml"))


def _predict(folder: Path, n_rows: int) -> Usage:
    """New rows of the same kind, predicted."""
    rng = np.random.default_rng(1)
    pieces = (np.column_stack([np.arange(i, i + n), _inputs(rng, n)]) for i, n in _pieces(n_rows))
    new, out, model = folder / "new.csv", folder / "out.csv", folder / "flows.safetensors"
    _save(new, ("row", *INPUTS), pieces)
    usage = _elsewhere(_command, "predict", str(model), str(new), "-o", str(out))
    _elsewhere(_check_agreement, model, out, n_rows)
    return usage


def _inputs(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.column_stack([rng.uniform(0, 24, n), rng.uniform(0, 2, n)])


def _pieces(n_rows: int) -> Iterator[tuple[int, int]]:
    return ((start, min(PIECE, n_rows - start)) for start in range(0, n_rows, PIECE))


def _save(path: Path, columns: tuple[str, ...], pieces: Iterable[np.ndarray]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(",".join(columns) + "\n")
        for piece in pieces:
            np.savetxt(file, piece, fmt="%.9g", delimiter=",")


def _elsewhere(function: Callable[..., T], *arguments: Any) -> T:
    """Call in a new process. It inherits this one's peak of memory, which must therefore stay small."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def _command(*arguments: str) -> Usage:
    """Run a command here."""
    import torch

    torch.set_num_threads(1)
    with contextlib.redirect_stdout(io.StringIO()):
        code = main(list(arguments))
    if code:
        raise RuntimeError(f"equipoise {' '.join(arguments)} must end with 0, but got {code}.")
    return Usage(time.process_time(), peak_mb())


def _check_agreement(model: Path, out: Path, n_rows: int) -> None:
    """The table has all rows, and the last of them are what the model says of these inputs on their own."""
    (last,) = deque(tables.chunks(out, PIECE), maxlen=1)
    np.testing.assert_equal(last.index[-1] + 1, n_rows)
    last = last.tail(100)
    p = eq.load(model).predict_distribution(last[list(INPUTS)])
    lower, upper = p.interval(0.95)
    for suffix, part in {"": p.mean, " std": p.std, " lower": lower, " upper": upper}.items():
        np.testing.assert_allclose(last[[f"{name}{suffix}" for name in OUTPUTS]], part, rtol=1e-6)
