"""Data of the battery study: against PyBaMM's own equations, coulomb counting, and the noise that was asked for."""

import logging
import os
import zipfile

import numpy as np
import pandas as pd
import pytest

from equipoise.rivals.cases.battery import (
    INPUTS,
    KEYS,
    OUTPUTS,
    CellConfig,
    ConfigError,
    DataConfig,
    DataError,
    balances,
    cell as cell_module,
    data as data_module,
    load,
    simulate as run_all,
)

SMALL = CellConfig(currents=(1.0, 1.5, 3.0), temperatures=(273, 313), soc_points=40)
COPIES = 40


@pytest.fixture(scope="module")
def table():
    return run_all(SMALL)


@pytest.fixture
def simulations(table, monkeypatch):
    """Hands out the table instead of simulating, and counts how often."""
    calls = []

    def hand_out(config, progress=False):
        calls.append(config)
        return table.copy()

    monkeypatch.setattr(data_module, "simulate", hand_out)
    return calls


@pytest.fixture
def many(table, monkeypatch):
    """A long table: the same rows several times, so that statistics have something to count."""
    long = pd.concat([table] * COPIES, ignore_index=True)
    monkeypatch.setattr(data_module, "simulate", lambda config, progress=False: long)
    return load(DataConfig(cell=SMALL))


# --- Noise and parts --------------------------------------------------------------------------------------------------


def test_the_balances_are_those_of_the_paper():
    constraint = balances()
    assert (constraint.names, constraint.inputs, constraint.outputs) == (("voltage", "heat"), INPUTS, OUTPUTS)
    assert constraint.units == ("V", "W.m-3")
    np.testing.assert_array_equal(constraint.B, [[1, -1, 1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1, -1, -1]])
    assert not constraint.A.any()
    assert not constraint.b.any()


def test_the_keys_are_the_names_of_outputs_without_units():
    assert [column.split(" [")[0] for column in OUTPUTS] == list(KEYS)


def test_noise_has_the_configured_spread_that_grows_with_the_current(many):
    noise = many.Y - many.truth
    # 3,200 rows a current: the standard error of a spread is 1.25 %, so a band of 5 % is 4 of them.
    for current, volts, heats in ((1.0, 0.002, 0.030), (1.5, 0.00275, 0.035), (3.0, 0.005, 0.050)):
        rows = many.X["I [A]"] == current
        expected = [volts] * 5 + [heats] * 3
        np.testing.assert_allclose(many.noise_std[rows], np.broadcast_to(expected, (rows.sum(), 8)), rtol=1e-12)
        np.testing.assert_allclose(noise[rows].std(ddof=0), expected, rtol=0.05)


def test_noise_is_standard_normal_and_independent_over_outputs_and_rows(many):
    z = ((many.Y - many.truth) / many.noise_std).to_numpy()
    error = 1 / np.sqrt(len(z))  # of a mean and of a correlation
    assert np.abs(z.mean(axis=0)).max() < 4 * error
    assert np.abs(np.corrcoef(z.T) - np.eye(8)).max() < 4.5 * error
    assert np.abs((z[1:] * z[:-1]).mean(axis=0)).max() < 4 * error
    assert np.abs((z**4).mean(axis=0) - 3).max() < 4 * np.sqrt(96) * error


def test_one_current_alone_has_the_lowest_noise(table, monkeypatch):
    monkeypatch.setattr(data_module, "simulate", lambda config, progress: table[table["I [A]"] == 3.0])
    assert load(DataConfig()).noise_std["V [V]"].unique().tolist() == [0.002]


