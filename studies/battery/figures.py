"""The figures of the battery study as SVG with real text, each narrow enough for a phone.

Figures of distributions and curves are plotted from the arrays beside results.json, by model and name; the others from
the results of one seed or more. Axes and text have the colour of the surrounding text, `currentColor`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from equipoise import TolerancePrior, report
from studies.battery.published import kl_from
from studies.battery.results import KEYS, MODELS, NAMES, VOLTAGES, WITH_BALANCES, Results, Tolerance
from studies.battery.seeds import Runs
from studies.battery.tabulation import symbol

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Arrays = Mapping[str, Mapping[str, NDArray]]  # by model, then by name
Array = NDArray[np.float64]

COLORS = {
    "bnn": "#D55E00",
    "paper": "#B0529F",
    "bnn_residuals": "#E6A82E",
    "paper_residuals": "#7A8B2E",
    "equipoise": "#1A80BB",
}  # distinct to the colour-blind, on dark too
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.5)))
MOST_POINTS = 150  # in a curve
BANDWIDTH = 0.06  # of the smoothed histograms, in decades
SHOWN_BELOW = 300.0  # factor by which densities are shown below the lowest of the models' peaks
BALANCE_UNITS = {"voltage": "V", "heat": "W/m³"}
CURVES = {"V": ("V [V]", "mV", 1000.0), "Q_rev": ("Q_rev [W/m³]", "W/m³", 1.0)}


# --- From arrays ------------------------------------------------------------------------------------------------------


def violations(arrays: Arrays) -> dict[str, report.Figure]:
    """Plot the densities of violations, by balance: of the means of posterior draws, and of draws of y."""
    return {f"violations-{balance}": _violations(arrays, balance, unit) for balance, unit in BALANCE_UNITS.items()}


def calibration(arrays: Arrays) -> dict[str, report.Figure]:
    """Plot the coverage of central intervals minus their level, for voltages and for heats."""
    groups = {"voltages": slice(0, len(VOLTAGES)), "heats": slice(len(VOLTAGES), None)}
    return {f"calibration-{name}": _calibration(arrays, name, outputs) for name, outputs in groups.items()}


def curves(arrays: Arrays) -> dict[str, report.Figure]:
    """Plot predicted curves of a few discharges, with 95 % intervals of measured values."""
    return {f"curves-{key}": _curves(arrays, key) for key in CURVES}


def training(arrays: Arrays) -> dict[str, report.Figure]:
    """Plot the held-out loss above each model's best over the epochs that were trained on the ELBO."""

    def draw(canvas: Canvas) -> None:
        ax = canvas.subplots()
        for model in MODELS:
            epoch, excess = _held_out_excess(arrays[model])
            ax.plot(epoch, excess, color=COLORS[model], label=NAMES[model], lw=1.1)
        ax.set(yscale="log", xlabel="epoch", ylabel="nats per row above the best")
        report.powers_of_ten(ax.yaxis)
        report.legend(canvas)

    caption = "Held-out negative log-likelihood over the epochs on the ELBO, above the best of each model."
    alt = "Lines of held-out loss that fall over the epochs, one for each model."
    return {"training": report.Figure(report.svg("training", 2.7, draw), caption, alt)}


def _held_out_excess(arrays: Mapping[str, NDArray]) -> tuple[NDArray[np.intp], Array]:
    """Return the epochs on the ELBO with a held-out loss, and its excess over the least loss, at least 0.001."""
    loss = arrays["history_validation"]
    epoch = np.flatnonzero((arrays["history_phase"] != "means") & np.isfinite(loss))
    return epoch, np.maximum(loss[epoch] - loss[epoch].min(initial=np.inf), 1e-3)


