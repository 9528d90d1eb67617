"""The deterministic network of the study: scored like the other fits and kept like them."""

import numpy as np
import pytest

from equipoise.rivals.cases.battery import Settings, load
from studies.battery.deterministic import DeterministicTask
from studies.battery.tasks import finish

pytestmark = pytest.mark.usefixtures("long_training")


def settings():
    small = Settings.named("small")
    return small.model_copy(update={"training": small.training | {"max_epochs": 20}})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("deterministic")


def silent(share):
    assert 0 <= share <= 1


def test_the_deterministic_network_is_scored_against_the_truth_and_kept(folder):
    task = DeterministicTask(settings(), 1, folder / "fits", folder / "cache")
    score = task(silent)
    assert task.read() == score
    assert 0 < score.overall < 1  # better than predicting the mean
    assert finish({"det": task}, 1, False) == {"det": score}


def test_predicting_the_truth_scores_zero(folder, monkeypatch):
    task = DeterministicTask(settings(), 2, folder / "fits", folder / "cache")
    data = load(task.settings.data_of(2), task.cache)
    X, Y, truth = (table.to_numpy() for table in (data.X, data.Y, data.truth))

    class Perfect:
        def predict(self, inputs):
            np.testing.assert_array_equal(inputs, X[data.test])
            return truth[data.test]

    def perfect(self, inputs, outputs, progress):
        np.testing.assert_array_equal(inputs, X[data.train])
        np.testing.assert_array_equal(outputs, Y[data.train])
        return Perfect()

    monkeypatch.setattr(DeterministicTask, "_fit", perfect)
    assert task._run(silent).overall == 0.0
