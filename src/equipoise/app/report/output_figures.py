"""Figures of a model's outputs: predictions, calibration, terms of the variance, and losses of the training.

Each figure has a text alternative with its numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from equipoise.app.report import charts
from equipoise.app.report.charts import BLUE, INK, ORANGE, QUIET, TERMS, label, legend
from equipoise.app.report.formatting import number, with_unit
from equipoise.app.report.model_findings import Findings
from equipoise.app.report.page import Figure
from equipoise.app.report.scores import LEVELS, PIT_BINS
from equipoise.balances import column_symbol

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Array = NDArray[np.float64]
PANELS = 4  # at most in a figure
CALIBRATED_OUTPUTS = 4  # at most in a figure, with two panels for each
BARS = 12  # at most in a figure


def predictions(f: Findings) -> list[Figure]:
    """Draw predicted against measured values with 95 % intervals, a panel for each output."""
    return [_predictions(f, outputs) for outputs in charts.groups(range(len(f.outputs)), PANELS)]


def calibration(f: Findings) -> list[Figure]:
    """Draw coverage minus level, and the histogram of F(y), side by side for each output that has a distribution."""
    judged = [j for j in range(len(f.outputs)) if f.calibration.n[j]]
    return [_calibration(f, outputs) for outputs in charts.groups(judged, CALIBRATED_OUTPUTS)]


def ledgers(f: Findings) -> list[Figure]:
    """Draw the terms of each output's variance as stacked bars."""
    shares = ledger_shares(f)
    return [_ledger(f, outputs, shares) for outputs in charts.groups(range(len(f.outputs)), BARS)]


def training(f: Findings) -> list[Figure]:
    """Draw losses over the epochs; no figure if the model has no history of its training."""
    mean_epochs, nll_epochs = ([record for record in f.history.epochs if name in record] for name in ("rmse", "nll"))
    figures = [_loss_of_means(mean_epochs)] if mean_epochs else []
    return figures + ([_loss_of_distributions(nll_epochs, f.history.best_epoch)] if nll_epochs else [])


# --- Predicted and measured -------------------------------------------------------------------------------------------


