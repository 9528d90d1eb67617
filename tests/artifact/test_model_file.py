"""Model files: what comes back is what was saved, to the bit; damage is noticed; nothing half-written stays behind."""

import errno
import hashlib
import json
import math
import os
import pickle
import re
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from safetensors.numpy import save as as_safetensors
from sklearn.base import clone

import equipoise as eq
from equipoise.artifact import model_file as artifact
from equipoise.artifact.header import FORMAT_VERSION
from equipoise.artifact.model_file import ArtifactError
from equipoise.training import checkpoint

pytestmark = pytest.mark.usefixtures("long_training")
MODELS = Path(__file__).parents[1] / "models"
NAMES = {"inputs": ["x", "z"], "outputs": ["a [kg]", "b [kg]", "total [kg]"]}
SUM = eq.LinearConstraint.from_equations({"sum": "total = a + b"}, **NAMES)
WITH_KNOWN = eq.LinearConstraint.from_equations(
    {"sum": "total = a + b + loss", "double": "twice = 2 * a"},
    inputs=["x", "z"],
    known=["loss"],
    outputs=["a [kg]", "b [kg]", "total [kg]", "twice"],
)
PLAN = eq.TrainingPlan(max_epochs=8, batch_size=64, patience=5)


def table(n: int = 60, exact: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Inputs x, z and outputs a, b, a + b."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (n, 2))
    y = np.stack([np.sin(x[:, 0]), 0.5 * x[:, 0] * x[:, 1]], 1)
    y = np.hstack([y, y.sum(1, keepdims=True)])
    return x, y if exact else y + 0.05 * rng.normal(size=y.shape)


def fit(X, Y, constraint=SUM, **options) -> tuple[eq.ConstrainedBNNRegressor, object, object]:
    options = {"hidden": (6,), "n_draws": 40, "training": PLAN, "random_state": 0} | options
    return eq.ConstrainedBNNRegressor(constraint, **options).fit(X, Y), X, Y


def everything():
    """Frames, a known column, gaps, coupled balances, offsets, and much that was said of tolerances and sensors."""
    X, Y = table()
    loss = np.linspace(0, 1, len(X))
    X = pd.DataFrame({"other": 0.0, "z": X[:, 1], "x": X[:, 0], "loss": loss})
    values = [Y[:, 0], Y[:, 1], Y[:, 2] + loss, 2 * Y[:, 0] + 0.01 * np.cos(loss)]
    Y = pd.DataFrame(dict(zip(WITH_KNOWN.outputs, values, strict=True)))
    Y.iloc[::7, 1] = np.nan
    sensors = {"b [kg]": "learn", "a [kg]": 0.04, "twice": 0}
    options = {"tolerance": {"double": eq.TolerancePrior.paper()}, "sensor_std": sensors, "offset": True}
    return fit(X, Y, WITH_KNOWN, **options, activation="tanh", likelihood="joint", prior_std=0.5)


def one_output():
    X, Y = table()
    return fit(X, Y[:, 0], None, max_epochs=6, training=None, validation_fraction=0.0)


def obeyed_to_rounding():
    """Exact balances, so there is neither a sensor nor, although asked for, an offset."""
    return fit(*table(exact=True), offset=True)


def the_papers():
    return fit(*table(), likelihood="marginal", tolerance=eq.TolerancePrior.paper(), hidden=[6, 5], activation="relu")


def sensors_per_row():
    X, Y = table()
    return fit(X, Y, sensor_std=np.full(Y.shape, 0.05), random_state=np.random.RandomState(4))


def balances_without_inputs():
    """Matrices instead of text, columns that polars names, sensors as a pandas Series."""
    X, Y = table()
    constraint = eq.LinearConstraint([[1, 1, -1]], b=[0.0], outputs=["a", "b", "c"], units=["t"])
    sensors = pd.Series({"a": 0.05, "c": 0.05})
    frames = pl.DataFrame(X, schema=["left", "right"]), pl.DataFrame(Y, schema=["a", "b", "c"])
    return fit(*frames, constraint, sensor_std=sensors, tolerance=0.1)


def numbered_columns():
    X, Y = table()
    return fit(pd.DataFrame(X), pd.DataFrame(Y).rename_axis(columns="sensor"), None, sensor_std=[0.05, 0.05, 0.04])


MAKERS = [
    everything,
    one_output,
    obeyed_to_rounding,
    the_papers,
    sensors_per_row,
    balances_without_inputs,
    numbered_columns,
]


@cache
def made(maker):
    return maker()


@pytest.fixture(params=MAKERS, ids=lambda maker: maker.__name__)
def pair(request, tmp_path):
    """A model, the same one saved and loaded, its data and its file."""
    model, X, Y = made(request.param)
    model.save(tmp_path / "m.safetensors")
    return model, artifact.load(tmp_path / "m.safetensors"), X, Y, tmp_path / "m.safetensors"


def plain(values) -> np.ndarray:
    return np.asarray(values, dtype=float)


def measured(model, X):
    return model.predict_distribution(X).measured(0.05 if model._sensors_per_row else None)


# --- What comes back --------------------------------------------------------------------------------------------------


def test_predictions_are_the_same_to_the_bit(pair):
    model, loaded, X, Y, _ = pair
    before, after = model.predict_distribution(X), loaded.predict_distribution(X)
    for ask in (
        lambda m: m.predict(X),
        lambda m: m.predict(X, return_std=True)[1],
        lambda m: m.predict_interval(X, 0.9)[0],
        lambda m: m.sample_y(X, 5),
        lambda m: m.predict_distribution(X).covariance(),
        lambda m: measured(m, X).std,
        lambda m: measured(m, X).log_prob(Y),
        lambda m: m.score(X, Y),
    ):
        expected, restored = ask(model), ask(loaded)
        assert type(restored) is type(expected)
        np.testing.assert_array_equal(plain(restored), plain(expected))
    pd.testing.assert_frame_equal(after.ledger().to_frame(), before.ledger().to_frame(), check_exact=True)
    if model.constraint is not None:
        np.testing.assert_array_equal(after.residual_of_means(3), before.residual_of_means(3))


def test_frames_come_back_in_kind(pair):
    model, loaded, X, _, _ = pair
    before, after = model.predict_distribution(X).mean, loaded.predict_distribution(X).mean
    assert type(after) is type(before)
    if isinstance(before, pd.DataFrame):
        pd.testing.assert_frame_equal(after, before, check_exact=True)
    if isinstance(before, pl.DataFrame):
        assert after.equals(before)


def test_tables_and_history_come_back(pair):
    model, loaded, _, _, _ = pair
    pd.testing.assert_frame_equal(loaded.tolerances_, model.tolerances_, check_exact=True)
    pd.testing.assert_frame_equal(loaded.sensor_std_, model.sensor_std_, check_exact=True)
    timeless = [
        {name: value for name, value in record.items() if name != "seconds"} for record in model.history_.epochs
    ]
    assert loaded.history_.epochs == timeless
    assert (loaded.history_.best_epoch, loaded.history_.stopped) == (model.history_.best_epoch, model.history_.stopped)


def test_no_attribute_of_a_fit_is_forgotten(pair):
    model, loaded, _, _, _ = pair
    assert vars(loaded).keys() == vars(model).keys()
    for name in ("seed_", "output_names_", "n_features_in_", "_single", "_seen_names", "_sensors_per_row"):
        assert getattr(loaded, name) == getattr(model, name)
    assert list(getattr(loaded, "feature_names_in_", ())) == list(getattr(model, "feature_names_in_", ()))


def test_balances_come_back_with_their_text(pair):
    model, loaded, _, _, _ = pair
    for name in ("constraint", "constraint_"):
        before, after = getattr(model, name), getattr(loaded, name)
        assert after == before
        assert getattr(after, "equations", None) == getattr(before, "equations", None)


def test_a_loaded_model_can_be_cloned_pickled_and_saved_again(pair, tmp_path):
    model, loaded, X, Y, path = pair
    np.testing.assert_array_equal(plain(pickle.loads(pickle.dumps(loaded)).predict(X)), plain(model.predict(X)))
    loaded.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()
    if isinstance(model.random_state, int) and not model._sensors_per_row:
        np.testing.assert_array_equal(plain(clone(loaded).fit(X, Y).predict(X)), plain(model.predict(X)))


def test_the_plan_that_was_followed_stays_that_of_the_fit_when_defaults_change(tmp_path, monkeypatch):
    model, X, Y = made(everything)
    model = clone(model).set_params(training=None, max_epochs=2).fit(X, Y)
    model.save(tmp_path / "a.safetensors")
    monkeypatch.setattr(type(model), "_plan", lambda self: eq.TrainingPlan(temperature=0.125))  # those of another day
    eq.load(tmp_path / "a.safetensors").save(tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == (tmp_path / "a.safetensors").read_bytes()
    assert eq.load(tmp_path / "b.safetensors").plan_ == eq.TrainingPlan(max_epochs=2)


def test_a_balance_without_unit_has_none_in_the_header(tmp_path):
    made(everything)[0].save(tmp_path / "m.safetensors")
    description = artifact.describe(tmp_path / "m.safetensors")
    assert (
        [record["unit"] for record in description.tolerances]
        == [balance.unit for balance in description.balances]
        == ["kg", None]
    )


def test_matrices_that_are_laid_out_by_columns_can_be_saved(tmp_path):
    """Within rounding only: the sums of a matrix product depend on the layout."""
    X, Y = table()
    B = np.asfortranarray([[1.0, 1.0, -1.0], [1.0, -3.0, 0.0]])
    model, _, _ = fit(X, Y, eq.LinearConstraint(B, np.asfortranarray([[0.1, 0.2], [0.3, 0.4]])))
    model.save(tmp_path / "m.safetensors")
    loaded = artifact.load(tmp_path / "m.safetensors")
    assert loaded.constraint == model.constraint
    np.testing.assert_allclose(loaded.predict(X), model.predict(X), rtol=1e-10, atol=1e-12)


def test_sensors_given_per_row_are_a_note_that_no_fit_mistakes_for_a_value(tmp_path):
    model, X, Y = made(sensors_per_row)
    model.save(tmp_path / "m.safetensors")
    loaded = artifact.load(tmp_path / "m.safetensors")
    assert loaded.sensor_std == "given per row, shape (60, 3)"
    with pytest.raises(ValueError, match=r"must be 'learn', but got 'given per row, shape \(60, 3\)'"):
        clone(loaded).fit(X, Y)


def test_labels_that_are_no_text_or_number_give_way_to_their_names(tmp_path):
    X, Y = table()
    days = pd.DataFrame(Y, columns=pd.to_datetime(["2026-01-01", "2026-01-02", "2026-01-03"]))
    model, _, _ = fit(pd.DataFrame(X), days, None)
    model.save(tmp_path / "m.safetensors")
    assert list(artifact.load(tmp_path / "m.safetensors").predict(pd.DataFrame(X)).columns) == list(model.output_names_)


def test_tensors_are_on_the_device_that_was_asked_for(tmp_path):
    made(one_output)[0].save(tmp_path / "m.safetensors")
    loaded = artifact.load(tmp_path / "m.safetensors", device="meta")
    assert loaded.device == "meta"
    assert loaded.model_.network.posterior.loc.device == torch.device("meta")


def test_a_job_and_notes_are_kept(tmp_path):
    model, _, _ = made(one_output)
    notes = {"data": "cell.csv", "rows": np.int64(7), "crps": np.float32(0.5), "nan": math.nan}
    artifact.save(model, tmp_path / "m.safetensors", job='data = "cell.csv" # \\ü', notes=notes)
    description = artifact.describe(tmp_path / "m.safetensors")
    assert description.job == 'data = "cell.csv" # \\ü'
    assert repr(description.notes) == "{'data': 'cell.csv', 'rows': 7, 'crps': 0.5, 'nan': nan}"
    artifact.load(tmp_path / "m.safetensors")


# --- The format -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["format_1", "format_2"])
def test_a_file_of_each_format_opens_and_predicts_what_it_did(name):
    """Within 1e-5 of each output's range: platforms round the network's float32 sums differently."""
    expected = json.loads((MODELS / f"{name}.json").read_text("utf-8"))
    model = artifact.load(MODELS / f"{name}.safetensors")
    p = model.predict_distribution(pd.DataFrame(expected["X"], columns=list(model.feature_names_in_)))
    lower, upper = p.interval(0.9)
    got = {"mean": p.mean, "std": p.std, "lower": lower, "upper": upper, "measured std": p.measured().std}
    tolerance = 1e-5 * model.standardizer_.y_std
    for kind, values in (got | {"sample": p.sample(3)}).items():
        assert np.all(np.abs(plain(values) - expected[kind]) < tolerance), kind
    np.testing.assert_allclose(p.measured().log_prob(p.mean), expected["log_prob"], rtol=1e-4)
    assert (MODELS / f"{name}.safetensors").stat().st_size < 100_000


def test_the_present_format_has_a_file_that_guards_it():
    assert artifact.describe(MODELS / f"format_{FORMAT_VERSION}.safetensors").format_version == FORMAT_VERSION


def parts(raw: bytes) -> tuple[dict, dict, bytes]:
    """Header, the entry in it, and tensor bytes of a model file, read by hand."""
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    return header, json.loads(header["__metadata__"]["equipoise"]), raw[8 + length :]


def test_the_checksum_is_that_of_the_file_with_zeros_in_its_place(tmp_path):
    model, _, _ = made(everything)
    zeros = {"checksum": 64 * "0"}  # what looks like the checksum, in a note
    artifact.save(model, tmp_path / "m.safetensors", notes=zeros, job='"checksum":"' + 64 * "0")
    raw = (tmp_path / "m.safetensors").read_bytes()
    digest = parts(raw)[1]["checksum"]
    assert hashlib.sha256(raw.replace(digest.encode(), 64 * b"0")).hexdigest() == digest
    assert artifact.describe(tmp_path / "m.safetensors").notes == zeros
    artifact.load(tmp_path / "m.safetensors")


def test_tensors_are_those_of_model_scales_and_balances():
    model, _, _ = made(everything)
    tensors = artifact._tensors(model)
    np.testing.assert_array_equal(tensors["constraint.A"], WITH_KNOWN.A)
    np.testing.assert_array_equal(tensors["standardizer.y_std"], model.standardizer_.y_std)
    assert {name for name in tensors if name.startswith("model.")} == {f"model.{k}" for k in model.model_.state_dict()}


def sealed(tensors: dict, entry: dict) -> bytes:
    """A file by hand, with the right checksum."""
    entry["checksum"] = 64 * "0"
    raw = as_safetensors(tensors, {"equipoise": json.dumps(entry, separators=(",", ":"))})
    return raw.replace(64 * b"0", hashlib.sha256(raw).hexdigest().encode(), 1)


def test_fields_from_the_future_do_no_harm(tmp_path):
    model, X, _ = made(the_papers)
    model.save(tmp_path / "m.safetensors")
    _, entry, _ = parts((tmp_path / "m.safetensors").read_bytes())
    entry = {"format": entry.pop("format"), "format_version": entry.pop("format_version"), "checksum": ""} | entry
    entry["colour"] = entry["configuration"]["colour"] = entry["configuration"]["training"]["colour"] = "green"
    tensors = {name: values.numpy() for name, values in artifact._tensors(model).items()}
    tensors["colours"] = np.arange(3.0)
    (tmp_path / "m.safetensors").write_bytes(sealed(tensors, entry))
    np.testing.assert_array_equal(artifact.load(tmp_path / "m.safetensors").predict(X), model.predict(X))


def test_tables_for_people_say_nothing_about_how_to_build_the_network(pair, tmp_path):
    """The words in them may change; what the network is stands in a part of the header of its own."""
    model, _, X, _, path = pair
    entry = parts(path.read_bytes())[1]
    for row in (*entry["tolerances"], *entry["sensors"]):
        row["kind"] = "in other words"
    entry = {"format": entry.pop("format"), "format_version": entry.pop("format_version"), "checksum": ""} | entry
    tensors = {name: values.numpy() for name, values in artifact._tensors(model).items()}
    (tmp_path / "reworded.safetensors").write_bytes(sealed(tensors, entry))
    loaded = artifact.load(tmp_path / "reworded.safetensors")
    np.testing.assert_array_equal(plain(loaded.predict(X)), plain(model.predict(X)))
    np.testing.assert_array_equal(loaded.sample_y(X, 2), model.sample_y(X, 2))


@pytest.mark.parametrize("lost", ["standardizer.y_std", "constraint.B", "model.network.posterior.loc"])
def test_a_file_without_a_tensor_that_it_needs_is_refused(tmp_path, lost):
    model, _, _ = made(the_papers)
    model.save(tmp_path / "m.safetensors")
    _, entry, _ = parts((tmp_path / "m.safetensors").read_bytes())
    tensors = {name: values.numpy() for name, values in artifact._tensors(model).items() if name != lost}
    (tmp_path / "m.safetensors").write_bytes(sealed(tensors, entry))
    found = re.escape(lost.removeprefix("model.").removeprefix("standardizer."))
    with pytest.raises(ArtifactError, match=rf"m\.safetensors' must hold the model that its header describes.*{found}"):
        artifact.load(tmp_path / "m.safetensors")


def test_the_same_fit_gives_the_same_bytes_even_if_it_was_killed_in_between(tmp_path, monkeypatch):
    X, Y = table()
    fit(X, Y)[0].save(tmp_path / "whole.safetensors")
    monkeypatch.setattr(checkpoint.Checkpoint, "save_if_due", lambda self, state: self.save(state()))
    model = eq.ConstrainedBNNRegressor(
        SUM, hidden=(6,), n_draws=40, training=PLAN, random_state=0, checkpoint=tmp_path / "run.pt"
    )

    def kill(record):
        if record["epoch"] == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, callback=kill)
    with pytest.raises(ArtifactError, match=r"model must be fitted, but got one that is not\. Call fit"):
        model.save(tmp_path / "killed.safetensors")
    model.fit(X, Y).save(tmp_path / "resumed.safetensors")
    assert (tmp_path / "resumed.safetensors").read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


# --- Damage -----------------------------------------------------------------------------------------------------------


def test_no_flipped_byte_goes_unnoticed(tmp_path):
    good, path = (MODELS / "format_1.safetensors").read_bytes(), tmp_path / "m.safetensors"
    for at in [*range(100), *range(100, len(good), 199), len(good) - 1]:
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x01]) + good[at + 1 :])
        with pytest.raises(ArtifactError, match=re.escape(str(path))):
            artifact.load(path)


