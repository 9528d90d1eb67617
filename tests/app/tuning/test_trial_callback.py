"""The callback of a trial: when it reports, when it prunes the trial, when the time is up."""

import contextlib
import math

import pytest

from equipoise.app.tuning.trial_callback import PrunedError, TimeUpError, TrialCallback
from equipoise.training.plan import TrainingPlan


class Doomed:
    """A trial that is pruned as soon as it asks."""

    def __init__(self):
        self.steps = []

    def report(self, value, step):
        self.steps.append(step)

    def should_prune(self):
        return True


@pytest.mark.parametrize(
    ("kl_warmup", "steps"),
    [
        (0.1, [20, 30, 40, 50, 60, 70, 80]),  # from the end of the warm-up to two thirds of 120
        (0.5, [70, 80]),
        (0.9, [110]),
        (1.0, [130, 140, 150]),  # nothing is left of the phase: the trial runs to its end
    ],
)
def test_trials_are_compared_after_warm_up_and_given_up_in_the_last_third_of_the_elbo_phase(kl_warmup, steps):
    plan = TrainingPlan(max_epochs=300, mean_epochs=150, noise_epochs=30, kl_warmup=kl_warmup)
    callback = TrialCallback(trial := Doomed(), plan, math.inf, lambda epoch: None)
    phases = ["means"] * 150 + ["elbo"] * 120 + ["noise"] * 30
    with contextlib.suppress(PrunedError):
        for phase in phases:
            callback({"phase": phase, "validation": 1.0})
    assert trial.steps == steps
    assert callback.epochs == 150 + steps[-1]


def test_a_trial_whose_time_is_up_ends_at_the_next_epoch():
    callback = TrialCallback(Doomed(), TrainingPlan(), deadline=0.0, show=lambda epoch: None)
    with pytest.raises(TimeUpError):
        callback({"phase": "means", "validation": 1.0})
    assert callback.epochs == 0


def test_epochs_are_shown_every_now_and_then():
    shown = []
    callback = TrialCallback(Doomed(), TrainingPlan(), math.inf, shown.append)
    for _ in range(25):
        callback({"phase": "means", "validation": 1.0})
    assert shown == [10, 20]
    assert callback.epochs == 25
