"""`equipoise tune`: search the options of a job on held-out rows; what was tried is kept and gone on from."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.app.commands import gaps
from equipoise.app.commands.screen import is_watched, number, say, table

if TYPE_CHECKING:
    from equipoise.app.tuning import TuningResult

HELD_OUT = 0.2
SHOWN = 10


def run(
    job: Annotated[Path, typer.Argument(help="The job file.", show_default=False)],
    trials: Annotated[int, typer.Option(help="Trials in all, earlier starts included.", min=1)] = 30,
    minutes: Annotated[float | None, typer.Option(help="Stop after so many minutes.", min=0.0)] = None,
    journal: Annotated[Path | None, typer.Option(help="Where trials are kept; beside the job by default.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Short trainings: 60 epochs each.")] = False,
) -> None:
    """Search network and training for the best fit to rows held out, and print what belongs into [model].

    What the job says now is tried first. Trials are kept in a journal: stop at any time and start again to go on.
    Several processes may share one.
    """
    import numpy as np

    from equipoise.app.commands.rows import job_to_learn, rows_of_job
    from equipoise.app.tables import TableError
    from equipoise.app.tuning import Choice, Uniform, tune

    described = job_to_learn(job)
    rows = rows_of_job(described)
    gaps.tell(rows.left_out, rows.passed_over)
    overrides: dict[str, Any] = {"max_epochs": 60} if quick else {}
    held_out = np.random.default_rng(described.model.seed).permutation(len(rows.Y))[: int(HELD_OUT * len(rows.Y))]
    if not len(held_out):
        rule = f"'{described.data.name}' must have {math.ceil(1 / HELD_OUT)} rows or more to search on"
        raise TableError(f"{rule}, but got {len(rows.Y)}. Collect more.")
    own = described.model
    space = {
        "hidden": Choice(_with(own.hidden, (32,), (64,), (32, 32), (64, 64), (48, 48, 48))),
        "activation": Choice(_with(own.activation, "silu", "tanh")),
        "mean_epochs": Choice(_with(own.mean_epochs, 300, 100, 30)),
        "learning_rate": Uniform(1e-3, 1e-2, log=True),
        "mean_learning_rate": Uniform(5e-3, 4e-2, log=True),
        "prior_std": Uniform(0.3, 3.0, log=True),
        "temperature": Uniform(0.2, 1.0, log=True),
    }
    before = {name: value for name, values in space.items() if (value := getattr(own, name)) in values}
    result = tune(
        described.estimator(**overrides),
        rows.X[list(described.x_columns)],
        rows.Y,
        space,
        held_out=np.sort(held_out),
        n_trials=trials,
        journal=journal or job.with_suffix(".tune.log"),
        seed=described.model.seed,
        timeout=None if minutes is None else 60 * minutes,
        first=[before],
        verbose=is_watched(),
    )
    _show(result)


def _with(own: Any, *others: Any) -> list:
    """What the job says, and what else there is to try."""
    return list(dict.fromkeys((own, *others)))


def _show(result: TuningResult) -> None:
    names = list(result.parameters)
    records = result.trials.head(SHOWN).to_dict("records")
    lines = [[str(r["state"]), number(r["value"], 5), *(_cell(r.get(name)) for name in names)] for r in records]
    table(f"The best of {len(result.trials)} trials", ["state", "NLL per row, scaled", *names], lines)
    say("Put this into the job file:\n\n[model]")
    for name, value in result.parameters.items():
        say(f"{name} = {json.dumps(_short(value))}")


def _short(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _cell(value: Any) -> str:
    """Of a table whose columns are numbers with gaps: whole numbers without a point, what was left out as a dash.

    Example:
        >>> _cell(30.0), _cell(float("nan")), _cell(0.00123456), _cell((64, 64))
        ('30', '–', '0.001235', '(64, 64)')
    """
    if value is None or value != value:
        return "–"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(_short(value))
