"""`python -m benchmarks.defaults [--quick]`: which likelihood and which sensor treatment should be the defaults?

Fits each variant to synthetic data whose truth is known, over several seeds (each with its own data and its own
starting weights), and prints scores as mean ± standard error, then the default against each other variant, seed by
seed. What it printed, and what follows from it, is in docs/defaults.md.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

import equipoise as eq

Array = NDArray[np.float64]
Scores = dict[str, float]
DEFAULT = "joint, sensors learned"
N_SAMPLES = 64


@dataclass(frozen=True)
class Data:
    """Rows of one case: inputs, true outputs (which obey the balances exactly) and the same as sensors show them."""

    X: Array
    truth: Array
    Y: Array


@dataclass(frozen=True)
class Case:
    """A problem whose truth is known.

    Args:
        balances: What is told to the constrained variants.
        sensor_std: What a data sheet would say of the sensors.
        draw: Rows from a generator and their number.
        n_train, n_test: How many rows to fit and to score.
    """

    balances: eq.LinearConstraint
    sensor_std: tuple[float, ...]
    draw: Callable[[np.random.Generator, int], Data]
    n_train: int
    n_test: int


def cell(rng: np.random.Generator, n: int) -> Data:
    """A battery-like cell: five voltages and three heats; the noise grows by a quarter from low to high current."""
    current, soc, temperature = rng.uniform([0.5, 0.05, 273.0], [3.0, 0.95, 318.0], (n, 3)).T
    cold = (318.0 - temperature) / 45.0
    V_ocv = 3.4 + 0.6 * soc + 0.08 * np.tanh((soc - 0.5) / 0.08) - 0.12 * np.exp(-soc / 0.06)
    eta_p = 0.03 * np.arcsinh(current * (0.8 + cold)) * (1.0 + 0.3 * np.exp(-soc / 0.1))
    eta_n = 0.025 * np.arcsinh(1.5 * current * (0.7 + cold)) * (1.2 - 0.2 * soc)
    dV_ir = 0.05 * current
    Q_rev = 2e3 * current * temperature / 298.0 * np.sin(9.0 * soc)
    Q_irr = 2e4 * current * (eta_p + eta_n + dV_ir)
    V, Q_tot = V_ocv - eta_p - eta_n - dV_ir, Q_rev + Q_irr
    truth = np.stack([V, V_ocv, eta_p, eta_n, dV_ir, Q_tot, Q_rev, Q_irr], axis=1)
    noise_std = np.array(CELL_SENSORS) * (0.75 + 0.25 * current[:, None] / 3.0)
    return Data(np.stack([current, soc, temperature], axis=1), truth, truth + noise_std * rng.normal(size=truth.shape))


def parts_and_sum(rng: np.random.Generator, n: int) -> Data:
    """Two parts and their total over one input, measured with constant noise."""
    x = rng.uniform(-2.0, 2.0, n)
    a, b = np.sin(2.0 * x), 0.5 * x**2
    truth = np.stack([a, b, a + b], axis=1)
    return Data(x[:, None], truth, truth + np.array(SUM_SENSORS) * rng.normal(size=truth.shape))


CELL_BALANCES = eq.LinearConstraint.from_equations(
    {"voltage": "V = V_ocv - eta_p - eta_n - dV_ir", "heat": "Q_tot = Q_rev + Q_irr"},
    inputs=["I [A]", "SOC", "T [K]"],
    outputs=["V [V]", "V_ocv [V]", "eta_p [V]", "eta_n [V]", "dV_ir [V]", "Q_tot [W]", "Q_rev [W]", "Q_irr [W]"],
)
CELL_SENSORS = (3e-3, 3e-3, 3e-3, 3e-3, 3e-3, 60.0, 60.0, 60.0)
SUM = eq.LinearConstraint.from_equations("total = a + b", inputs=["x"], outputs=["a", "b", "total"])
SUM_SENSORS = (0.1, 0.05, 0.1)
CASES = {
    "cell: 8 outputs, 2 balances, 2,000 rows": Case(CELL_BALANCES, CELL_SENSORS, cell, 2000, 1000),
    "sum: 3 outputs, 1 balance, 500 rows": Case(SUM, SUM_SENSORS, parts_and_sum, 500, 1000),
}
VARIANTS: dict[str, Callable[[Case], dict]] = {
    "no balances": lambda case: {"constraint": None},
    "marginal, paper's prior": lambda case: {
        "constraint": case.balances,
        "likelihood": "marginal",
        "tolerance": eq.TolerancePrior.paper(),
    },
    "joint, no sensor noise": lambda case: {"constraint": case.balances, "sensor_std": None},
    DEFAULT: lambda case: {"constraint": case.balances},
    "joint, sensors given": lambda case: {"constraint": case.balances, "sensor_std": case.sensor_std},
    "joint, sensors learned, exact": lambda case: {"constraint": case.balances, "tolerance": 0},
}
HEADERS = {
    "rmse": "RMSE of the mean",
    "nll": "NLL per row",
    "measured": "measured covered [%]",
    "true": "truth covered [%]",
    "width": "width of true intervals",
    "residual": "residual of draws",
}


def scores(model: eq.ConstrainedBNNRegressor, balances: eq.LinearConstraint, train: Data, test: Data) -> Scores:
    """What is reported of one fit; lengths in standard deviations of the training outputs, or scales of balances."""
    p = model.predict_distribution(test.X)
    y_std = train.Y.std(axis=0)
    lower, upper = p.interval(0.95)
    residual = balances.residual(test.X, p.sample(N_SAMPLES)) / balances.scale(y_std)
    return {
        "rmse": float(np.sqrt(np.mean(((p.mean - test.truth) / y_std) ** 2))),
        "nll": float(-p.measured().log_prob(test.Y).mean()),
        "measured": _covered(test.Y, *p.measured().interval(0.95)),
        "true": _covered(test.truth, lower, upper),
        "width": float(np.mean((upper - lower) / y_std)),
        "residual": float(np.abs(residual).mean()),
    }


def _covered(y: Array, lower: Array, upper: Array) -> float:
    return 100.0 * float(np.mean((lower <= y) & (y <= upper)))


def run(case: Case, seeds: Sequence[int], max_epochs: int) -> dict[str, list[Scores]]:
    """The scores of every variant, one entry per seed."""
    found: dict[str, list[Scores]] = {name: [] for name in VARIANTS}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        train, test = case.draw(rng, case.n_train), case.draw(rng, case.n_test)
        for name, options in VARIANTS.items():
            model = eq.ConstrainedBNNRegressor(
                **options(case), hidden=(32, 32), max_epochs=max_epochs, random_state=seed
            ).fit(train.X, train.Y)
            found[name].append(scores(model, case.balances, train, test))
            print(".", end="", file=sys.stderr, flush=True)
    return found


def absolute(found: Mapping[str, list[Scores]]) -> str:
    """Each variant's scores."""
    rows = {name: [_text(np.array([s[key] for s in each])) for key in HEADERS] for name, each in found.items()}
    return _table("variant", rows)


