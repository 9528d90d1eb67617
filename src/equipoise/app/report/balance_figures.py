"""Figures of a model's balances: residuals, tolerances, and the variance that each balance takes away.

Each figure has a text alternative with its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from equipoise.app.report import charts
from equipoise.app.report.balance_residuals import DATA, ONE_BY_ONE, WITHOUT, BalanceResiduals, ResidualSummary
from equipoise.app.report.charts import BLUE, GREEN, INK, ORANGE, QUIET, label
from equipoise.app.report.formatting import number, with_unit
from equipoise.app.report.model_findings import Findings
from equipoise.app.report.page import Figure
from equipoise.app.report.tolerances import DENSITY_POINTS, BalanceTolerance
from equipoise.balances import column_symbol

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

PANELS = 6  # at most in a figure
BARS = 12  # at most in a figure
LEAST_SHARE = 0.005  # smaller shares of variance are not drawn


def residuals(f: Findings) -> list[Figure]:
    """Draw the residuals of each balance: of the data, and of the model before and after conditioning."""
    return [_residual_figure(each) for each in f.residuals]


def tolerances(f: Findings) -> list[Figure]:
    """Draw prior and posterior of each learned tolerance, several in a figure."""
    learned = [tolerance for tolerance in f.tolerances if tolerance.kind == "learned"]
    return [_tolerance_figure(group) for group in charts.groups(learned, PANELS)]


def variance_reductions(f: Findings) -> list[Figure]:
    """Draw, for each balance, the shares of outputs' variances that it alone takes away; no figure if all are small."""
    shares_by_balance = [(balance, _largest_shares(f, k)) for k, balance in enumerate(f.balances)]
    return [_variance_figure(balance, shares) for balance, shares in shares_by_balance if shares]


# --- Residuals --------------------------------------------------------------------------------------------------------


def _residual_figure(residuals: BalanceResiduals) -> Figure:
    summaries = {kind: summary for kind, summary in residuals.summaries.items() if summary.n}
    unit = f" [{residuals.unit}]" if residuals.unit else ""

    def draw(canvas: Canvas) -> None:
        ax = canvas.subplots()
        _ranges(ax, summaries)
        ax.set(xlabel=f"residual {label(unit)}", title=label(residuals.balance, 60))

    caption = (
        f"Residuals of “{residuals.balance}”{unit}: half of them lie in the dark part of a bar, 95 % in the whole bar; "
        "the mark is the median, and the number on the right the size that 95 % do not exceed."
    )
    sizes = "; ".join(f"{kind} {with_unit(summary.most, residuals.unit)}" for kind, summary in summaries.items())
    alt = f"Ranges of the residual of the balance {residuals.balance}. Sizes that 95 % do not exceed: {sizes}."
    return Figure(charts.svg(f"closure-{residuals.balance}", 0.9 + 0.3 * len(summaries), draw), caption, alt)


def _ranges(ax: Axes, summaries: Mapping[str, ResidualSummary]) -> None:
    """Draw bars from quantile to quantile, with the size that 95 % do not exceed beside each."""
    positions = np.arange(len(summaries))[::-1]
    quantiles = [(s.lower, s.low, s.median, s.high, s.upper) for s in summaries.values()]
    lower, low, median, high, upper = np.array(quantiles).T
    colors = [residual_color(kind) for kind in summaries]
    ax.axvline(0, color=INK, lw=0.7)
    ax.barh(positions, upper - lower, left=lower, color=colors, alpha=0.45, height=0.5)
    ax.barh(positions, high - low, left=low, color=colors, height=0.5)
    ax.vlines(median, positions - 0.36, positions + 0.36, color=INK, lw=1.2)
    ax.set_yticks(positions, list(summaries))
    ax.locator_params(axis="x", nbins=5)
    right = ax.secondary_yaxis("right")
    right.set_yticks(positions, [number(summary.most, 2) for summary in summaries.values()])
    right.tick_params(length=0)
    right.spines["right"].set_visible(False)


