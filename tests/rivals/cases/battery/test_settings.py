"""The committed settings of fits to the battery table."""

import pytest

import equipoise as eq
from equipoise.rivals.cases.battery import ConfigError
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
    with pytest.raises(ConfigError, match="n_drawz"):
        Settings(hidden=(4,), n_draws=8, violation_draws=8, n_drawz=3)


def test_the_seed_is_that_of_noise_and_split():
    assert Settings.named("full").data_of(7).seed == 7


def test_settings_that_cannot_be_used_are_refused_by_errors_of_the_library():
    with pytest.raises(eq.EquipoiseError, match="name must be one of 'full', 'small', but got 'tiny'"):
        Settings.named("tiny")
    with pytest.raises(eq.EquipoiseError, match=r"contact_resistance of CellConfig must be valid, but got -1 \("):
        Settings.named("small").with_cell(contact_resistance=-1)
    with pytest.raises(eq.EquipoiseError, match=r"^soc_start of CellConfig must be valid, but got 2 \([^)]*\)\.$"):
        eq.battery.DataConfig(cell={"soc_start": 2})
    with pytest.raises(eq.EquipoiseError, match=r"^split must add up to 1"):
        eq.battery.DataConfig(split=(0.5, 0.5, 0.5))


def test_other_fields_of_the_cell_leave_the_rest_as_it_was():
    small = Settings.named("small")
    changed = small.with_cell(contact_resistance=0.0)
    assert changed.data.cell.contact_resistance == 0
    assert changed.with_cell(contact_resistance=small.data.cell.contact_resistance) == small