def paired(found: Mapping[str, list[Scores]]) -> str:
    """The default minus each other variant, seed by seed: data and starting weights are the same on both sides."""
    rows = {
        f"default − ({name})": [
            _text(np.array([d[key] - s[key] for d, s in zip(found[DEFAULT], each, strict=True)]), signed=True)
            for key in HEADERS
        ]
        for name, each in found.items()
        if name != DEFAULT
    }
    return _table("difference", rows)


def _text(values: Array, signed: bool = False) -> str:
    """Mean ± standard error, to the digit that the standard error leaves certain."""
    mean, error = float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
    digits = 1 if error == 0 else min(4, max(1, 1 - math.floor(math.log10(error))))
    return f"{mean:{'+' if signed else ''}.{digits}f} ± {error:.{digits}f}"


def _table(corner: str, rows: Mapping[str, Sequence[str]]) -> str:
    lines = [[corner, *HEADERS.values()], ["---", *["---:"] * len(HEADERS)]]
    lines += [[name, *row] for name, row in rows.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.defaults", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two seeds and 20 epochs: does everything run?")
    quick = parser.parse_args(arguments).quick
    torch.set_num_threads(1)
    clock = time.process_time()
    for title, case in CASES.items():
        found = run(case, range(2 if quick else 5), 20 if quick else 200)
        print(f"\n{title}\n\n{absolute(found)}\n\n{paired(found)}", flush=True)
    print(f"\n{time.process_time() - clock:.0f} s of processor time", file=sys.stderr)


if __name__ == "__main__":
    main()
