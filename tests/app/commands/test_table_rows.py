"""Rows of tables in the order that jobs and models take them, as frames or arrays."""

import hashlib

import handmade_table
import numpy as np
import pandas as pd
import pytest
from handmade_table import FULL_JOB, cell

import equipoise as eq
from equipoise.app.commands import table_rows
from equipoise.app.job import Job
from equipoise.app.tables import TableError
from equipoise.artifact import model_file as artifact


def test_a_job_gets_inputs_then_known_columns_and_outputs_in_its_own_order(folder):
    shuffled = cell()[["Terminal [V]", "SOC", "Loss [V]", "run", "Lead [V]", "OCV [V]", "Current [A]", "Voltage [V]"]]
    handmade_table.write(folder, shuffled, FULL_JOB)
    found = table_rows.read_job_rows(Job.load("cell.toml"))
    assert list(found.X.columns) == ["Current [A]", "SOC", "Lead [V]"]
    assert list(found.Y.columns) == ["Voltage [V]", "OCV [V]", "Loss [V]", "Terminal [V]"]
    np.testing.assert_array_equal(found.X, cell()[list(found.X.columns)])
    np.testing.assert_array_equal(found.Y, cell()[list(found.Y.columns)])


def test_what_is_told_stands_beside_the_rows_it_is_told_of():
    piece = pd.DataFrame({"run": ["007", "008"]}, index=[64, 65])
    joined = table_rows.append_columns(piece, {"V": [1.0, 2.0]})
    assert joined.to_dict("list") == {"run": ["007", "008"], "V": [1.0, 2.0]}
    draws = table_rows.append_columns(piece, {"V": [1.0, 2.0, 3.0, 4.0]}, times=2)
    assert draws.to_dict("list") == {"run": ["007", "007", "008", "008"], "V": [1.0, 2.0, 3.0, 4.0]}


def test_other_columns_are_kept_if_they_hold_numbers(folder):
    found = table_rows.read_job_rows(Job.load("cell.toml"))
    assert list(found.other_columns) == [
        "run",
        "Lead [V]",
        "Terminal [V]",
    ]  # 007 is a number as long as nobody says otherwise
    np.testing.assert_array_equal(found.other_columns["Lead [V]"], cell()["Lead [V]"])
    handmade_table.write(folder, cell().assign(run="a"))
    assert list(table_rows.read_job_rows(Job.load("cell.toml")).other_columns) == ["Lead [V]", "Terminal [V]"]


def test_outputs_may_be_missing_and_inputs_may_not(folder):
    table = cell()
    table.loc[3, "OCV [V]"] = np.nan
    handmade_table.write(folder, table)
    assert np.flatnonzero(table_rows.read_job_rows(Job.load("cell.toml")).Y["OCV [V]"].isna()).tolist() == [3]
    table.loc[4, "SOC"] = np.nan
    handmade_table.write(folder, table)
    with pytest.raises(TableError, match=r"Column 'SOC' must hold a number in every row, but got none in line 6"):
        table_rows.read_job_rows(Job.load("cell.toml"))


def test_a_model_fitted_with_a_frame_gets_frames(fitted, folder):
    found = table_rows.read_model_rows(artifact.load(fitted), folder / "cell.csv")
    assert list(found.X.columns) == ["Current [A]", "SOC", "Lead [V]"]
    np.testing.assert_array_equal(found.Y["Loss [V]"], cell()["Loss [V]"])


def test_a_model_fitted_with_arrays_gets_arrays_of_columns_called_by_position(folder):
    table = cell()
    X, Y = table[["Current [A]", "SOC"]].to_numpy(), table[["OCV [V]"]].to_numpy()
    model = eq.ConstrainedBNNRegressor(hidden=(2,), max_epochs=2, n_draws=2, random_state=0).fit(X, Y)
    table.rename(columns={"Current [A]": "x0", "SOC": "x1", "OCV [V]": "y0"}).to_csv("unnamed.csv", index=False)
    found = table_rows.read_model_rows(model, folder / "unnamed.csv")
    assert type(found.X) is type(found.Y) is np.ndarray
    np.testing.assert_array_equal(found.X, X)
    np.testing.assert_array_equal(found.Y, Y)


def test_a_single_column_is_taken_for_a_wrong_delimiter(folder):
    (folder / "cell.csv").write_text("a b\n1 2\n")
    with pytest.raises(TableError, match=r"'cell.csv' must have several columns, but got 'a b' alone. Separate its"):
        table_rows.read_table_header(folder / "cell.csv")
    (folder / "cell.csv").write_text("Spectra\ntime;400;500\n0,5;0,25;0\n")
    with pytest.raises(TableError, match=r"got 'Spectra' alone\. .* Delete a title above their names, if any\."):
        table_rows.read_table_header(folder / "cell.csv")


def test_the_checksum_of_a_file_is_the_sha_256_of_the_file(folder):
    assert table_rows.file_sha256(folder / "cell.csv") == hashlib.sha256((folder / "cell.csv").read_bytes()).hexdigest()
