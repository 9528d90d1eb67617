"""What several commands compute and print of a fitted model: scores of its outputs, tolerances of its balances.

Scores of held-out rows are kept among the notes of a model file, which are single values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from equipoise.app.commands.console import format_number, format_percent, print_note, print_table

if TYPE_CHECKING:
    from equipoise.estimator import ConstrainedBNNRegressor

HELD_OUT = "held-out"  # begins the names of scores among the notes of a model file

Scores = dict[str, dict[str, float]]  # by output, then by name of the score


def output_scores(model: ConstrainedBNNRegressor, X: Any, Y: Any) -> Scores:
    """Score the predictions of measured values, output by output, over the rows in which each was measured.

    Args:
        model: A fitted model.
        X: Its inputs and known columns, `(rows, n_x)`, in their own units.
        Y: Measured outputs, `(rows, n_y)`, NaN where nothing was measured.
    Returns: By output: "rmse" and "crps" in the output's unit; "expected_rmse", which the predictive variance implies;
        "r2"; "coverage_50" and "coverage_95", the shares of values inside intervals of that probability.
    """
    import numpy as np

    from equipoise.app.report import score_outputs
    from equipoise.prediction import metrics

    p = dataclasses.replace(model.predict_distribution(X).measured(), wrap=np.asarray)
    measured = np.asarray(Y, dtype=float).reshape(p.mean.shape)
    coverage, crps = metrics.coverage(p, measured, [0.5, 0.95]), metrics.mean_crps(p, measured)
    return {
        score.output: {
            "rmse": score.rmse,
            "expected_rmse": score.expected,
            "r2": score.r2,
            "coverage_50": float(coverage[0, j]),
            "coverage_95": float(coverage[1, j]),
            "crps": float(crps[j]),
        }
        for j, score in enumerate(score_outputs(p, measured))
    }


def print_scores(title: str, scores: Scores) -> None:
    """Print a table of `output_scores`, one row for each output.

    Args:
        title: The line above the table.
        scores: The scores, from `output_scores`.
    """
    header = ["output", "RMSE", "expected", "R²", "in 50 %", "in 95 %", "CRPS"]
    rows = []
    for name, score in scores.items():
        errors = [format_number(score["rmse"]), format_number(score["expected_rmse"]), format_number(score["r2"], 4)]
        coverage = [format_percent(score["coverage_50"]), format_percent(score["coverage_95"])]
        rows.append([name, *errors, *coverage, format_number(score["crps"])])
    print_table(title, header, rows)


def score_notes(scores: Scores) -> dict[str, float]:
    """Return the scores of held-out rows as notes for a model file, such as "held-out rmse of V [V]"."""
    return {
        f"{HELD_OUT} {name} of {output}": value for output, by_name in scores.items() for name, value in by_name.items()
    }


def scores_in_notes(notes: Mapping[str, Any]) -> Scores:
    """Return the scores of held-out rows from the notes of a model file.

    Example:
        >>> scores_in_notes(score_notes({"V [V]": {"rmse": 0.1}}) | {"rows": 300})
        {'V [V]': {'rmse': 0.1}}
    """
    scores: Scores = {}
    for key, value in notes.items():
        if key.startswith(f"{HELD_OUT} "):
            name, _, output = key.removeprefix(f"{HELD_OUT} ").partition(" of ")
            scores.setdefault(output, {})[name] = value
    return scores


def print_tolerances(tolerances: Sequence[Mapping[str, Any]]) -> None:
    """Print how far each balance can be trusted.

    Args:
        tolerances: One record for each balance, as `ConstrainedBNNRegressor.tolerances_` has them as rows, its name
            under "balance". Without any nothing is printed.
    """
    if not tolerances:
        return
    header = ["balance", "verdict", "unit", "tolerance (sd)", "95 % interval", "KL [nats]"]
    rows = []
    for record in tolerances:
        interval = f"{format_number(record['tol_std_lower'])} – {format_number(record['tol_std_upper'])}"
        numbers = [format_number(record["tol_std"]), interval, format_number(record["kl"])]
        rows.append([str(record["balance"]), str(record["verdict"]), str(record["unit"] or ""), *numbers])
    print_table("Balances", header, rows, left=3)
    for record in tolerances:
        if record["note"]:
            print_note(f"balance '{record['balance']}': {record['note']}")
