"""The committed settings of the battery study, and the models that it compares."""

import dataclasses

import pytest
from pydantic import ValidationError

from equipoise.battery.settings import LABELS, MODELS, Settings
from equipoise.plan import TrainingPlan
from equipoise.tolerance import TolerancePrior


@pytest.mark.parametrize("name", ["full", "small"])
def test_committed_settings_are_valid_plans(name):
    settings = Settings.named(name)
    plan = settings.plan()
    assert isinstance(plan, TrainingPlan)
    assert sum(plan.epochs_of(phase) for phase in ("means", "elbo", "noise")) == plan.max_epochs


def test_the_full_study_is_that_of_the_paper():
    settings = Settings.named("full")
    cell = settings.data.cell
    assert len(cell.currents) * len(cell.temperatures) * cell.soc_points == 21_000
    assert settings.violation_draws == 10_000


def test_the_recipe_of_the_study_is_the_librarys_default_but_for_two_rates_and_the_temperature():
    plan = Settings.named("full").plan()
    assert plan == TrainingPlan(tolerance_rate=plan.tolerance_rate, learning_rate=plan.learning_rate, temperature=1.0)


def test_the_papers_model_is_as_in_the_paper():
    estimator = Settings.named("full").estimator("paper", seed=3)
    assert estimator.likelihood == "marginal"
    assert estimator.tolerance == TolerancePrior(-2.0, 1.0, relative=False)
    assert estimator.prior_std == 1.0
    assert estimator.sensor_std is None
    assert estimator.random_state == 3
    assert estimator.constraint.names == ("voltage", "heat")


def test_the_baseline_has_no_balances_and_all_else_in_common():
    settings = Settings.named("full")
    plain, ours = settings.estimator("bnn", 1), settings.estimator("equipoise", 1)
    assert plain.constraint is None
    assert ours.likelihood == "joint"
    assert ours.sensor_std == "learn"
    for name in ("hidden", "activation", "prior_std", "random_state"):
        assert getattr(plain, name) == getattr(ours, name)
    assert (
        dataclasses.replace(ours.training, temperature=1.0) == plain.training == settings.estimator("paper", 1).training
    )
    assert ours.training.temperature == TrainingPlan().temperature < 1


def test_every_model_has_a_label():
    assert list(LABELS) == list(MODELS)


def test_a_misspelt_setting_is_named():
    with pytest.raises(ValidationError, match="n_drawz"):
        Settings(hidden=(4,), n_draws=8, violation_draws=8, n_drawz=3)


def test_the_seed_is_that_of_noise_and_split():
    assert Settings.named("full").data_of(7).seed == 7
