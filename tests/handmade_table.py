"""A made-up table of a battery cell, and a job file for it, which the tests of the command line start from.

All voltages are measured with noise of `SENSOR_STD`, so that both balances hold within it. The column `run` holds text
that must not be taken for numbers.
"""

from pathlib import Path

import numpy as np
import pandas as pd

SENSOR_STD = 0.002  # V
INPUTS = ("Current [A]", "SOC")
OUTPUTS = ("Voltage [V]", "OCV [V]", "Loss [V]")

JOB = """\
data = "cell.csv"
inputs = ["Current [A]", "SOC"]
outputs = ["Voltage [V]", "OCV [V]", "Loss [V]"]
[balances]
voltage = "Voltage = OCV - Loss"
[model]
hidden = [4]
max_epochs = 10
n_draws = 4
"""

# One balance is exact, the other one learned, with a column that only the balance knows.
FULL_JOB = """\
data = "cell.csv"
inputs = ["Current [A]", "SOC"]
known = ["Lead [V]"]
outputs = ["Voltage [V]", "OCV [V]", "Loss [V]", "Terminal [V]"]
[balances]
voltage = "Voltage = OCV - Loss"
terminal = "Terminal = Voltage - Lead"
[tolerances]
voltage = 0
[model]
hidden = [8]
max_epochs = 30
n_draws = 16
"""


def cell(n_rows: int = 60, seed: int = 0) -> pd.DataFrame:
    """Text, inputs, a known column and measured outputs, one row per experiment."""
    rng = np.random.default_rng(seed)
    current, soc = rng.uniform(0.5, 3.0, n_rows), rng.uniform(0.1, 0.9, n_rows)
    ocv, loss, lead = 3.2 + 0.7 * soc + 0.2 * np.sin(9 * soc), 0.1 * np.sqrt(current) * (1.3 - soc), 0.02 * current
    true = {"Voltage [V]": ocv - loss, "OCV [V]": ocv, "Loss [V]": loss, "Terminal [V]": ocv - loss - lead}
    measured = {name: values + SENSOR_STD * rng.standard_normal(n_rows) for name, values in true.items()}
    run = [f"{i:03d}" for i in range(n_rows)]
    return pd.DataFrame({"run": run, "Current [A]": current, "SOC": soc, "Lead [V]": lead, **measured})


FULL_INPUTS = ["Current [A]", "SOC", "Lead [V]"]
FULL_OUTPUTS = ["Voltage [V]", "OCV [V]", "Loss [V]", "Terminal [V]"]


def new_rows() -> pd.DataFrame:
    """Rows beside those of `FULL_JOB`'s table, some outputs of which were not measured."""
    table = cell(40, seed=1)
    table.loc[[2, 5], "OCV [V]"] = np.nan
    table.loc[[7, 8], FULL_OUTPUTS] = np.nan
    return table


def write(folder: Path, table: pd.DataFrame | str | None = None, job: str = JOB) -> None:
    """`cell.csv`, from a frame or as it stands, and `cell.toml`."""
    table = cell() if table is None else table
    text = table if isinstance(table, str) else table.to_csv(index=False)
    (folder / "cell.csv").write_text(text, "utf-8")
    (folder / "cell.toml").write_text(job, "utf-8")


def contents(folder: Path) -> dict[str, bytes]:
    """All that is in a folder, hidden files included."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
