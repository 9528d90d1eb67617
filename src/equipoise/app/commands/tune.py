"""`equipoise tune`: search the options of a job on held-out rows; a later start goes on with the trials kept so far."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.app.commands.console import format_number, is_interactive, print_table, print_text
from equipoise.app.commands.row_counts import print_omissions
from equipoise.app.commands.shared_options import JobFile
from equipoise.app.commands.table_rows import read_job_rows
from equipoise.app.commands.training_job import load_training_job

if TYPE_CHECKING:
    from equipoise.app.job import Job, ModelOptions
    from equipoise.app.tuning import TuningResult

HELD_OUT_SHARE = 0.2
N_PRINTED = 10  # trials
WITHOUT_EFFECT = ("mean_epochs", "mean_learning_rate", "temperature")  # with a start at the prior


def run(
    job: JobFile,
    trials: Annotated[int, typer.Option(help="Trials in all, earlier starts included.", min=1)] = 30,
    minutes: Annotated[float | None, typer.Option(help="Stop after so many minutes.", min=0.0)] = None,
    journal: Annotated[Path | None, typer.Option(help="Where trials are kept; beside the job by default.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Short trainings: 60 epochs each.")] = False,
) -> None:
    """Search network and training for the best fit to rows held out, and print what belongs into [model].

    What the job says now is tried first. Trials are kept in a journal: stop at any time and start again to go on.
    Several processes may share one.
    """
    from equipoise.app.tuning import tune

    described = load_training_job(job)
    rows = read_job_rows(described)
    print_omissions(rows.n_incomplete, rows.n_blank)
    held_out = _held_out_rows(described, len(rows.Y))
    overrides: dict[str, Any] = {"max_epochs": 60} if quick else {}
    options = described.model
    space = _search_space(options)
    own_values = {name: value for name, values in space.items() if (value := getattr(options, name)) in values}
    result = tune(
        described.estimator(**overrides),
        rows.X[list(described.x_columns)],
        rows.Y,
        space,
        held_out=held_out,
        n_trials=trials,
        journal=journal or job.with_suffix(".tune.log"),
        seed=options.seed,
        timeout=None if minutes is None else 60 * minutes,
        first=[own_values],
        verbose=is_interactive(),
    )
    _print_result(result)


def _held_out_rows(job: Job, n_rows: int) -> Any:
    """Choose by the job's seed the rows on which trials are scored, `(rows,)`, ascending.

    Raises: TableError, if the table has too few rows to hold any out.
    """
    import numpy as np

    from equipoise.app.tables import TableError

    held_out = np.random.default_rng(job.model.seed).permutation(n_rows)[: int(HELD_OUT_SHARE * n_rows)]
    if not len(held_out):
        rule = f"'{job.data.name}' must have {math.ceil(1 / HELD_OUT_SHARE)} rows or more to search on"
        raise TableError(f"{rule}, but got {n_rows}. Collect more.")
    return np.sort(held_out)


def _search_space(options: ModelOptions) -> dict[str, Any]:
    """Return the values that are tried for each option of a job, its own ones among them."""
    from equipoise.app.tuning import Choice, Uniform

    space = {
        "hidden": Choice(_with_own(options.hidden, (32,), (64,), (32, 32), (64, 64), (48, 48, 48))),
        "activation": Choice(_with_own(options.activation, "silu", "tanh")),
        "mean_epochs": Choice(_with_own(options.mean_epochs, 300, 100, 30)),
        "learning_rate": Uniform(1e-3, 1e-2, log=True),
        "mean_learning_rate": Uniform(5e-3, 4e-2, log=True),
        "prior_std": Uniform(0.3, 3.0, log=True),
        "temperature": Uniform(0.2, 1.0, log=True),
    }
    without_effect = WITHOUT_EFFECT if options.start == "prior" else ()
    return {name: values for name, values in space.items() if name not in without_effect}


def _with_own(own: Any, *others: Any) -> list:
    """Return the job's own value and the others, each once."""
    return list(dict.fromkeys((own, *others)))


def _print_result(result: TuningResult) -> None:
    """Print the best trials, and the lines for the job file."""
    names = list(result.parameters)
    records = result.trials.head(N_PRINTED).to_dict("records")
    rows = [
        [str(record["state"]), format_number(record["value"], 5), *(_format_value(record.get(name)) for name in names)]
        for record in records
    ]
    print_table(f"The best of {len(result.trials)} trials", ["state", "NLL per row, scaled", *names], rows)
    print_text("Put this into the job file:\n\n[model]")
    for name, value in result.parameters.items():
        print_text(f"{name} = {json.dumps(_rounded(value))}")


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _format_value(value: Any) -> str:
    """Format the value of a parameter: whole numbers without a point, a dash for a parameter that a trial left out.

    Example:
        >>> _format_value(30.0), _format_value(float("nan")), _format_value(0.00123456), _format_value((64, 64))
        ('30', '–', '0.001235', '(64, 64)')
    """
    if value is None or value != value:
        return "–"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(_rounded(value))
