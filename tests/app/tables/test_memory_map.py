"""Columns of a table as an array in a temporary file: what is in it, and what is left of it."""

import tempfile

import numpy as np
import pandas as pd
import pytest

import equipoise as eq
from equipoise.app.tables import TableError, memory_mapped
from equipoise.data.table_passes import is_mapped

PLANT = pd.DataFrame(
    {"t": range(7), "name": list("abcdefg"), "x": np.linspace(0, 1, 7), "y": [1, 2, None, 4, 5, 6, 7], "z": 2.5}
)


@pytest.fixture(params=["plant.csv", "plant.csv.gz", "plant.parquet"])
def plant(request, tmp_path):
    path = tmp_path / request.param
    write = PLANT.to_parquet if path.suffix == ".parquet" else PLANT.to_csv
    write(path, index=False)
    return path


def test_the_array_holds_the_columns_asked_for_in_their_order(plant):
    with memory_mapped(plant, ["z", "x", "y"], rows=3) as table:
        assert is_mapped(table)
        assert is_mapped(table[:, :2])
        assert not table.flags.writeable
        np.testing.assert_allclose(table, PLANT[["z", "x", "y"]].to_numpy(float), rtol=1e-13)


@pytest.mark.parametrize("error", [RuntimeError("mine"), KeyboardInterrupt("mine"), OSError("mine")])
def test_nothing_is_left_of_it_when_the_work_fails_and_its_error_is_passed_on(plant, tmp_path, error):
    folder = tmp_path / "room"
    folder.mkdir()
    with pytest.raises(type(error), match="mine"), memory_mapped(plant, ["x"], folder):
        raise error
    assert list(folder.iterdir()) == []


def test_the_array_lasts_for_as_long_as_it_is_used(plant):
    with memory_mapped(plant, ["x"]) as table:
        pass
    assert table[3, 0] == pytest.approx(0.5)


def test_a_cell_that_is_no_number_is_named_and_nothing_is_left(plant, tmp_path):
    with (
        pytest.raises(TableError, match=r"Column 'name' must hold numbers, but got 'a' in \w+ \d"),
        memory_mapped(plant, ["x", "name"], rows=2),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [plant.name]


def test_a_column_that_is_not_there_and_none_at_all_are_refused(plant):
    with pytest.raises(TableError, match="none called 'X'"), memory_mapped(plant, ["X"]):
        pass
    with pytest.raises(TableError, match=rf"columns must name some of '{plant.name}', but got none"):
        memory_mapped(plant, []).__enter__()


def test_a_torn_parquet_file_is_named(tmp_path):
    path = tmp_path / "torn.parquet"
    PLANT.to_parquet(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TableError, match=r"'torn.parquet' must be a whole parquet file"), memory_mapped(path, ["x"]):
        pass


def test_a_full_disk_is_told_in_one_sentence(plant, monkeypatch):
    text = rf"The folder '.*' must have room for the numbers of '{plant.name}', but got: No space left on device\. Give"
    with open("/dev/full", "r+b", buffering=0) as full:
        monkeypatch.setattr(tempfile, "TemporaryFile", lambda **options: full)
        with pytest.raises(TableError, match=text), memory_mapped(plant, ["x", "y"]):
            pass


def test_a_folder_that_is_not_there_is_told_too(plant, tmp_path):
    with (
        pytest.raises(TableError, match=r"nowhere' must have room .* but got: No such file"),
        memory_mapped(plant, ["x"], tmp_path / "nowhere"),
    ):
        pass


@pytest.mark.usefixtures("long_training")
def test_a_model_is_fitted_from_a_table_that_stays_in_its_file(tmp_path):
    x = np.linspace(-1, 1, 60)
    frame = pd.DataFrame({"x": x, "a": np.sin(x), "total": np.sin(x) + 0.5, "note": "text"})
    frame.to_parquet(tmp_path / "cell.parquet")
    balance = eq.LinearConstraint.from_equations("total = a + 0.5", inputs=["x"], outputs=["a", "total"])
    models = [eq.ConstrainedBNNRegressor(balance, hidden=(4,), max_epochs=4, random_state=0) for _ in range(2)]
    with memory_mapped(tmp_path / "cell.parquet", ["x", "a", "total"]) as table:
        models[0].fit(table[:, :1], table[:, 1:])
    models[1].fit(frame[["x"]], frame[["a", "total"]])
    expected = models[1].predict(frame[["x"]]).to_numpy()
    np.testing.assert_allclose(models[0].predict(x[:, None]), expected, rtol=1e-5)
