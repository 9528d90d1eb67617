"""Large trees of sums: one that is trained and drawn from, and one whose rows are conditioned."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from benchmarks.timing import process_ms

Found = dict[str, dict[str, float]]


def run(quick: bool) -> Found:
    """What each took, in a new process."""
    sizes = ((31, 15), (23, 11)) if quick else ((555, 251), (823, 374))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return {"trained": pool.submit(train, *sizes[0]).result(), "conditioned": pool.submit(rows, *sizes[1]).result()}


def train(n_y: int, m: int, n_rows: int = 128, epochs: int = 6) -> dict[str, float]:
    """Fit a tree of `n_y` outputs with `m` exact sums for a few epochs and draw 16 samples of every row."""
    import torch

    import equipoise as eq
    from benchmarks.conditioning import hierarchy

    torch.set_num_threads(1)
    B = hierarchy(n_y, m).numpy()
    X, Y = _tree_data(np.sign(B), n_rows)
    model = eq.ConstrainedBNNRegressor(eq.LinearConstraint(B), hidden=(64,), max_epochs=epochs, random_state=0)
    fit_ms = process_ms(lambda: model.fit(X, Y))
    samples: list[np.ndarray] = []
    sample_ms = process_ms(lambda: samples.append(model.predict_distribution(X).sample(16)))
    miss = np.abs(samples[0] @ B.T).max() / np.abs(Y).max()
    sizes = {"outputs": n_y, "balances": m, "rows": n_rows, "epochs": epochs, "samples": 16}
    return sizes | {"fit_s": fit_ms / 1e3, "sample_s": sample_ms / 1e3, "largest_miss": float(miss)}


def rows(n_y: int, m: int, batch: int = 40) -> dict[str, float]:
    """Condition `batch` rows of a tree of `n_y` outputs on its `m` exact sums."""
    import torch

    from benchmarks.conditioning import hierarchy
    from equipoise import DiagonalGaussian, condition
    from equipoise.gaussian.operator import BalanceOperator

    torch.set_num_threads(1)
    B, generator = hierarchy(n_y, m), torch.Generator().manual_seed(0)
    mean = torch.randn(batch, n_y, generator=generator, dtype=torch.float64)
    gaussian, operator = DiagonalGaussian(mean, mean.square() + 0.1), BalanceOperator(B)
    target, found = torch.zeros(batch, m, dtype=torch.float64), []

    def call():
        conditioned = condition(gaussian, operator, target)
        found.append((conditioned.mean, conditioned.var))

    ms = min(process_ms(call) for _ in range(3))
    miss = float((found[-1][0] @ B.mT).abs().max())
    return {"outputs": n_y, "balances": m, "rows": batch, "seconds": ms / 1e3, "largest_miss": miss}


def sentences(found: Found) -> str:
    """What was found, in words."""
    a, b = found["trained"], found["conditioned"]
    trained = (
        f"{_tree(a)}: {a['epochs']:.0f} epochs over {a['rows']:.0f} rows in {a['fit_s']:.1f} s, "
        f"{a['samples']:.0f} samples of every row in {a['sample_s']:.1f} s; no sample misses a sum by more than "
        f"{a['largest_miss']:.0e} of the largest value."
    )
    conditioned = f"{_tree(b)}: {b['rows']:.0f} rows conditioned in {b['seconds']:.2f} s"
    return f"{trained}\n{conditioned}; largest miss {b['largest_miss']:.0e}."


def _tree(found: dict[str, float]) -> str:
    return f"A tree of {found['outputs']:.0f} outputs with {found['balances']:.0f} exact sums"


def _tree_data(signs: np.ndarray, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Leaves that depend on three inputs, and their sums; row k of `signs` has +1 at output k, −1 at its children."""
    rng = np.random.default_rng(0)
    m, n_y = signs.shape
    X = rng.uniform(-1.0, 1.0, (n_rows, 3))
    Y = np.zeros((n_rows, n_y))
    Y[:, m:] = 2.0 + np.sin(X @ rng.normal(size=(3, n_y - m)))
    for k in reversed(range(m)):
        Y[:, k] = Y[:, signs[k] < 0].sum(1)
    return X, Y