def test_a_file_cut_anywhere_is_refused(tmp_path):
    good, path = (MODELS / "format_1.safetensors").read_bytes(), tmp_path / "m.safetensors"
    for at in [*range(20), *range(20, len(good), 199), len(good) - 1]:
        path.write_bytes(good[:at])
        with pytest.raises(ArtifactError, match=re.escape(str(path))):
            artifact.load(path)


def test_damaged_tensors_are_refused_by_name_while_the_header_can_still_be_read(tmp_path):
    good, path = (MODELS / "format_1.safetensors").read_bytes(), tmp_path / "m.safetensors"
    path.write_bytes(good[:-3] + b"\x00\x01\x02")
    with pytest.raises(ArtifactError, match=rf"'{re.escape(str(path))}' is damaged: its checksum does not match"):
        artifact.load(path)
    assert artifact.describe(path).to_json() == artifact.describe(MODELS / "format_1.safetensors").to_json()


# --- Writing ----------------------------------------------------------------------------------------------------------


def test_what_is_not_a_fitted_model_is_not_saved(tmp_path):
    path = tmp_path / "m.safetensors"
    with pytest.raises(ArtifactError, match=r"model must be fitted, but got one that is not\. Call fit\(X, y\) first"):
        eq.ConstrainedBNNRegressor().save(path)
    with pytest.raises(ArtifactError, match="model must be a ConstrainedBNNRegressor, but got dict"):
        artifact.save({}, path)  # type: ignore[arg-type]
    with pytest.raises(ArtifactError, match="but got MethodRegressor"):
        artifact.save(eq.MethodRegressor(), path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("notes", "complaint"), [({"a": [1]}, "'notes.a"), ({"a": 1j}, "'notes.a"), ({3: "a"}, "'notes.3")]
)
def test_a_note_that_is_no_text_or_number_is_named(tmp_path, notes, complaint):
    with pytest.raises(ArtifactError, match=rf"holds texts and numbers, but its field {re.escape(complaint)}"):
        artifact.save(made(one_output)[0], tmp_path / "m.safetensors", notes=notes)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_missing_or_in_the_way_is_named(tmp_path):
    model, _, _ = made(one_output)
    with pytest.raises(ArtifactError, match=r"folder of 'm\.safetensors' must exist, but got '.*nowhere'\. Make it"):
        model.save(tmp_path / "nowhere" / "m.safetensors")
    with pytest.raises(ArtifactError, match=rf"must not be a folder, but got '{re.escape(str(tmp_path))}'"):
        model.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), PermissionError(13, "Not allowed")]
)
def test_a_write_that_fails_is_named_and_leaves_the_old_file_alone(tmp_path, monkeypatch, error):
    model, path = made(one_output)[0], tmp_path / "m.safetensors"
    path.write_bytes(b"old")

    def refuse(descriptor):
        raise error

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(ArtifactError, match=rf"'{re.escape(str(path))}' cannot be written: {error.strerror}"):
        model.save(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupt_while_writing_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupt(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        made(one_output)[0].save(tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []
