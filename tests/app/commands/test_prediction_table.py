"""Predictions in a table: the numbers of the model itself, chunk by chunk, with all other columns unchanged."""

import errno
import gzip
import os

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from handmade_table import cell, contents

import equipoise as eq
from equipoise.app import tables
from equipoise.app.commands import main, prediction_table
from equipoise.app.commands.prediction_table import LEDGER_TERMS, check_output_names
from equipoise.artifact import model_file as artifact
from equipoise.artifact.header import ArtifactError

X = ["Current [A]", "SOC", "Lead [V]"]
OUTPUTS = ["Voltage [V]", "OCV [V]", "Loss [V]", "Terminal [V]"]
ROWS = 150  # of new.csv
SINGLE = 1e-5  # some tens of roundings of single precision, in which networks compute


@pytest.fixture
def expected(fitted, new):
    """What the model says of the same rows in Python."""
    return artifact.load(fitted).predict_distribution(new[X])


def numbers(table, columns=OUTPUTS):
    return table[list(columns)].to_numpy(dtype=float)


def named(suffix):
    return [f"{name} {suffix}" for name in OUTPUTS]


def test_an_output_with_the_name_of_what_is_told_of_another_is_refused():
    with pytest.raises(ArtifactError, match="'V std' is an output and also a column of the prediction of 'V'"):
        check_output_names(["V", "V std"], samples=0, ledger=False)
    with pytest.raises(ArtifactError, match="'draw' is an output and also the number of a draw"):
        check_output_names(["draw"], samples=2, ledger=False)
    check_output_names(["V", "V std", "V sensor var"], samples=2, ledger=False)


def test_mean_std_and_interval_are_those_of_the_model(predicted, expected):
    table = predicted("--level", "0.8")
    np.testing.assert_array_equal(numbers(table), expected.mean)
    np.testing.assert_array_equal(numbers(table, named("std")), expected.std)
    lower, upper = expected.interval(0.8)
    np.testing.assert_array_equal(numbers(table, named("lower")), lower)
    np.testing.assert_array_equal(numbers(table, named("upper")), upper)


def test_intervals_have_95_percent_unless_told_otherwise(predicted, expected):
    np.testing.assert_array_equal(numbers(predicted(), named("upper")), expected.interval(0.95)[1])


def test_measured_values_have_sensor_noise_on_top(predicted, expected):
    true, table = predicted(), predicted("--measured")
    np.testing.assert_array_equal(numbers(table), numbers(true))
    np.testing.assert_array_equal(numbers(table, named("std")), expected.measured().std)
    assert np.all(numbers(table, named("std"))[:, 0] > numbers(true, named("std"))[:, 0])


@pytest.mark.parametrize("options", [[], ["--measured"]])
def test_the_ledger_adds_up_to_the_variance(predicted, options):
    table = predicted("--ledger", *options)
    terms = {term: numbers(table, named(f"{term} var")) for term in LEDGER_TERMS}
    signs = {"reduction": -1.0}  # as the help says
    total = sum(signs.get(term, 1.0) * values for term, values in terms.items())
    scale = sum(np.abs(values) for values in terms.values())
    assert np.all(np.abs(total - numbers(table, named("std")) ** 2) < 1e-9 * scale)
    assert bool((terms["sensor"] > 0).any()) == ("--measured" in options)


def test_draws_are_those_of_the_model_one_line_for_each_row_and_draw(predicted, expected, new):
    table = predicted("--samples", "3")
    assert table["run"].tolist() == np.repeat(new["run"], 3).tolist()
    assert table["draw"].tolist() == ["0", "1", "2"] * ROWS
    draws = numbers(table).reshape(ROWS, 3, -1)
    np.testing.assert_array_equal(draws, expected.sample(3).swapaxes(0, 1))
    noisy = numbers(predicted("--samples", "3", "--measured")).reshape(ROWS, 3, -1)
    np.testing.assert_array_equal(noisy, expected.measured().sample(3).swapaxes(0, 1))


def test_every_draw_obeys_the_exact_balance_to_rounding_and_the_learned_one_within_its_tolerance(predicted, fitted):
    table = predicted("--samples", "20").drop(columns="run").astype(float)
    exact = table["Voltage [V]"] - table["OCV [V]"] + table["Loss [V]"]
    assert np.abs(exact).max() < 1e-13 * 4 * np.abs(table["OCV [V]"]).max()
    learned = table["Terminal [V]"] - table["Voltage [V]"] + table["Lead [V]"]
    tolerance = artifact.load(fitted).tolerances_.loc["terminal"]
    assert 1e-9 < learned.std() < 2 * tolerance["tol_std_upper"]
    measured = cell(ROWS, seed=1)
    assert np.abs(measured["Voltage [V]"] - measured["OCV [V]"] + measured["Loss [V]"]).max() > 1e-3


