"""`make reproduce`: simulate, fit the three models, evaluate them on the same test rows, write tables and report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from equipoise.battery import results as results_file
from equipoise.battery.data import load
from equipoise.battery.evaluation import assemble
from equipoise.battery.presentation import present
from equipoise.battery.results import MODELS, Results
from equipoise.battery.settings import Settings
from equipoise.battery.tasks import DeterministicTask, FitTask, finish, keep_arrays


def reproduce(
    settings: Settings,
    folder: Path,
    seeds: Sequence[int] = (1,),
    *,
    workers: int | None = None,
    verbose: bool = True,
) -> list[Results]:
    """Run the study for each seed and write everything into a folder.

    Args:
        settings: The configuration.
        folder: Gets `results.json` (of the first seed), `seed-*/results.json` with the arrays beside them, `tables.md`,
            `figures/` and `report.html`; `fits/` and `cache/` inside it keep what is finished.
        seeds: One run of noise, split and training for each.
        workers: Processes; one for each core by default.
        verbose: Show progress.
    """
    start = time.perf_counter()
    cache = folder / "cache"
    for seed in seeds[:1]:
        load(settings.data_of(seed), cache, progress=verbose)  # once, before several processes want it
    simulated = time.perf_counter()
    fits = {
        (model, seed): FitTask(settings, model, seed, _fits(folder, seed), cache) for seed in seeds for model in MODELS
    }
    plain = {seed: DeterministicTask(settings, seed, _fits(folder, seed), cache) for seed in seeds}
    tasks = {f"{model} {seed}": task for (model, seed), task in fits.items()}
    done = finish(tasks | {f"deterministic {seed}": task for seed, task in plain.items()}, workers, verbose)
    finished = time.perf_counter()
    this_start = {"simulation": simulated - start, "this start": finished - start}
    runs = []
    for seed in seeds:
        evaluations = {model: done[f"{model} {seed}"] for model in MODELS}
        config = settings.model_dump(mode="json") | {"seeds": list(seeds)}
        seconds = this_start | {name: fits[name, seed].seconds() for name in MODELS}  # of kept ones too
        seconds["total"] = sum(seconds[name] for name in MODELS)
        assembled = assemble(
            evaluations, load(settings.data_of(seed), cache), seed=seed, config=config, seconds=seconds
        ).model_copy(update={"deterministic": done[f"deterministic {seed}"]})
        place = folder / f"seed-{seed}"
        place.mkdir(parents=True, exist_ok=True)
        for model, evaluation in evaluations.items():
            keep_arrays(place / f"arrays-{model}.npz", evaluation.arrays)
        results_file.write(assembled, place / "results.json")
        runs.append(assembled)
    results_file.write(runs[0], folder / "results.json")
    present(folder, seeds)
    return runs


def _fits(folder: Path, seed: int) -> Path:
    return folder / "fits" / f"seed-{seed}"
