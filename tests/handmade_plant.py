"""A made-up plant with a lying meter, and a job file for it, which the tests of `equipoise reconcile` start from.

The last stream is not measured: it has no column. The dose is exact.
"""

from pathlib import Path

import numpy as np
import pandas as pd

STD = {"feed [kg/s]": 0.1, "top [kg/s]": 0.05, "bottom [kg/s]": 0.05, "gas [kg/s]": 0.02, "oil [kg/s]": 0.04}
LIAR, LIE, FIRST, LAST = "bottom [kg/s]", 0.8, 100, 160  # which meter shows how much too much, and in which rows

JOB = """\
data = "plant.csv"
inputs = ["valve"]
known = ["dose [kg/s]"]
outputs = ["feed [kg/s]", "top [kg/s]", "bottom [kg/s]", "gas [kg/s]", "oil [kg/s]", "loss [kg/s]"]
[balances]
column = "feed + dose = top + bottom"
still = "bottom = gas + oil"
store = "loss = 0.01 * oil"
[sensors]
feed = 0.1
top = 0.05
bottom = 0.05
gas = 0.02
oil = 0.04
"""


def plant(n_rows: int = 240, seed: int = 0) -> pd.DataFrame:
    """Text that must not be touched, a time, an exact dose and five meters."""
    rng = np.random.default_rng(seed)
    top, gas, oil = rng.uniform([4, 1, 2], [6, 2, 4], (n_rows, 3)).T
    dose = rng.choice([0.5, 1.0], n_rows)
    true = np.column_stack([top + gas + oil - dose, top, gas + oil, gas, oil])
    measured = pd.DataFrame(true + rng.normal(0, list(STD.values()), true.shape), columns=list(STD))
    measured.loc[FIRST : LAST - 1, LIAR] += LIE
    run, when = [f"{i:03d}" for i in range(n_rows)], pd.date_range("2026-03-01", periods=n_rows, freq="min")
    return pd.DataFrame({"run": run, "when": when.strftime("%Y-%m-%d %H:%M"), "dose [kg/s]": dose, **measured})


def write(folder: Path, table: pd.DataFrame | str | None = None, job: str = JOB) -> None:
    """`plant.csv`, from a frame or as it stands, and `plant.toml`."""
    table = plant() if table is None else table
    text = table if isinstance(table, str) else table.to_csv(index=False)
    (folder / "plant.csv").write_text(text, "utf-8")
    (folder / "plant.toml").write_text(job, "utf-8")
