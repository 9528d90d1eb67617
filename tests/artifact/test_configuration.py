"""Parameters of an estimator described and parsed: what comes back is what was given."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import equipoise as eq
from equipoise.artifact.configuration import describe_configuration, parse_configuration, parse_plan
from equipoise.artifact.header import Configuration

MODELS = Path(__file__).parents[1] / "models"


def round_trip(**parameters) -> dict:
    """Parameters through the JSON of a header."""
    described = describe_configuration(eq.ConstrainedBNNRegressor(**parameters))
    return parse_configuration(Configuration.model_validate_json(described.model_dump_json()))


def test_a_new_parameter_needs_a_place_in_the_file():
    kept = eq.ConstrainedBNNRegressor().get_params().keys() - {"device", "checkpoint", "verbose"}
    assert kept == set(Configuration.model_fields) | {"constraint"}


def test_defaults_come_back():
    defaults = eq.ConstrainedBNNRegressor().get_params()
    assert round_trip() == {name: defaults[name] for name in Configuration.model_fields}


@pytest.mark.parametrize(
    "tolerance", [None, 0.0, 0.3, eq.TolerancePrior.paper(), {"a": 0.0, "b": eq.TolerancePrior(-5.0, 2.0), "c": None}]
)
def test_tolerances_come_back(tolerance):
    assert round_trip(tolerance=tolerance)["tolerance"] == tolerance


def test_settings_of_sensors_come_back():
    assert round_trip(sensor_std={"a": 0.1, "b": "learn"})["sensor_std"] == {"a": 0.1, "b": "learn"}
    assert round_trip(sensor_std=pd.Series({"a": 0.1, "b": 0.2}))["sensor_std"] == {"a": 0.1, "b": 0.2}
    np.testing.assert_array_equal(round_trip(sensor_std=[0.1, 0.2])["sensor_std"], [0.1, 0.2])
    assert round_trip(sensor_std=np.ones((4, 2)))["sensor_std"] == "given per row, shape (4, 2)"


def test_the_start_comes_back_and_was_from_residuals_in_older_files():
    assert round_trip(start="prior")["start"] == "prior"
    assert eq.load(MODELS / "format_1.safetensors").start == "residuals"


def test_only_a_seed_that_is_a_number_comes_back():
    assert round_trip(random_state=np.int64(7))["random_state"] == 7
    assert round_trip(random_state=np.random.RandomState(7))["random_state"] is None


def test_plans_come_back_without_fields_of_other_versions_and_older_ones_had_temperature_1():
    plan = eq.TrainingPlan(max_epochs=7, batch_size=16)
    assert round_trip(training=plan)["training"] == plan
    assert parse_plan({"max_epochs": 7, "colour": "green"}) == eq.TrainingPlan(max_epochs=7, temperature=1.0)


def test_parameters_of_a_file_of_format_1_come_back_as_they_were_given():
    loaded = eq.load(MODELS / "format_1.safetensors")
    assert loaded.tolerance == {"mass": 0.0, "energy": eq.TolerancePrior(-5.0, 2.0)}
    assert loaded.sensor_std == {"duty [kW]": 0.1}
    assert loaded.training == eq.TrainingPlan(
        max_epochs=60, batch_size=32, learning_rate=3e-3, temperature=1.0, validation_draws=2
    )
    assert (loaded.hidden, loaded.activation, loaded.n_draws) == ((8, 6), "tanh", 40)
    assert (loaded.random_state, loaded.max_epochs, loaded.offset) == (3, None, True)