def _violations(arrays: Arrays, balance: str, unit: str) -> report.Figure:
    kinds = {"violation_of_means": "Means of posterior draws", "violation_of_draws": "Draws of y"}

    def draw(canvas: Canvas) -> None:
        axes = canvas.subplots(2, 1, sharex=True)
        for ax, (kind, title) in zip(axes, kinds.items(), strict=True):
            curves = [(model, *violation_density(arrays[model], kind, balance)) for model in MODELS]
            peaks = [peak for *_, density in curves if (peak := density.max(initial=0.0)) > 0] or [1.0]
            lowest = min(peaks) / SHOWN_BELOW
            for model, size, density in curves:
                seen = density > lowest
                ax.plot(size[seen], density[seen], color=COLORS[model], label=NAMES[model], lw=1.2)
            ax.set(xscale="log", yscale="log", ylim=(lowest, 3 * max(peaks)), title=title)
            ax.set_ylabel(f"density [1/({unit})]" if "/" in unit else f"density [1/{unit}]")
            ax.tick_params(labelbottom=True)
            report.powers_of_ten(ax.xaxis)
            report.powers_of_ten(ax.yaxis)
        axes[-1].set_xlabel(f"|residual| of the {balance} balance [{unit}]")
        report.legend(canvas, columns=2)

    alt = (
        f"Densities of the absolute residual of the {balance} balance on logarithmic axes, for all models. "
        f"Medians of means: {_medians(arrays, 'violation_of_means', balance, unit)}. "
        f"Of draws: {_medians(arrays, 'violation_of_draws', balance, unit)}."
    )
    caption = (
        f"How far posterior draws miss the {balance} balance over the test rows: densities of the violation itself, "
        f"per {unit}, on logarithmic axes. Above, as in the paper, the means of the draws; below, outputs drawn from "
        "them."
    )
    return report.Figure(report.svg(f"violations-{balance}", 4.1, draw), caption, alt)


def log_density(arrays: Mapping[str, NDArray], kind: str, series: str) -> tuple[Array, Array]:
    """Smooth the histogram of sizes of residuals to a density per decade, where that is not negligible.

    Args:
        arrays: Arrays of one model.
        kind: `violation_of_means` or `violation_of_draws`.
        series: A name in `violation_series`.
    Returns: Sizes, and the density at them.
    """
    counts = arrays[kind][arrays["violation_series"].tolist().index(series)]
    edges = arrays["violation_log10_edges"]
    width = edges[1] - edges[0]
    inside = counts[1:-1] / counts.sum() / width
    density = gaussian_filter1d(inside, BANDWIDTH / width, mode="constant")
    seen = np.flatnonzero(density > 1e-3 * density.max()) if density.any() else np.arange(2)
    support = slice(max(seen[0] - 2, 0), seen[-1] + 3, 2)  # every second bin: they are narrow beside the bandwidth
    return 10 ** (0.5 * (edges[1:] + edges[:-1]))[support], density[support]


def violation_density(arrays: Mapping[str, NDArray], kind: str, series: str) -> tuple[Array, Array]:
    """Compute the density of sizes of residuals per unit of size, `f(log10 z) / (z ln 10)` for a density f per decade.

    The arguments are those of `log_density`.

    Returns: Sizes, and the density at them.
    """
    size, per_decade = log_density(arrays, kind, series)
    return size, per_decade / (size * np.log(10.0))


def _medians(arrays: Arrays, kind: str, balance: str, unit: str) -> str:
    medians = []
    for model in MODELS:
        counts = arrays[model][kind][arrays[model]["violation_series"].tolist().index(balance)]
        place = int(np.searchsorted(np.cumsum(counts), 0.5 * counts.sum()))
        edges = arrays[model]["violation_log10_edges"]
        median = 10.0 ** edges[min(place, len(edges) - 1)] if place else 0.0
        medians.append(f"{NAMES[model]} {median:.0e} {unit}")
    return ", ".join(medians)


