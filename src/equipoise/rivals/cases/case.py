"""Case: a table with its balances, how it is split for a seed, and the options that every method is given."""

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

Rows = NDArray[np.intp]
TEST_SHARE = 0.2


class CaseError(EquipoiseError, ValueError):
    """A case that does not exist, or that cannot be compared on."""


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of data.

    Args:
        X: Inputs, then known columns.
        Y: Measured outputs.
        truth: Outputs without noise, where they are known.
    """

    X: pd.DataFrame
    Y: pd.DataFrame
    truth: pd.DataFrame | None = None

    def take(self, rows: Rows) -> Table:
        """Some of the rows, numbered anew."""
        parts = (None if part is None else part.iloc[rows].reset_index(drop=True) for part in vars(self).values())
        return Table(*parts)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Split:
    """What is fitted to, what decides when to stop, and what is tested on.

    Args:
        fit: Rows that methods get.
        held_out: Positions among them of those that decide when to stop.
        test: Rows that no method sees.
    """

    fit: Table
    held_out: Rows
    test: Table

    def digest(self) -> str:
        """Changes with every number in it."""
        joined = hashlib.sha256(self.held_out.tobytes())
        for table in (self.fit, self.test):
            for part in (table.X, table.Y, table.truth):
                joined.update(b"-" if part is None else np.ascontiguousarray(part.to_numpy(float)).tobytes())
        return joined.hexdigest()


@dataclass(frozen=True)
class Case:
    """Something to compare methods on.

    Args:
        name: Short, for files and tables.
        title: One sentence.
        constraint: The balances that all methods are told of.
        options: Arguments of the estimator that all methods share.
        split: The rows for a seed: the same for all methods, so that seeds are paired.
    """

    name: str
    title: str
    constraint: LinearConstraint
    options: dict[str, Any]
    split: Callable[[int], Split]

    @classmethod
    def of_job(cls, job: Job, rows: Callable[[int], Table], name: str, title: str, n_fit: int | None = None) -> Case:
        """From a job file.

        Args:
            job: Its balances and options; its `validation_fraction` of the rows that are not tested on is held out.
            rows: The table for a seed.
            name, title: Of the case.
            n_fit: How many rows are fitted to; by default all but a fifth.
        """
        constraint = job.constraint()
        if constraint is None:
            raise CaseError(f"A comparison must have balances, but got none in '{name}'. Add a section [balances].")
        options = {k: v for k, v in job.estimator().get_params().items() if k in SHARED}
        fraction = job.model.validation_fraction
        return cls(name, title, constraint, options, _SplitOf(rows, fraction, n_fit))


# What all methods have in common; balances, likelihood and seed are set for each.
SHARED = ("hidden", "activation", "prior_std", "n_draws", "training", "sensor_std", "tolerance", "offset", "device")


@dataclass(frozen=True)
class _SplitOf:
    rows: Callable[[int], Table]
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
    """The same rows whatever the seed: only their split differs."""

    table: Table

    def __call__(self, seed: int) -> Table:
        return self.table
