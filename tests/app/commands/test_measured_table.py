"""The measured table of a plant: values, standard deviations, exact columns and times, piece by piece."""

import handmade_plant
import numpy as np
import pandas as pd
import pytest
from handmade_plant import JOB, STD, plant

from equipoise.app.commands import measured_table
from equipoise.app.commands.reconcilers import BalanceReconciler
from equipoise.app.job import Plant


@pytest.fixture
def table(tmp_path):
    """Writes table and job, and gives what the command works on."""

    def make(frame=None, job=JOB, time=None):
        handmade_plant.write(tmp_path, frame, job)
        described = Plant.load(tmp_path / "plant.toml")
        return BalanceReconciler.of_plant(described, 0.95).measured_table(described.data, time)

    return make


def test_values_are_by_name_and_what_has_no_column_is_not_measured(table):
    frame = plant()
    frame.loc[5, "gas [kg/s]"] = np.nan
    (piece,) = table(frame[frame.columns[::-1]]).chunks()
    assert list(piece.values.columns) == [*STD, "loss [kg/s]"]
    np.testing.assert_array_equal(piece.values[list(STD)], frame[list(STD)])
    assert piece.values["loss [kg/s]"].isna().all()
    np.testing.assert_array_equal(piece.std, [*STD.values(), np.nan])
    assert list(piece.values.index[:2]) == [1, 2]
    np.testing.assert_array_equal(piece.exact["dose [kg/s]"], frame["dose [kg/s]"])
    assert piece.time is None


def test_pieces_follow_each_other_and_are_smaller_for_wide_tables(table, monkeypatch):
    monkeypatch.setattr(measured_table, "LEAST_ROWS", 10)
    monkeypatch.setattr(measured_table, "MOST_VALUES", 6 * 100)
    pieces = list(table(time="when").chunks())
    assert [len(piece.frame) for piece in pieces] == [100, 100, 40]
    assert [piece.values.index[0] for piece in pieces] == [1, 101, 201]
    whole = pd.concat([piece.values for piece in pieces])
    np.testing.assert_array_equal(whole[list(STD)], plant()[list(STD)])
    assert np.concatenate([piece.time for piece in pieces])[-1] == np.datetime64("2026-03-01T03:59")


def test_shares_give_every_reading_its_own_error(table):
    (piece,) = table(job=JOB.replace("oil = 0.04", 'oil = "2 % + 0.1"').replace("gas = 0.02", 'gas = "1 %"')).chunks()
    np.testing.assert_allclose(piece.std[:, 4], 0.1 + 0.02 * plant()["oil [kg/s]"])
    np.testing.assert_allclose(piece.std[:, 3], 0.01 * plant()["gas [kg/s]"])
    np.testing.assert_array_equal(piece.std[:, 0], 0.1)
    assert np.isnan(piece.std[:, 5]).all()


def test_a_negative_reading_has_the_error_of_its_size(table):
    frame = plant()
    frame["gas [kg/s]"] *= -1
    (piece,) = table(frame, JOB.replace("gas = 0.02", 'gas = "1 %"')).chunks()
    np.testing.assert_allclose(piece.std[:, 3], 0.01 * plant()["gas [kg/s]"])


def test_a_column_that_is_empty_needs_no_sensor(table):
    (piece,) = table(plant().assign(**{"loss [kg/s]": ""})).chunks()
    assert piece.values["loss [kg/s]"].isna().all()


def test_inputs_that_no_balance_uses_need_not_be_there(table):
    described = table()
    described.check_header([])
    assert "valve" not in plant().columns
    assert described.exact == ("dose [kg/s]",)
