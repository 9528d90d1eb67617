"""Tuning: what is found, against direct fits; what is refused; what is left alone."""

import dataclasses
import importlib.util
import itertools
import math
import pkgutil
import sys
from types import SimpleNamespace

import numpy as np
import optuna
import pytest
from sklearn.base import clone
from small_search import BAD, GOOD, HELD_OUT, X, Y, search, small

import equipoise.app.tuning
from equipoise.app.tuning import Choice, TuningError, Uniform, Whole, configured
from equipoise.training.checkpoint import TrainingError
from equipoise.training.plan import TrainingPlan

pytestmark = pytest.mark.usefixtures("long_training")


# --- What is found ----------------------------------------------------------------------------------------------------


def test_the_better_of_a_bad_and_a_good_setting_is_found(tmp_path):
    result = search(tmp_path / "journal", first=[BAD, GOOD])
    assert result.parameters == GOOD
    assert result.trials["mean_learning_rate"].tolist() == [2e-2, 1e-7]
    assert result.trials["state"].tolist() == ["complete", "complete"]
    assert result.value == result.trials["value"].min()
    assert result.seconds == pytest.approx(result.trials["seconds"].sum())


def test_a_trial_is_worth_what_the_state_kept_by_a_direct_fit_is_worth(tmp_path):
    result = search(tmp_path / "journal", first=[GOOD], n_trials=1)
    model = small()
    model.training = dataclasses.replace(model.training, **GOOD)
    model.fit(X, Y, held_out=HELD_OUT)
    history = model.history_
    assert result.value == history.epochs[history.best_epoch]["validation"]
    again = clone(result.estimator).fit(X, Y, held_out=HELD_OUT)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_a_search_without_hints_leaves_rates_that_are_far_too_small(tmp_path):
    space = {"mean_learning_rate": Uniform(1e-7, 1e-1, log=True), "hidden": Choice([(4,), (8, 8)])}
    result = search(tmp_path / "journal", space, n_trials=6)
    assert result.parameters["mean_learning_rate"] > 1e-3
    assert result.parameters["hidden"] in [(4,), (8, 8)]
    assert result.trials["mean_learning_rate"].between(1e-7, 1e-1).all()
    assert result.trials["value"].is_monotonic_increasing


def test_names_of_the_estimator_and_of_its_plan_go_where_they_belong():
    model = small(max_epochs=50)
    changed = configured(model, {"hidden": (3,), "max_epochs": 7, "batch_size": 16, "std_rate": 5.0})
    assert (changed.hidden, changed.max_epochs) == ((3,), 7)
    assert changed.training == dataclasses.replace(model.training, batch_size=16, std_rate=5.0)
    assert (model.hidden, model.max_epochs, model.training.batch_size) == ((8,), 50, None)


def test_whole_numbers_stay_whole(tmp_path):
    space = {"max_epochs": Whole(3, 6), "batch_size": Whole(8, 64, log=True)}
    result = search(tmp_path / "journal", space, n_trials=3)
    assert result.trials["epochs"].tolist() == result.trials["max_epochs"].tolist()
    assert all(type(value) is int for value in result.parameters.values())


def test_the_time_limit_ends_a_fit_and_the_trial_does_not_count(tmp_path, monkeypatch):
    clock = SimpleNamespace(monotonic=itertools.count(0.0, 0.01).__next__)
    for module in (equipoise.app.tuning.tuning, equipoise.app.tuning.trial_callback):
        monkeypatch.setattr(module, "time", clock)
    endless = small(max_epochs=10**6)
    with pytest.raises(TuningError, match="must complete one trial at least, but got 0 finished"):
        search(tmp_path / "journal", estimator=endless, timeout=0.2)


def test_the_time_limit_keeps_what_is_done(tmp_path):
    search(tmp_path / "journal", n_trials=1)
    assert search(tmp_path / "journal", n_trials=50, timeout=0).trials["state"].tolist() == ["complete"]


# --- Trials that are not completed ------------------------------------------------------------------------------------


def test_a_trial_worse_than_the_median_is_pruned_late_in_the_elbo_phase_and_recorded(tmp_path):
    space = {"mean_learning_rate": Uniform(1e-7, 1e-1, log=True)}
    plan = TrainingPlan(max_epochs=32, learning_rate=1e-4, kl_warmup=0.5)  # 16 epochs, then 13, then 3
    first = [{"mean_learning_rate": rate} for rate in (2e-2, 2.1e-2, 2.2e-2, 2.3e-2, 2.4e-2, 1e-7)]
    model = small().set_params(training=plan)
    result = search(tmp_path / "journal", space, model, first=first, n_trials=6)
    assert result.trials["state"].tolist() == ["complete"] * 5 + ["pruned"]
    bad = result.trials.iloc[-1]
    assert bad["mean_learning_rate"] == 1e-7
    assert bad["epochs"] == 16 + 10  # the first multiple of 10 in the last third of 13
    assert math.isfinite(bad["value"])
    assert bad["value"] > result.value
    assert result.trials["epochs"].tolist()[:5] == [32] * 5


def test_an_error_in_the_arguments_of_a_fit_is_not_hidden(tmp_path):
    with pytest.raises(ValueError, match="activation must be one of"):
        search(tmp_path / "journal", {"activation": Choice(["softmax"])})
    with pytest.raises(TrainingError):
        small().set_params(training=TrainingPlan(mean_learning_rate=1e30)).fit(X, Y)


# --- Arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"space": {"learning_rat": Uniform(0.1, 0.2)}}, "but got 'learning_rat'. Did you mean 'learning_rate'"),
        ({"space": {"checkpoint": Choice(["a"])}}, "but got 'checkpoint'"),
        ({"space": {}}, "space must name one parameter at least"),
        ({"first": [{"hiden": (3,)}]}, "first must name parameters of the space, but got 'hiden'"),
        ({"first": [{"mean_learning_rate": 0.5}]}, "first must have values in the space, but got 0.5 for 'mean_learn"),
        ({"held_out": []}, "held_out must name rows"),
        ({"n_trials": 0}, "n_trials must be a whole number of at least 1, but got 0"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_anything_is_written(arguments, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        search(tmp_path / "journal", **arguments)
    assert not (tmp_path / "journal").exists()


def test_the_estimator_and_optunas_own_settings_are_left_alone(tmp_path):
    model, level = small(verbose=True, checkpoint=str(tmp_path / "checkpoint")), optuna.logging.get_verbosity()
    before = model.get_params()
    search(tmp_path / "journal", estimator=model, n_trials=1)
    assert model.get_params() == before
    assert not hasattr(model, "model_")
    assert not (tmp_path / "checkpoint").exists()
    assert optuna.logging.get_verbosity() == level


def test_the_progress_bar_counts_trials_and_shows_the_best_value(tmp_path, capsys):
    result = search(tmp_path / "journal", n_trials=2, verbose=True)
    shown = capsys.readouterr().err
    assert "2/2" in shown
    assert f"best={result.value:.4g}" in shown


def test_without_optuna_the_missing_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"Tuning needs Optuna.*pip install 'equipoise\[tune\]'"):
        search(tmp_path / "journal")


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(equipoise.app.tuning.__path__)])
def test_importing_the_package_does_not_import_optuna(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    spec = importlib.util.find_spec(f"equipoise.app.tuning.{name}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert "optuna" not in vars(module)