@pytest.mark.parametrize("options", [["--ledger"], ["--samples", "5"]])
def test_pieces_of_a_table_give_what_the_whole_gives(predicted, monkeypatch, options):
    whole = predicted(*options)
    monkeypatch.setattr(prediction_table, "CHUNK_ROWS", 64)
    pieces = predicted(*options)
    assert list(pieces.columns) == list(whole.columns)
    assert pieces["run"].tolist() == whole["run"].tolist()
    columns = [name for name in whole.columns if name.startswith(tuple(OUTPUTS))]
    np.testing.assert_allclose(numbers(pieces, columns), numbers(whole, columns), rtol=SINGLE, atol=SINGLE)
    if "--samples" in options:  # other noise would differ by much more
        spread = numbers(whole)[0:5].std(0)
        assert np.all(spread > 10 * SINGLE)


def test_many_draws_are_made_of_fewer_rows_at_a_time(predicted, monkeypatch):
    whole, sizes, draws = predicted("--samples", "5"), [], prediction_table._draws

    def watched(frame, p, samples):
        sizes.append(len(frame))
        return draws(frame, p, samples)

    monkeypatch.setattr(prediction_table, "_draws", watched)
    monkeypatch.setattr(prediction_table, "MOST_DRAWN", 64 * 5 * len(OUTPUTS))
    np.testing.assert_allclose(numbers(predicted("--samples", "5")), numbers(whole), rtol=SINGLE, atol=SINGLE)
    assert sizes == [64, 64, 22]


def test_other_columns_are_carried_through_as_they_stand(predicted, new):
    new.assign(note='5" pipe, new', when="2024-01-01").to_csv("new.csv", index=False)
    table = predicted()
    assert table["run"].tolist()[:9] == ["000", "001", "002", "003", "004", "005", "006", "007", "008"]
    assert set(table["note"]) == {'5" pipe, new'}
    assert set(table["when"]) == {"2024-01-01"}
    assert table["SOC"].tolist() == [repr(value) for value in new["SOC"].tolist()]
    for name in OUTPUTS:
        assert table[f"{name} measured"].tolist() == [repr(value) for value in new[name].tolist()]


def test_a_table_with_decimal_commas_is_written_so_that_it_can_be_predicted_again(predicted, fitted, new):
    before = numbers(predicted())
    new.to_csv("new.csv", index=False, sep=";", decimal=",")
    table = predicted()
    np.testing.assert_array_equal(numbers(table), before)
    np.testing.assert_array_equal(tables.read("out.csv")[["SOC", "OCV [V] measured"]], new[["SOC", "OCV [V]"]])
    assert main(["predict", str(fitted), "out.csv", "-o", "again.csv"]) == 0
    np.testing.assert_array_equal(pd.read_csv("again.csv")[OUTPUTS], before)


def test_points_that_may_separate_thousands_are_told(predicted, new, capsys):
    new.assign(flow="1.926").to_csv("new.csv", index=False, sep=";", decimal=",")
    assert set(predicted()["flow"]) == {"1.926"}
    assert "note: points in 'flow' are carried over as they stand: they may separate" in capsys.readouterr().err


def test_the_order_of_columns_and_outputs_that_are_not_there_change_nothing(predicted, new):
    before = numbers(predicted())
    new[["Lead [V]", "run", "SOC", "Current [A]"]].to_csv("new.csv", index=False)
    table = predicted()
    np.testing.assert_array_equal(numbers(table), before)
    assert list(table.columns[:4]) == ["Lead [V]", "run", "SOC", "Current [A]"]
    assert not [name for name in table.columns if name.endswith(" measured")]


def test_names_that_predictions_need_do_not_occur_twice(predicted, new):
    taken = {"draw": "a", "OCV [V] measured": "b", "Loss [V] std": "c", "draw measured": "d"}
    new.assign(**taken).to_csv("new.csv", index=False)
    moments, draws = predicted(), predicted("--samples", "2")
    for table in (moments, draws):
        header = (table.columns).tolist()
        assert len(set(header)) == len(header)
        assert not [name for name in header if name.endswith(".1")]  # what pandas calls columns of the same name
        assert set(table["OCV [V] measured"]) == {"b"}
        assert table["OCV [V] measured measured"].astype(float).nunique() == ROWS
    assert set(moments["draw"]) == {"a"}
    assert set(moments["Loss [V] std measured"]) == {"c"}
    assert set(draws["draw"]) == {"0", "1"}
    assert (set(draws["draw measured measured"]), set(draws["draw measured"])) == ({"a"}, {"d"})


