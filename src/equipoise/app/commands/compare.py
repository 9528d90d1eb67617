"""`equipoise compare`: every rival method fitted to the same rows, and one table of their scores."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.app.commands.console import (
    format_number,
    format_percent,
    is_interactive,
    print_note,
    print_table,
    print_text,
)
from equipoise.app.commands.training_job import load_training_job
from equipoise.rivals import IMPOSITIONS, INFERENCES, methods_named

if TYPE_CHECKING:
    from equipoise.rivals import Case, Comparison, ScoreCell

QUICK = {"hidden": (16,), "n_draws": 32}
QUICK_EPOCHS = 20
SCORE_TITLES = {
    "rmse": "RMSE",
    "rmse_true": "RMSE (truth)",
    "crps": "CRPS",
    "energy_score": "energy",
    "joint_nll": "joint NLL",
    "coverage": "in 95 %",
    "residual_of_mean": "mean misses",
    "residual_of_draws": "draws miss",
    "fit_seconds": "fit [s]",
}


def run(
    jobs: Annotated[
        list[str],
        typer.Argument(
            help="Job files, or cases that come with the package: tank, flash, biased, hierarchy, few, battery.",
            show_default=False,
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for results; a run goes on in it.")],
    methods: Annotated[
        str,
        typer.Option(
            help=f"Pairs such as ensemble+learned, by commas. {', '.join(INFERENCES)}; with "
            f"{', '.join(IMPOSITIONS)}. Or default, or all."
        ),
    ] = "default",
    seeds: Annotated[int, typer.Option(help="How many; every method gets the same ones.", min=1)] = 3,
    first_seed: Annotated[
        int, typer.Option(help="Number of the first seed; a new one makes a choice of seeds impossible.", min=0)
    ] = 0,
    workers: Annotated[int, typer.Option(help="Fits at the same time; -1 for one per core.", min=-1)] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="A first look: small network, 20 epochs.")] = False,
) -> None:
    """Fit every method to the same rows, score them on the same test rows, and show one table.

    A method is how weights are inferred and how balances are imposed: vi+none is a Bayesian network without balances,
    ensemble+projection a deep ensemble projected onto them, vi+learned the model of this package. Beside networks there
    are Gaussian processes (gp+learned; of at most 2,000 rows) and gradient boosting (boosting+none). A fifth of the
    rows is tested on, another one for every seed.

    The folder gets compare.json, compare.csv, compare.md and a figure for each case. Every finished fit is kept there:
    stop at any time and give the same command to go on.
    """
    names = methods.split(",")
    methods_named(names)  # raises on a wrong name before anything slow is imported
    from equipoise.rivals import as_case, compare

    for job in jobs:
        if job.endswith(".toml"):
            load_training_job(Path(job))  # its refusals say more than those of `as_case`
    cases = [as_case(job, output) for job in jobs]
    if quick:
        cases = [_quick_case(case) for case in cases]
    command = _command_line(jobs, output, methods, seeds, first_seed, quick)
    numbers = range(first_seed, first_seed + seeds)
    try:
        comparison = compare(
            cases, names, numbers, folder=output, n_jobs=workers or 1, verbose=is_interactive(), command=command
        )
    except KeyboardInterrupt:
        print_text(f"Interrupted. Finished fits are kept. Go on with: {command}")
        raise
    _print_comparison(comparison)
    print_text(
        "* the best of a column, or within two standard errors of it; errors in standard deviations of the outputs."
    )
    if quick:
        print_note("--quick is for a first look; compare without it for results.")
    print_text(f"Written: {output / 'compare.md'}, and compare.json, compare.csv and figures beside it.")


def _print_comparison(comparison: Comparison) -> None:
    """Print a table of scores for each case, * for those near the best, and a note on each fit that failed."""
    for case in comparison.cases:
        lines = comparison.of_case(case.name)
        titles = {name: title for name, title in SCORE_TITLES.items() if any(line.cells[name].n for line in lines)}
        rows = [[line.method, *(_score_text(name, line.cells[name]) for name in titles)] for line in lines]
        print_table(f"{case.name}: {case.title}", ["method", *titles.values()], rows)
        for line in lines:
            for failure in line.failures:
                print_note(f"{line.method}: {failure}")


def _score_text(name: str, cell: ScoreCell) -> str:
    if not cell.n:
        return "–"
    text = format_percent(cell.mean) if name == "coverage" else format_number(cell.mean)
    return text + (" *" if cell.best or cell.near_best else "")


def _quick_case(case: Case) -> Case:
    """Return a case with a small network and few epochs."""
    from dataclasses import replace

    from equipoise.training import TrainingPlan

    plan = replace(case.options.get("training") or TrainingPlan(), max_epochs=QUICK_EPOCHS)
    options: dict[str, Any] = case.options | QUICK | {"training": plan}
    return replace(case, options=options)


def _command_line(jobs: list[str], output: Path, methods: str, seeds: int, first_seed: int, quick: bool) -> str:
    """Return the command line of a comparison, which goes on with it.

    Example:
        >>> _command_line(["my cell.toml"], Path("out"), "default", 3, 10, True)
        "equipoise compare 'my cell.toml' --seeds 3 --first-seed 10 --quick -o out"
    """
    words = ["equipoise", "compare", *jobs]
    words += [] if methods == "default" else ["--methods", methods]
    words += ["--seeds", str(seeds), *(["--first-seed", str(first_seed)] if first_seed else [])]
    return shlex.join([*words, *(["--quick"] if quick else []), "-o", str(output)])
