"""`python -m benchmarks.small_tables [--quick]`: posteriors of the weights on small tables, beside a Gaussian process.

Each table is fitted with `posterior="mean-field"`, with `posterior="laplace"` and by a Gaussian process per output with
one length for each input (conditioned on the balance exactly where there is one), over several seeds. Layers of 32 are
wide enough for "laplace", which has no use for the default's 64 on such tables. Every seed has
its own rows and its own starting weights. Scores are of new rows; what this printed is in docs/defaults.md.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.datasets import make_friedman1, make_friedman2, make_friedman3
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import equipoise as eq

Array = NDArray[np.float64]
N_TEST = 500
HIDDEN = {"mean-field": {}, "laplace": {"hidden": (32, 32)}}
SUM = {
    n: eq.LinearConstraint.from_equations(
        "total = a + b", inputs=[f"x{i}" for i in range(n)], outputs=["a", "b", "total"]
    )
    for n in (1, 10)
}
FLOWS = eq.LinearConstraint.from_equations(
    ["t0 = p0 + p1 + p2", "t1 = p3 + p4 + p5"],
    inputs=[f"x{i}" for i in range(6)],
    outputs=[*(f"p{i}" for i in range(6)), "t0", "t1"],
)


@dataclass(frozen=True)
class Table:
    """Rows to fit, and new rows to score.

    Args:
        X, Y: Inputs and measured outputs, first those of the rows to fit.
        truth: Outputs without noise.
        n: Number of rows to fit.
        balances: What the outputs obey; None for nothing.
    """

    X: Array
    Y: Array
    truth: Array
    n: int
    balances: eq.LinearConstraint | None = None


def friedman(make: Callable, noise: float, n: int) -> Callable[[int], Table]:
    """Return one of Friedman's tables, of which scikit-learn makes the rows."""

    def table(seed: int) -> Table:
        X, truth = make(n + N_TEST, noise=0.0, random_state=seed)
        error = noise * np.random.default_rng(seed).standard_normal(n + N_TEST)
        return Table(X, (truth + error)[:, None], truth[:, None], n)

    return table


def hull(seed: int) -> Table:
    """Return the resistance of made-up hulls over speed: four decades, with an error of two per cent."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(-1, 1, (300 + N_TEST, 5)), rng.uniform(0.125, 0.45, 300 + N_TEST)])
    shape = 1 + 0.15 * X[:, 1] - 0.1 * X[:, 2] + 0.08 * X[:, 0] * X[:, 3] + 0.05 * X[:, 4]
    truth = 0.045 * shape * np.exp(15 * X[:, 5]) * (1 + 0.2 * X[:, 1] * X[:, 5]) + 8 * X[:, 5] ** 2
    error = 0.02 * truth * rng.standard_normal(len(X)) + 0.02 * rng.standard_normal(len(X))
    return Table(X, (truth + error)[:, None], truth[:, None], 300)


def gap(seed: int) -> Table:
    """Return two curves and their sum, 120 rows of one input of which none lies between 0.2 and 0.7."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.5, 1.5, 1200)
    x = np.concatenate([x[(x < 0.2) | (x > 0.7)][:120], rng.uniform(-1.5, 1.5, N_TEST)])
    a, b = 0.8 * np.sin(2 * x), 0.5 * x**2
    truth = np.column_stack([a, b, a + b])
    return Table(x[:, None], truth + 0.1 * rng.standard_normal(truth.shape), truth, 120, SUM[1])


