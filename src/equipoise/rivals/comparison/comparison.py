"""Comparison: every method on every case with every seed, run through joblib, and the files with the results."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError

from equipoise.app.job import TABLE_NAME, Job
from equipoise.data import write_atomically
from equipoise.rivals.cases import Case, CaseError, named_case
from equipoise.rivals.cases.case import CaseTable, MissingResultsError, SameTable
from equipoise.rivals.comparison.scoring import SCORES
from equipoise.rivals.comparison.summary import Line, summarise
from equipoise.rivals.comparison.trial import Trial, TrialResult, keep
from equipoise.rivals.methods.catalogue import IMPOSITIONS, Method, methods_named
from equipoise.training import Task, run_many

TRIALS = "trials"


class CaseFacts(BaseModel):
    """A description of a case for readers of the results."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str
    inputs: int
    outputs: int
    balances: int
    rows_fitted: int
    rows_tested: int


class Comparison(BaseModel):
    """The results of a comparison, which compare.json holds.

    Attributes:
        command: The command that made them.
        versions: Versions of the packages that numbers depend on.
        cases: The cases, in their order.
        trials: The result of every trial.
        lines: Their summary, one line for each case and method.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    command: str = ""
    versions: dict[str, str] = {}
    cases: tuple[CaseFacts, ...] = ()
    trials: tuple[TrialResult, ...] = ()
    lines: tuple[Line, ...] = ()

    @classmethod
    def load(cls, path: str | os.PathLike) -> Comparison:
        """Read compare.json.

        Raises: CaseError, if it is missing (then also a FileNotFoundError) or holds something else.
        """
        try:
            return cls.model_validate_json(Path(path).read_text("utf-8"))
        except OSError as error:
            kind = MissingResultsError if isinstance(error, FileNotFoundError) else CaseError
            raise kind(f"'{path}' must be readable, but got: {error.strerror or error}.") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise CaseError(f"'{path}' must hold a comparison, but got {where!r}: {first['msg']}.") from error

    @classmethod
    def merged(cls, several: Sequence[Comparison]) -> Comparison:
        """Merge comparisons on different cases.

        Raises: CaseError, if they were made with different versions or share a case.
        """
        versions = [", ".join(f"{name} {number}" for name, number in one.versions.items()) for one in several]
        if len(set(versions)) > 1:
            listed = " and ".join(dict.fromkeys(versions))
            raise CaseError(f"Comparisons must be made with the same versions, but got {listed}. Run one again.")
        cases = [case for one in several for case in one.cases]
        if twice := [case.name for i, case in enumerate(cases) if case.name in {c.name for c in cases[:i]}]:
            raise CaseError(f"Merged comparisons must have different cases, but got {twice[0]!r} twice. Leave one out.")
        return cls(
            command="; ".join(one.command for one in several if one.command),
            versions=several[0].versions if several else {},
            cases=tuple(cases),
            trials=tuple(trial for one in several for trial in one.trials),
            lines=tuple(line for one in several for line in one.lines),
        )

    def of_case(self, name: str) -> list[Line]:
        """Return the lines of one case."""
        return [line for line in self.lines if line.case == name]


def compare(
    cases: Any,
    methods: Iterable[str] = ("default",),
    seeds: int | Sequence[int] = 3,
    *,
    folder: str | os.PathLike | None = None,
    n_jobs: int = 1,
    verbose: bool = False,
    command: str = "",
) -> Comparison:
    """Fit every method to the same rows and score them on the same test rows.

    Args:
        cases: One case or a list of them; each is the path of a job file, a `Job`, a `Case`, or the name of a case that
            comes with the package ("tank", "flash", "biased", "hierarchy", "few", "battery").
        methods: Names such as "vi+none" or "ensemble+learned"; "default" stands for the usual ones, "all" for all
            combinations that make sense.
        seeds: Number of seeds, or a list of seeds. All methods share them, so that differences are paired.
        folder: Folder for the results, with which an interrupted run continues; None writes nothing.
        n_jobs: Number of processes, each with one thread; where joblib's backend is a cluster, the cluster decides.
        verbose: Whether to show progress bars.
        command: The command to record in the results.
    Returns: The results of all trials and their summary. A method that cannot be fitted has its reason there.
    Raises: CaseError, if a case does not exist or the folder is a file. MethodError, if a method does not exist.

    Example:
        >>> from equipoise import TrainingPlan
        >>> from dataclasses import replace
        >>> case = as_case("few")
        >>> quick = {"hidden": (8,), "training": TrainingPlan(max_epochs=3, mean_epochs=2, noise_epochs=1)}
        >>> result = compare(replace(case, options=case.options | quick), ["deterministic+projection"], seeds=1)
        >>> [(line.method, line.cells["worst_draw"].mean < 1e-9) for line in result.lines]
        [('deterministic+projection', True)]
    """
    pairs = methods_named([methods] if isinstance(methods, str) else methods)
    seeds = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    folder = None if folder is None else _checked_folder(Path(folder))
    chosen = [as_case(case, folder) for case in (cases if isinstance(cases, list | tuple) else [cases])]
    _check_complete(chosen, pairs, seeds)
    trials = [
        Trial(case, method, seed, None if folder is None else folder / TRIALS)
        for case in chosen
        for method in pairs
        for seed in _seeds_for(method, seeds)
    ]
    if folder is not None:
        _restore_trials(folder)
    facts = tuple(_facts(case, seeds[0]) for case in chosen)  # before the trials, which share what is simulated here
    results = _run_all(trials, n_jobs, verbose)
    versions = {name: version(name) for name in ("equipoise", "torch", "numpy")}
    comparison = Comparison(
        command=command, versions=versions, cases=facts, trials=tuple(results), lines=tuple(summarise(results))
    )
    if folder is not None:
        write_results(comparison, folder)
    return comparison


def as_case(case: Any, folder: str | os.PathLike | None = None) -> Case:
    """Return a `Case` as it is, load one that comes with the package, or make one from a job file and its table.

    Args:
        case: A `Case`, the name of a case, the path of a job file, or a `Job`.
        folder: Folder of the comparison, in which simulations are kept; None to keep nothing.
    Raises: CaseError, if there is no such case. JobError or TableError, if a file cannot be used.
    """
    if isinstance(case, Case):
        return case
    if isinstance(case, str) and not case.endswith(".toml") and not TABLE_NAME.search(case):
        return named_case(case, None if folder is None else Path(folder) / "cache")
    from equipoise.app import tables

    job = case if isinstance(case, Job) else Job.load(case)
    name = Path(job.data).stem if isinstance(case, Job) else Path(case).stem
    job.check_header(tables.header(job.data))
    whole = tables.read(job.data)
    table = tables.complete(whole, job.inputs + job.known, job.data) if job.skip_incomplete else whole
    X, Y = (
        tables.numbers(table, columns, job.data, missing_ok=missing)
        for columns, missing in ((job.x_columns, False), (job.outputs, True))
    )
    rows = CaseTable(pd.DataFrame(X, columns=list(job.x_columns)), pd.DataFrame(Y, columns=list(job.outputs)))
    skipped = f" without {len(whole) - len(table)} incomplete rows" if len(whole) > len(table) else ""
    return Case.from_job(job, SameTable(rows), name, f"the table '{job.data.name}'{skipped}")


def write_results(result: Comparison, folder: Path) -> None:
    """Write compare.json, compare.csv (a line per trial), compare.md and a figure for each case into a folder.

    Args:
        result: All trials of a comparison.
        folder: Folder of the files; made if it does not exist.
    """
    from equipoise.rivals.comparison.document import page
    from equipoise.rivals.comparison.plotting import figure

    folder.mkdir(parents=True, exist_ok=True)
    contents: dict[str, Callable[[], bytes]] = {
        "compare.csv": lambda: _csv(result).encode(),
        "compare.md": lambda: page(result).encode(),
    }
    contents |= {f"{case.name}.svg": lambda case=case: figure(result, case.name).encode() for case in result.cases}
    contents["compare.json"] = lambda: result.model_dump_json(indent=1).encode()
    for name, content in contents.items():
        write_atomically(folder / name, lambda file, content=content: file.write(content()))


def _run_all(trials: list[Trial], n_jobs: int, verbose: bool) -> list[TrialResult]:
    """Run trials and return their results in the same order; each is written as soon as it is there."""
    named: dict[str, Task] = {f"{trial.case.name}: {trial.method.name}, seed {trial.seed}": trial for trial in trials}
    return list(run_many(named, n_jobs, verbose).values())


def _restore_trials(folder: Path) -> None:
    """Write the trials that only compare.json holds to their own files, so that a run can continue from that file."""
    with suppress(CaseError):  # there is none yet, or it will be written anew
        for result in Comparison.load(folder / "compare.json").trials:
            keep(result, folder / TRIALS, overwrite=False)


def _seeds_for(method: Method, seeds: list[int]) -> list[int]:
    """Restrict methods that call a solver in every training step to the first seed."""
    return seeds[:1] if IMPOSITIONS[method.imposition].mechanism == "qp" else seeds


def _checked_folder(folder: Path) -> Path:
    """Raise for a file now, not after hours of fits."""
    if folder.exists() and not folder.is_dir():
        raise CaseError(f"Results must go into a folder, but got the file '{folder}'. Give another name.")
    return folder


def _check_complete(cases: list[Case], methods: Sequence[Method], seeds: list[int]) -> None:
    counts = f"{len(cases)} cases, {len(methods)} methods and {len(seeds)} seeds"
    if not (cases and methods and seeds):
        raise CaseError(f"A comparison must have a case, a method and a seed at least, but got {counts}.")
    names = [case.name for case in cases]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise CaseError(f"Cases must have different names, but got {twice!r} twice. Rename one of the job files.")


def _facts(case: Case, seed: int) -> CaseFacts:
    split, constraint = case.split(seed), case.constraint
    return CaseFacts(
        name=case.name,
        title=case.title,
        inputs=constraint.n_inputs,
        outputs=constraint.n_outputs,
        balances=constraint.n_balances,
        rows_fitted=len(split.fit.X),
        rows_tested=len(split.test.X),
    )


def _csv(result: Comparison) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["case", "method", "seed", *SCORES, "failure"])
    for t in result.trials:
        writer.writerow([t.case, t.method, t.seed, *(t.scores.get(name, "") for name in SCORES), t.failure])
    return text.getvalue()
