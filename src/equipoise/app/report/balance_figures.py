"""Figures of a model's balances, drawn from its findings: how far they are missed and trusted, and what they buy.

Each says in its text alternative what it shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from equipoise.app.report import charts
from equipoise.app.report.charts import BLUE, GREEN, INK, ORANGE, QUIET, label
from equipoise.app.report.closure import DATA, ONE_BY_ONE, WITHOUT, Closure, Spread
from equipoise.app.report.confidence import Trust
from equipoise.app.report.evidence import Findings
from equipoise.app.report.page import Figure, number, with_unit
from equipoise.balances import column_symbol

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

PANELS = 6  # of a figure
BARS = 12  # of a figure
LEAST_SHARE = 0.005  # of a variance that is worth a bar


def closures(f: Findings) -> list[Figure]:
    """How far each balance is missed: by the data, and by the model before and after conditioning."""
    return [_closure(closure) for closure in f.closures]


def tolerances(f: Findings) -> list[Figure]:
    """Prior and posterior of each tolerance that was learned."""
    learned = [trust for trust in f.trust if trust.kind == "learned"]
    return [_tolerances(some) for some in charts.groups(learned, PANELS)]


def purchases(f: Findings) -> list[Figure]:
    """For each balance, the certainty of each output that would be lost without it; nothing for one that buys none."""
    worth = [(balance, _worth(f, k)) for k, balance in enumerate(f.balances)]
    return [_purchase(balance, shares) for balance, shares in worth if shares]


# --- Closure ----------------------------------------------------------------------------------------------------------


def _closure(closure: Closure) -> Figure:
    spreads = {kind: spread for kind, spread in closure.residuals.items() if spread.n}
    unit = f" [{closure.unit}]" if closure.unit else ""

    def draw(canvas: Canvas) -> None:
        ax = canvas.subplots()
        _ranges(ax, spreads)
        ax.set(xlabel=f"residual {label(unit)}", title=label(closure.balance, 60))

    caption = (
        f"Residuals of “{closure.balance}”{unit}: half of them lie in the dark part of a bar, 95 % in the whole bar; "
        "the mark is the median, and the number on the right the size that 95 % do not exceed."
    )
    sizes = "; ".join(f"{kind} {with_unit(spread.most, closure.unit)}" for kind, spread in spreads.items())
    alt = f"Ranges of the residual of the balance {closure.balance}. Sizes that 95 % do not exceed: {sizes}."
    return Figure(charts.svg(f"closure-{closure.balance}", 0.9 + 0.3 * len(spreads), draw), caption, alt)


def _ranges(ax: Axes, spreads: Mapping[str, Spread]) -> None:
    """Bars from quantile to quantile, with the size that 95 % do not exceed beside each."""
    places = np.arange(len(spreads))[::-1]
    quantiles = [(s.lower, s.low, s.median, s.high, s.upper) for s in spreads.values()]
    lower, low, median, high, upper = np.array(quantiles).T
    colors = [residual_color(kind) for kind in spreads]
    ax.axvline(0, color=INK, lw=0.7)
    ax.barh(places, upper - lower, left=lower, color=colors, alpha=0.45, height=0.5)
    ax.barh(places, high - low, left=low, color=colors, height=0.5)
    ax.vlines(median, places - 0.36, places + 0.36, color=INK, lw=1.2)
    ax.set_yticks(places, list(spreads))
    ax.locator_params(axis="x", nbins=5)
    right = ax.secondary_yaxis("right")
    right.set_yticks(places, [number(spread.most, 2) for spread in spreads.values()])
    right.tick_params(length=0)
    right.spines["right"].set_visible(False)


def residual_color(kind: str) -> str:
    """Orange before conditioning, blue after it, grey for data; green for other draws that are put beside.

    Example:
        >>> residual_color("means, before") == ORANGE, residual_color("draws, after") == BLUE
        (True, True)
    """
    special = {DATA: QUIET, WITHOUT: GREEN, ONE_BY_ONE: GREEN}
    return special.get(kind) or (BLUE if kind.endswith("after") else ORANGE)


# --- Trust ------------------------------------------------------------------------------------------------------------


def _tolerances(learned: Sequence[Trust]) -> Figure:
    def draw(canvas: Canvas) -> None:
        axes = charts.panels(canvas, len(learned))
        for ax, trust in zip(axes, learned, strict=True):
            _prior_and_posterior(ax, trust)
        charts.legend(canvas, axes[0])

    caption = (
        "What the data taught of each tolerance √r, the standard deviation by which a balance may be missed: grey is "
        "the prior, blue the posterior, drawn as densities of its logarithm."
    )
    alt = "Densities of tolerances before and after training. " + " ".join(
        f"{trust.balance}: {with_unit(trust.tol_std, trust.unit)}, 95 % from {number(trust.tol_std_lower)} to "
        f"{number(trust.tol_std_upper)}; {trust.verdict}."
        for trust in learned
    )
    height = 2.4 if len(learned) == 1 else 0.4 + 1.6 * -(-len(learned) // 2)
    return Figure(charts.svg(f"tolerances-{learned[0].balance}", height, draw), caption, alt)


def _prior_and_posterior(ax: Axes, trust: Trust) -> None:
    unit = f" [{trust.unit}]" if trust.unit else ""
    charts.area(ax, *charts.log_normal(trust.prior_mu_rho, trust.prior_sigma_rho), QUIET, lw=0.8, label="prior")
    charts.area(ax, *charts.log_normal(trust.mu_rho, trust.sigma_rho), BLUE, lw=1.4, label="posterior")
    ax.set(xscale="log", yticks=[], ylim=(0, None), title=label(trust.balance), xlabel=f"tolerance {label(unit)}")
    charts.powers_of_ten(ax.xaxis)
    ax.minorticks_off()  # many decades have hundreds


# --- Certainty --------------------------------------------------------------------------------------------------------


def _worth(f: Findings, k: int) -> dict[str, float]:
    """Outputs that balance k buys certainty for, and their shares, largest first."""
    shares = dict(zip(f.outputs, f.bought[k].tolist(), strict=True))
    largest = sorted(shares, key=lambda output: -shares[output])[:BARS]
    return {output: shares[output] for output in largest if shares[output] > LEAST_SHARE}


def _purchase(balance: str, shares: Mapping[str, float]) -> Figure:
    def draw(canvas: Canvas) -> None:
        ax = canvas.subplots()
        places = np.arange(len(shares))[::-1]
        ax.barh(places, [100 * share for share in shares.values()], color=BLUE, alpha=0.75, height=0.6)
        ax.set_yticks(places, [label(column_symbol(output)) for output in shares])
        ax.set(xlim=(0, 100), title=label(balance, 60), xlabel="variance that this balance alone takes away [%]")

    caption = (
        f"What “{balance}” buys: the part of each true value's variance before conditioning that would come back if "
        "this balance alone were left out."
    )
    sizes = "; ".join(f"{output} {number(100 * share)} %" for output, share in shares.items())
    alt = f"Bars of the variance that the balance {balance} takes away. {sizes}."
    return Figure(charts.svg(f"purchase-{balance}", 0.8 + 0.27 * len(shares), draw), caption, alt)
