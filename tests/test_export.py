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
from equipoise.artifact.model_file import ArtifactError
from equipoise.export import export

pytestmark = pytest.mark.xdist_group("deployment")  # one worker writes and runs the program, once
SMALL = {"hidden": (6,), "training": eq.TrainingPlan(max_epochs=2, batch_size=64), "random_state": 0}
LAWS = {"sum": "total = a + b + loss", "difference": "a = b + gap"}
BALANCES = eq.LinearConstraint.from_equations(
    LAWS, inputs=["x", "z [K]"], known=["loss"], outputs=["a", "b", "total [kg]", "gap"]
)
ROWS = (0, 1, 2, 60)

# What a user's machine does, which has torch only.
PROGRAM = """
import sys
sys.modules["equipoise"] = None
import gc; gc.disable()  # to be sooner ready
import numpy, torch

x, names = torch.from_numpy(numpy.load("x.npy")), {"equipoise.json": ""}
program = torch.export.load("balanced.pt2", extra_files=names).module()
said = {"names": numpy.array(names["equipoise.json"])}
for n in (0, 1, 2, 60):
    said[f"mean {n}"], said[f"std {n}"] = (part.numpy() for part in program(x[:n]))
numpy.savez("said.npz", **said)
gc.freeze()
"""


def table(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Inputs x, z and a known loss; outputs a, b, a + b + loss and a − b, with noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 3))
    a, b = 3.0 + np.sin(X[:, 0]), 100.0 * X[:, 0] * X[:, 1]
    Y = np.stack([a, b, a + b + X[:, 2], a - b], 1)
    return X, Y + rng.normal(size=Y.shape) * [0.05, 5.0, 5.0, 5.0]


@pytest.fixture(scope="module")
def balanced() -> eq.ConstrainedBNNRegressor:
    """Two balances that share outputs: one is exact, the other learned; both have an offset."""
    X, Y = table()
    frames = pd.DataFrame(X, columns=list(BALANCES.columns)), pd.DataFrame(Y, columns=list(BALANCES.outputs))
    options = {"tolerance": {"sum": 0}, "offset": True, "activation": "tanh"}
    return eq.ConstrainedBNNRegressor(BALANCES, **options, **SMALL).fit(*frames)


@pytest.fixture(scope="module")
def plain() -> eq.ConstrainedBNNRegressor:
    """A network alone, of one output."""
    X, Y = table()
    return eq.ConstrainedBNNRegressor(None, **SMALL).fit(X[:, :2], Y[:, 0])


@pytest.fixture(scope="module")
def said(balanced, tmp_path_factory) -> dict:
    """What the program said in another process."""
    folder = tmp_path_factory.mktemp("deployed")
    np.save(folder / "x.npy", table()[0])
    export(balanced, folder / "balanced.pt2", n_draws=50)
    run = subprocess.run([sys.executable, "-c", PROGRAM], cwd=folder, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    return dict(np.load(folder / "said.npz"))


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_the_program_says_what_the_model_says_of_the_same_draws(balanced, said):
    p = dataclasses.replace(balanced.predict_distribution(table()[0]), n_draws=50)
    for n in ROWS[1:]:
        spread = 1e-6 * balanced.standardizer_.y_std
        assert np.all(np.abs(said[f"mean {n}"] - p.mean[:n]) < spread)
        np.testing.assert_allclose(said[f"std {n}"], p.std[:n], rtol=1e-6, atol=1e-9)
    assert said["mean 0"].shape == said["std 0"].shape == (0, 4)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_it_would_say_otherwise_of_other_draws(balanced, said):
    p = dataclasses.replace(balanced.predict_distribution(table()[0]), n_draws=49)
    assert np.abs(said["std 60"] / p.std - 1).max() > 1e-4


def test_its_means_miss_an_exact_balance_by_its_offset_alone_to_rounding(said):
    (X, Y), mean = table(), said["mean 60"]
    exact, learned = np.ptp(BALANCES.residual(X, mean) / BALANCES.magnitude(X, Y).max(0), axis=0)
    assert exact < 1e-13
    assert learned > 1e-6  # as its tolerance allows
    assert np.ptp(BALANCES.residual(X, Y), axis=0).min() > 1  # which the data do not


def test_its_columns_are_named_in_order(said):
    explained = json.loads(str(said["names"]))
    assert explained["inputs"] == ["x", "z [K]"]
    assert explained["known"] == ["loss"]
    assert explained["outputs"] == ["a", "b", "total [kg]", "gap"]
    units = dict.fromkeys(BALANCES.columns + BALANCES.outputs)
    assert explained["units"] == units | {"z [K]": "K", "total [kg]": "kg"}
    balances = {balance["name"]: (balance["text"], balance["unit"]) for balance in explained["balances"]}
    assert balances == {"sum": (LAWS["sum"], "kg"), "difference": (LAWS["difference"], None)}
    assert explained["n_draws"] == 50


def test_the_model_itself_is_left_as_it_was_and_a_network_alone_can_be_exported_too(plain, tmp_path):
    before = {name: values.clone() for name, values in plain.model_.state_dict().items()}
    export(plain, tmp_path / "few.pt2", n_draws=3)
    assert all(torch.equal(values, before[name]) for name, values in plain.model_.state_dict().items())
    assert all(parameter.requires_grad for parameter in plain.model_.parameters())
    assert [path.name for path in tmp_path.iterdir()] == ["few.pt2"]
    program, x = torch.export.load(tmp_path / "few.pt2").module(), table()[0]
    p = dataclasses.replace(plain.predict_distribution(x[:, :2]), n_draws=3)
    mean, std = program(torch.from_numpy(x[:, :2]))
    np.testing.assert_allclose(mean, p.mean, rtol=0, atol=1e-6 * float(plain.standardizer_.y_std[0]))
    np.testing.assert_allclose(std, p.std, rtol=1e-6)
    with pytest.raises(Exception, match=r"x\.size\(\)\[1\] == 2|x\.shape\[1\]"):
        program(torch.from_numpy(x))


@pytest.mark.usefixtures("long_training")  # without executed annotations, which would object first
@pytest.mark.parametrize("n_draws", [0, -1, 2.5, "many", None])
def test_a_number_of_draws_that_is_none_is_refused(plain, tmp_path, n_draws):
    with pytest.raises(ArtifactError, match=rf"n_draws must be a whole number of at least 1, but got {n_draws!r}"):
        export(plain, tmp_path / "m.pt2", n_draws)


def test_what_cannot_be_exported_or_written_is_said(plain, tmp_path):
    with pytest.raises(ArtifactError, match="model must be fitted"):
        export(eq.ConstrainedBNNRegressor(), tmp_path / "m.pt2")
    with pytest.raises(ArtifactError, match=r"folder of 'm\.pt2' must exist, but got '.*nowhere'"):
        export(plain, tmp_path / "nowhere" / "m.pt2")
    assert list(tmp_path.iterdir()) == []