def test_the_seed_decides_noise_and_split_and_nothing_else(simulations):
    first, again, other = (load(DataConfig(cell=SMALL, seed=seed)) for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(first.Y, again.Y, check_exact=True)
    np.testing.assert_array_equal(first.train, again.train)
    pd.testing.assert_frame_equal(first.truth, other.truth, check_exact=True)
    assert (first.Y != other.Y).all(axis=None)
    assert not np.array_equal(first.train, other.train)


def test_the_parts_are_disjoint_complete_and_of_the_right_size(many):
    sizes = [len(many.train), len(many.validation), len(many.test)]
    assert sizes == [5760, 1920, 1920]
    rows = np.concatenate([many.train, many.validation, many.test])
    np.testing.assert_array_equal(np.sort(rows), np.arange(9600))
    # Rows are drawn at random: each of the 6 discharges gives its share of 960, within 4 standard errors.
    counts = np.bincount(many.discharge[many.train])
    assert np.abs(counts - 960).max() < 4 * np.sqrt(1600 * 0.6 * 0.4)


def test_a_part_holds_the_inputs_and_the_measured_outputs_of_its_rows(simulations, table):
    data = load(DataConfig(cell=SMALL))
    X, Y = data.part("test")
    assert X.index.tolist() == Y.index.tolist() == data.test.tolist()
    np.testing.assert_array_equal(X, table[list(INPUTS)].to_numpy()[data.test])
    np.testing.assert_array_equal(Y, data.Y.to_numpy()[data.test])
    np.testing.assert_array_equal(data.truth, table[list(OUTPUTS)])


@pytest.mark.parametrize(
    ("asked", "left_out"),
    [
        ({"current": 1.5}, [2, 3]),
        ({"temperature": 313.0}, [1, 3, 5]),
        ({"current": 3.0, "temperature": 273.0}, [0, 2, 4, 5]),
    ],
)
def test_discharges_left_out_are_the_test_and_nowhere_else(simulations, asked, left_out):
    data = load(DataConfig(cell=SMALL))
    part = data.leave_out(**asked)
    np.testing.assert_array_equal(part.test, np.flatnonzero(np.isin(data.discharge, left_out)))
    for name in ("train", "validation"):
        before, after = getattr(data, name), getattr(part, name)
        np.testing.assert_array_equal(after, before[~np.isin(data.discharge[before], left_out)])
    assert part.Y is data.Y


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "must get a current or a temperature, but got neither"),
        ({"current": 2.0}, r"'I \[A\]' must be a value of the grid, but got 2\.0\. Choose one of: 1, 1\.5, 3\."),
        ({"temperature": 300.0}, r"'T \[K\]' must be a value of the grid, but got 300\.0\. Choose one of: 273, 313\."),
    ],
)
def test_leaving_out_what_is_not_there_is_refused(simulations, asked, message):
    with pytest.raises(DataError, match=message):
        load(DataConfig(cell=SMALL)).leave_out(**asked)


def test_fewer_rows_are_nested_and_leave_the_test_alone(simulations):
    data = load(DataConfig(cell=SMALL))
    few, more, all_rows = (data.fewer(n, seed=3) for n in (10, 50, 144))
    assert [(len(d.train), len(d.validation)) for d in (few, more, all_rows)] == [(10, 3), (50, 16), (144, 48)]
    for name in ("train", "validation"):
        chain = [set(getattr(d, name)) for d in (few, more, all_rows, data)]
        assert chain[0] < chain[1] < chain[2] <= chain[3]
    assert few.test is data.test
    assert set(few.train) != set(data.fewer(10, seed=4).train)


@pytest.mark.parametrize("n_train", [2, 145])
def test_more_rows_than_there_are_or_too_few_are_refused(simulations, n_train):
    with pytest.raises(DataError, match=rf"n_train must be 3 to 144, but got {n_train}\."):
        load(DataConfig(cell=SMALL)).fewer(n_train)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"split": (0.6, 0.2, 0.3)}, r"split must add up to 1, but got \(0\.6, 0\.2, 0\.3\)"),
        ({"voltage_noise": (-0.1, 0.1)}, r"voltage_noise\.0 of "),
        ({"sed": 1}, r"sed of .*Extra inputs are not permitted"),
    ],
)
def test_a_measurement_that_makes_no_sense_is_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        DataConfig(**fields)


# --- The cache --------------------------------------------------------------------------------------------------------


def cached(folder):
    (path,) = folder.iterdir()
    return path


