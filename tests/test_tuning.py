"""Tuning: against direct fits, and a study that was never cut short."""

import contextlib
import dataclasses
import importlib.util
import math
import os
import shutil
import signal
import sys

import numpy as np
import optuna
import pandas as pd
import pytest
from process_group import CONTEXT, together
from sklearn.base import clone

from equipoise.checkpoint import TrainingError
from equipoise.constraints import LinearConstraint
from equipoise.estimator import ConstrainedBNNRegressor
from equipoise.training import TrainingPlan
from equipoise.tuning import Choice, TuningError, Uniform, Whole, _PrunedError, _Watch, configured, tune

pytestmark = pytest.mark.usefixtures("long_training")

N = 80
HELD_OUT = np.arange(60, N)
RATES = {"mean_learning_rate": Choice([1e-7, 2e-2])}
BAD, GOOD = {"mean_learning_rate": 1e-7}, {"mean_learning_rate": 2e-2}


def problem():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (N, 1))
    return x, np.hstack([np.sin(3 * x), x**2]) + 0.05 * rng.standard_normal((N, 2))


X, Y = problem()


def small(**settings) -> ConstrainedBNNRegressor:
    """Fits in a fraction of a second: 10 epochs of means, 8 of the ELBO, 2 of the noise."""
    plan = TrainingPlan(max_epochs=20, learning_rate=1e-4, kl_warmup=0.1)
    return ConstrainedBNNRegressor(hidden=(8,), training=plan, random_state=0, **settings)


def search(journal, space=RATES, estimator=None, **settings):
    settings = {"held_out": HELD_OUT, "n_trials": 2} | settings
    return tune(estimator or small(), X, Y, space, journal=journal, **settings)


def known(result) -> pd.DataFrame:
    """What must be the same in two studies of the same trials: all but clocks and numbers of trials."""
    return result.trials.drop(columns="seconds").reset_index(drop=True)


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


# --- The journal ------------------------------------------------------------------------------------------------------


def interrupt_at(monkeypatch, call: int):
    """Ctrl-C in the tenth epoch of one of the fits."""
    fit, calls = ConstrainedBNNRegressor.fit, []

    def interrupted(self, X, y, *, held_out, callback):
        calls.append(1)

        def watch(record):
            if len(calls) == call and record["epoch"] == 10:
                raise KeyboardInterrupt
            callback(record)

        return fit(self, X, y, held_out=held_out, callback=watch)

    monkeypatch.setattr(ConstrainedBNNRegressor, "fit", interrupted)


def test_a_study_that_is_continued_counts_the_trials_before(tmp_path, monkeypatch):
    search(tmp_path / "journal", n_trials=2)
    fits, fit = [], ConstrainedBNNRegressor.fit
    monkeypatch.setattr(ConstrainedBNNRegressor, "fit", lambda self, *a, **k: fits.append(1) or fit(self, *a, **k))
    assert len(search(tmp_path / "journal", n_trials=3).trials) == 3
    assert len(fits) == 1
    assert len(search(tmp_path / "journal", n_trials=3).trials) == 3
    assert len(fits) == 1


@pytest.mark.parametrize("call", [1, 3])
def test_a_study_cut_short_by_ctrl_c_ends_as_one_that_was_not(call, tmp_path, monkeypatch):
    space, first = RATES | {"hidden": Choice([(4,), (8,)]), "std_rate": Uniform(1.0, 10.0)}, [GOOD, BAD]
    whole = search(tmp_path / "whole", space, first=first, n_trials=3)
    with monkeypatch.context() as patch:
        interrupt_at(patch, call)
        with pytest.raises(KeyboardInterrupt):
            search(tmp_path / "cut", space, first=first, n_trials=3)
    pieces = search(tmp_path / "cut", space, first=first, n_trials=3)
    assert len(pieces.trials) == 3
    pd.testing.assert_frame_equal(known(pieces), known(whole))


def test_the_time_limit_ends_a_fit_and_the_trial_does_not_count(tmp_path):
    endless = small(max_epochs=10**6)
    with pytest.raises(TuningError, match="must complete one trial at least, but got 0 finished"):
        search(tmp_path / "journal", estimator=endless, timeout=0.2)


