"""`make reproduce`: simulate, fit all models, evaluate them on the same test rows, write tables and report."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from equipoise import battery
from studies.battery import results as results_file
from studies.battery.deterministic import DeterministicTask
from studies.battery.evaluation import assemble
from studies.battery.files import write_arrays
from studies.battery.presentation import present
from studies.battery.results import MODELS, Results, SeedSummary
from studies.battery.tasks import FitTask, finish


def reproduce(
    settings: battery.Settings,
    folder: Path,
    seeds: Sequence[int] = (1,),
    *,
    workers: int | None = None,
    verbose: bool = True,
) -> list[Results]:
    """Run the study for each seed and write everything into a folder.

    Args:
        settings: Settings of the study.
        folder: Folder for `results.json` (of the first seed), `seed-*/results.json` with the arrays beside them,
            `seeds.json` (means and standard errors, if there are several seeds), `tables.md`, `figures/` and
            `report.html`; `fits/` and `cache/` inside it keep finished fits and simulations.
        seeds: Seeds of noise, split and training, one run for each.
        workers: Number of processes; None for one on each core.
        verbose: Whether to show progress bars.
    Returns: The results of each seed.
    """
    start, cache = time.perf_counter(), folder / "cache"
    battery.load(settings.data_of(seeds[0]), cache, progress=verbose)  # once, before several processes need it
    simulated = time.perf_counter()
    fits = {
        (model, seed): FitTask(settings, model, seed, folder / "fits" / f"seed-{seed}", cache)
        for seed in seeds
        for model in MODELS
    }
    plain = {seed: DeterministicTask(settings, seed, folder / "fits" / f"seed-{seed}", cache) for seed in seeds}
    tasks = {f"{model} {seed}": task for (model, seed), task in fits.items()}
    done = finish(tasks | {f"deterministic {seed}": task for seed, task in plain.items()}, workers, verbose)
    now = {"simulation": simulated - start, "this start": time.perf_counter() - start}
    runs = []
    for seed in seeds:
        seconds = {model: fits[model, seed].seconds() for model in MODELS}  # also of fits that were kept
        run = assemble(
            {model: done[f"{model} {seed}"] for model in MODELS},
            battery.load(settings.data_of(seed), cache),
            seed=seed,
            config=settings.model_dump(mode="json") | {"seeds": list(seeds)},
            seconds=now | seconds | {"total": sum(seconds.values())},
        ).model_copy(update={"deterministic": done[f"deterministic {seed}"]})
        _write(run, {model: done[f"{model} {seed}"].arrays for model in MODELS}, folder / f"seed-{seed}")
        runs.append(run)
    results_file.write(runs[0], folder / "results.json")
    if len(runs) > 1:
        results_file.write(SeedSummary.of(runs), folder / "seeds.json")
    present(folder, seeds)
    return runs


def _write(run: Results, arrays: Mapping[str, dict[str, Any]], place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for model, values in arrays.items():
        write_arrays(place / f"arrays-{model}.npz", values)
    results_file.write(run, place / "results.json")