def residual_color(kind: str) -> str:
    """Return the colour of a kind of residual: orange before conditioning, blue after it, grey for data, else green.

    Example:
        >>> residual_color("means, before") == ORANGE, residual_color("draws, after") == BLUE
        (True, True)
    """
    special = {DATA: QUIET, WITHOUT: GREEN, ONE_BY_ONE: GREEN}
    return special.get(kind) or (BLUE if kind.endswith("after") else ORANGE)


# --- Tolerances -------------------------------------------------------------------------------------------------------


def _tolerance_figure(learned: Sequence[BalanceTolerance]) -> Figure:
    def draw(canvas: Canvas) -> None:
        axes = charts.panels(canvas, len(learned))
        for ax, tolerance in zip(axes, learned, strict=True):
            _prior_and_posterior(ax, tolerance)
        charts.legend(canvas, axes[0])

    caption = (
        "What the data taught of each tolerance √r, the standard deviation by which a balance may be missed: grey is "
        "the prior, blue the posterior, drawn as densities of its logarithm."
    )
    alt = "Densities of tolerances before and after training. " + " ".join(
        f"{each.balance}: {with_unit(each.tol_std, each.unit)}, 95 % from {number(each.tol_std_lower)} to "
        f"{number(each.tol_std_upper)}; {each.verdict}."
        for each in learned
    )
    height = 2.4 if len(learned) == 1 else 0.4 + 1.6 * -(-len(learned) // 2)
    return Figure(charts.svg(f"tolerances-{learned[0].balance}", height, draw), caption, alt)


def _prior_and_posterior(ax: Axes, tolerance: BalanceTolerance) -> None:
    unit = f" [{tolerance.unit}]" if tolerance.unit else ""
    prior = charts.log_normal(tolerance.prior_mu_rho, tolerance.prior_sigma_rho)
    if tolerance.prior_density is not None:
        mean, std, density = tolerance.prior_mu_rho, tolerance.prior_sigma_rho, np.array(tolerance.prior_density)
        prior = np.exp(0.5 * (mean + std * DENSITY_POINTS)), math.sqrt(2 * math.pi) * density
    charts.area(ax, *prior, QUIET, lw=0.8, label="prior")
    charts.area(ax, *charts.log_normal(tolerance.mu_rho, tolerance.sigma_rho), BLUE, lw=1.4, label="posterior")
    ax.set(xscale="log", yticks=[], ylim=(0, None), title=label(tolerance.balance), xlabel=f"tolerance {label(unit)}")
    charts.powers_of_ten(ax.xaxis)
    ax.minorticks_off()  # many decades have hundreds


# --- Variance ---------------------------------------------------------------------------------------------------------


def _largest_shares(f: Findings, k: int) -> dict[str, float]:
    """Return the outputs whose variance balance k reduces most, with the lost shares, largest first."""
    shares = dict(zip(f.outputs, f.lost_share[k].tolist(), strict=True))
    largest = sorted(shares, key=lambda output: -shares[output])[:BARS]
    return {output: shares[output] for output in largest if shares[output] > LEAST_SHARE}


def _variance_figure(balance: str, shares: Mapping[str, float]) -> Figure:
    def draw(canvas: Canvas) -> None:
        ax = canvas.subplots()
        positions = np.arange(len(shares))[::-1]
        ax.barh(positions, [100 * share for share in shares.values()], color=BLUE, alpha=0.75, height=0.6)
        ax.set_yticks(positions, [label(column_symbol(output)) for output in shares])
        ax.set(xlim=(0, 100), title=label(balance, 60), xlabel="variance that this balance alone takes away [%]")

    caption = (
        f"What “{balance}” buys: the part of each true value's variance before conditioning that would come back if "
        "this balance alone were left out."
    )
    sizes = "; ".join(f"{output} {number(100 * share)} %" for output, share in shares.items())
    alt = f"Bars of the variance that the balance {balance} takes away. {sizes}."
    return Figure(charts.svg(f"purchase-{balance}", 0.8 + 0.27 * len(shares), draw), caption, alt)
