"""A logbook over time, in matplotlib: the global test, and how far sensors were adjusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from equipoise.reconciliation.logbook import Logbook

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
