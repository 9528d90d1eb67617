"""Case: balances, a table and its split for each seed, and the options that all compared methods share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from equipoise.balances import LinearConstraint
from equipoise.errors import EquipoiseError

if TYPE_CHECKING:
    from equipoise.app.job import Job

Positions = NDArray[np.intp]
TEST_SHARE = 0.2


class CaseError(EquipoiseError, ValueError):
    """A case that does not exist, or that methods cannot be compared on."""


class MissingResultsError(CaseError, FileNotFoundError):
    """A file of results that does not exist."""


@dataclass(frozen=True, eq=False)
class CaseTable:
    """Rows of data.

    Args:
        X: Inputs, then known columns.
        Y: Measured outputs.
        truth: Outputs without noise; None where they are not known.
    """

    X: pd.DataFrame
    Y: pd.DataFrame
    truth: pd.DataFrame | None = None

    def take(self, rows: Positions) -> CaseTable:
        """Select rows by their positions, and number them anew."""
        parts = (None if part is None else part.iloc[rows].reset_index(drop=True) for part in vars(self).values())
        return CaseTable(*parts)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Split:
    """Rows for fitting and rows for testing.

    Args:
        fit: Rows that methods are fitted to.
        held_out: Positions of those among them that decide when to stop.
        test: Rows that no method sees before it is scored.
    """

    fit: CaseTable
    held_out: Positions
    test: CaseTable

    def digest(self) -> str:
        """Return a hash of all numbers of the split."""
        joined = hashlib.sha256(self.held_out.tobytes())
        for table in (self.fit, self.test):
            for part in (table.X, table.Y, table.truth):
                joined.update(b"-" if part is None else np.ascontiguousarray(part.to_numpy(float)).tobytes())
        return joined.hexdigest()


@dataclass(frozen=True)
class Case:
    """A problem to compare methods on.

    Args:
        name: Short name, for files and tables.
        title: Description in one sentence.
        constraint: The balances that all methods get.
        options: Arguments of `MethodRegressor` that all methods share.
        split: Returns the rows for a seed. They are the same for all methods, so that differences are paired by seed.
    """

    name: str
    title: str
    constraint: LinearConstraint
    options: dict[str, Any]
    split: Callable[[int], Split]

    @classmethod
    def from_job(
        cls, job: Job, rows: Callable[[int], CaseTable], name: str, title: str, n_fit: int | None = None
    ) -> Case:
        """Make a case from a job file.

        Args:
            job: Gives balances and options; its `validation_fraction` of the rows to fit is held out.
            rows: Returns the table for a seed.
            name, title: Name and description of the case.
            n_fit: Number of rows to fit; by default all but a fifth.
        Returns: The case, with a random split for each seed.
        Raises: CaseError, if the job has no balances.
        """
        constraint = job.constraint()
        if constraint is None:
            raise CaseError(f"A comparison must have balances, but got none in '{name}'. Add a section [balances].")
        options = {k: v for k, v in job.estimator().get_params().items() if k in SHARED}
        fraction = job.model.validation_fraction
        return cls(name, title, constraint, options, _RandomSplit(rows, fraction, n_fit))


# Options of a job that all methods share; balances, likelihood and seed are set for each method.
SHARED = ("hidden", "activation", "prior_std", "n_draws", "training", "sensor_std", "tolerance", "offset", "device")


@dataclass(frozen=True)
class _RandomSplit:
    """A random split for each seed; a picklable function."""

    rows: Callable[[int], CaseTable]
    fraction: float
    n_fit: int | None

    def __call__(self, seed: int) -> Split:
        table = self.rows(seed)
        n = len(table.X)
        n_fit = round((1 - TEST_SHARE) * n) if self.n_fit is None else self.n_fit
        order = np.random.default_rng([seed, 1]).permutation(n)
        held_out = np.arange(round((1 - self.fraction) * n_fit), n_fit)
        if len(held_out) < 1 or n_fit >= n:
            raise CaseError(
                f"A comparison must have rows to fit, to stop by and to test on, but got {n} rows of which "
                f"{len(held_out)} decide when to stop. Raise validation_fraction, or give more rows."
            )
        return Split(table.take(order[:n_fit]), held_out, table.take(order[n_fit:]))


@dataclass(frozen=True)
class SameTable:
    """A function that returns the same table for every seed, so that only its split differs.

    Args:
        table: The table.
    """

    table: CaseTable

    def __call__(self, seed: int) -> CaseTable:
        return self.table
