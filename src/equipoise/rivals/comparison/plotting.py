"""The figure of a comparison: accuracy against balance residual, one mark per method."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from equipoise.app.report import BLUE, ORANGE, QUIET, STYLE, powers_of_ten
from equipoise.rivals.comparison.trial import is_number
from equipoise.rivals.methods.catalogue import OURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from equipoise.rivals.comparison.comparison import Comparison
    from equipoise.rivals.comparison.summary import Line

ROUNDING = 1e-12  # residuals below it are rounding errors; such methods have a panel of their own
MARGIN = 3.0  # factor to the left and right of the residuals, so that similar ones do not fill the whole panel
SPACING = (13.0, 8.5)  # least distance between numbers in points, horizontally and vertically


def figure(result: Comparison, case: str) -> str:
    """Plot the CRPS of each method over the mean residual of its draws; both are better when smaller.

    Args:
        result: The comparison.
        case: Name of one of its cases.
    Returns: The drawing as SVG.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    lines = [line for line in result.of_case(case) if is_number(line.cells["crps"].mean)]
    exact = sorted((line for line in lines if _residual(line) < ROUNDING), key=lambda line: line.cells["crps"].mean)
    with mpl.rc_context({**STYLE, "svg.hashsalt": case}):
        canvas = Figure(figsize=(7.2, 4.2), layout="constrained")
        left, right = canvas.subplots(1, 2, sharey=True, width_ratios=[1, 2])
        _label(left, right)
        marks = []
        for number, line in enumerate(lines, 1):
            axes, x = (left, exact.index(line)) if line in exact else (right, _residual(line))
            marks.append((_mark(axes, number, line, x), str(number)))
        if lines:
            right.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handletextpad=0.2, fontsize=7.5)
            left.set_xlim(-0.7, max(len(exact), 1) + 0.2)
        if inexact := [_residual(line) for line in lines if line not in exact]:
            right.set_xlim(min(inexact) / MARGIN, max(inexact) * MARGIN)
        canvas.draw_without_rendering()  # so that positions on the page are known
        _number(marks)
        text = io.StringIO()
        canvas.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _residual(line: Line) -> float:
    return line.cells["residual_of_draws"].mean


def _label(left: Axes, right: Axes) -> None:
    from matplotlib.ticker import LogLocator

    left.set(xticks=[], xlabel="draws obey to rounding", ylabel="CRPS, in standard deviations of the outputs")
    left.set_yscale("log")
    powers_of_ten(left.yaxis, steps=(1.0, 2.0, 5.0))
    right.set_xscale("log")
    powers_of_ten(right.xaxis)
    right.xaxis.set_major_locator(LogLocator(numticks=6))
    right.set_xlabel("mean residual of draws, in units of the balance's scale")


def _mark(axes: Axes, number: int, line: Line, x: float) -> tuple[Axes, float, float]:
    crps = line.cells["crps"]
    colour = ORANGE if line.method == OURS else BLUE if crps.near_best or crps.best else QUIET
    spread = crps.se if is_number(crps.se) else 0.0
    axes.plot([x, x], [max(crps.mean - spread, 0.5 * crps.mean), crps.mean + spread], color=colour, linewidth=0.8)
    axes.plot([x], [crps.mean], "o", color=colour, markersize=4)
    axes.figure.axes[-1].plot([], [], "o", color=colour, markersize=4, label=f"{number}  {line.method}")  # its name
    return axes, x, crps.mean


def _number(marks: list[tuple[tuple[Axes, float, float], str]]) -> None:
    """Write each mark's number beside it, or above where another number stands, with a line to its mark."""
    placed: list[tuple[float, float]] = []
    for (axes, x, y), text in sorted(marks, key=lambda mark: mark[0][2]):
        scale = 72.0 / axes.figure.dpi
        left, up = (float(part) * scale for part in axes.transData.transform((x, y)))
        place = (left + 6.0, up + 1.0)
        while near := [p for p in placed if abs(p[0] - place[0]) < SPACING[0] and abs(p[1] - place[1]) < SPACING[1]]:
            place = (place[0], max(p[1] for p in near) + SPACING[1] + 0.1)
        placed.append(place)
        line = {"arrowstyle": "-", "lw": 0.4, "color": QUIET, "shrinkA": 0, "shrinkB": 2}
        shift = (place[0] - left, place[1] - up - 2.5)
        axes.annotate(
            text, (x, y), shift, textcoords="offset points", fontsize=7.5, arrowprops=line if shift[1] > 5 else None
        )