def test_the_time_limit_keeps_what_is_done(begun, tmp_path):
    journal = shutil.copy(begun, tmp_path / "journal")
    assert search(journal, n_trials=50, timeout=0).trials["state"].tolist() == ["complete"]


def test_values_tried_first_are_tried_once(tmp_path):
    search(tmp_path / "journal", first=[GOOD], n_trials=1)
    result = search(tmp_path / "journal", first=[GOOD, BAD, BAD], n_trials=2)
    assert result.trials["mean_learning_rate"].tolist() == [2e-2, 1e-7]


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """The journal of a study with one trial."""
    journal = tmp_path_factory.mktemp("begun") / "journal"
    search(journal, n_trials=1)
    return journal


@pytest.mark.parametrize(
    "other",
    [
        {"Y": Y + 1e-9},
        {"held_out": HELD_OUT[1:]},
        {"space": RATES | {"std_rate": Uniform(1.0, 3.0)}},
        {"estimator": small(prior_std=0.5)},
        {"estimator": small(constraint=LinearConstraint([[1.0, -1.0]]))},
    ],
)
def test_the_journal_of_another_study_is_refused(other, begun, tmp_path):
    journal = shutil.copy(begun, tmp_path / "journal")
    given = {"estimator": small(), "X": X, "Y": Y, "space": RATES, "held_out": HELD_OUT} | other
    with pytest.raises(TuningError, match=r"journal' belongs to another study .*Delete it, or give another file name"):
        tune(**given, n_trials=2, journal=journal)
    assert journal.read_bytes() == begun.read_bytes()


def test_a_journal_that_others_wrote_is_refused(tmp_path):
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "journal"))
    optuna.create_study(storage=optuna.storages.JournalStorage(backend), study_name="theirs")
    with pytest.raises(TuningError, match="belongs to another study"):
        search(tmp_path / "journal")


def test_a_file_that_is_no_journal_is_refused(tmp_path):
    (tmp_path / "journal").write_text("a letter\nto a friend\n")
    with pytest.raises(TuningError, match=r"journal' is not a readable journal \(JSONDecodeError\). Delete it"):
        search(tmp_path / "journal")
    assert (tmp_path / "journal").read_text().startswith("a letter")


# --- Several processes ------------------------------------------------------------------------------------------------

RANGE = {"mean_learning_rate": Uniform(5e-3, 5e-2, log=True), "std_rate": Uniform(1.0, 10.0)}


def share(journal, n_trials, start, fits_before_the_end=math.inf):
    """Work on a study from a common start on, and count the fits of this process; one may be killed in a fit."""
    fits, fit = [], ConstrainedBNNRegressor.fit

    def counted(self, *arguments, **settings):
        fits.append(1)
        if len(fits) > fits_before_the_end:
            os.kill(os.getpid(), signal.SIGKILL)
        return fit(self, *arguments, **settings)

    ConstrainedBNNRegressor.fit = counted
    start.wait()
    search(journal, RANGE, n_trials=n_trials, first=[GOOD])
    return len(fits)


def test_two_processes_share_the_trials_of_one_study(tmp_path):
    fits = together(share, tmp_path / "journal", 7, CONTEXT.Barrier(2))
    assert sum(fits) == 7
    assert min(fits) >= 1
    trials = search(tmp_path / "journal", RANGE, n_trials=7, first=[GOOD]).trials  # nothing is left to do
    assert len(trials) == 7
    assert trials["std_rate"].nunique() == 7  # no two processes try the same
    assert trials["mean_learning_rate"].tolist().count(2e-2) == 1
    for _, trial in trials.iterrows():  # each is worth what a direct fit is worth
        chosen = {name: trial[name] for name in RANGE}
        model = small()
        model.training = dataclasses.replace(model.training, **chosen)
        history = model.fit(X, Y, held_out=HELD_OUT).history_
        assert trial["value"] == history.epochs[history.best_epoch]["validation"]


def test_the_trial_of_a_killed_process_is_proposed_again(tmp_path):
    assert together(share, tmp_path / "cut", 3, CONTEXT.Barrier(1), 1, size=1) == ["killed"]
    pieces = search(tmp_path / "cut", RANGE, n_trials=3, first=[GOOD])
    whole = search(tmp_path / "whole", RANGE, n_trials=3, first=[GOOD])
    pd.testing.assert_frame_equal(known(pieces), known(whole))


