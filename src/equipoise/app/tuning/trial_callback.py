"""The callback of a trial: it reports epochs to Optuna, prunes the trial if it is poor, and ends it at the deadline.

A trial that does worse than the median of the earlier ones is pruned, but only in the last third of the ELBO phase.
Training's first phase measures another quantity; the warm-up of the KL would favour trials that prolong it; and after
that small learning rates look better than they are, because the others gain most as their rate falls.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from equipoise.training import TrainingPlan

REPORT_EVERY = 10  # epochs
PRUNE_AFTER = 2 / 3  # of the ELBO phase

Trial = Any  # Optuna is imported when it is needed


class TimeUpError(Exception):
    """A trial was interrupted by the time limit."""


class PrunedError(Exception):
    """A trial was pruned because it did worse than earlier ones."""


class TrialCallback:
    """A callback of `fit` that reports a trial's epochs, prunes the trial if it is poor, and ends it at the deadline.

    Args:
        trial: Optuna's trial.
        plan: The training plan of the trial.
        deadline: Time at which the trial ends, in seconds of `time.monotonic`.
        show: Function that is called with the number of epochs, every ten epochs.
    Attributes:
        epochs: Number of epochs so far.
        value: The value of the trial, which the caller sets after the fit; NaN before.
    """

    def __init__(self, trial: Trial, plan: TrainingPlan, deadline: float, show: Callable[[int], object]):
        self.trial, self.deadline, self.show = trial, deadline, show
        n_elbo = plan.epochs_of("elbo")
        self.warmup, self.prune_after = plan.kl_warmup * n_elbo, PRUNE_AFTER * n_elbo
        self.epochs, self.value = 0, math.nan
        self._comparable = 0  # epochs after the first phase

    def __call__(self, record: dict) -> None:
        if time.monotonic() >= self.deadline:
            raise TimeUpError
        self.epochs += 1
        if self.epochs % REPORT_EVERY == 0:
            self.show(self.epochs)
        if record["phase"] == "means":
            return
        self._comparable += 1
        if self._comparable <= self.warmup or self._comparable % REPORT_EVERY:
            return
        self.trial.report(record["validation"], self._comparable)
        late = self._comparable >= self.prune_after and record["phase"] == "elbo"
        if late and self.trial.should_prune():
            raise PrunedError
