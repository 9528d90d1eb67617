"""Rows that stay in their files: the fit of the same arrays in memory, without holding them."""

import dataclasses
import re
import tracemalloc

import numpy as np
import pytest
import torch
from outside import ComponentBalance

import equipoise as eq
from equipoise import estimator
from equipoise.data import holdout, rows as streaming, table_passes
from equipoise.data.rows import Rows, StreamedRows, mean_sensor_var, standardize
from equipoise.data.scaling import Standardizer
from equipoise.gaussian.conditioning import ConditioningLayer
from equipoise.network.mlp import BayesianMLP
from equipoise.network.model import ConstrainedBNN
from equipoise.rivals.methods.regressor import MethodRegressor
from equipoise.training import recipe
from equipoise.training.checkpoint import TrainingError
from equipoise.training.loop import train
from equipoise.training.plan import TrainingPlan

BALANCES = eq.LinearConstraint.from_equations(
    {"sum": "total = a + b + feed", "same": "c = 2 * a"},
    inputs=["x", "z"],
    known=["feed"],
    outputs=["a", "b", "total", "c"],
)


def table(n: int = 500, missing: float = 0.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal([300.0, 1.0, 5.0], [10.0, 0.2, 1.0], (n, 3))
    a, b = np.sin((X[:, 0] - 300) / 10), X[:, 1] ** 2
    Y = np.column_stack([a, b, a + b + X[:, 2], 2 * a]) + 0.02 * rng.normal(size=(n, 4))
    Y[rng.random(Y.shape) < missing] = np.nan
    return X, Y


@pytest.fixture
def mapped(tmp_path):
    """Gives arrays as ones that stay in their files, not to be written to."""

    def make(*arrays):
        for i, values in enumerate(arrays):
            np.save(tmp_path / f"{i}.npy", values)
        return [np.load(tmp_path / f"{i}.npy", mmap_mode="r") for i in range(len(arrays))]

    return make


def fitted(X, Y, **options):
    options = {"hidden": (8,), "max_epochs": 6, "random_state": 3} | options
    return eq.ConstrainedBNNRegressor(options.pop("constraint", BALANCES), **options).fit(X, Y)


def assert_same(one, other, rtol: float = 1e-5):
    """Weights, tolerances, sensors and what is said of them agree to the rounding of single precision."""
    for name, values in one.model_.state_dict().items():
        torch.testing.assert_close(other.model_.state_dict()[name], values, rtol=rtol, atol=rtol, equal_nan=True)
    assert one.held_out_.tolist() == other.held_out_.tolist()
    for found, expected in ((other.tolerances_, one.tolerances_), (other.sensor_std_, one.sensor_std_)):
        numbers = expected.select_dtypes("number")
        np.testing.assert_allclose(found[numbers.columns].to_numpy(), numbers.to_numpy(), rtol=10 * rtol, atol=1e-9)
    assert one.tolerances_["verdict"].tolist() == other.tolerances_["verdict"].tolist()


# --- Fits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "options"),
    [
        (0.0, {}),
        (0.2, {}),
        (0.0, {"sensor_std": np.linspace(0.01, 0.03, 2000).reshape(500, 4)}),
        (0.2, {"likelihood": "marginal", "offset": True, "validation_fraction": 0.0}),
    ],
    ids=["complete", "missing outputs", "sensors known per row", "marginal"],
)
@pytest.mark.usefixtures("long_training")
def test_a_fit_from_files_is_that_of_the_arrays_in_memory(mapped, missing, options, monkeypatch):
    X, Y = table(missing=missing)
    in_memory = fitted(X, Y, **options)
    trained_on = []
    monkeypatch.setattr(recipe, "train", lambda m, rows, *a, **k: (trained_on.append(rows), train(m, rows, *a, **k))[1])
    assert_same(in_memory, fitted(*mapped(X, Y), **options))
    assert isinstance(trained_on[0], StreamedRows)


