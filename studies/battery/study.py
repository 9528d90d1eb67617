"""`make study`: ablation from the paper's model to ours, fewer rows, whole discharges left out, many seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from equipoise import battery, report
from studies.battery import results as results_file
from studies.battery.evaluation import ModelEvaluation
from studies.battery.files import write_text
from studies.battery.models import LABELS, MODELS as STEPS
from studies.battery.results import HEATS, MODELS, VOLTAGES
from studies.battery.tasks import FitTask, Variant, finish

ABLATION = tuple(STEPS)
ROWS = (100, 300, 1000, 3000, 12_600)
PARTS = ("ablation", "rows", "discharges", "seeds")


class Finding(BaseModel):
    """The scores of one model in one situation; lists have one entry for each seed."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    part: str = Field(description="Part of the study.")
    situation: str = Field(description="Selection of the rows.")
    model: str = Field(description="A key of `models.MODELS`.")
    seeds: list[int]
    mse_true: list[float] = Field(description="Normalised MSE against the noiseless truth, mean over outputs.")
    mse_true_voltages: list[float]
    mse_true_heats: list[float]
    crps: list[float] = Field(description="Normalised, mean over outputs.")
    joint_nll: list[float] = Field(description="Nats per row of measured outputs.")
    coverage_voltages: list[float] = Field(description="Of 95 % intervals of measured values, mean over the voltages.")
    coverage_heats: list[float]
    interval_width: list[float] = Field(description="Normalised, mean over outputs.")
    violation_of_draws: list[float] = Field(description="Relative, mean over both balances, draws and rows.")
    tol_std: list[dict[str, float]] = Field(description="Learned tolerances in the balances' units.")
    informed: list[dict[str, bool]]


