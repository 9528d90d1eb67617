"""A long table over time as a drawing can show it: the extremes of runs of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from equipoise.reconciliation.logbook import Logbook

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


BLUE, ORANGE, QUIET = "#1A80BB", "#D55E00", "#8a939c"  # after Okabe and Ito, for the colour-blind
WIDTH, HEIGHT = 6.4, 1.9  # inches of a panel


def figure(log: Logbook, sensors: int = 3) -> Figure:
    """The global test, and below it the adjustments of the sensors that are most suspect.

    Args:
        log: What happened.
        sensors: How many of them.
    """
    from matplotlib.figure import Figure

    chosen = most_suspect(log, sensors)
    canvas = Figure(figsize=(WIDTH, HEIGHT * (1 + len(chosen))), layout="constrained")
    first, *others = np.atleast_1d(canvas.subplots(1 + len(chosen), sharex=True))
    draw_statistic(first, log)
    for ax, name in zip(others, chosen, strict=True):
        draw_adjustments(ax, log, name)
    [first, *others][-1].set_xlabel(time_label(log))
    return canvas


def most_suspect(log: Logbook, most: int) -> list[str]:
    """The measured variables that were the suspect most often, or gave alarm; of others, those adjusted most."""
    count, tally = len(log.variables), log.tally
    order = np.lexsort((-_in_stds(log), -tally.flagged[:count], -tally.errors.count[:count]))  # the last counts first
    return [log.variables[j] for j in order if tally.adjustments.count[j] > 0][:most]


def draw_statistic(ax: Axes, log: Logbook) -> None:
    """The largest statistic of the global test in each run of rows, beside what it may be."""
    line = log.tally.timeline
    limit = line.threshold[1] if line.has_one_threshold else 1.0
    ax.plot(line.time, limit * line.excess, color=BLUE, lw=1.0, label="statistic")
    ax.axhline(limit, color=ORANGE, lw=1.2, ls="--", label=f"threshold at {100 * log.level:g} %")
    ax.set(title="Global test", ylabel="statistic" if line.has_one_threshold else "statistic / threshold")
    ax.set_ylim(0, 1.3 * limit * max(1.0, float(line.excess.max(initial=0.0))))  # with room for the legend
    ax.legend(loc="upper left", ncols=2, frameon=False)
    _dated(ax, log)


def draw_adjustments(ax: Axes, log: Logbook, name: str) -> None:
    """Reconciled minus measured values of a variable: from the lowest to the highest of each run of rows."""
    line, j = log.tally.timeline, log.variables.index(name)
    low, high = line.lowest[:, j], line.highest[:, j]
    ax.axhline(0, color=QUIET, lw=0.8)
    ax.fill_between(line.time, low, high, color=BLUE, alpha=0.35, lw=0)  # type: ignore[arg-type]
    ax.plot(line.time, (low + high) / 2, color=BLUE, lw=1.0)
    unit = log.units[j]
    ax.set(title=name, ylabel="adjustment" + (f" [{unit}]" if unit else ""))
    _dated(ax, log)


def time_label(log: Logbook) -> str:
    return "row" if np.issubdtype(log.tally.timeline.time.dtype, np.integer) else "time"


def _dated(ax: Axes, log: Logbook) -> None:
    """Few and short labels, if the time is one of dates."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    if log.tally.timeline.time.dtype.kind == "M":
        locator = AutoDateLocator(minticks=3, maxticks=7)
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def _in_stds(log: Logbook) -> np.ndarray:
    """Mean adjustments in units of standard deviations before."""
    std = np.sqrt(log.tally.var_before.mean)
    size = np.abs(log.tally.adjustments.mean)
    return np.divide(size, std, out=np.zeros_like(size), where=std > 0)