def test_packed_and_other_kinds_of_tables_are_read_and_written(predicted, fitted, new):
    table = predicted()
    with gzip.open("new.tsv.gz", "wt") as file:
        new.to_csv(file, index=False, sep="\t")
    assert main(["predict", str(fitted), "new.tsv.gz", "-o", "out.csv.gz"]) == 0
    with gzip.open("out.csv.gz", "rt") as file:
        assert file.read() == table.to_csv(index=False)
    assert main(["predict", str(fitted), "new.csv", "-o", "out.parquet"]) == 0
    stored = pd.read_parquet("out.parquet")
    assert stored["run"].tolist() == table["run"].tolist()
    np.testing.assert_array_equal(stored[OUTPUTS], numbers(table))


@pytest.mark.parametrize("options", [[], ["--samples", "2"]])
def test_numbers_of_a_text_arrive_in_parquet_as_numbers(fitted, new, monkeypatch, options):
    batch = [f"{i}" if i % 3 else "" for i in range(ROWS)]
    note = ["5"] * (ROWS - 1) + ["five"]
    table = new.assign(batch=batch, note=note)
    table.loc[ROWS - 1, "OCV [V]"] = np.nan
    table.to_csv("new.csv", index=False)
    monkeypatch.setattr(prediction_table, "CHUNK_ROWS", 64)
    assert main(["predict", str(fitted), "new.csv", "-o", "out.parquet", *options]) == 0
    stored = pq.read_table("out.parquet")
    kinds = {name: str(stored.schema.field(name).type) for name in ("run", "batch", "note", "SOC", "OCV [V] measured")}
    assert list(kinds.values()) == ["string", "int64", "string", "double", "double"]
    rows = stored.to_pandas().iloc[:: 2 if options else 1]
    assert rows["run"].tolist() == new["run"].tolist()
    assert stored["batch"].to_pylist()[:: 2 if options else 1] == [int(cell) if cell else None for cell in batch]
    np.testing.assert_array_equal(rows[["SOC", "OCV [V] measured"]], table[["SOC", "OCV [V]"]])


def test_a_model_that_was_fitted_with_arrays_takes_columns_called_by_position(folder, recwarn):
    table = cell()
    data = table[["Current [A]", "SOC"]].to_numpy()
    model = eq.ConstrainedBNNRegressor(hidden=(2,), max_epochs=2, n_draws=2, random_state=0)
    model.fit(data, table["OCV [V]"].to_numpy()).save("plain.safetensors")
    pd.DataFrame(data, columns=["x0", "x1"]).to_csv("arrays.csv", index=False)
    assert main(["predict", "plain.safetensors", "arrays.csv", "-o", "out.csv"]) == 0
    np.testing.assert_array_equal(pd.read_csv("out.csv")["y0"], model.predict(data))


def test_a_cell_that_is_no_number_is_named_wherever_it_stands(fitted, new, refused, monkeypatch):
    new.astype({"SOC": object}).replace({"SOC": {new.loc[149, "SOC"]: "full"}}).to_csv("new.csv", index=False)
    monkeypatch.setattr(
        prediction_table, "CHUNK_ROWS", 64
    )  # the pieces before were predicted and must not be left behind
    sentence = refused("predict", fitted, "new.csv", "-o", "out.csv")
    assert "Column 'SOC' must hold numbers, but got 'full' in line 151 of 'new.csv'" in sentence


@pytest.mark.parametrize("command", ["predict", "evaluate", "report"])
@pytest.mark.parametrize("column", ["SOC", "Lead [V]"])
def test_an_input_that_overflows_is_named_with_its_line(fitted, new, refused, monkeypatch, column, command):
    new.loc[130, column] = 1e39
    new.to_csv("new.csv", index=False)
    monkeypatch.setattr(prediction_table, "CHUNK_ROWS", 64)
    where = [] if command == "evaluate" else ["-o", "out.csv" if command == "predict" else "out.html"]
    sentence = refused(command, fitted, "new.csv", *where)
    rule = f"Column '{column}' must lie within 1e+30 standard deviations of the training data"
    assert f"{rule}, but got 1e+39 in line 132 of 'new.csv'." in sentence


def test_the_greatest_input_that_is_taken_is_predicted(fitted, new, predicted):
    new.loc[130, ["SOC", "Lead [V]"]] = 1e28
    new.to_csv("new.csv", index=False)
    assert np.isfinite(numbers(predicted("--ledger"), [*OUTPUTS, *named("std"), *named("lower")])).all()


def test_a_full_disk_leaves_no_table_behind(fitted, monkeypatch, refused):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "'out.csv' must be writable, but got: No space left on device. Nothing was written." in refused(
        "predict", fitted, "cell.csv", "-o", "out.csv"
    )


def test_ctrl_c_leaves_an_earlier_table_as_it_was(predicted, fitted, folder, monkeypatch, capsys):
    predicted()
    before = contents(folder)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("equipoise.app.commands.prediction_table.append_columns", interrupted)
    assert main(["predict", str(fitted), "new.csv", "-o", "out.csv"]) == 130
    assert capsys.readouterr().err == "equipoise: interrupted\n"
    assert contents(folder) == before