class Study(BaseModel):
    """The content of study.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    findings: list[Finding]
    config: dict


def tasks_of(
    part: str, settings: battery.Settings, folder: Path, cache: Path, seeds: Sequence[int]
) -> dict[tuple[str, str, int], FitTask]:
    """List the fits of one part of the study.

    Args:
        part: One of `PARTS`.
        settings: Settings of the study.
        folder: Folder of the study; fits are kept inside it.
        cache: Folder in which simulations are kept.
        seeds: Seeds of noise, split and training.
    Returns: Tasks by situation, model and seed.
    """
    situations: Mapping[str, Variant]
    models: Sequence[str] = MODELS
    if part == "ablation":
        situations, models = {"all rows": Variant()}, ABLATION
    elif part == "seeds":
        situations = {"all rows": Variant()}
    elif part == "rows":
        n = len(battery.load(settings.data_of(seeds[0]), cache).train)
        situations = {f"{min(rows, n):,} rows": Variant(n_train=rows if rows < n else None) for rows in ROWS}
    else:
        situations = _without_discharges(battery.load(settings.data_of(seeds[0]), cache))
    return {
        (situation, model, seed): FitTask(settings, model, seed, folder / "fits" / f"seed-{seed}", cache, variant)
        for situation, variant in situations.items()
        for model in models
        for seed in seeds
    }


def _without_discharges(data: battery.BatteryData) -> dict[str, Variant]:
    """Leave out one current or one temperature, in the middle of the grid or at its edge."""
    situations = {}
    for where, pick in (("middle", lambda values: values[(len(values) - 1) // 2]), ("edge", lambda values: values[-1])):
        current, temperature = (float(pick(np.unique(data.X[column]))) for column in ("I [A]", "T [K]"))
        situations[f"without {current:g} A ({where})"] = Variant(current=current)
        situations[f"without {temperature:g} K ({where})"] = Variant(temperature=temperature)
    return situations


def study(
    settings: battery.Settings,
    folder: Path,
    parts: Sequence[str] = PARTS[:3],
    seeds: Sequence[int] = (1,),
    *,
    models: Sequence[str] | None = None,
    workers: int | None = None,
    verbose: bool = True,
) -> Study:
    """Run parts of the study and write `study.json` and `study.md` into the folder; finished fits are not repeated.

    Args:
        settings: Settings of the study.
        folder: Folder for everything that is written; fits are shared with `reproduce`.
        parts: Some of `PARTS`.
        seeds: Seeds of noise, split and training.
        models: Keys of `MODELS`; None for all that a part compares.
        workers: Number of processes; None for one on each core.
        verbose: Whether to show progress bars.
    Returns: All findings, with those of earlier runs with the same settings.
    """
    cache = folder / "cache"
    battery.load(settings.data_of(seeds[0]), cache, progress=verbose)
    few = {"n_draws": min(settings.n_draws, 200), "violation_draws": min(settings.violation_draws, 200)}
    settings = settings.model_copy(update=few)
    keys = {
        (part, *key): task
        for part in parts
        for key, task in tasks_of(part, settings, folder, cache, seeds).items()
        if models is None or task.model in models
    }
    names: dict[str, str] = {}  # one fit may be used in several parts
    for key, task in keys.items():
        names.setdefault(task.fingerprint, " · ".join(map(str, key)))
    tasks = {names[task.fingerprint]: task for task in keys.values()}
    done = finish(tasks, workers, verbose)
    findings = []
    for part in parts:
        for situation, model in dict.fromkeys((key[1], key[2]) for key in keys if key[0] == part):
            runs = [done[names[keys[part, situation, model, seed].fingerprint]] for seed in seeds]
            findings.append(_finding(part, situation, model, seeds, runs))
    result = _with_earlier_parts(
        Study(findings=findings, config=settings.model_dump(mode="json")), folder / "study.json"
    )
    results_file.write(result, folder / "study.json")
    text = "\n\n".join(table.to_markdown() for table in tables(result))
    write_text(folder / "study.md", text + "\n")
    return result


def _with_earlier_parts(new: Study, path: Path) -> Study:
    """Add the findings of other parts that the file holds, if they were made with the same settings."""
    try:
        earlier = Study.model_validate_json(path.read_text("utf-8"))
    except (OSError, ValueError):
        return new
    if earlier.config != new.config:
        return new
    parts = {finding.part for finding in new.findings}
    findings = [*(finding for finding in earlier.findings if finding.part not in parts), *new.findings]
    return Study(findings=sorted(findings, key=lambda finding: PARTS.index(finding.part)), config=new.config)


def _finding(part: str, situation: str, model: str, seeds: Sequence[int], runs: Sequence[ModelEvaluation]) -> Finding:
    scores = [run.results for run in runs]

    def coverage(keys: Sequence[str]) -> list[float]:
        return [float(np.mean([score.coverage.by_output[key] for key in keys])) for score in scores]  # type: ignore[index]

    tolerances = [run.tolerances.model_dump() if run.tolerances else {} for run in runs]
    return Finding(
        part=part,
        situation=situation,
        model=model,
        seeds=list(seeds),
        mse_true=[score.mse_true.overall for score in scores],
        mse_true_voltages=[score.mse_true_voltages for score in scores],
        mse_true_heats=[score.mse_true_heats for score in scores],
        crps=[score.crps.overall for score in scores],
        joint_nll=[score.joint_nll for score in scores],
        coverage_voltages=coverage(VOLTAGES),
        coverage_heats=coverage(HEATS),
        interval_width=[score.interval_width.overall for score in scores],
        violation_of_draws=[score.violation_of_draws.overall_relative.mean for score in scores],
        tol_std=[{name: entry["tol_std"] for name, entry in one.items()} for one in tolerances],
        informed=[{name: bool(entry["informed"]) for name, entry in one.items()} for one in tolerances],
    )


TITLES = {
    "ablation": "From the paper's model to ours, one step at a time",
    "rows": "Fewer training rows, the same test rows",
    "discharges": "Whole discharges left out of training, and tested on",
    "seeds": "Many seeds of noise, split and training",
}
COLUMNS = {
    "MSE (truth)": "mse_true",
    "voltages": "mse_true_voltages",
    "heats": "mse_true_heats",
    "CRPS": "crps",
    "joint NLL": "joint_nll",
    "coverage V": "coverage_voltages",
    "coverage Q": "coverage_heats",
    "width": "interval_width",
    "violation of draws": "violation_of_draws",
}


def tables(study: Study) -> list[report.Table]:
    """Tabulate each part by situation and model; with several seeds as mean ± standard error."""
    result = []
    for part in dict.fromkeys(finding.part for finding in study.findings):
        lines = [finding for finding in study.findings if finding.part == part]
        rows = [[f.situation, LABELS[f.model], *(_cell(getattr(f, name)) for name in COLUMNS.values())] for f in lines]
        seeds = len(lines[0].seeds)
        caption = f"{TITLES[part]} ({seeds} seed{'s' if seeds > 1 else ''}). Everything but the NLL is normalised."
        numeric = list(range(2, 2 + len(COLUMNS)))
        result.append(report.Table(caption, ["rows", "model", *COLUMNS], rows, numeric=numeric))
    return result


def _cell(values: Sequence[float]) -> str:
    if len(values) == 1:
        return report.number(values[0])
    return report.plus_minus(float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values))))
