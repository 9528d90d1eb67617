"""The deterministic network: plain torch that computes what the library's own parts would, kept like the other fits."""

import numpy as np
import pytest
import torch

from equipoise.data.scaling import Standardizer
from equipoise.network.mlp import BayesianMLP
from equipoise.network.model import derived_seed
from equipoise.rivals.cases.battery import KEYS, Settings, load
from equipoise.training.plan import one_cycle as cycle_of_library
from studies.battery.deterministic import ACTIVATIONS, DeterministicTask, Perceptron, one_cycle
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


def test_predicting_the_truth_in_standardized_units_scores_zero(folder, monkeypatch):
    task = DeterministicTask(settings(), 2, folder / "fits", folder / "cache")
    data = load(task.settings.data_of(2), task.cache)
    X, Y, truth = (table.to_numpy() for table in (data.X, data.Y, data.truth))
    scale = Standardizer.fit(X[data.train], Y[data.train], None)
    expected = torch.as_tensor(scale.outputs(truth[data.test]))

    def perfect(self, x, y, progress):
        np.testing.assert_allclose(x, scale.inputs(X[data.train]), rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(y, scale.outputs(Y[data.train]), rtol=1e-6, atol=1e-6)
        return lambda inputs: expected

    monkeypatch.setattr(DeterministicTask, "_train", perfect)
    assert task._run(silent).overall < 1e-20


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_network_starts_as_one_of_the_library_and_predicts_the_same_means(activation):
    ours = Perceptron((3, 6, 5, len(KEYS)), activation, torch.Generator().manual_seed(derived_seed(4, 5)))
    generator = torch.Generator().manual_seed(derived_seed(4, 5))
    theirs = BayesianMLP(3, len(KEYS), (6, 5), activation, generator=generator)
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(ours.weights, theirs.posterior.loc)
    torch.testing.assert_close(ours(x), theirs.mean_at_means(x), rtol=1e-4, atol=1e-5)  # single precision


def test_the_learning_rate_is_that_of_the_other_models():
    for fraction in np.linspace(0, 1, 41):
        assert one_cycle(fraction) == cycle_of_library(fraction)
