"""The committed settings of fits to the battery table."""

import pytest
from pydantic import ValidationError

from equipoise.rivals.cases.battery.settings import Settings
from equipoise.training.plan import TrainingPlan


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


def test_a_misspelt_setting_is_named():
    with pytest.raises(ValidationError, match="n_drawz"):
        Settings(hidden=(4,), n_draws=8, violation_draws=8, n_drawz=3)


def test_the_seed_is_that_of_noise_and_split():
    assert Settings.named("full").data_of(7).seed == 7
