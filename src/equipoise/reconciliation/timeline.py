"""A long table over time as a drawing can show it: the extremes of runs of rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray

Array = NDArray[np.float64]
COLUMNS = 480  # of a drawing: about as many as a page has pixels to show


@dataclass(frozen=True, eq=False)
class Timeline:
    """Extremes of k runs of rows that follow each other; two timelines are added one after the other.

    Whatever stands out in a row stands out in its run, so nothing that matters is lost, and memory does not grow with
    the table.

    Args:
        rows: How many rows there are in all.
        start: The first row of each run.
        time: When it was: numbers or dates.
        excess: The largest statistic of the global test, over its threshold.
        lowest, highest: The extreme adjustments of each variable, in its unit; NaN where a run has none.
        threshold: The least and the largest threshold of all rows.
    """

    rows: int
    start: Int[np.ndarray, " k"]
    time: Shaped[np.ndarray, " k"]
    excess: Float[np.ndarray, " k"]
    lowest: Float[np.ndarray, "k n"]
    highest: Float[np.ndarray, "k n"]
    threshold: tuple[float, float]

    @classmethod
    def of(
        cls,
        statistic: Float[np.ndarray, " rows"],
        threshold: Float[np.ndarray, " rows"],
        adjustments: Float[np.ndarray, "rows n"],
        time: Any = None,
    ) -> "Timeline":
        """Rows as they are, or thinned where there are too many.

        Args:
            statistic, threshold: Of the global test.
            adjustments: Reconciled minus measured values.
            time: When each row was measured; its number, from 1, if left out.
        Example:
            >>> many = Timeline.of(np.arange(10_000.0), np.ones(10_000), np.zeros((10_000, 1)))
            >>> len(many.start), many.longest, many.excess[-1]
            (313, 32, np.float64(9999.0))
        """
        rows = len(statistic)
        limits = threshold[~np.isnan(threshold)]
        excess = np.divide(statistic, threshold, out=np.zeros(rows), where=~np.isnan(threshold))
        time = np.arange(1, rows + 1) if time is None else np.asarray(time)
        ends = (float(limits.min()), float(limits.max())) if len(limits) else (np.inf, -np.inf)
        return cls(rows, np.arange(rows), time, excess, adjustments, adjustments, ends)._thinned(COLUMNS)

    @property
    def longest(self) -> int:
        """Rows of the longest run."""
        return int(np.diff(self.start, append=self.rows).max(initial=0))

    @property
    def has_one_threshold(self) -> bool:
        """Whether all rows have the same threshold, but for rounding."""
        low, high = self.threshold
        return bool(np.isfinite(high) and high - low <= 1e-9 * high)

    def __add__(self, other: "Timeline") -> "Timeline":
        numbered = np.issubdtype(other.time.dtype, np.integer)  # rows without a time are counted on
        both = Timeline(
            self.rows + other.rows,
            np.concatenate([self.start, self.rows + other.start]),
            np.concatenate([self.time, other.time + self.rows if numbered else other.time]),
            np.concatenate([self.excess, other.excess]),
            np.concatenate([self.lowest, other.lowest]),
            np.concatenate([self.highest, other.highest]),
            (min(self.threshold[0], other.threshold[0]), max(self.threshold[1], other.threshold[1])),
        )
        return both._thinned(2 * COLUMNS)

    def _thinned(self, most: int) -> "Timeline":
        """Itself, or, if it has more runs than that, with runs joined to `COLUMNS` at most.

        Their length is a power of two, so that joined ones can be joined again and stay of about the same length.
        """
        if len(self.start) <= most:
            return self
        run = self.start >> (-(-self.rows // COLUMNS) - 1).bit_length()
        first = np.flatnonzero(np.diff(run, prepend=-1))
        return Timeline(
            self.rows,
            self.start[first],
            self.time[first],
            np.maximum.reduceat(self.excess, first),
            np.fmin.reduceat(self.lowest, first, axis=0),
            np.fmax.reduceat(self.highest, first, axis=0),
            self.threshold,
        )