def ten(seed: int) -> Table:
    """Return two functions of ten inputs and their sum, 100 rows."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (100 + N_TEST, 10))
    a, b = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2], X[:, 3] ** 2 + 0.5 * X[:, 4] - 0.3 * X[:, 0]
    truth = np.column_stack([a, b, a + b])
    return Table(X, truth + 0.1 * rng.standard_normal(truth.shape), truth, 100, SUM[10])


def flows(n: int) -> Callable[[int], Table]:
    """Return six flows and two sums of three of them over six inputs, measured to five per cent of their spread."""

    def table(seed: int) -> Table:
        rng = np.random.default_rng(100 + seed)
        X, W = rng.uniform(-1, 1, (n + N_TEST, 6)), rng.standard_normal((6, 6))
        parts = np.sin(0.7 * X @ W) + 0.3 * (X @ rng.standard_normal((6, 6))) ** 2
        truth = np.column_stack([parts, parts[:, :3].sum(1), parts[:, 3:].sum(1)])
        Y = truth + 0.05 * truth.std(0) * rng.standard_normal(truth.shape)
        return Table(X, Y, truth, n, FLOWS)

    return table


TABLES: dict[str, Callable[[int], Table]] = {
    "friedman 1": friedman(make_friedman1, 1.0, 300),
    "friedman 2": friedman(make_friedman2, 60.0, 300),
    "friedman 3": friedman(make_friedman3, 0.1, 300),
    "hull": hull,
    "gap": gap,
    "ten inputs": ten,
    "flows, 300 rows": flows(300),
    "flows, 2,000 rows": flows(2000),
}


@dataclass(frozen=True)
class Scores:
    """Scores of one fit.

    Args:
        rmse: Root mean squared error of the mean against the truth, in standard deviations of each output.
        crps: CRPS of measured values, in the same unit.
        density: Log density of measured values per row and output, in units of these standard deviations.
        covered: Share of measured values in intervals of 95 %.
        covered_truth: Share of true values in those of the true values.
        seconds: Processor time of the fit.
    """

    rmse: float
    crps: float
    density: float
    covered: float
    covered_truth: float
    seconds: float


def ours(posterior: str, table: Table, seed: int, quick: bool) -> Scores:
    """Fit a network and score it."""
    more = {"max_epochs": 20, "hidden": (8,)} if quick else HIDDEN[posterior]
    model = eq.ConstrainedBNNRegressor(table.balances, posterior=posterior, random_state=seed, **more)
    start = time.process_time()
    model.fit(table.X[: table.n], table.Y[: table.n])
    seconds = time.process_time() - start
    truth, Y = table.truth[table.n :], table.Y[table.n :]
    p, unit = model.predict_distribution(table.X[table.n :]), table.truth.std(0)
    of_truth, of_measured = p.interval(0.95), p.measured().interval(0.95)
    return Scores(
        rmse=_rmse(p.mean, truth, unit),
        crps=float(np.mean(eq.metrics.crps(p.measured(), Y) / unit)),
        density=float(np.mean(p.measured().log_prob(Y)) / Y.shape[1] + np.log(unit).mean()),
        covered=_covered(*of_measured, Y),
        covered_truth=_covered(*of_truth, truth),
        seconds=seconds,
    )


def gaussian_process(table: Table, seed: int, quick: bool) -> Scores:
    """Fit a Gaussian process to each output, condition them on the balance exactly, and score them."""
    centre, spread = table.X[: table.n].mean(0), table.X[: table.n].std(0)
    X, means, stds, noises = (table.X - centre) / spread, [], [], []
    start = time.process_time()
    for j in range(table.Y.shape[1]):
        kernel = ConstantKernel(1.0) * RBF(np.ones(X.shape[1]), (1e-2, 1e3)) + WhiteKernel(0.1, (1e-6, 1e1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # lengths of inputs without effect reach their bounds
            process = GaussianProcessRegressor(kernel, normalize_y=True, optimizer=None if quick else "fmin_l_bfgs_b")
            process.fit(X[: table.n], table.Y[: table.n, j])
        mean, std = process.predict(X[table.n :], return_std=True)
        noise = process.kernel_.k2.noise_level * process._y_train_std**2
        means.append(mean)
        stds.append(np.sqrt(np.maximum(std**2 - noise, 1e-12)))
        noises.append(np.sqrt(noise))
    seconds = time.process_time() - start
    mean, std, noise = np.column_stack(means), np.column_stack(stds), np.array(noises)
    if table.balances is not None:
        for B in table.balances.B:  # no output is in two balances
            gain = std**2 * B / ((std * B) ** 2).sum(1, keepdims=True)
            mean = mean - gain * (mean @ B)[:, None]
            std = std * np.sqrt(np.maximum(1.0 - gain * B, 1e-12))
    truth, Y, unit = table.truth[table.n :], table.Y[table.n :], table.truth.std(0)
    total = np.sqrt(std**2 + noise**2)
    z = (Y - mean) / total
    crps = total * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    return Scores(
        rmse=_rmse(mean, truth, unit),
        crps=float(np.mean(crps / unit)),
        density=float(np.mean(norm.logpdf(Y, mean, total) + np.log(unit))),
        covered=_covered(mean - 1.96 * total, mean + 1.96 * total, Y),
        covered_truth=_covered(mean - 1.96 * std, mean + 1.96 * std, truth),
        seconds=seconds,
    )


METHODS: dict[str, Callable[[Table, int, bool], Scores]] = {
    "mean-field": lambda table, seed, quick: ours("mean-field", table, seed, quick),
    "laplace": lambda table, seed, quick: ours("laplace", table, seed, quick),
    "Gaussian process": gaussian_process,
}
TOO_LARGE = {"flows, 2,000 rows"}  # for a Gaussian process with the search for its lengths


def lines(seeds: Sequence[int], quick: bool = False) -> Iterator[str]:
    """Yield the lines of a table in Markdown, one for each table of data and method.

    Args:
        seeds: Seeds to average over.
        quick: Whether to train for a look at the output only.
    """
    yield "| table | method | RMSE | CRPS | log density | measured covered | truth covered | processor time [s] |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for name, make in TABLES.items():
        for method, score in METHODS.items():
            if score is gaussian_process and name in TOO_LARGE:
                continue
            results = [score(make(seed), seed, quick) for seed in seeds]
            yield f"| {name} | {method} | " + " | ".join(_cells(results)) + " |"


def _cells(results: Sequence[Scores]) -> Iterator[str]:
    digits = {"rmse": 3, "crps": 4, "density": 2, "covered": 2, "covered_truth": 2, "seconds": 1}
    for name, places in digits.items():
        values = np.array([getattr(result, name) for result in results])
        error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
        yield f"{values.mean():.{places}f} ± {error:.{places}f}" if name != "seconds" else f"{values.mean():.{places}f}"


def _rmse(mean: Array, truth: Array, unit: Array) -> float:
    return float(np.sqrt((((np.asarray(mean) - truth) / unit) ** 2).mean()))


def _covered(lower: Array, upper: Array, values: Array) -> float:
    return float(((values >= lower) & (values <= upper)).mean())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two seeds of short fits, to see that it runs")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    options = parser.parse_args()
    for line in lines(range(2 if options.quick else options.seeds), options.quick):
        print(line, flush=True)


if __name__ == "__main__":
    main()
