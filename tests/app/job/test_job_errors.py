"""One sentence for what is wrong with a job file: the file, the key, the value, what to do."""

import pytest

from equipoise.app.job import Job, JobError

GOOD = """
data = "cell.csv"
inputs = ["Current [A]", "SOC"]
outputs = ["Voltage [V]", "OCV [V]", "Loss [V]"]
"""


def complaint(text):
    with pytest.raises(JobError) as caught:
        Job.parse(text, "folder/cell.toml")
    message = str(caught.value)
    assert message.startswith("cell.toml: ")
    assert "\n" not in message
    return message.removeprefix("cell.toml: ")


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("knwon = []", "keys must be known, but got 'knwon'. Did you mean 'known'?"),
        ("[modle]", "keys must be known, but got 'modle'. Did you mean 'model'?"),
        ("[model]\nhiden = [3]", "keys must be known, but got 'hiden' in [model]. Did you mean 'hidden'?"),
        (
            '[balances]\nv = "Voltage = OCV"\n[tolerances]\nv = {medain = 1.0, median = 1}',
            "keys must be known, but got 'medain' in [tolerances.v]. Did you mean 'median'?",
        ),
        ("[model]\nhidden = 64", "'hidden' in [model] must be a list, in brackets, but got 64."),
        ("[model]\nhidden = [64, 1.5]", "'hidden' in [model] must be a whole number, but got 1.5."),
        ('[model]\nprior_std = "1"', "'prior_std' in [model] must be a number, but got '1'."),
        ("[model]\noffset = 1", "'offset' in [model] must be true or false, but got 1."),
        ("[model]\nn_draws = 0", "'n_draws' in [model] must be greater than or equal to 1, but got 0."),
        ('[model]\nlikelihood = "L1"', "'likelihood' in [model] must be 'joint' or 'marginal', but got 'L1'."),
        ("model = 3", "'model' must be a section of keys and values, but got 3."),
        ('known = "feed"', "'known' must be a list, in brackets, but got 'feed'."),
        ("known = [3]", "'known' must be text, in quotes, but got 3."),
        ('known = [" "]', "'known' must not be blank, but got ' '."),
        ("[balances]\nv = 3", "'v' in [balances] must be text, in quotes, but got 3."),
        ("[sensors]\nOCV = -0.1", "'OCV' in [sensors] must be a standard deviation ≥ 0 or 'learn', but got -0.1."),
        ("[sensors]\nOCV = nan", "'OCV' in [sensors] must be a standard deviation ≥ 0 or 'learn', but got nan."),
        ('[sensors]\nOCV = "lern"', "'OCV' in [sensors] must be a standard deviation ≥ 0 or 'learn', but got 'lern'."),
        (
            '[balances]\nv = "Voltage = OCV"\n[tolerances]\nv = -1',
            "'v' in [tolerances] must be a standard deviation ≥ 0 or 'learn' or 'paper', but got -1.",
        ),
        (
            '[balances]\nv = "Voltage = OCV"\n[tolerances]\nv = {median = 0}',
            "'median' in [tolerances.v] must be greater than 0, but got 0.",
        ),
        (
            '[balances]\nv = "Voltage = OCV"\n[tolerances]\nv = {factor = 2.0}',
            "'median' in [tolerances.v] must be given",
        ),
        ('[balances]\nknown = ["feed"]', "'known'? Then move it above the first [section]."),
    ],
)
def test_a_wrong_key_or_value_is_named_with_its_section(extra, message):
    assert message in complaint(GOOD + extra)


@pytest.mark.parametrize("key", ["data", "inputs", "outputs"])
def test_a_missing_key_is_named(key):
    text = "\n".join(line for line in GOOD.splitlines() if not line.startswith(key))
    assert complaint(text).startswith(f"'{key}' must be given, but got none.")


def test_a_key_that_is_misspelt_is_named_before_the_one_that_is_missing_for_it():
    text = 'Data = "cell.csv"\ninputs = ["SOC"]\noutputs = ["OCV"]'
    assert complaint(text) == "keys must be known, but got 'Data'. Did you mean 'data'?"


@pytest.mark.parametrize("key", ["inputs", "outputs"])
def test_columns_that_were_not_sorted_yet_are_asked_for(key):
    text = "\n".join(f"{key} = []" if line.startswith(key) else line for line in GOOD.splitlines())
    assert complaint(text).startswith(f"'{key}' must not be empty, but got []. Put names of columns into it.")


def test_a_data_file_must_be_text():
    assert complaint(GOOD.replace('"cell.csv"', "5")).startswith("'data' must be the name of a file, in quotes")


def test_long_values_are_shortened():
    assert len(complaint(GOOD + f"[model]\nhidden = '{'x' * 10_000}'")) < 200


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('data = "a.csv"\ninputs = [1,\n', "end of document"),
        ('data = "a.csv"\ninputs = ["a" "b"]', "line 2, column 15"),
    ],
)
def test_a_slip_in_toml_is_located(text, place):
    assert complaint(text).startswith("a job file must be TOML, but got: ")
    assert place in complaint(text)


def test_a_name_without_quotes_is_advised_to_have_them():
    message = complaint(GOOD + "[sensors]\nVoltage [V] = 0.1")
    assert "line 6, column 9" in message
    assert "Put text, and names that hold blanks or brackets, in quotes." in message
