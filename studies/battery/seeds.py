"""Numbers over the seeds of the study: means, standard errors, and which differences are significant.

With several seeds, a difference is significant if 0 is outside the 95 % confidence interval of its mean over the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import scipy.stats

from equipoise import report
from studies.battery.results import Estimate, Results

Run = TypeVar("Run")
Runs = Sequence[Results]

CONFIDENCE = 0.95


def over_seeds(runs: Sequence[Run], number: Callable[[Run], float]) -> Estimate:
    """Compute mean and standard error of a number over runs, or over parts of them.

    Args:
        runs: Runs with different seeds.
        number: Returns the number of a run.
    """
    return Estimate.of([float(number(run)) for run in runs])


def seeds_in_words(runs: Runs) -> str:
    """Count the runs in words.

    Example:
        >>> seeds_in_words([])
        '0 seeds'
    """
    return "1 seed" if len(runs) == 1 else f"{len(runs)} seeds"


def is_below(runs: Runs, number: Callable[[Results], float]) -> bool:
    """Tell whether a difference between two models is significantly negative; with a single seed, whether negative.

    Args:
        runs: Results, one for each seed.
        number: Computes the difference from the results of a run.
    """
    difference = over_seeds(runs, number)
    return difference.mean + margin(runs, difference) < 0


def margin(runs: Runs, estimate: Estimate) -> float:
    """Compute half the width of the confidence interval of a mean, by Student's t; 0 with a single seed.

    Args:
        runs: Results, one for each seed.
        estimate: Mean over the seeds and its standard error.
    """
    if math.isnan(estimate.standard_error):
        return 0.0
    return float(scipy.stats.t.ppf(0.5 + 0.5 * CONFIDENCE, len(runs) - 1)) * estimate.standard_error


def text(estimate: Estimate) -> str:
    """Format a mean with its standard error, if it has one.

    Example:
        >>> text(Estimate.of([1.0, 2.0, 6.0]))
        '3.0 ± 1.5'
    """
    return report.plus_minus(estimate.mean, estimate.standard_error)
