"""The page of a comparison in Markdown: a table per case, the scores in which ours loses, what columns mean."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from equipoise.rivals.comparison.scoring import LOWER_IS_BETTER, SCORES
from equipoise.rivals.comparison.summary import NOISE
from equipoise.rivals.comparison.trial import is_number
from equipoise.rivals.methods.catalogue import IMPOSITIONS, INFERENCES, OURS, Method

if TYPE_CHECKING:
    from equipoise.rivals.comparison.comparison import CaseFacts, Comparison
    from equipoise.rivals.comparison.summary import Line, ScoreCell

COLUMNS = {
    "rmse_true": "RMSE (truth)",
    "rmse": "RMSE",
    "crps": "CRPS",
    "energy_score": "energy score",
    "joint_nll": "joint NLL",
    "coverage": "in 95 %",
    "width": "width",
    "calibration_error": "calibration error",
    "residual_of_mean": "residual of mean",
    "residual_of_draws": "of draws",
    "worst_draw": "worst draw",
    "fit_seconds": "fit [s]",
    "row_seconds": "row [µs]",
    "parameters": "parameters",
}


def page(result: Comparison, reading: str = "", figures: str = "") -> str:
    """Write the page of a comparison.

    Args:
        result: The comparison.
        reading: Markdown to put before the tables: a person's interpretation.
        figures: Prefix of the figures' file names, such as a folder.
    Returns: The page in Markdown.
    """
    parts = ["# Methods compared", "", *_opening(result), ""]
    parts += [reading.strip(), ""] if reading.strip() else []
    for case in result.cases:
        parts += _section(result, case, figures)
    parts += ["## What the columns mean", "", *(f"- **{COLUMNS[name]}**: {text}." for name, text in SCORES.items()), ""]
    return "\n".join([*parts, "## The methods", "", *_methods(result), ""])


def _opening(result: Comparison) -> list[str]:
    made = " and ".join(f"`{part}`" for part in (result.command or "equipoise.compare").split("; "))
    versions = ", ".join(f"{name} {number}" for name, number in result.versions.items())
    return [
        f"Made by {made} ({versions}).",
        "Numbers are mean ± standard error over seeds. All methods share rows, network, epochs and seeds. **Bold** is",
        f"the best of a column, and * what is within {NOISE:g} standard errors of the paired difference to it.",
    ]


def _section(result: Comparison, case: CaseFacts, figures: str) -> list[str]:
    lines = result.of_case(case.name)
    columns = [name for name in COLUMNS if any(is_number(line.cells[name].mean) for line in lines)]
    n = len({trial.seed for trial in result.trials if trial.case == case.name})
    rows = f"{n} seed{'s' if n != 1 else ''}; {case.rows_fitted} rows fitted, {case.rows_tested} tested"
    size = f"{rows}; {case.inputs} inputs, {case.outputs} outputs"
    table = ["| method | " + " | ".join(COLUMNS[name] for name in columns) + " |", "|---|" + "---:|" * len(columns)]
    for line in lines:
        table.append(f"| {line.method} | " + " | ".join(_formatted(name, line.cells[name]) for name in columns) + " |")
    return [
        f"## {case.name}: {case.title}",
        "",
        f"{size}, {case.balances} balance{'s' if case.balances != 1 else ''}.",
        "",
        *table,
        "",
        *_failures(lines),
        *_step_times(result, case.name),
        *_verdict(lines),
        "",
        f"![Accuracy against balance residual]({figures}{case.name}.svg)",
        "",
    ]


def _verdict(lines: list[Line]) -> list[str]:
    """List the scores in which another method beats ours by more than noise, with the differences."""
    ours = next((line for line in lines if line.method == OURS), None)
    if ours is None or len(lines) < 2:
        return []
    if not is_number(ours.cells["rmse"].se):
        return ["One seed cannot tell differences from noise: give more seeds."]
    losses = []
    for name in LOWER_IS_BETTER:
        if better := [f"{line.method} ({_difference(line.cells[name])})" for line in lines if _beats(line.cells[name])]:
            losses.append(f"- {COLUMNS[name]}: {', '.join(better)}")
    if not losses:
        return [f"No method beats `{OURS}` by more than {NOISE:g} standard errors in any score."]
    return [f"`{OURS}` is beaten by more than {NOISE:g} standard errors in (difference to ours):", "", *losses]


def _beats(cell: ScoreCell) -> bool:
    return is_number(cell.to_ours_se) and cell.to_ours < -NOISE * cell.to_ours_se


def _difference(cell: ScoreCell) -> str:
    return f"{cell.to_ours:+.2g} ± {cell.to_ours_se:.1g}"


def _failures(lines: list[Line]) -> list[str]:
    reasons = [f"- {line.method}: {text}" for line in lines for text in line.failures]
    return ["No result:", "", *reasons, ""] if reasons else []


def _step_times(result: Comparison, case: str) -> list[str]:
    sentences = [
        f"A training step of {trial.method} takes {1e3 * trial.step_seconds['qp']:.3g} ms by the solver and "
        f"{1e3 * trial.step_seconds['closed form']:.2g} ms by the closed form of the same map."
        for trial in result.trials
        if trial.case == case and "qp" in trial.step_seconds
    ]
    return [*sentences, ""] if sentences else []


def _formatted(name: str, cell: ScoreCell) -> str:
    if not is_number(cell.mean):
        return "–"
    factor = 1e6 if name == "row_seconds" else 1.0
    if name in ("parameters",):
        return f"{cell.mean:.0f}"
    text = _with_error(factor * cell.mean, factor * cell.se)
    return f"**{text}**" if cell.best else f"{text} *" if cell.near_best else text


def _with_error(mean: float, se: float) -> str:
    """Format a mean and its standard error with the digits that the error leaves meaningful.

    Example:
        >>> _with_error(0.012345, 0.00067), _with_error(3.0, math.nan), _with_error(1.2e-16, 3e-17)
        ('0.0123 ± 0.0007', '3', '1.2e-16 ± 3e-17')
    """
    if not is_number(se) or se == 0:
        return f"{mean:.3g}"
    digits = max(0, -math.floor(math.log10(se)))
    if digits > 5:
        return f"{mean:.2g} ± {se:.1g}"
    return f"{mean:.{digits}f} ± {se:.{digits}f}"


def _methods(result: Comparison) -> list[str]:
    named = dict.fromkeys(line.method for line in result.lines)
    items = []
    for name in named:
        method = Method.named(name)
        inference, imposition = INFERENCES[method.inference], IMPOSITIONS[method.imposition]
        sources = "; ".join(filter(None, (inference.source, imposition.source)))
        items.append(f"- `{name}`: {method.title} ({sources})")
    return items
