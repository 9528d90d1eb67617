"""What the temperature of the weights' divergence (E2) does on the cases that methods are compared on.

python -m benchmarks.temperature        # prints the table in docs/defaults.md
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch

from equipoise.cases import named_case
from equipoise.comparison.scoring import score
from equipoise.methods.catalogue import OURS, Method
from equipoise.methods.regressor import MethodRegressor
from equipoise.plan import TrainingPlan
from equipoise.report import plus_minus

CASES = ("few", "tank", "flash", "biased")
TEMPERATURES = (1.0, 0.5, 0.3)
COLUMNS = {"rmse_true": "RMSE (truth)", "energy_score": "energy score", "joint_nll": "joint NLL", "coverage": "in 95 %"}


def scores(case: str, temperature: float, seed: int, **changes) -> list[float]:
    """Of our method on the test rows."""
    chosen, method = named_case(case), Method.named(OURS)
    plan = replace(chosen.options.get("training") or TrainingPlan(), temperature=temperature, **changes)
    split, options = chosen.split(seed), {**chosen.options, "training": plan, "random_state": seed}
    pair = {"inference": method.inference, "imposition": method.imposition}
    model = MethodRegressor(chosen.constraint, **pair, **options)
    model.fit(split.fit.X, split.fit.Y, held_out=split.held_out)
    found = score(model, chosen, split, 0.0)
    return [found[name] for name in COLUMNS]


def table(cases: Iterable[str], temperatures: Sequence[float], seeds: int, **changes) -> Iterable[str]:
    """Line by line, mean ± standard error over seeds."""
    yield f"| case | T | {' | '.join(COLUMNS.values())} |"
    yield f"|---|---:|{'---:|' * len(COLUMNS)}"
    for case in cases:
        for temperature in temperatures:
            found = np.array([scores(case, temperature, seed, **changes) for seed in range(seeds)])
            error = found.std(0, ddof=1) / np.sqrt(seeds) if seeds > 1 else np.full(found.shape[1], np.nan)
            cells = [plus_minus(a, b) for a, b in zip(found.mean(0), error, strict=True)]
            yield f"| {case} | {temperature:g} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cases", nargs="+", default=CASES)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for line in table(chosen.cases, TEMPERATURES, chosen.seeds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