@pytest.mark.usefixtures("long_training")
def test_many_pieces_make_the_fit_of_one(mapped, monkeypatch):
    """Sums in another order: means and spreads move by rounding, and what is trained follows."""
    X, Y = table(missing=0.1)
    in_one = fitted(X, Y)
    for module in (table_passes, streaming):
        monkeypatch.setattr(module, "PIECE", 64)
    in_pieces = fitted(*mapped(X, Y))
    for name in ("x_mean", "x_std", "y_mean", "y_std"):
        expected = getattr(in_one.standardizer_, name)
        np.testing.assert_allclose(getattr(in_pieces.standardizer_, name), expected, rtol=1e-12, atol=1e-13)
    assert_same(in_one, in_pieces, rtol=2e-3)


@pytest.mark.usefixtures("long_training")
def test_single_precision_and_whole_numbers_in_files_are_taken_for_what_they_are(mapped):
    X, Y = table()
    for kind in (np.float32, np.int16):
        x, y = (X * 100).astype(kind), (Y * 100).astype(kind)
        assert_same(fitted(x, y, max_epochs=2), fitted(*mapped(x, y), max_epochs=2))


@pytest.mark.usefixtures("long_training")
def test_inputs_in_a_file_go_with_outputs_in_memory_and_with_a_single_one(mapped):
    X, Y = table()
    (x,) = mapped(X)
    assert_same(fitted(X, Y, max_epochs=2), fitted(x, Y, max_epochs=2))
    (y,) = mapped(Y[:, 0].copy())
    one = fitted(X, np.asarray(y), constraint=None, max_epochs=2)
    other = fitted(X, y, constraint=None, max_epochs=2)
    np.testing.assert_allclose(other.predict(X[:5]), one.predict(X[:5]), rtol=1e-5)
    assert other.predict(X[:5]).shape == (5,)


@pytest.mark.usefixtures("long_training")
def test_whoever_trains_in_another_way_gets_rows_in_memory(mapped):
    X, Y = table(200)
    models = [
        MethodRegressor(BALANCES, inference="deterministic", imposition="projection", hidden=(4,), max_epochs=2)
        for _ in range(2)
    ]
    one, other = (
        m.set_params(random_state=0).fit(*data) for m, data in zip(models, ((X, Y), mapped(X, Y)), strict=True)
    )
    np.testing.assert_allclose(other.predict(X[:5]), one.predict(X[:5]), rtol=1e-6)


@pytest.mark.usefixtures("long_training")
def test_no_more_rows_of_a_file_are_held_out_than_memory_is_asked_for(mapped, monkeypatch):
    monkeypatch.setattr(estimator, "MOST_STREAMED", 20)
    X, Y = table()
    assert len(fitted(*mapped(X, Y), max_epochs=2).held_out_) == 20
    assert len(fitted(X, Y, max_epochs=2).held_out_) == 50
    assert holdout.MOST_STREAMED == 100_000


@pytest.mark.usefixtures("long_training")
def test_a_fit_from_files_takes_a_part_of_their_size_in_memory(mapped):
    """Arrays that numpy makes, batches of torch among them: less than half of the table. A copy would be all of it."""
    X, Y = mapped(*table(200_000))
    fitted(X[:50], Y[:50], max_epochs=2)  # what is imported late is no part of it
    model = eq.ConstrainedBNNRegressor(
        BALANCES,
        tolerance=0.1,
        hidden=(4,),
        max_epochs=2,
        validation_fraction=0.01,
        random_state=0,
        training=TrainingPlan(batch_size=2048),  # a step takes memory for each of its rows
    )
    tracemalloc.start()
    try:
        model.fit(X, Y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < (X.nbytes + Y.nbytes) / 2, f"{peak / 1e6:.1f} MB for {(X.nbytes + Y.nbytes) / 1e6:.1f} MB"


# --- Refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "value", "said"),
    [
        ("X", np.nan, "X must hold finite numbers only, but got nan in column 'feed', row 333. Drop it or fill it in."),
        ("X", np.inf, "X must hold finite numbers only, but got inf in column 'feed', row 333."),
        ("Y", -np.inf, "y must hold finite numbers, NaN where not measured, but got -inf in column 'total', row 333."),
    ],
)
def test_a_number_that_is_not_finite_is_named_with_column_and_row(mapped, monkeypatch, argument, value, said):
    monkeypatch.setattr(table_passes, "PIECE", 64)
    data = dict(zip("XY", table(), strict=True))
    data[argument][333, 2] = value
    with pytest.raises(ValueError, match=re.escape(said)):
        fitted(*mapped(*data.values()))


