"""Options of a job: the defaults are the library's, and the words for tolerances mean what they say."""

import dataclasses
import inspect
import math

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from scipy import stats

from equipoise.app.job.options import LearnedTolerance, ModelOptions, Sensor, Tolerance
from equipoise.estimator import ConstrainedBNNRegressor
from equipoise.gaussian.tolerance import TolerancePrior
from equipoise.network.likelihood import LIKELIHOODS
from equipoise.network.mlp import ACTIVATIONS
from equipoise.training.phases import STARTS
from equipoise.training.plan import TrainingPlan

ESTIMATOR = {name: p.default for name, p in inspect.signature(ConstrainedBNNRegressor).parameters.items()}
SAID_ELSEWHERE = {"constraint", "sensor_std", "tolerance", "training", "random_state", "checkpoint", "verbose"}


def test_every_option_of_the_training_plan_has_its_default():
    ours = {name: getattr(ModelOptions(), name) for name in TrainingPlan.__dataclass_fields__}
    assert ours == dataclasses.asdict(TrainingPlan())


def test_every_option_of_the_estimator_has_its_default():
    names = set(ESTIMATOR) - SAID_ELSEWHERE - {"max_epochs"}  # None there: the training plan's
    assert {name: getattr(ModelOptions(), name) for name in names} == {name: ESTIMATOR[name] for name in names}
    assert set(ModelOptions.model_fields) == names | {"seed"} | set(TrainingPlan.__dataclass_fields__)


def test_every_option_has_a_line_of_help():
    described = {name: field.description or "" for name, field in ModelOptions.model_fields.items()}
    assert [name for name, text in described.items() if not 10 < len(text) < 80 or "\n" in text] == []


@pytest.mark.parametrize(
    ("option", "choices"), [("likelihood", LIKELIHOODS), ("activation", ACTIVATIONS), ("start", STARTS)]
)
def test_the_choices_are_those_of_the_estimator(option, choices):
    for choice in choices:
        assert getattr(ModelOptions(**{option: choice}), option) == choice
    with pytest.raises(ValidationError, match=" or ".join([repr(list(choices)[-2]), repr(list(choices)[-1])])):
        ModelOptions(**{option: "other"})


@pytest.mark.parametrize(
    "said",
    [
        {"hidden": [64, 0]},
        {"hidden": ["64"]},
        {"offset": 1},
        {"prior_std": 0},
        {"prior_std": math.inf},
        {"n_draws": 1.5},
        {"n_draws": True},
        {"validation_fraction": 1},
        {"seed": -1},
        {"seed": 2**32},
        {"kl_warmup": 1.1},
        {"learning_rate": "fast"},
        {"device": 0},
        {"max_epochs": 0},
    ],
)
def test_an_option_out_of_its_range_or_kind_is_refused(said):
    (name,) = said
    with pytest.raises(ValidationError, match=name):
        ModelOptions(**said)


@pytest.mark.parametrize("said", [{"hidden": []}, {"hidden": [8]}, {"learning_rate": 1}, {"batch_size": 1}])
def test_whole_numbers_pass_for_numbers_and_a_network_may_have_no_hidden_layer(said):
    assert ModelOptions(**said) is not None


def test_median_and_factor_are_quantiles_of_the_learned_standard_deviation():
    mean, std = LearnedTolerance(median=0.02, factor=3.0).log_variance
    log_variance = stats.norm(mean, std)  # of r, whose root is the standard deviation
    np.testing.assert_allclose(np.sqrt(np.exp(log_variance.ppf(0.5))), 0.02)
    np.testing.assert_allclose(np.sqrt(np.exp(log_variance.ppf(stats.norm.cdf(1)))), 0.06)
    np.testing.assert_allclose(np.sqrt(np.exp(log_variance.ppf(stats.norm.cdf(-1)))), 0.02 / 3)


def test_the_default_factor_is_that_of_the_default_prior():
    assert LearnedTolerance(median=1.0).log_variance == (0.0, pytest.approx(TolerancePrior().std))


def test_a_tolerance_is_a_number_a_word_or_a_table():
    tolerance = TypeAdapter(Tolerance)
    assert [tolerance.validate_python(text) for text in (0, 0.5, "learn", "paper")] == [0.0, 0.5, "learn", "paper"]
    assert tolerance.validate_python({"median": 1}) == LearnedTolerance(median=1.0)
    for wrong in (-1, math.nan, math.inf, True, "exact", {}, {"median": 0.0}, {"median": 1, "factor": 1.0}, [1]):
        with pytest.raises(ValidationError):
            tolerance.validate_python(wrong)


def test_a_sensor_is_a_number_or_learned():
    sensor = TypeAdapter(Sensor)
    assert [sensor.validate_python(text) for text in (0, 0.5, "learn")] == [0.0, 0.5, "learn"]
    for wrong in (-1, math.nan, math.inf, False, "paper", {"median": 1}, [0.1]):
        with pytest.raises(ValidationError, match="standard deviation ≥ 0 or 'learn'"):
            sensor.validate_python(wrong)
