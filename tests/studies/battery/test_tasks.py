"""One fit with its evaluation: what is finished is kept, what is broken or of other settings is not trusted."""

import dataclasses

import numpy as np
import pytest

from equipoise.rivals.cases.battery.settings import Settings
from studies.battery import tasks
from studies.battery.tasks import FitTask, Variant

pytestmark = pytest.mark.usefixtures("long_training")


def settings(**changes):
    small = Settings.named("small")
    training = small.training | {"max_epochs": 20, "mean_epochs": 10, "noise_epochs": 2}
    return small.model_copy(update={"training": training, "n_draws": 16, "violation_draws": 32} | changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("study")


@pytest.fixture
def task(folder):
    return FitTask(settings(), "equipoise", 1, folder / "fits", folder / "cache")


@pytest.fixture
def fits(monkeypatch):
    """Counts evaluations that are really made."""
    calls = []
    real = tasks.evaluate
    monkeypatch.setattr(tasks, "evaluate", lambda *args, **kwargs: calls.append(1) or real(*args, **kwargs))
    return calls


def silent(share):
    assert 0 <= share <= 1


def same(a, b):
    return a.results == b.results and all(np.array_equal(a.arrays[name], b.arrays[name]) for name in a.arrays)


def test_a_finished_task_is_read_and_not_run_again(task, fits):
    first = task(silent)
    made = len(fits)
    assert same(task(silent), first)
    assert len(fits) == made
    assert {"x_test", "y_test", "truth_test", "history_validation"} <= first.arrays.keys()
    np.testing.assert_array_equal(first.arrays["truth_test"], task.data().truth.iloc[task.data().test])


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_a_broken_file_is_made_anew_with_the_same_numbers(task, fits, suffix):
    first = task(silent)
    path = task._path(suffix)
    path.write_bytes(path.read_bytes()[:100])
    assert task.read() is None
    made = len(fits)
    again = task(silent)  # the fit itself continues from its finished checkpoint
    assert len(fits) == made + 1
    assert again.results.model_copy(update={"history": None}) == first.results.model_copy(update={"history": None})


@pytest.mark.parametrize(
    "change",
    [{"seed": 2}, {"model": "bnn"}, {"settings": settings(hidden=(6,))}, {"variant": Variant(n_train=50)}],
    ids=["seed", "model", "settings", "rows"],
)
def test_another_task_does_not_take_what_is_kept(task, change):
    task(silent)
    other = dataclasses.replace(task, **change)
    assert other.read() is None
    assert other._path(".ckpt") != task._path(".ckpt")


def test_other_draws_are_another_evaluation_of_the_same_fit(task):
    other = dataclasses.replace(task, settings=settings(n_draws=8))
    assert other._path(".ckpt") == task._path(".ckpt")
    assert other._path(".json") != task._path(".json")


def test_variants_choose_rows():
    data = FitTask(settings(), "bnn", 1, None, None).data()  # type: ignore[arg-type]
    assert len(Variant(n_train=50).apply(data).train) == 50
    assert Variant(n_train=10**6).apply(data) is data
    left = Variant(current=1.0).apply(data)
    assert set(left.X.iloc[left.test]["I [A]"]) == {1.0}
