"""What two numbers of the training plan do on the cases that methods are compared on, whole and with fewer rows.

These are the temperature of the weights' divergence (E2) and the epochs of the first phase, which fits means alone::

    python -m benchmarks.plans                                                # temperatures, as in docs/defaults.md
    python -m benchmarks.plans --temperature 0.5 --mean-epochs 300 100 30     # the first phase; --rows 320 100 for less
"""

import argparse
from collections.abc import Iterable
from dataclasses import replace
from itertools import product

import numpy as np
import torch

from equipoise.app.report import plus_minus
from equipoise.rivals.cases import named_case
from equipoise.rivals.cases.case import Case, Split
from equipoise.rivals.comparison.scoring import score
from equipoise.rivals.methods.catalogue import OURS, Method
from equipoise.rivals.methods.regressor import MethodRegressor
from equipoise.training.plan import TrainingPlan

CASES = ("few", "tank", "flash", "biased")
TEMPERATURES = (1.0, 0.5, 0.3)
COLUMNS = {"rmse_true": "RMSE (truth)", "energy_score": "energy score", "joint_nll": "joint NLL", "coverage": "in 95 %"}


def scores(case: str, seed: int, rows: int = 0, name: str = OURS, **changes) -> list[float]:
    """Of a method on the test rows, with changes to the case's plan, fitted to its first rows (0: to all of them)."""
    chosen, method = named_case(case), Method.named(name)
    split = first_rows(chosen, seed, rows)
    plan = replace(chosen.options.get("training") or TrainingPlan(), **changes)
    options = {**chosen.options, "training": plan, "random_state": seed}
    model = MethodRegressor(chosen.constraint, inference=method.inference, imposition=method.imposition, **options)
    model.fit(split.fit.X, split.fit.Y, held_out=split.held_out)
    found = score(model, chosen, split, 0.0)
    return [found[name] for name in COLUMNS]


def first_rows(case: Case, seed: int, rows: int) -> Split:
    """The case's split with as many rows to fit to, a fifth of which are held out; the test rows stay."""
    whole = case.split(seed)
    if not rows or rows >= len(whole.fit.X):
        return whole
    return Split(whole.fit.take(np.arange(rows)), np.arange(rows - rows // 5, rows), whole.test)


def table(
    cases: Iterable[str], seeds: int, rows: Iterable[int] = (0,), methods: Iterable[str] = (OURS,), **values: Iterable
) -> Iterable[str]:
    """Line by line, mean ± standard error over seeds, for every combination of the plan's values."""
    yield f"| case | rows | method | {' | '.join(values)} | {' | '.join(COLUMNS.values())} |"
    yield f"|---|---:|---|{'---:|' * (len(values) + len(COLUMNS))}"
    for case, n_rows, name, *chosen in product(cases, rows, methods, *values.values()):
        changes = dict(zip(values, chosen, strict=True))
        found = np.array([scores(case, seed, n_rows, name, **changes) for seed in range(seeds)])
        error = found.std(0, ddof=1) / np.sqrt(seeds) if seeds > 1 else np.full(found.shape[1], np.nan)
        cells = [plus_minus(a, b) for a, b in zip(found.mean(0), error, strict=True)]
        given = [f"{value:g}" for value in chosen]
        yield f"| {' | '.join([case, str(n_rows or 'all'), name, *given, *cells])} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=CASES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, nargs="+", default=(0,), help="rows to fit to; 0 is all of them")
    parser.add_argument("--methods", nargs="+", default=(OURS,), help="as `equipoise compare` calls them")
    parser.add_argument("--temperature", type=float, nargs="+", default=TEMPERATURES)
    parser.add_argument("--mean-epochs", type=int, nargs="+", default=(TrainingPlan().mean_epochs,))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    values = {"temperature": chosen.temperature, "mean_epochs": chosen.mean_epochs}
    for line in table(chosen.cases, chosen.seeds, chosen.rows, chosen.methods, **values):
        print(line, flush=True)


if __name__ == "__main__":
    main()
