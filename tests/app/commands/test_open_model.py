"""Commands open models with classes from outside the package, which the environment names."""

import numpy as np
import pytest
from outside import LaplaceNoise

import equipoise as eq
from equipoise.app.commands.open_model import VARIABLE, named_classes, open_model
from equipoise.artifact import ArtifactError
from equipoise.errors import InputError


@pytest.fixture
def noisy(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (20, 1))
    model = eq.ConstrainedBNNRegressor(likelihood=LaplaceNoise(), hidden=(2,), max_epochs=2, n_draws=4, random_state=0)
    model.fit(X, X + 0.1 * rng.normal(size=X.shape)).save(tmp_path / "noisy.safetensors")
    return tmp_path / "noisy.safetensors", X, np.asarray(model.predict(X))


def test_a_model_opens_with_the_classes_that_the_environment_names(noisy, monkeypatch):
    path, X, expected = noisy
    monkeypatch.setenv(VARIABLE, "decimal:Decimal, outside:LaplaceNoise")
    np.testing.assert_array_equal(open_model(path).predict(X), expected)


def test_without_them_the_message_names_the_variable(noisy, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ArtifactError, match=rf"'laplace noise'. .*to a command, by {VARIABLE}=module:Class"):
        open_model(noisy[0])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_module:Class", "No module named 'no_such_module'"),
        ("decimal:Missing", "has no attribute 'Missing'"),
        ("decimal", "must name classes as 'module:Class'"),
        (":Decimal", "Empty module name"),
        ("decimal:MAX_PREC", "is no class"),
    ],
)
def test_a_name_of_no_class_is_refused_with_the_reason(name, reason):
    with pytest.raises(InputError, match=reason):
        named_classes(name)
