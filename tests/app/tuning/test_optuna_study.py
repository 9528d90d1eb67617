"""The study in a journal: against one that was never cut short, and against direct fits."""

import dataclasses
import math
import os
import shutil
import signal

import optuna
import pandas as pd
import pytest
from process_group import CONTEXT, one_server, together
from small_search import BAD, GOOD, HELD_OUT, RATES, X, Y, known, search, small

from equipoise.app.tuning import Choice, TuningError, Uniform
from equipoise.estimator import ConstrainedBNNRegressor

pytestmark = pytest.mark.usefixtures("long_training")


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


def test_the_journal_of_another_study_is_refused(begun, tmp_path):
    journal = shutil.copy(begun, tmp_path / "journal")
    with pytest.raises(TuningError, match=r"journal' belongs to another study .*Delete it, or give another file name"):
        search(journal, held_out=HELD_OUT[1:])
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


@one_server
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


@one_server
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


def test_a_fit_that_diverges_is_a_failed_trial_with_its_reason(tmp_path):
    space = {"mean_learning_rate": Choice([1e30, 2e-2])}
    result = search(tmp_path / "journal", space, first=[{"mean_learning_rate": 1e30}, GOOD])
    assert result.trials["state"].tolist() == ["complete", "failed"]
    assert result.parameters == GOOD
    assert "must stay finite" in result.trials["reason"].iloc[-1]
    assert math.isnan(result.trials["value"].iloc[-1])


def test_a_fit_that_is_worth_no_number_is_a_failed_trial(tmp_path, monkeypatch):
    monkeypatch.setattr("equipoise.app.tuning.tuning._kept_value", lambda _: math.nan)
    with pytest.raises(TuningError, match=r"but got 2 finished ones in .*none of them complete"):
        search(tmp_path / "journal")


def test_a_study_of_failures_says_so(tmp_path):
    with pytest.raises(TuningError, match=r"but got 1 finished ones in .*none of them complete"):
        search(tmp_path / "journal", {"mean_learning_rate": Choice([1e30])}, n_trials=1)
