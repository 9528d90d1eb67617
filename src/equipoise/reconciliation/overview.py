"""A reconciliation as people read it: one line for each variable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from equipoise.reconciliation.patterns import Solution
from equipoise.reconciliation.significance import half_width

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
LISTED = 30


def frame(solution: Solution, level: float) -> pd.DataFrame:
    """Unit, measured and reconciled values with their half-widths, adjustment and class of each variable.

    Over the rows of a table, values are means, half-widths root mean squares, and the class is that of most rows;
    measured ones are over the readings, reconciled ones over all rows that determine the variable.

    Args:
        solution: What was reconciled.
        level: Probability of the intervals.
    """
    import pandas as pd

    given = solution.measurements
    factor, values = half_width(level), solution.outcome.values
    data = {
        "unit": [unit or "" for unit in given.units],
        "readings": np.count_nonzero(~np.isnan(given.values), axis=0),
        "measured": _mean(given.values),
        "± before": factor * np.sqrt(_mean(np.square(solution.std_before))),
        "reconciled": _mean(values),
        "± after": factor * np.sqrt(_mean(np.square(solution.std))),
        "adjustment": _mean(values - given.values),
        "class": [_most_frequent(column) for column in solution.classes.T],
    }
    return pd.DataFrame(data, index=pd.Index(given.names, name="variable")).iloc[: given.reported]


def lines(table: pd.DataFrame) -> Iterator[str]:
    """The lines of such a frame in words, at most 30 of them."""
    for name, unit, _, measured, before, reconciled, after, _, kind in table.head(LISTED).itertuples():
        values = f"{measured:.6g} ± {before:.4g} → {reconciled:.6g} ± {after:.4g}"
        yield f"{name!r}: {values}{f' {unit}' if unit else ''}, {kind}"
    if len(table) > LISTED:
        yield f"... and {len(table) - LISTED} more"


def _mean(values: Array) -> Array:
    """Means of the columns without NaN; NaN where there is nothing else."""
    known = ~np.isnan(values)
    count = known.sum(axis=0)
    total = np.where(known, values, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _most_frequent(classes: NDArray[np.object_]) -> str:
    names, counts = np.unique(classes.astype(str), return_counts=True)
    return str(names[counts.argmax()]) if len(names) else ""
