"""`python -m benchmarks.variances [--tables 40]`: do intervals of tolerances and sensors hold the true values?

Each design is a table of two curves and their sum, 100 rows of one input, made anew for each of several seeds, with
noise of standard deviation 0.1 on every output. One network of 16 units is linearised about its mode. What this printed
is in docs/defaults.md.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import equipoise as eq

Array = NDArray[np.float64]
NOISE, N_ROWS = 0.1, 100
BALANCE = eq.LinearConstraint.from_equations("total = a + b", inputs=["x"], outputs=["a", "b", "total"])


@dataclass(frozen=True)
class Design:
    """How tables are made, and what is known when they are fitted.

    Args:
        name: In the table of results.
        tol_std: Standard deviation of the law's own residual.
        sensors_given: Whether the accuracy of the sensors is known.
    """

    name: str
    tol_std: float
    sensors_given: bool


DESIGNS = (
    Design("residual 0.2, sensors given", 0.2, True),
    Design("residual 0.2, sensors learned", 0.2, False),
    Design("exact law, sensors given", 0.0, True),
    Design("exact law, sensors learned", 0.0, False),
    Design("residual 0.1, sensors given", 0.1, True),
)


def table(design: Design, seed: int) -> tuple[Array, Array]:
    """Return inputs and measured outputs.

    Args:
        design: The design.
        seed: Of the rows.
    """
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.5, 1.5, N_ROWS)
    a, b = 0.8 * np.sin(2 * x), 0.5 * x**2
    truth = np.column_stack([a, b, a + b + design.tol_std * rng.standard_normal(N_ROWS)])
    return x[:, None], truth + NOISE * rng.standard_normal(truth.shape)


def intervals(design: Design, seed: int, max_epochs: int = 120) -> tuple[Array, Array]:
    """Fit a table, and return 95 % intervals of the tolerance, `(2,)`, and of the sensors, `(3, 2)`.

    Args:
        design: The design.
        seed: Of rows and fit.
        max_epochs: Bounds the epochs.
    """
    X, Y = table(design, seed)
    model = eq.ConstrainedBNNRegressor(
        BALANCE,
        hidden=(16,),
        posterior=eq.Laplace(1),
        random_state=seed,
        max_epochs=max_epochs,
        sensor_std=NOISE if design.sensors_given else "learn",
    ).fit(X, Y)
    tolerance = model.tolerances_[["tol_std_lower", "tol_std_upper"]].to_numpy()[0]
    return tolerance, model.sensor_std_[["lower", "upper"]].to_numpy()


def lines(n_tables: int, max_epochs: int = 120) -> Iterator[str]:
    """Yield the lines of a table in Markdown, one for each design.

    Args:
        n_tables: Number of tables of each design.
        max_epochs: Bounds the epochs.
    """
    yield "| design | tolerance covered | its median ends | lower end < 0.01 | sensors covered | their median ends |"
    yield "|---|---:|---:|---:|---:|---:|"
    for design in DESIGNS:
        results = [intervals(design, seed, max_epochs) for seed in range(n_tables)]
        tolerance, sensors = (np.array(parts) for parts in zip(*results, strict=True))
        covered = np.mean((tolerance[:, 0] <= design.tol_std) & (design.tol_std <= tolerance[:, 1]))
        cells = [f"{covered:.3f}" if design.tol_std else "–", _ends(tolerance)]
        cells.append(f"{np.mean(tolerance[:, 0] < 0.1 * NOISE):.3f}")
        held = np.mean((sensors[..., 0] <= NOISE) & (sensors[..., 1] >= NOISE))
        cells += ["–", "–"] if design.sensors_given else [f"{held:.3f}", _ends(sensors.reshape(-1, 2))]
        yield f"| {design.name} | " + " | ".join(cells) + " |"


def _ends(intervals: Array) -> str:
    lower, upper = np.median(intervals, axis=0)
    return f"{lower:.3g} to {upper:.3g}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=40, help="tables of each design")
    for line in lines(parser.parse_args().tables):
        print(line, flush=True)
