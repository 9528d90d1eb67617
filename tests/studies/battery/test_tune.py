"""Tuning of the battery study, for real on few rows: what is judged, written, continued and said."""

import json

import numpy as np
import pandas as pd
import pytest

from equipoise import tuning
from equipoise.estimator import ConstrainedBNNRegressor
from equipoise.rivals.cases.battery.data import load
from studies.battery import tune as tune_module
from studies.battery.tune import FULL, SMALL, main, run

pytestmark = pytest.mark.usefixtures("long_training")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Simulated discharges of the small configuration."""
    folder = tmp_path_factory.mktemp("cache")
    load(SMALL.data, cache=folder)
    return folder


def test_the_command_tunes_writes_and_continues(cache, tmp_path, capsys):
    arguments = ["--small", "--folder", str(tmp_path / "tune"), "--cache", str(cache)]
    assert run([*arguments, "--trials", "2"]) == 0
    assert "2 trials in" in capsys.readouterr().out
    assert run([*arguments, "--trials", "3"]) == 0
    printed = capsys.readouterr()
    assert "3 trials in" in printed.out
    assert "mean_learning_rate" in printed.out
    assert "3/3" in printed.err

    trials = pd.read_csv(tmp_path / "tune" / "trials.csv")
    best = json.loads((tmp_path / "tune" / "best.json").read_text())
    assert sorted(trials["trial"]) == [0, 1, 2]
    assert trials.loc[trials["trial"] == 0, "hidden"].item() == "(16,)"  # as `first` says
    assert best["n_trials"] == 3
    assert best["value"] == pytest.approx(trials["value"].min(), rel=1e-12)
    assert str(tuple(best["parameters"]["hidden"])) == trials["hidden"].iloc[0]
    assert best["parameters"]["max_epochs"] == SMALL.max_epochs
    assert best["data"]["seed"] == 1


def test_the_plain_network_is_judged_by_the_validation_rows_and_sees_no_test_row(cache, tmp_path, monkeypatch):
    fits, fit = [], ConstrainedBNNRegressor.fit

    def watched(self, X, y, **settings):
        fits.append((self, X, y, settings["held_out"]))
        return fit(self, X, y, **settings)

    monkeypatch.setattr(ConstrainedBNNRegressor, "fit", watched)
    result = main(tmp_path, n_trials=1, cache=cache, config=SMALL, verbose=False)
    data = load(SMALL.data, cache=cache)
    ((model, X, Y, held_out),) = fits
    assert (model.constraint, model.sensor_std) == (None, None)
    np.testing.assert_array_equal(X.index[held_out], data.validation)
    np.testing.assert_array_equal(np.delete(np.asarray(X.index), held_out), data.train)
    pd.testing.assert_frame_equal(Y, data.Y.loc[X.index])
    assert result.value == model.history_.epochs[model.history_.best_epoch]["validation"]


def test_the_first_trial_of_the_full_study_is_in_its_space_and_fits_the_estimator():
    assert set(FULL.first) == set(FULL.space)
    assert all(value in FULL.space[name] for name, value in FULL.first.items())
    model = tuning.configured(ConstrainedBNNRegressor(max_epochs=FULL.max_epochs), FULL.first)
    assert (model.hidden, model.max_epochs, model.training.mean_learning_rate) == ((48, 48, 48), 600, 2e-2)


def test_a_failure_is_one_sentence_and_exit_status_2(cache, tmp_path, capsys):
    (tmp_path / "journal.log").write_text("a letter\nto a friend\n")
    arguments = ["--small", "--folder", str(tmp_path), "--cache", str(cache)]
    assert run(arguments) == 2
    assert "journal.log' is not a readable journal" in capsys.readouterr().err
    assert run([*arguments, "--debug"]) == 2
    assert capsys.readouterr().err.startswith("Traceback")


def test_ctrl_c_says_that_nothing_is_lost(cache, tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "tune", interrupted)
    assert run(["--small", "--folder", str(tmp_path), "--cache", str(cache)]) == 130
    assert "start again to continue" in capsys.readouterr().err


def test_minutes_become_the_time_limit_in_seconds(monkeypatch):
    calls = []
    monkeypatch.setattr(tune_module, "main", lambda *given, **named: calls.append((given, named)))
    assert run(["--minutes", "1.5", "--trials", "7"]) == 0
    (((folder, n_trials, timeout), named),) = calls
    assert (folder.as_posix(), n_trials, timeout) == ("runs/battery/tune", 7, 90)
    assert named["config"] is FULL


def test_help_names_every_option_and_its_default(capsys):
    with pytest.raises(SystemExit, match="0"):
        run(["--help"])
    shown = capsys.readouterr().out
    for text in ("--trials", "--minutes", "--folder", "--cache", "--small", "runs/battery/tune", "default: 20"):
        assert text in shown