def _predictions(f: Findings, outputs: Sequence[int]) -> Figure:
    def draw(canvas: Canvas) -> None:
        for ax, j in zip(charts.panels(canvas, len(outputs)), outputs, strict=True):
            _scatter(ax, f, j)
            ax.set_title(label(f.outputs[j]))
        canvas.supxlabel("measured", fontsize=9)
        canvas.supylabel("predicted", fontsize=9)

    counts = [int(np.isfinite(f.plotted.measured[:, j]).sum()) for j in outputs]
    n_rows = f"{max(counts):,}" if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,}"
    caption = f"{_output_names(f, outputs)}: predicted against measured values, {n_rows} rows of each."
    alt = "Predicted against measured values. " + " ".join(_score_in_words(f, j) for j in outputs)
    height = 3.4 if len(outputs) == 1 else 0.4 + 2.0 * -(-len(outputs) // 2)
    return Figure(charts.svg(f"predictions-{outputs[0]}", height, draw), caption, alt)


def _output_names(f: Findings, outputs: Sequence[int]) -> str:
    return ", ".join(column_symbol(f.outputs[j]) for j in outputs)


def _scatter(ax: Axes, f: Findings, j: int) -> None:
    rows = f.plotted
    measured = np.isfinite(rows.measured[:, j])
    y, mean, lower, upper = (array[measured, j] for array in (rows.measured, rows.mean, rows.lower, rows.upper))
    low, high = charts.limits(y, mean, lower, upper)
    ax.plot([low, high], [low, high], color=INK, lw=0.7)
    charts.segments(ax, (y, y), (lower, upper), color=BLUE, lw=0.8, alpha=0.5)
    charts.dots(ax, y, mean, 2.6, color=BLUE)
    ax.set(xlim=(low, high), ylim=(low, high))
    ax.locator_params(nbins=3)
    if not len(y):
        ax.text(0.5, 0.3, "not measured here", transform=ax.transAxes, ha="center", color=QUIET)


def _score_in_words(f: Findings, j: int) -> str:
    score = f.scores[j]
    if not score.n:
        return f"{score.output}: not measured."
    return f"{score.output}: R² {number(score.r2)}, RMSE {with_unit(score.rmse, score.unit)}."


# --- Calibration ------------------------------------------------------------------------------------------------------


def _calibration(f: Findings, outputs: Sequence[int]) -> Figure:
    def draw(canvas: Canvas) -> None:
        axes = canvas.subplots(len(outputs), 2, squeeze=False)
        for (left, right), j in zip(axes, outputs, strict=True):
            _coverage_curve(left, f, j)
            _pit_histogram(right, f, j)
            left.set_title(label(f.outputs[j], 60))
        axes[-1, 0].set(xlabel="level of the interval [%]", xticks=[0, 50, 95])
        axes[-1, 1].set(xlabel="F(measured value)", xticks=[0, 0.5, 1])
        canvas.supylabel("coverage − level [points]", fontsize=9)

    caption = f"{_output_names(f, outputs)}: coverage (left) and F(y) (right); grey is chance (95 %)."
    coverage = "; ".join(f"{f.outputs[j]} {number(100 * f.calibration.at(0.95)[j])} %" for j in outputs)
    alt = f"Calibration curves and histograms. Coverage of 95 % intervals: {coverage}."
    return Figure(charts.svg(f"calibration-{outputs[0]}", 0.6 + 1.45 * len(outputs), draw), caption, alt)


def _coverage_curve(ax: Axes, f: Findings, j: int) -> None:
    chance = 196 * np.sqrt(LEVELS * (1 - LEVELS) / f.calibration.n[j])
    ax.fill_between(100 * LEVELS, -chance, chance, color=QUIET, alpha=0.25, lw=0)
    ax.axhline(0, color=INK, lw=0.7)
    ax.plot(100 * LEVELS, 100 * (f.calibration.coverage[:, j] - LEVELS), color=BLUE, lw=1.8)
    low, high = ax.get_ylim()
    ax.set(xlim=(0, 100), ylim=(min(low, -5), max(high, 5)), xticks=[])
    ax.locator_params(axis="y", nbins=4)


def _pit_histogram(ax: Axes, f: Findings, j: int) -> None:
    n, counts = f.calibration.n[j], f.calibration.pit_counts[:, j]
    chance = 1.96 * np.sqrt((PIT_BINS - 1) / n)
    ax.axhspan(max(1 - chance, 0), 1 + chance, color=QUIET, alpha=0.25, lw=0)
    ax.axhline(1, color=INK, lw=0.7)
    ax.stairs(counts * PIT_BINS / n, np.linspace(0, 1, PIT_BINS + 1), color=BLUE, fill=True, alpha=0.6)
    ax.set(xlim=(0, 1), ylim=(0, max(2.0, 1.05 * counts.max() * PIT_BINS / n)), xticks=[], yticks=[])


# --- Variance ---------------------------------------------------------------------------------------------------------


def ledger_shares(f: Findings) -> dict[str, Array]:
    """Compute the signed terms of measured values' variance, relative to the sum of those that add to it.

    Returns: Shares by name of the term, shape `(n_y,)` each; terms that are 0 for every output are left out.
    """
    terms = {name: sign * f.ledger[name] for name, (sign, _) in TERMS.items()}
    added = np.sum([values.clip(0) for values in terms.values()], axis=0)
    shares = {name: values / np.where(added > 0, added, 1.0) for name, values in terms.items()}
    return {name: values for name, values in shares.items() if np.abs(values).max() > 1e-12}


def _ledger(f: Findings, outputs: Sequence[int], shares: Mapping[str, Array]) -> Figure:
    def draw(canvas: Canvas) -> None:
        ax = canvas.subplots()
        selected = {name: values[list(outputs)] for name, values in shares.items()}
        charts.stacked_terms(ax, [label(column_symbol(f.outputs[j])) for j in outputs], selected)
        legend(canvas, ax)

    caption = (
        "Where the variance of measured values comes from: terms to the right add to it, terms to the left take from "
        "it, and the diamond is what remains. Each output has its own scale."
    )
    alt = "Stacked bars of variance terms, in percent of those that add variance. " + " ".join(
        f"{f.outputs[j]}: " + ", ".join(f"{name} {100 * values[j]:.0f}" for name, values in shares.items()) + "."
        for j in outputs
    )
    return Figure(charts.svg(f"ledger-{outputs[0]}", 1.1 + 0.3 * len(outputs), draw), caption, alt)


# --- Training ---------------------------------------------------------------------------------------------------------


def _loss_of_means(epochs: Sequence[dict]) -> Figure:
    def draw(canvas: Canvas) -> None:
        ax = canvas.subplots()
        _losses(ax, epochs, "rmse", above_best=False)
        ax.set(yscale="log", xlabel="epoch", ylabel="error, standardized", title="First the means")
        charts.powers_of_ten(ax.yaxis, (1.0, 2.0, 5.0))
        legend(canvas, ax)

    caption = "Root mean squared error, in standard deviations of the outputs, while the network's means were fitted."
    alt = f"Error over {len(epochs)} epochs, from {number(epochs[0]['rmse'])} to {number(epochs[-1]['rmse'])}."
    return Figure(charts.svg("training-means", 2.3, draw), caption, alt)


def _loss_of_distributions(epochs: Sequence[dict], best_epoch: int) -> Figure:
    def draw(canvas: Canvas) -> None:
        ax = canvas.subplots()
        _losses(ax, epochs, "nll", above_best=True)
        if epochs[0]["epoch"] <= best_epoch <= epochs[-1]["epoch"]:
            ax.axvline(best_epoch, color=INK, lw=0.7, ls=(0, (1.5, 1.5)), label="kept")
        ax.set(yscale="log", xlabel="epoch", ylabel="nats above the best", title="Then the distributions")
        charts.powers_of_ten(ax.yaxis)
        legend(canvas, ax)

    caption = (
        "Negative log-likelihood per row above its least value: of the rows that were trained on, averaged over weight "
        "draws, and of those held out to decide when to stop, under all draws together. Both should have become flat."
    )
    loss = [record.get("validation", record["nll"]) for record in epochs]
    values = f"{number(loss[0])} at first, {number(min(loss))} at best, {number(loss[-1])} at last"
    return Figure(
        charts.svg("training-distributions", 2.3, draw), caption, f"Loss over {len(epochs)} epochs: {values}."
    )


def _losses(ax: Axes, epochs: Sequence[dict], name: str, above_best: bool) -> None:
    """Draw the losses of training rows and of held-out rows, bounded below so that they fit on a logarithmic axis."""
    for key, text, color, dashes in (
        (name, "trained on", ORANGE, "-"),
        ("validation", "held out", BLUE, (0, (4, 1.2))),
    ):
        points = [(record["epoch"], record[key]) for record in epochs if key in record]
        if points:
            epoch, loss = np.array(points, dtype=float).T
            loss = np.maximum(loss - loss.min(), 1e-3) if above_best else np.maximum(loss, 1e-12)
            ax.plot(epoch, loss, color=color, ls=dashes, lw=1.3, label=text)