def test_a_trial_begun_when_others_are_enough_is_withdrawn_and_does_not_count(tmp_path):
    search(journal := tmp_path / "journal", n_trials=1)
    backend = optuna.storages.journal.JournalFileBackend(str(journal))
    study = optuna.load_study(storage=optuna.storages.JournalStorage(backend), study_name="equipoise")
    study.ask().set_user_attr("process", "7@elsewhere")  # another machine is at it
    assert len(search(journal, n_trials=2).trials) == 1
    assert len(search(journal, n_trials=3).trials) == 2


def test_values_that_two_processes_were_given_to_try_first_are_tried_once(tmp_path):
    search(journal := tmp_path / "journal", first=[GOOD], n_trials=1)
    backend = optuna.storages.journal.JournalFileBackend(str(journal))
    study = optuna.load_study(storage=optuna.storages.JournalStorage(backend), study_name="equipoise")
    study.enqueue_trial(GOOD, user_attrs={"first": '{"mean_learning_rate": 0.02}'})  # by one who knew of nothing
    result = search(journal, first=[GOOD, BAD], n_trials=2)
    assert result.trials["mean_learning_rate"].tolist() == [2e-2, 1e-7]


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


class Doomed:
    """A trial that is pruned as soon as it asks."""

    def __init__(self):
        self.steps = []

    def report(self, value, step):
        self.steps.append(step)

    def should_prune(self):
        return True


@pytest.mark.parametrize(
    ("kl_warmup", "steps"),
    [
        (0.1, [20, 30, 40, 50, 60, 70, 80]),  # from the end of the warm-up to two thirds of 120
        (0.5, [70, 80]),
        (0.9, [110]),
        (1.0, [130, 140, 150]),  # nothing is left of the phase: the trial runs to its end
    ],
)
def test_trials_are_compared_after_warm_up_and_given_up_in_the_last_third_of_the_elbo_phase(kl_warmup, steps):
    plan = TrainingPlan(max_epochs=300, mean_epochs=150, noise_epochs=30, kl_warmup=kl_warmup)
    watch = _Watch(trial := Doomed(), ConstrainedBNNRegressor(training=plan), math.inf, lambda epoch: None)
    phases = ["means"] * 150 + ["elbo"] * 120 + ["noise"] * 30
    with contextlib.suppress(_PrunedError):
        for phase in phases:
            watch({"phase": phase, "validation": 1.0})
    assert trial.steps == steps
    assert watch.epochs == 150 + steps[-1]


def test_a_fit_that_diverges_is_a_failed_trial_with_its_reason(tmp_path):
    space = {"mean_learning_rate": Choice([1e30, 2e-2])}
    result = search(tmp_path / "journal", space, first=[{"mean_learning_rate": 1e30}, GOOD])
    assert result.trials["state"].tolist() == ["complete", "failed"]
    assert result.parameters == GOOD
    assert "must stay finite" in result.trials["reason"].iloc[-1]
    assert math.isnan(result.trials["value"].iloc[-1])


def test_a_study_of_failures_says_so(tmp_path):
    with pytest.raises(TuningError, match=r"but got 1 finished ones in .*none of them complete"):
        search(tmp_path / "journal", {"mean_learning_rate": Choice([1e30])}, n_trials=1)


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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Choice([]), r"options that all differ, but got \[\]"),
        (lambda: Choice([(8,), (8,)]), r"options that all differ, but got \[\(8,\), \(8,\)\]"),
        (lambda: Uniform(2.0, 1.0), r"Uniform must have low < high, both finite, but got Uniform\(low=2.0, high=1.0"),
        (lambda: Uniform(0.0, math.inf), "Uniform must have low < high, both finite"),
        (lambda: Uniform(0.0, 1.0, log=True), "Uniform with log=True must have low > 0"),
        (lambda: Whole(1.5, 3), "Whole must have low < high"),
    ],
)
def test_ranges_that_hold_nothing_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


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


def test_importing_the_module_does_not_import_optuna(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    spec = importlib.util.find_spec("equipoise.tuning")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.Choice([1]).labels == (1,)
