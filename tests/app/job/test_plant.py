"""A job file read as a plant: sensors of all columns, shares of readings, exact columns; and what is refused."""

import numpy as np
import pytest

from equipoise.app.job import Accuracy, Job, JobError, Plant

TEXT = """
data = "plant.csv"
inputs = ["speed [1/s]", "dose [kg/s]"]
known = ["rain [kg/s]"]
outputs = ["feed [kg/s]", "top [kg/s]", "bottom [kg/s]"]
[balances]
mass = "feed + dose + rain = top + bottom"
[sensors]
feed = "2 %"
top = 0.5
bottom = "0.5% + 1e-2"
dose = 0.1
"""


def complaint(text):
    with pytest.raises(JobError) as caught:
        Plant.parse(text, "plant.toml")
    return str(caught.value)


def test_accuracies_are_absolute_shares_or_both():
    assert Plant.parse(TEXT).accuracies == {
        "feed [kg/s]": Accuracy(0.0, 0.02),
        "top [kg/s]": Accuracy(0.5, 0.0),
        "bottom [kg/s]": Accuracy(0.01, 0.005),
        "dose [kg/s]": Accuracy(0.1, 0.0),
    }


def test_everything_uncertain_is_reconciled_and_what_balances_use_of_the_rest_is_exact():
    constraint = Plant.parse(TEXT).constraint()
    assert constraint.outputs == ("feed [kg/s]", "top [kg/s]", "bottom [kg/s]", "dose [kg/s]")
    assert constraint.columns == ("rain [kg/s]",)
    np.testing.assert_array_equal(constraint.B, [[1, -1, -1, 1]])
    np.testing.assert_array_equal(constraint.A, [[1]])


def test_a_plant_needs_no_inputs_and_learned_sensors_say_nothing():
    text = 'data = "plant.csv"\noutputs = ["a", "b"]\n[balances]\nsame = "a = b"\n[sensors]\na = "learn"'
    plant = Plant.parse(text)
    assert plant.accuracies == {}
    assert plant.inputs == ()
    with pytest.raises(JobError, match="'inputs' must be given"):
        Job.parse(text)


def test_what_a_network_learns_from_has_no_sensors_of_inputs_and_no_shares():
    with pytest.raises(JobError, match=r"'feed' in \[sensors\] must be a standard deviation ≥ 0 or 'learn'"):
        Job.parse(TEXT)
    absolute = TEXT.replace('"2 %"', "0.2").replace('"0.5% + 1e-2"', "0.1")
    with pytest.raises(JobError, match=r"\[sensors\] must name outputs, but got 'dose'"):
        Job.parse(absolute)


def test_tolerances_are_numbers_and_exact_where_left_out():
    assert Plant.parse(TEXT).tolerance_std == {}
    assert Plant.parse(TEXT + "[tolerances]\nmass = 0.5").tolerance_std == {"mass": 0.5}


@pytest.mark.parametrize(
    ("value", "said"), [('"learn"', "'learn'"), ('"paper"', "'paper'"), ("{ median = 1.0 }", "one to be learned")]
)
def test_a_tolerance_that_would_have_to_be_learned_is_refused(value, said):
    plant = Plant.parse(TEXT + f"[tolerances]\nmass = {value}", "plant.toml")
    with pytest.raises(JobError) as caught:
        _ = plant.tolerance_std
    rule = "plant.toml: 'mass' in [tolerances] must be a standard deviation to reconcile"
    assert str(caught.value) == f"{rule}, but got {said}. Write 0 if the balance holds exactly."


@pytest.mark.parametrize(
    "value", ['"2"', '"% 2"', '"-1 %"', '"1 % + "', '"1 % - 2"', '"1 %%"', "-1", "true", "inf", "[1]"]
)
def test_other_accuracies_are_refused(value):
    message = complaint(TEXT.replace('"2 %"', value))
    assert message.startswith(
        "plant.toml: 'feed' in [sensors] must be a standard deviation ≥ 0, a share of the reading"
    )


@pytest.mark.parametrize("value", ["1e400 %", "1 % + 1e400"])
def test_an_accuracy_that_is_not_finite_is_refused(value):
    message = complaint(TEXT.replace('"2 %"', f'"{value}"'))
    assert f"'feed' in [sensors] must be finite, but got '{value}'." in message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("botom = 1", "[sensors] must name columns of the job, but got 'botom'. Did you mean 'bottom [kg/s]'?"),
        ('"top [kg/s]" = 1', "[sensors] must name each output once, but got 'top' and 'top [kg/s]'."),
        ('"dose [kg/s]" = 1', "[sensors] must name each column once, but got 'dose' and 'dose [kg/s]'."),
    ],
)
def test_a_sensor_of_no_column_or_twice_of_one_is_named(line, message):
    assert message in complaint(TEXT + line)


def test_a_plant_without_balances_or_with_contradicting_ones_is_refused():
    bare = Plant.parse('data = "plant.csv"\noutputs = ["a", "b"]', "plant.toml")
    with pytest.raises(JobError, match=r"plant\.toml: \[balances\] must hold at least one to reconcile, but got none"):
        bare.constraint()
    twice = TEXT.replace("[sensors]", 'again = "top + bottom = feed + dose + rain + 1"\n[sensors]')
    with pytest.raises(JobError, match=r"plant\.toml: Balances 'mass' and 'again' contradict each other"):
        Plant.parse(twice, "plant.toml").constraint()
