"""The exported program: run where this library cannot be imported, it says what `predict` says, and obeys balances."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

import equipoise as eq
from equipoise.artifact import ArtifactError
from equipoise.deployment import export

SMALL = {"hidden": (6,), "training": eq.TrainingPlan(max_epochs=2, batch_size=64), "random_state": 0}
LEARNED = eq.LinearConstraint.from_equations(
    {"sum": "total = a + b + loss"}, inputs=["x", "z [K]"], known=["loss"], outputs=["a", "b", "total [kg]"]
)
EXACT = eq.LinearConstraint.from_equations(
    ["total = a + b + loss", "a = b + gap"],
    inputs=["x", "z"],
    known=["loss"],
    outputs=["a", "b", "total", "gap"],
)
ROWS = (0, 1, 2, 60)

# What a user's machine does, which has torch only.
PROGRAM = """
import sys
sys.modules["equipoise"] = None
import numpy, torch

x = torch.from_numpy(numpy.load(sys.argv[1]))
for path, n_columns in zip(sys.argv[2::2], map(int, sys.argv[3::2])):
    names = {"equipoise.json": ""}
    program = torch.export.load(path, extra_files=names).module()
    result = {"names": numpy.array(names["equipoise.json"])}
    for n in (0, 1, 2, 60):
        result[f"mean {n}"], result[f"std {n}"] = (part.numpy() for part in program(x[:n, :n_columns]))
    numpy.savez(path + ".npz", **result)
"""


def table(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Inputs x, z and a known loss; outputs a, b, a + b + loss and a − b, with noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 3))
    a, b = 3.0 + np.sin(X[:, 0]), 100.0 * X[:, 0] * X[:, 1]
    Y = np.stack([a, b, a + b + X[:, 2], a - b], 1)
    return X, Y + rng.normal(size=Y.shape) * [0.05, 5.0, 5.0, 5.0]


def models() -> dict[str, eq.ConstrainedBNNRegressor]:
    X, Y = table()
    frames = pd.DataFrame(X, columns=list(LEARNED.columns)), pd.DataFrame(Y[:, :3], columns=list(LEARNED.outputs))
    return {
        "learned": eq.ConstrainedBNNRegressor(LEARNED, offset=True, **SMALL).fit(*frames),
        "exact": eq.ConstrainedBNNRegressor(EXACT, tolerance=0, activation="tanh", **SMALL).fit(X, Y),
        "plain": eq.ConstrainedBNNRegressor(None, **SMALL).fit(X[:, :2], Y[:, 0]),
    }


@pytest.fixture(scope="module")
def deployed(tmp_path_factory) -> dict:
    """Models by name, with what their programs said in another process."""
    folder, fitted = tmp_path_factory.mktemp("deployed"), models()
    np.save(folder / "x.npy", table()[0])
    arguments: list = [folder / "x.npy"]
    for name, model in fitted.items():
        export(model, folder / f"{name}.pt2", n_draws=50)
        arguments += [folder / f"{name}.pt2", str(model.n_features_in_)]
    run = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    return {name: (model, np.load(folder / f"{name}.pt2.npz")) for name, model in fitted.items()}


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("name", ["learned", "exact", "plain"])
def test_the_program_says_what_the_model_says_of_the_same_draws(deployed, name):
    model, said = deployed[name]
    X = table()[0][:, : model.n_features_in_]
    p = dataclasses.replace(model.predict_distribution(X), n_draws=50)
    for n in ROWS[1:]:
        spread = 1e-6 * model.standardizer_.y_std
        assert np.all(np.abs(said[f"mean {n}"] - p.mean[:n]) < spread)
        np.testing.assert_allclose(said[f"std {n}"], p.std[:n], rtol=1e-6, atol=1e-9)
    assert said["mean 0"].shape == said["std 0"].shape == (0, len(model.output_names_))


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_it_would_say_otherwise_of_other_draws(deployed):
    model, said = deployed["learned"]
    p = dataclasses.replace(model.predict_distribution(table()[0]), n_draws=49)
    assert np.abs(said["std 60"] / p.std - 1).max() > 1e-4


def test_its_means_obey_exact_balances_to_rounding(deployed):
    _, said = deployed["exact"]
    X, mean = table()[0], said["mean 60"]
    residual, magnitude = EXACT.residual(X, mean), EXACT.magnitude(X, mean)
    assert np.all(np.abs(residual) < 1e-13 * magnitude)
    assert np.abs(EXACT.residual(X, table()[1])).max() > 1  # which the data do not


def test_its_columns_are_named_in_order(deployed):
    explained = json.loads(str(deployed["learned"][1]["names"]))
    assert explained["inputs"] == ["x", "z [K]"]
    assert explained["known"] == ["loss"]
    assert explained["outputs"] == ["a", "b", "total [kg]"]
    assert explained["units"] == {"x": None, "z [K]": "K", "loss": None, "a": None, "b": None, "total [kg]": "kg"}
    assert explained["balances"] == [{"name": "sum", "text": "total = a + b + loss", "unit": "kg"}]
    assert explained["n_draws"] == 50


def test_the_model_itself_is_left_as_it_was(deployed, tmp_path):
    model, _ = deployed["plain"]
    before = {name: values.clone() for name, values in model.model_.state_dict().items()}
    export(model, tmp_path / "few.pt2", n_draws=3)
    assert all(torch.equal(values, before[name]) for name, values in model.model_.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.model_.parameters())
    assert [path.name for path in tmp_path.iterdir()] == ["few.pt2"]
    program = torch.export.load(tmp_path / "few.pt2").module()
    with pytest.raises(Exception, match=r"x\.size\(\)\[1\] == 2|x\.shape\[1\]"):
        program(torch.zeros(4, 3, dtype=torch.float64))


@pytest.mark.usefixtures("long_training")  # without executed annotations, which would object first
@pytest.mark.parametrize("n_draws", [0, -1, 2.5, "many", None])
def test_a_number_of_draws_that_is_none_is_refused(deployed, tmp_path, n_draws):
    with pytest.raises(ArtifactError, match=rf"n_draws must be a whole number of at least 1, but got {n_draws!r}"):
        export(deployed["plain"][0], tmp_path / "m.pt2", n_draws)


def test_what_cannot_be_exported_or_written_is_said(deployed, tmp_path):
    with pytest.raises(ArtifactError, match="model must be fitted"):
        export(eq.ConstrainedBNNRegressor(), tmp_path / "m.pt2")
    with pytest.raises(ArtifactError, match=r"folder of 'm\.pt2' must exist, but got '.*nowhere'"):
        export(deployed["plain"][0], tmp_path / "nowhere" / "m.pt2")
    assert list(tmp_path.iterdir()) == []
