"""Rows in which an input is missing: left out, they change nothing, as if they had never been in the table."""

import json

import handmade_table
import numpy as np
import pandas as pd
import pytest
from handmade_findings import made_up
from handmade_table import FULL_JOB, cell

from equipoise.app.commands import main, prediction_table
from equipoise.app.commands.incomplete_rows import CompleteChunks
from equipoise.app.commands.table_rows import read_job_rows
from equipoise.app.job import Job
from equipoise.app.report.scores import Outlier, Outliers
from equipoise.app.tables import read
from equipoise.artifact import model_file as artifact
from equipoise.rivals.comparison.comparison import as_case

GAPS = {3: "SOC", 70: "Current [A]", 71: "Lead [V]", 149: "SOC"}
SKIPPING = f"skip_incomplete = true\n{FULL_JOB}"


@pytest.fixture
def new(folder):
    """Writes new.csv, in which inputs are missing, and less.csv, which has no such row."""
    table = cell(150, seed=1)
    for row, column in GAPS.items():
        table.loc[row, column] = np.nan
    table.to_csv("new.csv", index=False)
    table.dropna().to_csv("less.csv", index=False)
    return table


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
@pytest.mark.parametrize("options", [["--ledger"], ["--samples", "3"]])
def test_predictions_are_those_of_a_table_without_such_rows(fitted, new, monkeypatch, capsys, options, name):
    monkeypatch.setattr(prediction_table, "CHUNK_ROWS", 64)
    assert main(["predict", str(fitted), "less.csv", "-o", f"less-{name}", *options]) == 0
    assert capsys.readouterr().err == ""
    assert main(["predict", str(fitted), "new.csv", "-o", name, *options, "--skip-incomplete"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{name}: 146 rows")
    assert err == "note: 4 rows were left out, in which an input is missing.\n"
    pd.testing.assert_frame_equal(read(name), read(f"less-{name}"), check_exact=True)


@pytest.mark.parametrize("chunk", [64, 8192])
@pytest.mark.parametrize(
    ("rows", "where"),
    [
        (slice(0, 63), "in line 2 of 'new.csv', nor in 63 more below. Fill it in, or drop it. Or leave out such rows"),
        (
            slice(64, 127),
            "in line 66 of 'new.csv', nor in 63 more below. Fill it in, or drop it. Or leave out such rows",
        ),
        (slice(0, 149), "in any row of 'new.csv'. Fill it in, or drop it."),
    ],
    ids=["first piece", "second piece", "all"],
)
def test_what_is_said_of_missing_inputs_does_not_depend_on_pieces(
    fitted, folder, refused, monkeypatch, chunk, rows, where
):
    monkeypatch.setattr(prediction_table, "CHUNK_ROWS", chunk)
    table = cell(150, seed=1)
    table.loc[rows, "SOC"] = np.nan
    table.to_csv("new.csv", index=False)
    message = refused("predict", fitted, "new.csv", "-o", "out.csv")
    assert f"Column 'SOC' must hold a number in every row, but got none {where}" in message
    assert ("--skip-incomplete" in message) == ("such rows" in where)


def test_several_tables_are_told_of_together(fitted, new, capsys):
    new.iloc[:10].to_csv("first.csv", index=False)
    words = ["predict", str(fitted), "new.csv", "first.csv", "-o", "out", "--skip-incomplete"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert out == "out: 2 tables, 155 rows\n"
    assert "note: 5 rows were left out" in err


def test_rows_without_any_value_are_told(fitted, new, folder, capsys):
    lines = (folder / "less.csv").read_text().splitlines(keepends=True)
    empty = "," * lines[0].count(",") + "\n"
    (folder / "less.csv").write_text("".join([*lines[:5], empty, *lines[5:9], empty, "\n", *lines[9:], empty, empty]))
    (folder / "cell.toml").write_text(FULL_JOB.replace("cell.csv", "less.csv"))
    commands = [["predict", str(fitted), "less.csv", "-o", "out.csv"], ["evaluate", str(fitted), "less.csv"]]
    for words in [*commands, ["init", "less.csv"], ["check", "cell.toml"]]:
        main(words)
        assert "note: 2 rows without any value were passed over.\n" in capsys.readouterr().err
    assert len(read("out.csv")) == 146


def test_scores_are_those_of_a_table_without_such_rows(fitted, new, capsys):
    assert main(["evaluate", str(fitted), "less.csv", "--json"]) == 0
    expected = capsys.readouterr()
    assert main(["evaluate", str(fitted), "new.csv", "--json", "--skip-incomplete"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == json.loads(expected.out)
    assert err == f"note: 4 rows were left out, in which an input is missing.\n{expected.err}"


@pytest.mark.parametrize("command", ["predict", "evaluate", "report"])
def test_without_the_option_the_refusal_tells_of_it(fitted, new, refused, command):
    where = [] if command == "evaluate" else ["-o", "out.csv" if command == "predict" else "out.html"]
    sentence = refused(command, fitted, "new.csv", *where)
    assert " must hold a number in every row, but got none in line " in sentence
    assert sentence.endswith("Fill it in, or drop it. Or leave out such rows with --skip-incomplete.")


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_table_of_which_nothing_is_left_is_refused(fitted, new, refused, command):
    new.assign(SOC=np.nan).to_csv("new.csv", index=False)
    where = ["-o", "out.csv"] if command == "predict" else []
    sentence = refused(command, fitted, "new.csv", "--skip-incomplete", *where)
    assert "'new.csv' must have a row in which no input is missing, but got none. Fill some in." in sentence


def test_an_input_that_overflows_is_named_with_its_line(fitted, new, refused):
    new.loc[100, "SOC"] = 1e39
    new.to_csv("new.csv", index=False)
    for words in (["predict", fitted, "new.csv", "-o", "out.csv"], ["evaluate", fitted, "new.csv"]):
        assert "but got 1e+39 in line 102 of 'new.csv'" in refused(*words, "--skip-incomplete")


def test_what_was_predicted_worst_is_called_by_its_line(fitted, new, monkeypatch):
    options = {}

    def findings(model, X, Y, **_):
        options.update(rows=len(X))
        worst = tuple(Outlier(row, "OCV [V]", "V", 1.0, 2.0, 0.1, -10.0, ()) for row in (0, 145))
        return made_up(outliers=Outliers(worst, 4 * len(X), 0))

    def report(found, **settings):
        options.update(lines=settings["lines"]([outlier.row for outlier in found.outliers.worst]))

    monkeypatch.setattr("equipoise.app.report.findings", findings)
    monkeypatch.setattr("equipoise.app.report.report", report)
    monkeypatch.setattr("equipoise.app.report.render", str)
    assert main(["report", str(fitted), "new.csv", "-o", "out.html", "--skip-incomplete"]) == 0
    assert options == {"rows": 146, "lines": [2, 150]}


# --- Jobs -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def job(new, folder):
    """Of new.csv, by a job that leaves out what is incomplete."""
    handmade_table.write(folder, new, SKIPPING)
    return Job.load("cell.toml")


def test_a_job_learns_from_the_complete_rows(job, new):
    found, complete = read_job_rows(job), new.dropna()
    np.testing.assert_array_equal(found.X, complete[list(found.X.columns)])
    np.testing.assert_array_equal(found.Y, complete[list(found.Y.columns)])
    np.testing.assert_array_equal(found.other_columns["run"], complete["run"].astype(float))
    assert (found.positions.tolist(), found.n_incomplete) == (complete.index.tolist(), len(GAPS))


@pytest.mark.usefixtures("job", "long_training")
def test_the_model_file_knows_how_many_rows_were_left_out(folder):
    assert main(["fit", "cell.toml"]) == 0
    notes = artifact.describe("cell.safetensors").notes
    assert (notes["rows"], notes["rows left out"]) == (146, 4)


def test_rivals_learn_from_the_complete_rows(job, new):
    case = as_case(job)
    assert case.title == "the table 'cell.csv' without 4 incomplete rows"
    split, columns = case.split(0), ["Current [A]", "SOC", "Lead [V]"]
    used = np.vstack([split.fit.X[columns], split.test.X[columns]])
    np.testing.assert_array_equal(np.sort(used, axis=0), np.sort(new.dropna()[columns], axis=0))


def test_check_calls_rows_by_their_place_in_the_table(job, new, folder, capsys):
    new.loc[100, "OCV [V]"] = 50.0
    handmade_table.write(folder, new, SKIPPING)
    main(["check", "cell.toml"])
    out, err = capsys.readouterr()
    assert "note: 4 rows were left out, in which an input is missing.\n" in err
    assert "line 102" in out + err
    main(["check", "cell.toml", "--json"])
    printed = json.loads(capsys.readouterr().out)
    (voltage,) = (balance for balance in printed["balances"] if balance["name"] == "voltage")
    assert voltage["worst_rows"][0]["row"] == 100
    assert any("line 102" in sentence for sentence in printed["warnings"])
    assert printed["n_rows"] == 146


def test_rows_that_occur_twice_are_those_of_the_table(job, new, folder, capsys):
    new.loc[100] = new.loc[90]
    handmade_table.write(folder, new, SKIPPING)
    main(["check", "cell.toml", "--json"])
    assert json.loads(capsys.readouterr().out)["duplicates"] == [100]


@pytest.mark.parametrize("command", ["check", "fit"])
def test_without_the_key_the_refusal_tells_of_it(job, folder, refused, command):
    (folder / "cell.toml").write_text(FULL_JOB)
    advice = "Fill it in, or drop it. Or leave out such rows with skip_incomplete = true in 'cell.toml'."
    assert refused(command, "cell.toml").endswith(advice)


def test_a_job_of_which_nothing_is_left_is_refused(job, new, folder, refused):
    handmade_table.write(folder, new.assign(SOC=np.nan), SKIPPING)
    assert "'cell.csv' must have a row in which no input is missing, but got none" in refused("fit", "cell.toml")


def test_pieces_have_as_many_rows_as_without_gaps(new, folder):
    pieces = CompleteChunks(folder / "new.csv", ["SOC", "Current [A]", "Lead [V]"], 64, skip=True)
    found = list(pieces)
    assert [len(piece) for piece in found] == [64, 64, 18]
    assert [row for piece in found for row in piece.index] == new.dropna().index.tolist()
    assert pieces.n_incomplete == 4
