"""1,000 posterior draws at 4,200 rows, beside the bare matrix products and activations, and the memory it takes."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from benchmarks import cell, textbook
from benchmarks.memory import peak_mb
from benchmarks.results import Result
from benchmarks.timing import race
from equipoise.data.scaling import Standardizer
from equipoise.network.likelihood import joint
from equipoise.network.mlp import LOG_VAR_BOUND
from equipoise.network.model import ConstrainedBNN, PosteriorDraws
from equipoise.network.posterior import DRAW_BLOCK
from equipoise.prediction.predictive import Predictive


def run(quick: bool) -> Iterator[Result]:
    """Mean and variance of every row and output; the same and the ledger."""
    n_draws, n_rows = (128, 420) if quick else (1000, 4200)
    X, Y = cell.data(n_rows)
    standardizer = Standardizer.fit(X, Y, cell.BALANCES)
    p = Predictive(cell.model(standardizer, joint, sensor=True), standardizer, X, cell.BALANCES.outputs, n_draws)
    unconstrained = dataclasses.replace(p, model=ConstrainedBNN(p.model.network), standardizer=Standardizer.fit(X, Y))

    calls, peaks, before = {"mean + var": moments(p), "mean + var + ledger": ledger(p)}, {}, peak_mb()
    for name, call in calls.items():  # from small to large: the peak of a process never falls
        call()
        peaks[name] = peak_mb()
    check_agreement(p)
    products = bare(p)
    best = race(calls | products | {"without balances": moments(unconstrained)}, 1.0 if quick else 45.0)
    best["bare"] = min(best[name] for name in products)

    sizes = {"n_draws": n_draws, "n_rows": n_rows, "n_x": 3, "n_y": 8, "m": 2, "hidden_layers": 2, "width": 64}
    title, other = f"predict {n_draws:,} × {n_rows:,}", "bare products"
    yield Result(f"{title}, mean + var without balances", other, best["without balances"], best["bare"], sizes)
    for name, peak in peaks.items():
        note = f"peak memory {peak:.0f} MB, {before:.0f} MB before"
        sizes |= {"peak_mb": round(peak), "peak_mb_before": round(before)}
        yield Result(f"{title}, {name}", other, best[name], best["bare"], dict(sizes), note)


def moments(p: Predictive) -> Callable[[], object]:
    """What a result keeps is forgotten from one call to the next: each has a copy of its own."""

    def call():
        fresh = dataclasses.replace(p)
        return fresh.mean, fresh.var

    return call


def ledger(p: Predictive) -> Callable[[], object]:
    """Mean, variance and ledger."""

    def call():
        fresh = dataclasses.replace(p)
        return fresh.mean, fresh.var, fresh.ledger()

    return call


def bare(p: Predictive) -> dict[str, Callable[[], object]]:
    """Matrix products and activations of all draws at all rows, weights ready made, by how many rows at a time.

    Which number is best is a matter of caches and of how memory is handed out, so that the fastest should count.
    """
    sizes, weights = p.model.network.sizes, [draws.weights for draws in _draws(p)]
    every = {f"bare products, {rows} rows at a time": _inputs(p).split(rows) for rows in (64, 128, 256)}
    return {name: partial(_all_products, sizes, weights, chunks) for name, chunks in every.items()}


def _all_products(sizes: Sequence[int], weights: Sequence[Tensor], chunks: Sequence[Tensor]) -> None:
    for x, w in itertools.product(chunks, weights):
        products(sizes, w, x)


def products(sizes: Sequence[int], weights: Tensor, x: Tensor) -> Tensor:
    """The network's last layer for weight draws `(n_draws, P)` at inputs `(n, n_x)`."""
    h, start = x.expand(len(weights), *x.shape), 0
    for fan_in, fan_out in itertools.pairwise(sizes):
        W, bias = weights[:, start : start + (fan_in + 1) * fan_out].split([fan_in * fan_out, fan_out], dim=-1)
        start += (fan_in + 1) * fan_out
        h = torch.baddbmm(bias.unsqueeze(-2), h, W.unflatten(-1, (fan_in, fan_out)))
        h = torch.nn.functional.silu(h) if start < weights.shape[-1] else h
    return h


def check_agreement(p: Predictive, n: int = 16) -> None:
    """Mean, variance and ledger of the first rows against the textbook's conditioning of the bare products."""
    standardizer, layer = p.standardizer, p.model.conditioning
    assert layer is not None
    target, means, variances = torch.as_tensor(standardizer.target(p.X[:n])), [], []
    for draws in _draws(p):
        assert draws.tol_var is not None
        mean, raw = products(p.model.network.sizes, draws.weights, _inputs(p)[:n]).double().chunk(2, dim=-1)
        var, tol_var = (LOG_VAR_BOUND * (raw / LOG_VAR_BOUND).tanh()).exp(), draws.tol_var.expand(-1, n, -1)
        mean, var = textbook.by_cholesky(mean, var, layer.B, target, tol_var)
        means.append(mean)
        variances.append(var)
    mean, var = torch.cat(means)[: p.n_draws], torch.cat(variances)[: p.n_draws]
    total = (var.mean(0) + mean.var(0, correction=0)).numpy() * standardizer.y_std**2
    np.testing.assert_allclose(p.mean[:n], standardizer.outputs_to_user(mean.mean(0).numpy()), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(p.var[:n], total, rtol=1e-4)
    np.testing.assert_allclose(p.ledger().total[:n], total, rtol=1e-4)


@torch.no_grad()
def _draws(p: Predictive) -> list[PosteriorDraws]:
    return [p.model.draw(p.seed, block) for block in range(-(-p.n_draws // DRAW_BLOCK))]


def _inputs(p: Predictive) -> Tensor:
    return torch.as_tensor(p.standardizer.inputs(p.X), dtype=torch.float32)
