"""Numbers over the seeds of the study: their means and errors, and which differences count.

With several seeds, a difference counts when 0 is outside the 95 % confidence interval of its mean over the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import scipy.stats

from equipoise.app.report import plus_minus
from studies.battery.results import Estimate, Results

Run = TypeVar("Run")
Runs = Sequence[Results]

CONFIDENCE = 0.95


def over_seeds(runs: Sequence[Run], of: Callable[[Run], float]) -> Estimate:
    """Mean and standard error of a number over runs, or over parts of them."""
    return Estimate.of([float(of(run)) for run in runs])


def seeds_in_words(runs: Runs) -> str:
    """How many runs there are.

    Example:
        >>> seeds_in_words([])
        '0 seeds'
    """
    return "1 seed" if len(runs) == 1 else f"{len(runs)} seeds"


def is_below(runs: Runs, of: Callable[[Results], float]) -> bool:
    """Whether a difference between two models is negative beyond noise; with a single seed, negative at all."""
    difference = over_seeds(runs, of)
    return difference.mean + margin(runs, difference) < 0


def margin(runs: Runs, estimate: Estimate) -> float:
    """Half the confidence interval of a mean over seeds, by Student's t; none with a single seed."""
    if math.isnan(estimate.standard_error):
        return 0.0
    return float(scipy.stats.t.ppf(0.5 + 0.5 * CONFIDENCE, len(runs) - 1)) * estimate.standard_error


def shown(estimate: Estimate) -> str:
    """A mean with its standard error, if it has one.

    Example:
        >>> shown(Estimate.of([1.0, 2.0, 6.0]))
        '3.0 ± 1.5'
    """
    return plus_minus(estimate.mean, estimate.standard_error)