def _calibration(arrays: Arrays, name: str, outputs: slice) -> report.Figure:
    rows = len(arrays["bnn"]["pit"])

    def draw(canvas: Canvas) -> None:
        ax = canvas.subplots()
        levels = arrays["bnn"]["calibration_levels"]
        chance = 196 * np.sqrt(levels * (1 - levels) / rows)
        ax.fill_between(100 * levels, -chance, chance, color=report.QUIET, alpha=0.25, lw=0, label="chance (95 %)")
        ax.axhline(0, color=report.INK, lw=0.7)
        for model in MODELS:
            excess = 100 * (arrays[model]["calibration_coverage"][:, outputs] - levels[:, None])
            ax.plot(100 * levels, excess, color=COLORS[model], lw=0.6, alpha=0.55)
            ax.plot(100 * levels, excess.mean(1), color=COLORS[model], lw=2, label=NAMES[model])
        ax.set(xlabel="nominal level [%]", ylabel="coverage − level [points]", xlim=(0, 100), title=name.capitalize())
        report.legend(canvas)

    caption = (
        f"Coverage of central intervals of the {name} minus their nominal level; thin lines are single outputs, thick "
        "ones their mean. Above 0 intervals are too wide, below 0 too narrow; the grey band is chance for one output."
    )
    alt = f"Lines of coverage minus nominal level against the level for the {name}, for all models."
    return report.Figure(report.svg(f"calibration-{name}", 3.0, draw), caption, alt)


def _curves(arrays: Arrays, key: str) -> report.Figure:
    label, unit, factor = CURVES[key]
    column = KEYS.index(key)
    x, truth = arrays["equipoise"]["x_test"], arrays["equipoise"]["truth_test"][:, column]
    chosen = list(selected_discharges(x))

    def draw(canvas: Canvas) -> None:
        top, *below = canvas.subplots(1 + len(chosen), 1, sharex=True, height_ratios=[1.5, *[1.0] * len(chosen)])
        for (name, rows), ax, dashes in zip(chosen, below, DASHES, strict=False):
            top.plot(x[rows, 1], truth[rows], color=report.INK, lw=1, ls=dashes, label=name)
            _deviations(ax, arrays, rows, column, factor)
            ax.set_title(name, fontsize=8.5, pad=2)
            ax.set_ylabel(unit)
        top.set_ylabel(label)
        top.set_title("Truth", fontsize=8.5, pad=2)
        top.legend(fontsize=7.5, handlelength=2.2)
        below[-1].set_xlabel("state of charge")
        report.legend(canvas, below[-1])

    caption = (
        f"{symbol(key)} of {len(chosen)} discharges over the state of charge, and below, for each, predictive means "
        "(lines) and 95 % intervals of measured values (bands) minus the truth, of the models with balances. Dots are "
        "the measured test rows."
    )
    alt = f"Curves of {symbol(key)} against state of charge, and deviations of predictions from the truth."
    return report.Figure(report.svg(f"curves-{key}", 1.9 + 1.35 * len(chosen), draw), caption, alt)


