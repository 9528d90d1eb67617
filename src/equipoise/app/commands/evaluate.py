"""`equipoise evaluate`: how well a model predicts rows that it has not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.app.commands.console import format_number, print_json, print_table, print_text
from equipoise.app.commands.model_summary import output_scores, print_scores
from equipoise.app.commands.row_counts import RowCounts
from equipoise.app.commands.shared_options import DataTable, Device, ModelFile, SkipIncomplete
from equipoise.app.commands.table_rows import locate_range_errors, read_model_rows
from equipoise.errors import check_device

if TYPE_CHECKING:
    from equipoise.estimator import ConstrainedBNNRegressor

DRAWS = 200  # for the residuals of balances


def run(
    model: ModelFile,
    data: DataTable,
    json: Annotated[bool, typer.Option("--json", help="For programs: the same as JSON.")] = False,
    device: Device = None,
    skip_incomplete: SkipIncomplete = False,
) -> None:
    """Score predictions against a table: errors, coverage, CRPS, joint density, and how far balances are missed.

    Rows that the model was trained on flatter it.
    """
    from equipoise.app.commands.open_model import open_model

    check_device(device)
    loaded = open_model(model, device)
    rows = read_model_rows(loaded, data, skip_incomplete)
    with locate_range_errors(data, rows.positions):
        scores = output_scores(loaded, rows.X, rows.Y)
    residuals = _balance_residuals(loaded, rows.X, rows.Y)
    nll = _joint_nll(loaded, rows.X, rows.Y)
    RowCounts.of(loaded, rows.X, n_incomplete=rows.n_incomplete, n_blank=rows.n_blank).print_notes(loaded)
    if json:
        print_json({"rows": len(rows.X), "outputs": scores, "balances": residuals, "joint_nll": nll})
        return
    print_scores(f"{len(rows.X)} rows", scores)
    if residuals:
        header = ["balance", "unit", "means miss by", "draws miss by", "data miss by"]
        lines = [
            [name, str(record["unit"] or ""), *(format_number(record[kind]) for kind in ("means", "draws", "data"))]
            for name, record in residuals.items()
        ]
        print_table("Balances: mean absolute residuals", header, lines, left=2)
    print_text(f"Joint negative log density: {format_number(nll, 5)} nats per row.")


def _balance_residuals(model: ConstrainedBNNRegressor, X: Any, Y: Any) -> dict[str, dict[str, Any]]:
    """Return the mean absolute residual of each balance, in its own unit.

    Args:
        model: A fitted model.
        X: Its inputs and known columns, `(rows, n_x)`.
        Y: Measured outputs, `(rows, n_y)`, NaN where nothing was measured.
    Returns: By balance: its "unit", and the residuals of "means" of weight draws, of "draws" of true values, of "data".
    """
    import numpy as np

    from equipoise.prediction import metrics

    if (constraint := model.constraint_) is None:
        return {}
    means, draws = metrics.violations(model.predict_distribution(X), DRAWS)
    data = np.abs(constraint.residual(np.asarray(X, dtype=float), np.asarray(Y, dtype=float)))
    residuals = {}
    for k, name in enumerate(constraint.names):
        data_mean = float(np.nanmean(data[:, k])) if np.isfinite(data[:, k]).any() else float("nan")
        sizes = {"means": float(means.mean[k]), "draws": float(draws.mean[k]), "data": data_mean}
        residuals[name] = {"unit": constraint.units[k], **sizes}
    return residuals


def _joint_nll(model: ConstrainedBNNRegressor, X: Any, Y: Any) -> float:
    """Return the mean negative log density of rows of measured values, in nats."""
    from equipoise.prediction import metrics

    return metrics.joint_nll(model.predict_distribution(X).measured(), Y)
