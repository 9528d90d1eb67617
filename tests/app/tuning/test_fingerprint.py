"""What makes two studies the same: everything that a trial's value depends on, and nothing else."""

import numpy as np
import pandas as pd
import pytest
from outside import ComponentBalance, SquaredTarget
from small_search import HELD_OUT, RATES, X, Y, small

from equipoise.app.tuning import Uniform
from equipoise.app.tuning.fingerprint import fingerprint
from equipoise.balances.linear import LinearConstraint
from equipoise.training.plan import TrainingPlan

STUDY = {"estimator": small(), "X": X, "Y": Y, "space": RATES, "held_out": HELD_OUT}
BALANCE = LinearConstraint([[1.0, -1.0]])


@pytest.mark.parametrize(
    "other",
    [
        {"X": X + 1e-9},
        {"Y": Y + 1e-9},
        {"Y": pd.DataFrame(Y, columns=["a", "b"])},
        {"held_out": HELD_OUT[1:]},
        {"space": RATES | {"std_rate": Uniform(1.0, 3.0)}},
        {"estimator": small(prior_std=0.5)},
        {"estimator": small(constraint=BALANCE)},
        {"estimator": small(sensor_std={"y0": 0.1})},
        {"estimator": small(sensor_std=np.full(Y.shape, 0.1))},
    ],
)
def test_what_a_trial_depends_on_makes_another_study(other):
    assert fingerprint(**(STUDY | other)) != fingerprint(**STUDY)


def test_a_plan_that_is_not_given_counts_as_the_one_that_is_followed(monkeypatch):
    estimator = small(training=None)
    of_today = fingerprint(**(STUDY | {"estimator": estimator}))
    assert fingerprint(**(STUDY | {"estimator": small(training=TrainingPlan())})) == of_today
    monkeypatch.setattr(type(estimator), "_plan", lambda self: TrainingPlan(temperature=1.0))
    assert fingerprint(**(STUDY | {"estimator": estimator})) != of_today  # other defaults, another study


def test_two_balances_that_look_alike_are_told_apart():
    near = LinearConstraint([[1.0, -1.0 - 1e-15]], names=BALANCE.names)
    first, other = (fingerprint(**(STUDY | {"estimator": small(constraint=c)})) for c in (BALANCE, near))
    assert first != other


def test_balances_of_another_kind_are_told_apart_by_their_settings_and_arrays():
    equalities = [ComponentBalance(), ComponentBalance(mass=False), SquaredTarget([1.0]), SquaredTarget([1.0 + 1e-15])]
    studies = {fingerprint(**(STUDY | {"estimator": small(constraint=equality)})) for equality in equalities}
    again = fingerprint(**(STUDY | {"estimator": small(constraint=ComponentBalance())}))
    assert len(studies) == 4
    assert again in studies


def test_long_arrays_are_told_apart_by_every_number():
    std = np.full(Y.shape, 0.1)
    changed = std.copy()
    changed[40, 1] += 1e-12  # in the middle, which numpy does not print
    first, other = (fingerprint(**(STUDY | {"estimator": small(sensor_std=s)})) for s in (std, changed))
    assert first != other


@pytest.mark.parametrize(
    "same", [{"estimator": small(device="cpu")}, {"held_out": HELD_OUT[::-1]}, {"X": X.tolist(), "Y": Y.tolist()}]
)
def test_where_it_runs_and_how_rows_are_written_do_not_matter(same):
    assert fingerprint(**(STUDY | same)) == fingerprint(**STUDY)


def test_the_value_of_a_parameter_that_is_tuned_does_not_matter():
    space = {"prior_std": Uniform(0.1, 1.0)}
    first, other = (
        fingerprint(**(STUDY | {"space": space, "estimator": small(prior_std=value)})) for value in (0.5, 0.6)
    )
    assert first == other