def selected_discharges(x: Array) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """Iterate over discharges at low, middle and high current and temperature, with test rows by state of charge."""
    points = np.unique(x[:, [0, 2]], axis=0)
    low, span = points.min(0), np.ptp(points, axis=0) + 1e-12
    nearest = [int(np.abs((points - low) / span - share).sum(1).argmin()) for share in (0.0, 0.5, 1.0)]
    for current, temperature in points[list(dict.fromkeys(nearest))]:
        rows = np.flatnonzero((x[:, 0] == current) & (x[:, 2] == temperature))
        ordered = rows[np.argsort(x[rows, 1])]
        yield f"{current:g} A, {temperature:g} K", ordered[:: 1 + len(rows) // MOST_POINTS]


def _deviations(ax: Axes, arrays: Arrays, rows: NDArray[np.intp], column: int, factor: float) -> None:
    data = arrays["equipoise"]
    soc = data["x_test"][rows, 1]
    truth, measured = (data[name][rows, column] for name in ("truth_test", "y_test"))
    ax.axhline(0, color=report.INK, lw=0.7)
    ax.plot(soc, factor * (measured - truth), ".", ms=2.4, mew=0, color=report.QUIET, zorder=3)
    for model in WITH_BALANCES:
        mean, lower, upper = (factor * (arrays[model][n][rows, column] - truth) for n in ("mean", "lower", "upper"))
        report.area(ax, np.r_[soc, soc[::-1]], np.r_[lower, upper[::-1]], COLORS[model], lw=0.5)
        ax.plot(soc, mean, color=COLORS[model], lw=1.1, label=NAMES[model])


# --- From results -----------------------------------------------------------------------------------------------------


def pit(runs: Runs) -> dict[str, report.Figure]:
    """Plot histograms of the probability integral transform, by output; all seeds together."""

    def draw(canvas: Canvas) -> None:
        axes = canvas.subplots(4, 2, sharex=True, sharey=True).T.ravel()
        for ax, key in zip(axes, KEYS, strict=True):
            ax.axhline(1, color=report.INK, lw=0.7)
            for model in MODELS:
                counts = np.sum([getattr(run.models, model).calibration.pit_counts[key] for run in runs], axis=0)
                edges = np.linspace(0, 1, len(counts) + 1)
                ax.stairs(counts / counts.mean(), edges, baseline=None, color=COLORS[model], label=NAMES[model], lw=1.2)
            ax.set(title=symbol(key), xlim=(0, 1), xticks=[0, 0.5, 1])
        low, high = axes[0].get_ylim()
        axes[0].set_ylim(min(low, 0.7), max(high, 1.3))
        report.legend(canvas, axes[0])

    caption = (
        "Histograms of F(y), the predictive distribution function at the measured value, relative to even ones. Humps "
        "in the middle mean intervals that are too wide, raised ends too narrow ones, slopes a bias."
    )
    alt = "Eight small histograms of F(y), one for each output, with a line for each model."
    return {"pit": report.Figure(report.svg("pit", 6.0, draw), caption, alt)}


def ledgers(runs: Runs) -> dict[str, report.Figure]:
    """Plot the shares of the variance terms by output, one figure for each model."""
    return {f"ledger-{model}": _ledger(runs, model) for model in MODELS}


def noise(runs: Runs) -> dict[str, report.Figure]:
    """Plot learned over true noise by output, with a dot for each seed."""

    def draw(canvas: Canvas) -> None:
        ax = canvas.subplots()
        places = np.arange(len(KEYS))[::-1]
        ax.axvspan(0.9, 1.1, color=report.QUIET, alpha=0.25, lw=0)
        ax.axvline(1, color=report.INK, lw=0.7)
        for shift, model in zip(np.linspace(0.3, -0.3, len(MODELS)), MODELS, strict=True):
            for number, run in enumerate(runs):
                ratio = [getattr(run.models, model).observation_std[k] / run.observation_std.true[k] for k in KEYS]
                label = NAMES[model] if number == 0 else None
                ax.plot(ratio, places + shift, "o", ms=4.5, mew=0, alpha=0.85, color=COLORS[model], label=label)
        ax.set(xscale="log", xlabel="learned / true noise")
        ax.set_yticks(places, [symbol(key) for key in KEYS])
        ax.grid(axis="x", color=report.QUIET, alpha=0.25, lw=0.5)
        low, high = ax.get_xlim()
        ax.set_xlim(min(low, 0.45), max(high, 2.2))
        report.powers_of_ten(ax.xaxis, (1.0, 2.0, 5.0) if high < 100 * low else (1.0,))
        report.legend(canvas)

    caption = "Observation noise that each model learned, over the noise that was added; the band is ± 10 %."
    alt = "Dots of learned over true noise for each output and model on a logarithmic axis, with a line at 1."
    return {"noise": report.Figure(report.svg("noise", 3.4, draw), caption, alt)}


def tolerances(runs: Runs) -> dict[str, report.Figure]:
    """Plot priors and posteriors of the tolerances, by balance, with a posterior for each seed."""
    return {f"tolerance-{balance}": _tolerance(runs, balance, unit) for balance, unit in BALANCE_UNITS.items()}


def _ledger(runs: Runs, model: str) -> report.Figure:
    shares = {name: [_share(runs, model, key, name) for key in KEYS] for name in report.TERMS}

    def draw(canvas: Canvas) -> None:
        ax = canvas.subplots()
        report.stacked_terms(ax, [symbol(key) for key in KEYS], shares)
        ax.set_title(NAMES[model])
        report.legend(canvas, columns=4)

    caption = (
        f"Where the variance of measured values comes from, {NAMES[model]}: terms to the right add to it, terms to the "
        "left take from it, and the diamond is what remains. Each output has its own scale."
    )
    alt = f"Stacked bars of the variance terms of each output, {NAMES[model]}. " + _largest_terms(shares)
    return report.Figure(report.svg(f"ledger-{model}", 3.5, draw), caption, alt)


def _share(runs: Runs, model: str, key: Any, name: str) -> float:
    """Divide a signed term of an output's ledger by the sum of those that add variance; averages over the seeds."""
    ledgers = [getattr(run.models, model).ledger[key] for run in runs]
    terms = {
        each: sign * np.mean([getattr(entry, each) for entry in ledgers]) for each, (sign, _) in report.TERMS.items()
    }
    added = sum(max(term, 0.0) for term in terms.values())
    return float(terms[name] / added) if added > 0 else 0.0


def _largest_terms(shares: Mapping[str, Sequence[float]]) -> str:
    largest = [max(shares, key=lambda name: shares[name][i]) for i in range(len(KEYS))]
    return "Largest: " + ", ".join(f"{symbol(key)} {name}" for key, name in zip(KEYS, largest, strict=True)) + "."


def _tolerance(runs: Runs, balance: str, unit: str) -> report.Figure:
    def draw(canvas: Canvas) -> None:
        ax = canvas.subplots()
        for model in WITH_BALANCES:
            prior = _prior(runs[0], model, balance)
            if prior is not None and model != "paper_residuals":  # the same as that of "paper"
                report.area(ax, *report.log_normal(*prior), COLORS[model], lw=0, label=f"{NAMES[model]}, prior")
            for number, run in enumerate(runs):
                learned = _learned(run, model, balance)
                label = f"{NAMES[model]}, posterior" if number == 0 else None
                ax.plot(*report.log_normal(learned.mu_rho, learned.sigma_rho), color=COLORS[model], label=label)
        ax.set(xscale="log", yticks=[], ylim=(0, None), xlabel=f"tolerance √r of the {balance} balance [{unit}]")
        report.powers_of_ten(ax.xaxis)
        report.legend(canvas, columns=2)

    verdicts = ", ".join(f"{NAMES[m]} “{_learned(runs[0], m, balance).verdict}”" for m in WITH_BALANCES)
    caption = f"Prior and posterior of the tolerance of the {balance} balance; verdicts: {verdicts}."
    alt = f"Densities of the tolerance of the {balance} balance before and after training on a logarithmic axis."
    return report.Figure(report.svg(f"tolerance-{balance}", 2.9, draw), caption, alt)


def _learned(run: Results, model: str, balance: str) -> Tolerance:
    return getattr(getattr(run.tolerances, model), balance)


def _prior(run: Results, model: str, balance: str) -> tuple[float, float] | None:
    """Return mean and standard deviation of the prior of ρ; None if the recorded KL is not that from this prior."""
    prior = TolerancePrior() if model == "equipoise" else TolerancePrior.paper()
    scale = getattr(run.scales, balance) if prior.relative else 1.0
    mean, learned = prior.mean + 2 * np.log(scale).item(), _learned(run, model, balance)
    kl = kl_from(mean, prior.std, learned.mu_rho, learned.sigma_rho) if learned.sigma_rho > 0 else np.nan
    return (mean, prior.std) if np.isclose(kl, learned.kl, rtol=0.02, atol=1e-3) else None
