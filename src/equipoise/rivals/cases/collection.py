"""The cases by name: made by seeded code, each with its job file, so that they double as examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from equipoise.app.job import Job
from equipoise.balances import did_you_mean
from equipoise.data import write_atomically
from equipoise.rivals.cases.case import Case, CaseError, Split, Table
from equipoise.rivals.cases.exchanger import make_exchanger
from equipoise.rivals.cases.flash import make_flash
from equipoise.rivals.cases.hierarchy import make_hierarchy
from equipoise.rivals.cases.tank import make_tank

if TYPE_CHECKING:
    from equipoise.rivals.cases.battery.settings import Settings

BATTERY = "battery"
FEW_ROWS, FEW_TESTED = 160, 400


@dataclass(frozen=True)
class Made:
    """A table made by code, in one sentence, and how many of its rows are fitted to if not all but a fifth."""

    title: str
    make: Callable[[int], Table]
    n_fit: int | None = None


def _few(seed: int) -> Table:
    return make_flash(seed + 1000, FEW_ROWS + FEW_TESTED)


MADE: Mapping[str, Made] = {
    "tank": Made("stirred tank: exact balances with an input-dependent right-hand side, no noise", make_tank),
    "flash": Made("flash: five exact balances, every meter noisy, the truth known", make_flash),
    "biased": Made("heat exchanger that loses heat under a balance that says it does not", make_exchanger),
    "hierarchy": Made("demand of a town: 69 meters, 21 sums of sums", make_hierarchy),
    "few": Made("the flash with 160 rows", _few, FEW_ROWS),
}


def named_case(name: str, cache: Path | None = None) -> Case:
    """One of the cases: those of `MADE`, or the paper's battery.

    Args:
        name: "tank", "flash", "biased", "hierarchy", "few" or "battery".
        cache: Folder that keeps the battery's simulations.
    """
    if name == BATTERY:
        return battery_case(cache)
    if name not in MADE:
        raise CaseError(f"A case must be one of those that exist, but got {name!r}. {did_you_mean(name, names())}")
    made = MADE[name]
    return Case.of_job(Job.parse(job_text(name), f"{name}.toml"), made.make, name, made.title, made.n_fit)


def names() -> list[str]:
    """All cases."""
    return [*MADE, BATTERY]


def job_text(name: str) -> str:
    """The job file of a made case."""
    return resources.files("equipoise.rivals.cases").joinpath("jobs", f"{name}.toml").read_text("utf-8")


def write_case(name: str, folder: Path, seed: int = 0) -> Path:
    """Write a made case's table, true values and job file into a folder, ready for every command; the job's path.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Job.load(write_case("few", Path(folder))).constraint().n_balances
        5
    """
    made = MADE[name]
    table = made.make(seed)
    rows = slice(0, made.n_fit)
    folder.mkdir(parents=True, exist_ok=True)
    for stem, outputs in ((name, table.Y), (f"{name}-truth", table.truth)):
        columns = [part.iloc[rows] for part in (table.X, outputs) if part is not None]
        text = pd.concat(columns, axis=1).to_csv(index=False)
        write_atomically(folder / f"{stem}.csv", lambda file, text=text: file.write(text.encode()))
    write_atomically(folder / f"{name}.toml", lambda file: file.write(job_text(name).encode()))
    return folder / f"{name}.toml"


def battery_case(cache: Path | None = None, size: str = "full") -> Case:
    """The paper's battery with the study's settings."""
    from equipoise.rivals.cases.battery.data import balances
    from equipoise.rivals.cases.battery.settings import OURS, Settings

    settings = Settings.named(size)
    options = {"hidden": settings.hidden, "activation": settings.activation, "training": settings.plan(OURS)}
    options |= {"n_draws": settings.n_draws, "prior_std": 1.0}
    return Case(BATTERY, "the paper's battery cell", balances(), options, _BatterySplit(settings, cache))


@dataclass(frozen=True)
class _BatterySplit:
    settings: Settings
    cache: Path | None

    def __call__(self, seed: int) -> Split:
        from equipoise.rivals.cases.battery.data import load

        data = load(self.settings.data_of(seed), self.cache)
        whole = Table(data.X, data.Y, data.truth)
        fit = np.concatenate([data.train, data.validation])
        return Split(whole.take(fit), np.arange(len(data.train), len(fit)), whole.take(data.test))
