"""Trends: the global test and the adjustments of a long table over time, and their plots.

A `Timeline` keeps the extremes of runs of rows, about as many runs as a plot has pixels.
"""

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
COLUMNS = 480  # points of a plot: about as many as a page has pixels to show


@dataclass(frozen=True, eq=False)
class Timeline:
    """Extremes of k consecutive runs of rows; the timeline of a later piece of the table can be added.

    A row with an extreme value determines the extreme of its run, so that no peak is lost, and memory does not grow
    with the table.

    Args:
        rows: Number of rows in all.
        start: Position of the first row of each run.
        time: Time of that row: a number or a date.
        relative_statistic: The largest statistic of the global test in a run, divided by its threshold.
        lowest, highest: The extreme adjustments of each variable, in its unit; NaN in runs without any.
        threshold: The smallest and the largest threshold of all rows.
        is_numbered: Whether times are row numbers, which continue where another piece of the table is added.
    """

    rows: int
    start: Int[np.ndarray, " k"]
    time: Shaped[np.ndarray, " k"]
    relative_statistic: Float[np.ndarray, " k"]
    lowest: Float[np.ndarray, "k n"]
    highest: Float[np.ndarray, "k n"]
    threshold: tuple[float, float]
    is_numbered: bool

    @classmethod
    def of(
        cls,
        statistic: Float[np.ndarray, " rows"],
        threshold: Float[np.ndarray, " rows"],
        adjustments: Float[np.ndarray, "rows n"],
        time: Any = None,
    ) -> "Timeline":
        """Make a timeline of the rows of a table, thinned where there are too many.

        Args:
            statistic, threshold: Of the global test of each row.
            adjustments: Reconciled minus measured values.
            time: When each row was measured: numbers or dates; the row's number, from 1, if left out.
        Example:
            >>> many = Timeline.of(np.arange(10_000.0), np.ones(10_000), np.zeros((10_000, 1)))
            >>> len(many.start), many.longest, many.relative_statistic[-1]
            (313, 32, np.float64(9999.0))
        """
        rows = len(statistic)
        limits = threshold[~np.isnan(threshold)]
        relative = np.divide(statistic, threshold, out=np.zeros(rows), where=~np.isnan(threshold))
        when = np.arange(1, rows + 1) if time is None else np.asarray(time)
        extremes = (float(limits.min()), float(limits.max())) if len(limits) else (np.inf, -np.inf)
        whole = cls(rows, np.arange(rows), when, relative, adjustments, adjustments, extremes, time is None)
        return whole._thinned(COLUMNS)

    @property
    def longest(self) -> int:
        """Number of rows of the longest run."""
        return int(np.diff(self.start, append=self.rows).max(initial=0))

    @property
    def has_one_threshold(self) -> bool:
        """Whether all rows have the same threshold, within rounding."""
        low, high = self.threshold
        return bool(np.isfinite(high) and high - low <= 1e-9 * high)

    def __add__(self, other: "Timeline") -> "Timeline":
        both = Timeline(
            self.rows + other.rows,
            np.concatenate([self.start, self.rows + other.start]),
            np.concatenate([self.time, other.time + self.rows if other.is_numbered else other.time]),
            np.concatenate([self.relative_statistic, other.relative_statistic]),
            np.concatenate([self.lowest, other.lowest]),
            np.concatenate([self.highest, other.highest]),
            (min(self.threshold[0], other.threshold[0]), max(self.threshold[1], other.threshold[1])),
            other.is_numbered,
        )
        return both._thinned(2 * COLUMNS)

    def _thinned(self, most: int) -> "Timeline":
        """Join runs until there are at most `COLUMNS` of them; do nothing if there are no more than `most`.

        The length of runs is a power of two, so that joined runs can be joined again and stay about equally long.
        """
        if len(self.start) <= most:
            return self
        run = self.start >> (-(-self.rows // COLUMNS) - 1).bit_length()
        first = np.flatnonzero(np.diff(run, prepend=-1))
        return Timeline(
            self.rows,
            self.start[first],
            self.time[first],
            np.maximum.reduceat(self.relative_statistic, first),
            np.fmin.reduceat(self.lowest, first, axis=0),
            np.fmax.reduceat(self.highest, first, axis=0),
            self.threshold,
            self.is_numbered,
        )


BLUE, ORANGE, QUIET = "#1A80BB", "#D55E00", "#8a939c"  # after Okabe and Ito, for the colour-blind
WIDTH, HEIGHT = 6.4, 1.9  # inches of a panel


def figure(log: Logbook, sensors: int = 3) -> Figure:
    """Plot the global test over time, and below it the adjustments of the most suspect sensors.

    Args:
        log: Tests and adjustments of a table.
        sensors: Number of sensors.
    Returns: A matplotlib figure.
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
    """List the measured variables: most often the suspect first, then by alarms, then by adjustments.

    Args:
        log: Tests and adjustments of a table.
        most: Largest number of names.
    Returns: Names of variables.
    """
    count, totals = len(log.variables), log.totals
    keys = _standardized_adjustments(log), totals.candidate_alarms[:count], totals.errors.count[:count]
    order = np.lexsort([-key for key in keys])  # the last key counts first
    return [log.variables[j] for j in order if totals.adjustments.count[j] > 0][:most]


def draw_statistic(ax: Axes, log: Logbook) -> None:
    """Plot the largest statistic of the global test in each run of rows, with its threshold.

    Args:
        ax: Axes to draw on.
        log: Tests and adjustments of a table.
    """
    line = log.totals.timeline
    limit = line.threshold[1] if line.has_one_threshold else 1.0
    ax.plot(line.time, limit * line.relative_statistic, color=BLUE, lw=1.0, label="statistic")
    ax.axhline(limit, color=ORANGE, lw=1.2, ls="--", label=f"threshold at {100 * log.level:g} %")
    ax.set(title="Global test", ylabel="statistic" if line.has_one_threshold else "statistic / threshold")
    ax.set_ylim(0, 1.3 * limit * max(1.0, float(line.relative_statistic.max(initial=0.0))))  # with room for the legend
    ax.legend(loc="upper left", ncols=2, frameon=False)
    _label_dates(ax, log)


def draw_adjustments(ax: Axes, log: Logbook, name: str) -> None:
    """Plot reconciled minus measured values of one variable, from the lowest to the highest of each run of rows.

    Args:
        ax: Axes to draw on.
        log: Tests and adjustments of a table.
        name: Name of the variable.
    """
    line, j = log.totals.timeline, log.variables.index(name)
    low, high = line.lowest[:, j], line.highest[:, j]
    ax.axhline(0, color=QUIET, lw=0.8)
    ax.fill_between(line.time, low, high, color=BLUE, alpha=0.35, lw=0)  # type: ignore[arg-type]
    ax.plot(line.time, (low + high) / 2, color=BLUE, lw=1.0)
    unit = log.units[j]
    ax.set(title=name, ylabel="adjustment" + (f" [{unit}]" if unit else ""))
    _label_dates(ax, log)


def time_label(log: Logbook) -> str:
    """Return the label of the time axis: "row" where rows are numbered, else "time"."""
    return "row" if log.totals.timeline.is_numbered else "time"


def _label_dates(ax: Axes, log: Logbook) -> None:
    """Label the time axis with few short dates, if times are dates."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    if log.totals.timeline.time.dtype.kind == "M":
        locator = AutoDateLocator(minticks=3, maxticks=7)
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def _standardized_adjustments(log: Logbook) -> np.ndarray:
    """Return the absolute mean adjustment of each variable in units of its standard deviation, 0 for exact ones."""
    std = np.sqrt(log.totals.var_before.mean)
    size = np.abs(log.totals.adjustments.mean)
    return np.divide(size, std, out=np.zeros_like(size), where=std > 0)
