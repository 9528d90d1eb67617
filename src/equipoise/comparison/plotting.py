"""The figure of a comparison: accuracy against balance residual, one mark per method."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from equipoise.comparison.trial import is_number
from equipoise.methods.catalogue import OURS
from equipoise.report.charts import BLUE, ORANGE, QUIET, STYLE, powers_of_ten

if TYPE_CHECKING:
    from equipoise.comparison.running import Comparison
    from equipoise.comparison.summary import Line

LEAST = 1e-16  # residuals below it are drawn here


def figure(result: Comparison, case: str) -> str:
    """An SVG drawing of one case: mean residual of draws along, CRPS up, both better when smaller."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    lines = [line for line in result.of_case(case) if is_number(line.cells["crps"].mean)]
    with mpl.rc_context(STYLE):
        canvas = Figure(figsize=(7.2, 4.2), layout="constrained")
        axes = canvas.subplots()
        axes.set_xscale("log")
        powers_of_ten(axes.xaxis)
        axes.set_xlabel("mean residual of draws, in units of the balance's scale")
        axes.set_ylabel("CRPS, in standard deviations of the outputs")
        for number, line in enumerate(lines, 1):
            _mark(axes, number, line)
        if lines:
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handletextpad=0.2, fontsize=7.5)
        text = io.StringIO()
        canvas.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _mark(axes, number: int, line: Line) -> None:
    crps, residual = line.cells["crps"], line.cells["residual_of_draws"]
    x = max(residual.mean, LEAST)
    colour = ORANGE if line.method == OURS else BLUE if crps.near_best else QUIET
    spread = crps.se if is_number(crps.se) else 0.0
    axes.plot([x], [crps.mean], "o", color=colour, markersize=4, label=f"{number}  {line.method}")
    axes.plot([x, x], [crps.mean - spread, crps.mean + spread], color=colour, linewidth=0.8)
    axes.annotate(str(number), (x, crps.mean), xytext=(4, 3), textcoords="offset points", fontsize=7.5)