def test_columns_that_nobody_named_are_called_by_their_number(mapped):
    X, Y = table()
    X[7, 1] = np.nan
    with pytest.raises(ValueError, match="but got nan in column 'x1', row 7"):
        fitted(*mapped(X, Y), constraint=None)


def test_a_file_that_was_cut_while_it_was_mapped_is_refused(mapped, tmp_path):
    X, Y = mapped(*table())
    with open(tmp_path / "1.npy", "r+b") as file:
        file.truncate(5_000)
    with pytest.raises(ValueError, match="The file of y must not change while it is mapped, but got a shorter one"):
        fitted(X, Y)


# --- Rows -------------------------------------------------------------------------------------------------------------


def rows_of(X, Y, sensor_std=None) -> tuple[Rows, StreamedRows]:
    """Every third row left out: in memory, and to be read when needed."""
    positions = np.flatnonzero(np.arange(len(X)) % 3)
    s = Standardizer.fit(X, Y, BALANCES, positions)
    per_row = None if sensor_std is None else sensor_std[positions]
    return standardize(s, X[positions], Y[positions], per_row), StreamedRows(X, Y, s, positions, sensor_std)


def assert_equal_rows(found: Rows, expected: Rows):
    for one, other in zip(found.parts(), expected.parts(), strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("sensor_std", [None, np.linspace(0.1, 0.2, 480).reshape(120, 4)])
def test_any_rows_in_any_order_are_those_in_memory(mapped, sensor_std):
    X, Y = table(120, missing=0.1)
    in_memory, _ = rows_of(X, Y, sensor_std)
    streamed = rows_of(*mapped(X, Y), sensor_std)[1]
    assert len(streamed) == len(in_memory) == 80
    shuffled = torch.randperm(80, generator=torch.Generator().manual_seed(0))[:50]
    for index in (shuffled, slice(3, 40), slice(70, 90), torch.tensor([5])):
        assert_equal_rows(streamed.take(index), in_memory.take(index))


def test_pieces_follow_each_other_to_the_last_row(monkeypatch):
    monkeypatch.setattr(streaming, "PIECE", 32)
    X, Y = table(120)
    in_memory, streamed = rows_of(X, Y)
    for rows in (in_memory, streamed):
        parts = list(rows.pieces())
        assert [len(part) for part in parts] == [32, 32, 16]
        together = (torch.cat(same) for same in zip(*(part.parts()[:3] for part in parts), strict=True))
        assert_equal_rows(Rows(*together), in_memory)


def test_rows_are_complete_if_those_trained_on_are():
    X, Y = table(120)
    assert rows_of(X, Y)[1].complete
    Y[3, 1] = np.nan  # left out
    assert rows_of(X, Y)[1].complete
    assert rows_of(X, Y)[1].take(slice(0, 2)).complete
    Y[4, 1] = np.nan
    streamed = rows_of(X, Y)[1]
    assert not streamed.complete
    assert [streamed.take(slice(i, i + 2)).complete for i in (0, 2)] == [True, False]


def test_rows_of_complete_ones_know_that_they_are_from_the_moment_they_are_made():
    fields = {field.name for field in dataclasses.fields(Rows)}
    for rows in rows_of(*table(120)):
        assert rows.complete
        batch = rows.take(slice(0, 8))
        assert vars(batch).keys() == fields  # nothing is written into a value afterwards
        assert batch.known_complete
        assert batch.to("cpu").known_complete
    for rows in rows_of(*table(120, missing=0.1)):
        assert not rows.take(slice(0, 8)).known_complete


def test_the_mean_of_sensors_known_per_row_is_over_all_of_them(monkeypatch):
    monkeypatch.setattr(streaming, "PIECE", 32)
    X, Y = table(120)
    std = np.random.default_rng(0).uniform(0.1, 0.2, Y.shape)
    expected = (std[np.arange(120) % 3 > 0] / rows_of(X, Y)[1].standardizer.y_std) ** 2
    for rows in rows_of(X, Y, std):
        np.testing.assert_allclose(mean_sensor_var(rows), expected.mean(0), rtol=1e-12)
    assert mean_sensor_var(rows_of(X, Y)[1]) is None


# --- Checkpoints ------------------------------------------------------------------------------------------------------


def small_model(rows: StreamedRows) -> ConstrainedBNN:
    network = BayesianMLP(2, 4, (4,), generator=torch.Generator().manual_seed(0))
    constraint = eq.LinearConstraint(rows.standardizer.B, names=BALANCES.names)
    return ConstrainedBNN(network, ConditioningLayer(constraint))


@pytest.mark.usefixtures("long_training")
def test_a_run_cut_short_goes_on_from_files_to_the_same_bits(mapped, tmp_path):
    plan, file = TrainingPlan(max_epochs=10, batch_size=32), tmp_path / "run.ckpt"
    streamed = rows_of(*mapped(*table(300, missing=0.1)))[1]
    whole, cut = small_model(streamed), small_model(streamed)
    train(whole, streamed, plan=plan, seed=5)

    def interrupt(record):
        if record["epoch"] == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(cut, streamed, plan=plan, seed=5, checkpoint=file, checkpoint_seconds=0.0, callback=interrupt)
    resumed, epochs = small_model(streamed), []
    train(resumed, streamed, plan=plan, seed=5, checkpoint=file, callback=lambda record: epochs.append(record["epoch"]))
    assert epochs == [7, 8, 9]
    state = resumed.state_dict()
    assert all(torch.equal(state[name], value) for name, value in whole.state_dict().items())


@pytest.mark.usefixtures("long_training")
def test_other_numbers_in_the_files_are_another_run(mapped, tmp_path, monkeypatch):
    for module in (table_passes, streaming):
        monkeypatch.setattr(module, "PIECE", 64)
    plan, file = TrainingPlan(max_epochs=2), tmp_path / "run.ckpt"
    X, Y = table(300)
    streamed = rows_of(X, Y)[1]
    train(small_model(streamed), streamed, plan=plan, checkpoint=file)
    Y[298, 3] += 1e-9
    other = StreamedRows(X, Y, streamed.standardizer, streamed.positions)
    with pytest.raises(TrainingError, match="belongs to another run"):
        train(small_model(other), other, plan=plan, checkpoint=file)


def test_coefficients_that_differ_by_row_go_with_their_rows_in_memory_and_from_files(mapped):
    rng = np.random.default_rng(0)
    X, Y = rng.uniform(1.0, 2.0, (30, 4)), rng.normal(size=(30, 3))
    s, order = Standardizer.fit(X, Y, ComponentBalance()), torch.tensor([7, 2, 19])
    expected = torch.as_tensor(s.linearise(X)[0])
    memory, streamed = standardize(s, X, Y), StreamedRows(*mapped(X, Y), s, np.arange(30))
    assert torch.equal(memory.B, expected)
    for some in (memory.take(order), streamed.take(order), memory.take(slice(0, 30)).to("cpu").take(order)):
        assert torch.equal(some.B, expected[order])
        assert torch.equal(some.parts()[-1], expected[order])
    one_B = standardize(Standardizer.fit(X[:, :3], Y @ np.ones((3, 4)), BALANCES), X[:, :3], Y @ np.ones((3, 4)))
    assert one_B.B is None
    assert len(one_B.parts()) == 4  # by which checkpoints of earlier versions are known