def test_a_cached_simulation_comes_back_bit_by_bit_without_simulating(simulations, tmp_path):
    folder = tmp_path / "made" / "on demand"
    fresh, again = (load(DataConfig(cell=SMALL), cache=folder) for _ in range(2))
    assert len(simulations) == 1
    for name in ("X", "Y", "truth", "noise_std"):
        pd.testing.assert_frame_equal(getattr(fresh, name), getattr(again, name), check_exact=True)
    for name in ("discharge", "train", "validation", "test"):
        np.testing.assert_array_equal(getattr(fresh, name), getattr(again, name))
        assert getattr(fresh, name).dtype == getattr(again, name).dtype


def test_noise_does_not_touch_the_cache_but_cell_and_version_do(simulations, tmp_path, monkeypatch):
    other = SMALL.model_copy(update={"contact_resistance": 0.06})
    for config in (DataConfig(cell=SMALL), DataConfig(cell=SMALL, seed=1), DataConfig(cell=other)):
        load(config, cache=tmp_path)
    assert simulations == [SMALL, other]
    monkeypatch.setattr(data_module, "pybamm_version", lambda: "0.0")
    load(DataConfig(cell=SMALL), cache=tmp_path)
    assert simulations == [SMALL, other, SMALL]
    assert len(list(tmp_path.iterdir())) == 3


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1000])


def empty(path):
    path.write_bytes(b"")


def alter_a_value(path):
    with np.load(path) as file:
        content = dict(file)
    content["values"][3, 4] += 1e-12
    np.savez(path, **content)


def take_another_cell(path):
    with np.load(path) as file:
        content = dict(file)
    identity = str(content["identity"]).replace("0.05", "0.06")
    checksum = data_module._digest(identity, *content["columns"].tolist(), content["values"].tobytes())
    content |= {"identity": np.array(identity), "checksum": np.array(checksum)}
    np.savez(path, **content)


def drop_an_array(path):
    with zipfile.ZipFile(path) as file:
        kept = {name: file.read(name) for name in file.namelist() if name != "columns.npy"}
    with zipfile.ZipFile(path, "w") as file:
        for name, raw in kept.items():
            file.writestr(name, raw)


@pytest.mark.parametrize("damage", [truncate, empty, alter_a_value, take_another_cell, drop_an_array])
def test_a_damaged_cache_is_reported_and_built_anew(simulations, table, tmp_path, caplog, damage):
    load(DataConfig(cell=SMALL), cache=tmp_path)
    damage(cached(tmp_path))
    with caplog.at_level(logging.WARNING):
        data = load(DataConfig(cell=SMALL), cache=tmp_path)
    assert len(simulations) == 2
    assert f"'{cached(tmp_path)}' is not usable" in caplog.text
    np.testing.assert_array_equal(data.truth, table[list(OUTPUTS)])
    load(DataConfig(cell=SMALL), cache=tmp_path)
    assert len(simulations) == 2


class MakesFolder:
    """When unpickled, makes a folder."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def test_a_cache_is_no_way_in_for_code(simulations, tmp_path):
    load(DataConfig(cell=SMALL), cache=tmp_path / "cache")
    np.savez(cached(tmp_path / "cache"), identity=np.array([MakesFolder(tmp_path / "trap")], dtype=object))
    load(DataConfig(cell=SMALL), cache=tmp_path / "cache")
    assert len(simulations) == 2
    assert not (tmp_path / "trap").exists()


def test_no_altered_byte_alters_the_data(simulations, table, tmp_path):
    load(DataConfig(cell=SMALL), cache=tmp_path)
    path = cached(tmp_path)
    whole = path.read_bytes()
    for position in np.random.default_rng(0).integers(len(whole), size=40):
        damaged = bytearray(whole)
        damaged[position] ^= 0x55
        path.write_bytes(damaged)
        np.testing.assert_array_equal(load(DataConfig(cell=SMALL), cache=tmp_path).truth, table[list(OUTPUTS)])


def test_a_missing_pybamm_is_named_when_the_cache_is_asked(monkeypatch, tmp_path):
    def not_found(name):
        raise cell_module.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(cell_module.metadata, "version", not_found)
    with pytest.raises(ImportError, match=r"equipoise\[battery\]"):
        load(DataConfig(cell=SMALL), cache=tmp_path)
