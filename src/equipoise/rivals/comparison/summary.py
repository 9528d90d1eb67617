"""Summary of trials: means over seeds, paired differences to our method, and which methods are near the best."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

from equipoise.rivals.comparison.scoring import LOWER_IS_BETTER, SCORES
from equipoise.rivals.comparison.trial import TrialResult, is_number
from equipoise.rivals.methods.catalogue import OURS

NOISE = 2.0  # standard errors of a paired difference


class ScoreCell(BaseModel):
    """One score of one method on one case.

    Attributes:
        mean, se: Mean and standard error over seeds; the error of one seed is NaN.
        n: Number of seeds that have the score.
        to_ours, to_ours_se: Mean difference to our method over shared seeds, positive if this method's score is larger,
            and its standard error.
        best: Whether it has the lowest mean of a score that is better when lower.
        near_best: Whether its mean difference to the best is within two standard errors.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    mean: float
    se: float
    n: int
    to_ours: float
    to_ours_se: float
    best: bool = False
    near_best: bool = False


class Line(BaseModel):
    """All scores of one method on one case.

    Attributes:
        case, method: Names.
        cells: The scores by name.
        failures: Reasons why trials have no scores, each once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    case: str
    method: str
    cells: dict[str, ScoreCell]
    failures: tuple[str, ...] = ()


def summarise(trials: Sequence[TrialResult]) -> list[Line]:
    """Summarise trials in one line for each case and method, in the order in which they first appear."""
    groups: dict[tuple[str, str], list[TrialResult]] = {}
    for trial in trials:
        groups.setdefault((trial.case, trial.method), []).append(trial)
    return [_line(case, method, groups) for case, method in groups]


def _line(case: str, method: str, groups: dict[tuple[str, str], list[TrialResult]]) -> Line:
    of_case = {name: trials for (where, name), trials in groups.items() if where == case}
    cells = {score: _cell(score, method, of_case) for score in SCORES}
    failures = tuple(dict.fromkeys(trial.failure for trial in groups[case, method] if trial.failure))
    return Line(case=case, method=method, cells=cells, failures=failures)


def _cell(score: str, method: str, of_case: dict[str, list[TrialResult]]) -> ScoreCell:
    values = {name: _by_seed(score, trials) for name, trials in of_case.items()}
    own = values[method]
    mean, se = mean_and_se(list(own.values()))
    to_ours, to_ours_se = paired(own, values.get(OURS, {}))
    best, near = False, False
    if score in LOWER_IS_BETTER and own:
        champion = _champion(values)
        best = method == champion
        gap, gap_se = paired(own, values[champion])
        near = best or (is_number(gap_se) and gap <= NOISE * gap_se)
    return ScoreCell(mean=mean, se=se, n=len(own), to_ours=to_ours, to_ours_se=to_ours_se, best=best, near_best=near)


def _champion(values: dict[str, dict[int, float]]) -> str:
    """Find the method with the lowest mean among those with the most seeds."""
    most = max(len(by_seed) for by_seed in values.values())
    complete = {name: np.mean(list(by_seed.values())) for name, by_seed in values.items() if len(by_seed) == most}
    return min(complete, key=complete.__getitem__)


def _by_seed(score: str, trials: list[TrialResult]) -> dict[int, float]:
    return {trial.seed: trial.scores[score] for trial in trials if is_number(trial.scores.get(score))}


def paired(one: dict[int, float], other: dict[int, float]) -> tuple[float, float]:
    """Compute the mean of `one − other` over the seeds that both have, and its standard error.

    Args:
        one, other: Scores of two methods by seed.
    Example:
        >>> paired({0: 1.0, 1: 3.0, 2: 9.0}, {0: 0.0, 1: 0.0})
        (2.0, 1.0)
    """
    return mean_and_se([one[seed] - other[seed] for seed in one if seed in other])


def mean_and_se(values: Sequence[float]) -> tuple[float, float]:
    """Compute the mean and its standard error; NaN without values, and for the error of a single one."""
    n = len(values)
    mean = float(np.mean(values)) if n else math.nan
    return mean, float(np.std(values, ddof=1) / math.sqrt(n)) if n > 1 else math.nan
