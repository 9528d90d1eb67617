"""`equipoise tune`: trials that are kept and gone on from, and lines for the job file."""

import tomllib

import handmade_table
import pytest
from handmade_table import JOB, cell, contents

from equipoise.app.commands import main, tune
from equipoise.app.job import Job, ModelOptions
from equipoise.app.tuning import Uniform
from equipoise.errors import InputError

pytestmark = pytest.mark.usefixtures("long_training")


@pytest.fixture
def small(folder):
    """A table and trials that take no time."""
    handmade_table.write(folder, cell(30), JOB.replace("max_epochs = 10", "max_epochs = 6"))
    return folder


def test_trials_are_kept_gone_on_from_and_end_in_lines_for_the_job_file(small, capsys):
    assert main(["tune", "cell.toml", "--trials", "2"]) == 0
    first = capsys.readouterr().out
    assert "The best of 2 trials" in first
    assert main(["tune", "cell.toml", "--trials", "3"]) == 0
    out = capsys.readouterr().out
    assert "The best of 3 trials" in out
    values = [float(line.split()[1]) for line in out.splitlines() if line.startswith(" complete ")]
    assert len(values) == 3
    assert values == sorted(values)
    earlier = [line for line in first.splitlines() if line.startswith(" complete ")]
    assert all(line.split()[1] in out for line in earlier)  # not run again
    lines = out[out.index("[model]") :]
    tuned = tomllib.loads(lines)["model"]
    rates = {"learning_rate", "mean_learning_rate", "prior_std", "temperature"}
    assert set(tuned) == {"hidden", "activation", "mean_epochs"} | rates
    text = JOB.replace("[model]\nhidden = [4]\n", lines)
    options = Job.parse(text).model
    assert (list(options.hidden), options.prior_std) == (tuned["hidden"], tuned["prior_std"])
    assert 5e-3 <= tuned["mean_learning_rate"] <= 4e-2
    assert set(contents(small)) == {"cell.csv", "cell.toml", "cell.tune.log"}


def test_what_the_job_says_is_tried_first(small, monkeypatch):
    asked = {}

    def watched(estimator, X, Y, space, **settings):
        asked.update(settings, space=space)
        raise InputError("enough seen")

    monkeypatch.setattr("equipoise.app.tuning.tune", watched)
    text = JOB.replace("max_epochs = 10", "max_epochs = 6\nmean_epochs = 2\nprior_std = 50.0")
    handmade_table.write(small, cell(30), text)
    assert main(["tune", "cell.toml"]) == 2
    (first,) = asked["first"]
    assert (first["hidden"], first["mean_epochs"], first["temperature"]) == ((4,), 2, 0.5)
    assert "prior_std" not in first  # outside of what is searched
    assert {(4,), (64, 64)} <= set(asked["space"]["hidden"].options)


def test_what_has_no_effect_with_a_start_at_the_prior_is_not_searched():
    searched = {start: set(tune._search_space(ModelOptions(start=start))) for start in ("residuals", "prior")}
    assert searched["residuals"] - searched["prior"] == {"mean_epochs", "mean_learning_rate", "temperature"}
    assert {"hidden", "learning_rate", "prior_std"} <= searched["prior"] < searched["residuals"]


def test_a_journal_of_another_study_is_refused(small, refused):
    assert main(["tune", "cell.toml", "--trials", "1"]) == 0
    handmade_table.write(small, cell(31), JOB)
    assert "The journal 'cell.tune.log' belongs to another study" in refused("tune", "cell.toml", "--trials", "1")


def test_quick_trials_are_shorter_than_the_jobs(small, monkeypatch):
    asked = {}

    def watched(estimator, X, Y, space, **settings):
        asked.update(settings, estimator=estimator, X=X, space=space)
        raise InputError("enough seen")

    monkeypatch.setattr("equipoise.app.tuning.tune", watched)
    assert main(["tune", "cell.toml", "--quick", "--minutes", "2", "--journal", "other.log"]) == 2
    assert asked["estimator"].max_epochs == 60
    assert (asked["timeout"], asked["n_trials"], asked["journal"].name) == (120, 30, "other.log")
    assert list(asked["X"].columns) == ["Current [A]", "SOC"]
    assert len(set(asked["held_out"])) == 6  # a fifth of the rows
    assert isinstance(asked["space"]["prior_std"], Uniform)


def test_a_table_that_is_not_there_is_named_with_the_closest_one(folder, refused):
    handmade_table.write(folder, job=JOB.replace("cell.csv", "cel.csv"))
    assert "A table must exist, but got 'cel.csv', which does not. Did you mean 'cell.csv'?" in refused(
        "tune", "cell.toml"
    )


def test_too_few_rows_to_hold_some_out_are_refused(folder, refused):
    handmade_table.write(folder, cell(4))
    assert "'cell.csv' must have 5 rows or more to search on, but got 4" in refused("tune", "cell.toml")
