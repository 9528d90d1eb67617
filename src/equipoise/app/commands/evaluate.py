"""`equipoise evaluate`: how well a model predicts rows that it has not seen."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.app.commands import gaps
from equipoise.app.commands.extent import Extent
from equipoise.app.commands.screen import as_json, number, percent, say, table

if TYPE_CHECKING:
    from equipoise.estimator import ConstrainedBNNRegressor

DRAWS = 200  # for the violations of balances


def run(
    model: Annotated[Path, typer.Argument(help="The model file.", show_default=False)],
    data: Annotated[Path, typer.Argument(help="A table with inputs and outputs.", show_default=False)],
    json: Annotated[bool, typer.Option("--json", help="For programs: the same as JSON.")] = False,
    device: Annotated[str | None, typer.Option(help="Where torch computes, for instance cuda.")] = None,
    skip_incomplete: gaps.Skip = False,
) -> None:
    """Score predictions against a table: errors, coverage, CRPS, joint density, and how far balances are missed.

    Rows that the model was trained on flatter it.
    """
    from equipoise.app.commands.device import check_device
    from equipoise.app.commands.rows import placed, rows_for_model
    from equipoise.artifact import model_file as artifact

    check_device(device)
    loaded = artifact.load(model, device)
    rows = rows_for_model(loaded, data, skip_incomplete)
    with placed(data, rows.places):
        scores = scores_of_outputs(loaded, rows.X, rows.Y)
    missed = violations_of(loaded, rows.X, rows.Y)
    nll = _nll(loaded, rows.X, rows.Y)
    gaps.tell(rows.left_out, rows.passed_over)
    Extent.of(loaded, rows.X).tell(loaded)
    if json:
        as_json({"rows": len(rows.X), "outputs": scores, "balances": missed, "joint_nll": nll})
        return
    show_scores(f"{len(rows.X)} rows", scores)
    if missed:
        header = ["balance", "unit", "means miss by", "draws miss by", "data miss by"]
        kinds = ("means", "draws", "data")
        lines = [[name, str(m["unit"] or ""), *(number(m[kind]) for kind in kinds)] for name, m in missed.items()]
        table("Balances: mean absolute residuals", header, lines, left=2)
    say(f"Joint negative log density: {number(nll, 5)} nats per row.")


def scores_of_outputs(model: ConstrainedBNNRegressor, X: Any, Y: Any) -> dict[str, dict[str, float]]:
    """RMSE, the RMSE that the model expects, R², coverage and CRPS of each output, over what was measured."""
    import numpy as np

    from equipoise.app.report import score_outputs
    from equipoise.prediction import metrics

    p = dataclasses.replace(model.predict_distribution(X).measured(), wrap=np.asarray)
    measured = np.asarray(Y, dtype=float).reshape(p.mean.shape)
    covered, crps = metrics.coverage(p, measured, [0.5, 0.95]), metrics.mean_crps(p, measured)
    return {
        score.output: {
            "rmse": score.rmse,
            "expected_rmse": score.expected,
            "r2": score.r2,
            "coverage_50": float(covered[0, j]),
            "coverage_95": float(covered[1, j]),
            "crps": float(crps[j]),
        }
        for j, score in enumerate(score_outputs(p, measured))
    }


def show_scores(title: str, scores: dict[str, dict[str, float]]) -> None:
    """A table of what `scores_of_outputs` found."""
    header = ["output", "RMSE", "expected", "R²", "in 50 %", "in 95 %", "CRPS"]
    lines = []
    for name, s in scores.items():
        errors = [number(s["rmse"]), number(s["expected_rmse"]), number(s["r2"], 4)]
        covered = [percent(s["coverage_50"]), percent(s["coverage_95"])]
        lines.append([name, *errors, *covered, number(s["crps"])])
    table(title, header, lines)


def violations_of(model: ConstrainedBNNRegressor, X: Any, Y: Any) -> dict[str, dict[str, Any]]:
    """Mean absolute residual of each balance: of the means of draws, of draws of the true values, and of the data."""
    import numpy as np

    from equipoise.prediction import metrics

    if (constraint := model.constraint_) is None:
        return {}
    of_means, of_draws = metrics.violations(model.predict_distribution(X), DRAWS)
    of_data = np.abs(constraint.residual(np.asarray(X, dtype=float), np.asarray(Y, dtype=float)))
    missed = {}
    for k, name in enumerate(constraint.names):
        data = float(np.nanmean(of_data[:, k])) if np.isfinite(of_data[:, k]).any() else float("nan")
        sizes = {"means": float(of_means.mean[k]), "draws": float(of_draws.mean[k]), "data": data}
        missed[name] = {"unit": constraint.units[k], **sizes}
    return missed


def _nll(model: ConstrainedBNNRegressor, X: Any, Y: Any) -> float:
    from equipoise.prediction import metrics

    return metrics.joint_nll(model.predict_distribution(X).measured(), Y)
