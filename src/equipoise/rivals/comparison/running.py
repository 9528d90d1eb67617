"""`compare`: every method on every case with every seed, through joblib, and the files that tell of it."""

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
from equipoise.rivals.cases.case import SameTable, Table
from equipoise.rivals.comparison.scoring import SCORES
from equipoise.rivals.comparison.summary import Line, summarise
from equipoise.rivals.comparison.trial import Trial, TrialResult, keep
from equipoise.rivals.methods.catalogue import IMPOSITIONS, Method, methods_named
from equipoise.training import Task, run_many

TRIALS = "trials"


class CaseFacts(BaseModel):
    """What a reader of the results wants to know of a case."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str
    inputs: int
    outputs: int
    balances: int
    rows_fitted: int
    rows_tested: int


class Comparison(BaseModel):
    """The content of compare.json.

    Attributes:
        command: What made it.
        versions: Of what numbers depend on.
        cases: In their order.
        trials: Every single result.
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
        """Read compare.json."""
        try:
            return cls.model_validate_json(Path(path).read_text("utf-8"))
        except OSError as error:
            raise CaseError(f"'{path}' must be readable, but got: {error.strerror or error}.") from error
        except ValidationError as error:
            found = error.errors()[0]
            where = ".".join(map(str, found["loc"]))
            raise CaseError(f"'{path}' must hold a comparison, but got {where!r}: {found['msg']}.") from error

    @classmethod
    def merged(cls, several: Sequence[Comparison]) -> Comparison:
        """Comparisons on different cases as one."""
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
        """The lines of one case."""
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
        cases: One or several of: a job file, a `Case`, or the name of a case that comes with the package.
        methods: Names such as "vi+none" or "ensemble+learned"; "default" for the usual ones, "all" for all pairs.
        seeds: How many, or which; all methods share them, so that differences are paired.
        folder: Where everything is written, and from where a run that was cut short goes on; None writes nothing.
        n_jobs: Processes, each with one thread; a joblib backend for a cluster decides for itself (`task_pool.py`).
        verbose: Show progress.
        command: What to note as the origin.
    """
    picked = methods_named([methods] if isinstance(methods, str) else methods)
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    place = None if folder is None else _usable(Path(folder))
    chosen = [as_case(case, folder) for case in _several(cases)]
    _check_some(chosen, picked, numbers)
    trials = [
        Trial(case, method, seed, None if place is None else place / TRIALS)
        for case in chosen
        for method in picked
        for seed in _seeds_of(method, numbers)
    ]
    if place is not None:
        _unpack(place)
    facts = tuple(_facts(case, numbers[0]) for case in chosen)  # first: what is simulated is then there for all
    found = _run_all(trials, n_jobs, verbose)
    versions = {name: version(name) for name in ("equipoise", "torch", "numpy")}
    result = Comparison(
        command=command, versions=versions, cases=facts, trials=tuple(found), lines=tuple(summarise(found))
    )
    if place is not None:
        write_results(result, place)
    return result


def as_case(case: Any, folder: str | os.PathLike | None = None) -> Case:
    """A case as it is, by the name of one that comes with the package, or from a job file and its table."""
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
    rows = Table(pd.DataFrame(X, columns=list(job.x_columns)), pd.DataFrame(Y, columns=list(job.outputs)))
    less = f" without {len(whole) - len(table)} incomplete rows" if len(whole) > len(table) else ""
    return Case.of_job(job, SameTable(rows), name, f"the table '{job.data.name}'{less}")


def write_results(result: Comparison, folder: Path) -> None:
    """Write compare.json, compare.csv (a line per trial), compare.md and a figure for each case."""
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
    """Results in the order of the trials; each is on disk as soon as it is there."""
    named: dict[str, Task] = {f"{trial.case.name}: {trial.method.name}, seed {trial.seed}": trial for trial in trials}
    return list(run_many(named, n_jobs, verbose).values())


def _unpack(folder: Path) -> None:
    """Put what only compare.json holds where trials look for it: a copy of that file is enough to go on from."""
    with suppress(CaseError):  # none yet, or one that will be written anew
        for result in Comparison.load(folder / "compare.json").trials:
            keep(result, folder / TRIALS, anew=False)


def _seeds_of(method: Method, seeds: list[int]) -> list[int]:
    """One seed for what needs a solver in every step."""
    return seeds[:1] if IMPOSITIONS[method.imposition].way == "qp" else seeds


def _usable(folder: Path) -> Path:
    """Raise now, not after hours of fits."""
    if folder.exists() and not folder.is_dir():
        raise CaseError(f"Results must go into a folder, but got the file '{folder}'. Give another name.")
    return folder


def _check_some(cases: list[Case], methods: Sequence[Method], seeds: list[int]) -> None:
    counts = f"{len(cases)} cases, {len(methods)} methods and {len(seeds)} seeds"
    if not (cases and methods and seeds):
        raise CaseError(f"A comparison must have a case, a method and a seed at least, but got {counts}.")
    names = [case.name for case in cases]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise CaseError(f"Cases must have different names, but got {twice!r} twice. Rename one of the job files.")


def _several(cases: Any) -> list[Any]:
    return list(cases) if isinstance(cases, list | tuple) else [cases]


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
