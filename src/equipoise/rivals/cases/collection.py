"""The cases by name. Synthetic ones have job files, so that they double as examples."""

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
from equipoise.rivals.cases.case import Case, CaseError, CaseTable, Split
from equipoise.rivals.cases.exchanger import make_exchanger
from equipoise.rivals.cases.flash import make_flash
from equipoise.rivals.cases.hierarchy import make_hierarchy
from equipoise.rivals.cases.tank import make_tank

if TYPE_CHECKING:
    from equipoise.rivals.cases.battery.settings import Settings

BATTERY = "battery"
FEW_ROWS, FEW_TESTED = 160, 400


@dataclass(frozen=True)
class Synthetic:
    """A synthetic case.

    Args:
        title: Description in one sentence.
        make: Returns the table for a seed.
        n_fit: Number of rows to fit; None for all but a fifth.
    """

    title: str
    make: Callable[[int], CaseTable]
    n_fit: int | None = None


def _few(seed: int) -> CaseTable:
    return make_flash(seed + 1000, FEW_ROWS + FEW_TESTED)


SYNTHETIC: Mapping[str, Synthetic] = {
    "tank": Synthetic("stirred tank: exact balances with an input-dependent right-hand side, no noise", make_tank),
    "flash": Synthetic("flash: five exact balances, every meter noisy, the truth known", make_flash),
    "biased": Synthetic("heat exchanger that loses heat under a balance that says it does not", make_exchanger),
    "hierarchy": Synthetic("demand of a town: 69 meters, 21 sums of sums", make_hierarchy),
    "few": Synthetic("the flash with 160 rows", _few, FEW_ROWS),
}


def named_case(name: str, cache: Path | None = None) -> Case:
    """Return one of the cases that come with the package.

    Args:
        name: "tank", "flash", "biased", "hierarchy", "few" or "battery".
        cache: Folder that keeps simulations of the battery; None to keep nothing.
    Raises: CaseError, if there is no case of this name.
    """
    if name == BATTERY:
        return battery_case(cache)
    if name not in SYNTHETIC:
        raise CaseError(f"A case must be one of those that exist, but got {name!r}. {did_you_mean(name, names())}")
    case = SYNTHETIC[name]
    return Case.from_job(Job.parse(job_text(name), f"{name}.toml"), case.make, name, case.title, case.n_fit)


def names() -> list[str]:
    """List the names of all cases."""
    return [*SYNTHETIC, BATTERY]


def job_text(name: str) -> str:
    """Read the job file of a synthetic case."""
    return resources.files("equipoise.rivals.cases").joinpath("jobs", f"{name}.toml").read_text("utf-8")


def write_case(name: str, folder: Path, seed: int = 0) -> Path:
    """Write table, true values and job file of a synthetic case into a folder, for use with the command line.

    Args:
        name: One of the cases but "battery".
        folder: Folder to write to; it is made if it does not exist.
        seed: Seed of the table.
    Returns: The path of the job file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Job.load(write_case("few", Path(folder))).constraint().n_balances
        5
    """
    case = SYNTHETIC[name]
    table = case.make(seed)
    rows = slice(0, case.n_fit)
    folder.mkdir(parents=True, exist_ok=True)
    for stem, outputs in ((name, table.Y), (f"{name}-truth", table.truth)):
        columns = [part.iloc[rows] for part in (table.X, outputs) if part is not None]
        text = pd.concat(columns, axis=1).to_csv(index=False)
        write_atomically(folder / f"{stem}.csv", lambda file, text=text: file.write(text.encode()))
    write_atomically(folder / f"{name}.toml", lambda file: file.write(job_text(name).encode()))
    return folder / f"{name}.toml"


def battery_case(cache: Path | None = None, size: str = "full") -> Case:
    """Return the case of the paper's battery cell, with the settings of the study.

    Args:
        cache: Folder that keeps simulations; None to keep nothing.
        size: "full" or "small".
    """
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
        whole = CaseTable(data.X, data.Y, data.truth)
        fit = np.concatenate([data.train, data.validation])
        return Split(whole.take(fit), np.arange(len(data.train), len(fit)), whole.take(data.test))
