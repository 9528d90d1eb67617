"""`equipoise compare`: every rival method on the same rows, and one table of what they score."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.app.commands.screen import is_watched, number, percent, remark, say, table
from equipoise.rivals import IMPOSITIONS, INFERENCES, methods_named

if TYPE_CHECKING:
    from equipoise.rivals import Case, Comparison, ScoreCell

QUICK = {"hidden": (16,), "n_draws": 32}
QUICK_EPOCHS = 20
SHOWN = {
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
    first_seed: Annotated[int, typer.Option(help="The first of them; new ones are chosen by nobody.", min=0)] = 0,
    workers: Annotated[int, typer.Option(help="Fits at the same time; -1 for one per core.", min=-1)] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="A first look: small network, 20 epochs.")] = False,
) -> None:
    """Fit every method to the same rows, score them on the same test rows, and show one table.

    A method is how weights are inferred and how balances are imposed: vi+none is a Bayesian network without balances,
    ensemble+projection a deep ensemble projected onto them, vi+learned the model of this package. A fifth of the rows
    is tested on, another one for every seed.

    The folder gets compare.json, compare.csv, compare.md and a figure for each case. Every finished fit is kept there:
    stop at any time and give the same command to go on.
    """
    names = methods.split(",")
    methods_named(names)  # a wrong name is told before anything slow is imported
    from equipoise.app.commands.rows import job_to_learn
    from equipoise.rivals import as_case, compare

    for job in jobs:
        if job.endswith(".toml"):
            job_to_learn(Path(job))
    cases = [as_case(job, output) for job in jobs]
    if quick:
        cases = [_quickly(case) for case in cases]
    again, numbers = _command(jobs, output, methods, seeds, first_seed, quick), range(first_seed, first_seed + seeds)
    try:
        found = compare(cases, names, numbers, folder=output, n_jobs=workers or 1, verbose=is_watched(), command=again)
    except KeyboardInterrupt:
        say(f"Interrupted. Finished fits are kept. Go on with: {again}")
        raise
    show(found)
    say("* the best of a column, or within two standard errors of it; errors in standard deviations of the outputs.")
    if quick:
        remark("--quick is for a first look; compare without it for results.")
    say(f"Written: {output / 'compare.md'}, and compare.json, compare.csv and figures beside it.")


def show(found: Comparison) -> None:
    """A table of each case; * is within two standard errors of the best."""
    for case in found.cases:
        lines = found.of_case(case.name)
        columns = {k: title for k, title in SHOWN.items() if any(line.cells[k].n for line in lines)}
        rows = [[line.method, *(_shown(name, line.cells[name]) for name in columns)] for line in lines]
        table(f"{case.name}: {case.title}", ["method", *columns.values()], rows)
        for line in lines:
            for failure in line.failures:
                remark(f"{line.method}: {failure}")


def _shown(name: str, cell: ScoreCell) -> str:
    if not cell.n:
        return "–"
    text = percent(cell.mean) if name == "coverage" else number(cell.mean)
    return text + (" *" if cell.best or cell.near_best else "")


def _quickly(case: Case) -> Case:
    from dataclasses import replace

    from equipoise.training import TrainingPlan

    plan = replace(case.options.get("training") or TrainingPlan(), max_epochs=QUICK_EPOCHS)
    options: dict[str, Any] = case.options | QUICK | {"training": plan}
    return replace(case, options=options)


def _command(jobs: list[str], output: Path, methods: str, seeds: int, first_seed: int, quick: bool) -> str:
    """
    Example:
        >>> _command(["my cell.toml"], Path("out"), "default", 3, 10, True)
        "equipoise compare 'my cell.toml' --seeds 3 --first-seed 10 --quick -o out"
    """
    words = ["equipoise", "compare", *jobs]
    words += [] if methods == "default" else ["--methods", methods]
    words += ["--seeds", str(seeds), *(["--first-seed", str(first_seed)] if first_seed else [])]
    return shlex.join([*words, *(["--quick"] if quick else []), "-o", str(output)])
