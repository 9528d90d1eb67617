"""The figure in the README: `make figure`, or `python docs/figures/readme.py [FILE]`, in about half a minute.

Two flows join: total = a + b. All three are metered, but the meter of b is off for ten hours.
"""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

import equipoise as eq

Array = NDArray[np.float64]
HERE = Path(__file__).parent
BALANCE = eq.LinearConstraint.from_equations("total = a + b", inputs=["hour"], outputs=["total", "a", "b"])
METER_STD = 0.1
OFF = (7.0, 17.0)
LEAK_STD = 0.3
# Colours of Okabe and Ito, and of Tol, which the colour-blind tell apart.
WITHOUT, DIAGONAL, JOINT, EXACT, LEAKY = "#D55E00", "#AA4499", "#0072B2", "#009E73", "#332288"


def expected_b(hour: Array) -> Array:
    """What b is on average at a given hour."""
    return 4.0 - 2.0 * np.exp(-(((hour - 12.0) / 3.0) ** 2))


def readings(leak_std: float = 0.0, n: int = 400) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Hours and what the meters showed; with a leak, total is not quite a + b."""
    rng = np.random.default_rng(0)
    hour = rng.uniform(0.0, 24.0, n)
    a = 5.0 + np.sin(hour / 4.0) + rng.normal(0.0, 0.3, n)
    b = expected_b(hour) + rng.normal(0.0, 0.3, n)
    flows = np.stack([a + b + rng.normal(0.0, 1.0, n) * leak_std, a, b], axis=1)
    Y = pd.DataFrame(flows + rng.normal(0.0, METER_STD, flows.shape), columns=list(BALANCE.outputs))
    Y.loc[(hour > OFF[0]) & (hour < OFF[1]), "b"] = np.nan
    return pd.DataFrame({"hour": hour}), Y


def fitted(X: pd.DataFrame, Y: pd.DataFrame, **options) -> eq.ConstrainedBNNRegressor:
    """A small network with the meters' data sheet; `options` come first."""
    given = {"constraint": BALANCE, "sensor_std": [METER_STD] * 3} | options
    return eq.ConstrainedBNNRegressor(**given, hidden=(32, 32), max_epochs=150, random_state=0).fit(X, Y)


def draw_bands(ax: Axes, X: pd.DataFrame, Y: pd.DataFrame, plain, joint) -> None:
    hour = np.linspace(0.0, 24.0, 97)
    grid = pd.DataFrame({"hour": hour})
    ax.axvspan(*OFF, color="0.93", lw=0)
    ax.text(np.mean(OFF), 5.55, "meter of b off", ha="center", va="top", color="0.4")
    ax.plot(X["hour"], Y["b"], ".", ms=2.5, mew=0, color="0.55")
    for model, color, label in ((plain, WITHOUT, "without the balance"), (joint, JOINT, "with it")):
        p = model.predict_distribution(grid)
        lower, upper = (bound["b"] for bound in p.interval(0.95))
        ax.fill_between(hour, lower, upper, color=color, alpha=0.25, lw=0)
        ax.plot(hour, p.mean["b"], color=color, lw=1.6, label=label)
    ax.plot(hour, expected_b(hour), "k--", lw=1.2, label="truth")
    ax.set(xlabel="hour", ylabel="b [m³/h]", xlim=(0, 24), ylim=(1.0, 5.7), xticks=range(0, 25, 6))
    ax.set_title("What was not measured is inferred")
    ax.legend(loc="lower left", handlelength=1.4, borderaxespad=0.2)


def draw_residuals(ax: Axes, X: pd.DataFrame, models: dict[str, tuple]) -> None:
    bins = 10 ** np.linspace(-3.2, 1.0, 64)
    for label, (model, color, height) in models.items():
        missed = np.abs(BALANCE.residual(X, model.predict_distribution(X).sample(100))).ravel()
        worst = missed.max()
        text = label if worst > 1e-9 else f"{label}: all\ndraws below {10.0 ** np.ceil(np.log10(worst)):.0e}"
        ax.text(10**-2.95, height, text, color=color, va="center")
        if worst < 1e-9:  # off the scale
            arrow = {"arrowstyle": "->", "color": color, "shrinkA": 0, "shrinkB": 0}
            ax.annotate("", (10**-3.2, height), (10**-3.0, height), arrowprops=arrow)
            continue
        share = np.histogram(missed, bins)[0] / len(missed)
        ax.stairs(share, bins, color=color, alpha=0.15, fill=True)
        ax.stairs(share, bins, color=color, lw=1.4)
    ax.set(xscale="log", xlabel="|total − a − b| of a draw [m³/h]", xlim=(10**-3.2, 10), ylim=(0, 0.13), yticks=[])
    ax.set_title("Joint draws obey the balance")


def draw_tolerances(ax: Axes, models: dict[str, tuple]) -> None:
    x = np.linspace(-3.2, 1.2, 250)
    ln = x * np.log(10.0)
    first = next(iter(models.values()))[0]
    prior, c = eq.TolerancePrior(), float(first.standardizer_.row_scale[0])
    ax.plot(10**x, _normal(ln, prior.mean / 2 + np.log(c), prior.std / 2), "--", color="0.45", lw=1.2)
    ax.text(1.3, 0.24, "prior", color="0.45")
    for label, (model, color, at) in models.items():
        row = model.tolerances_.iloc[0]
        density = _normal(ln, row["mu_rho"] / 2, row["sigma_rho"] / 2)
        ax.plot(10**x, density, color=color, lw=1.6)
        ax.fill_between(10**x, density, color=color, alpha=0.15, lw=0)
        where = {"ha": "center", "va": "center", "transform": ax.get_xaxis_transform()}
        ax.text(*at, f"{label}\n({row['verdict']})", color=color, **where)
    ax.axvline(LEAK_STD, ls=":", color="k", lw=1)
    ax.set(xscale="log", xlabel="tolerance √r [m³/h]", xlim=(10**-3.2, 10**1.2), ylim=(0, None), yticks=[])
    ax.set_title("A tolerance is learned, and rated")


def _normal(x: Array, mean: float, std: float) -> Array:
    return np.exp(-0.5 * ((x - mean) / std) ** 2) / (std * np.sqrt(2.0 * np.pi))


def main(path: Path) -> None:
    torch.set_num_threads(1)
    X, Y = readings()
    plain, joint = fitted(X, Y, constraint=None, sensor_std=None), fitted(X, Y)
    diagonal = fitted(X, Y, likelihood="marginal", sensor_std=None)
    exact, leaky = fitted(X, Y, tolerance=0), fitted(*readings(LEAK_STD))

    mpl.rcParams.update({"font.size": 9, "axes.titlesize": 10, "svg.hashsalt": "equipoise", "legend.frameon": False})
    mpl.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    figure = Figure(figsize=(11.0, 3.3), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    draw_bands(left, X, Y, plain, joint)
    draw_residuals(
        middle,
        X,
        {
            "no balance": (plain, WITHOUT, 0.121),
            "diagonal, as in the paper": (diagonal, DIAGONAL, 0.110),
            "joint, tolerance learned": (joint, JOINT, 0.099),
            "joint, tolerance 0": (exact, EXACT, 0.083),
        },
    )
    draw_tolerances(right, {"no leak": (joint, JOINT, (0.033, 0.45)), "leak of 0.3": (leaky, LEAKY, (1.7, 0.8))})
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "readme.svg")
