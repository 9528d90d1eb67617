"""`equipoise reconcile`: what Python says of every row, in pieces, with names of its own; or one sentence why not."""

import contextlib
import gzip
import io
import re
from dataclasses import dataclass
from pathlib import Path

import handmade_plant
import numpy as np
import pandas as pd
import pytest
from handmade_plant import FIRST, JOB, LAST, LIAR, LIE, STD, plant
from handmade_table import contents

import equipoise as eq
from equipoise.app import tables
from equipoise.app.commands import main, measured_table, reconcile
from equipoise.app.job import Plant

pytestmark = pytest.mark.xdist_group("reconcile")  # one worker runs the command once for many tests
VARIABLES = [*STD, "loss [kg/s]"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with a table and a job file in it."""
    monkeypatch.chdir(tmp_path)
    handmade_plant.write(tmp_path)
    return tmp_path


@pytest.fixture
def reconciled(folder):
    """Runs the command and gives the table that it wrote, cells as they stand."""

    def run(*options, output="out.csv"):
        assert main(["reconcile", "plant.toml", "plant.csv", "-o", output, *options]) == 0
        return pd.read_csv(output, dtype=str)

    return run


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """Of one run with everything: the folder, the table that it wrote, cells as they stand, and what it printed."""
    folder, screen = tmp_path_factory.mktemp("usual"), io.StringIO()
    handmade_plant.write(folder)
    options = ["-o", "out.csv", "--report", "plant.html", "--time", "when"]
    with contextlib.chdir(folder), contextlib.redirect_stdout(screen):
        assert main(["reconcile", "plant.toml", "plant.csv", *options]) == 0
    return Usual(folder, pd.read_csv(folder / "out.csv", dtype=str), screen.getvalue())


@dataclass(frozen=True)
class Usual:
    folder: Path
    table: pd.DataFrame
    printed: str


@pytest.fixture(scope="module")
def expected():
    """The same with Python."""
    table = plant().assign(**{"loss [kg/s]": np.nan})
    constraint = eq.LinearConstraint.from_equations(
        {"column": "feed + dose = top + bottom", "still": "bottom = gas + oil", "store": "loss = 0.01*oil"},
        known=["dose [kg/s]"],
        outputs=VARIABLES,
    )
    return eq.reconcile(table[VARIABLES], [*STD.values(), 1.0], constraint, inputs=table[["dose [kg/s]"]])


def numbers(table, suffix, names=VARIABLES):
    return table[[f"{name} {suffix}" for name in names]].to_numpy(dtype=float)


# --- Values -----------------------------------------------------------------------------------------------------------


def test_every_row_has_what_python_says_of_it(usual, expected):
    table = usual.table
    np.testing.assert_allclose(numbers(table, "reconciled"), expected.values, rtol=1e-12)
    np.testing.assert_allclose(numbers(table, "half-width"), expected.half_widths.after, rtol=1e-12)
    np.testing.assert_allclose(numbers(table, "adjustment"), expected.adjustments, atol=1e-12)
    np.testing.assert_allclose(table["global statistic"].astype(float), expected.statistic, rtol=1e-9)
    np.testing.assert_allclose(table["global threshold"].astype(float), expected.threshold)
    assert list(table["global alarm"] == "True") == list(expected.global_test().alarm)
    test = expected.likelihood_ratio_test()
    assert list(table["suspect"].fillna("")) == [name or "" for name in test.suspect]


def test_a_table_with_decimal_commas_is_written_so_that_it_can_be_read_again(reconciled, usual):
    plant().to_csv("plant.csv", index=False, sep=";", decimal=",")
    np.testing.assert_array_equal(numbers(reconciled(), "reconciled"), numbers(usual.table, "reconciled"))
    np.testing.assert_array_equal(tables.read("out.csv")[list(STD)], plant()[list(STD)])


def test_points_that_may_separate_thousands_are_told(reconciled, capsys):
    plant().assign(counter="1.926").to_csv("plant.csv", index=False, sep=";", decimal=",")
    reconciled()
    assert "note: points in 'counter' are carried over as they stand" in capsys.readouterr().err


def test_reconciled_values_obey_the_balances(usual):
    feed, top, bottom, gas, oil, loss = numbers(usual.table, "reconciled").T
    np.testing.assert_allclose(feed + usual.table["dose [kg/s]"].astype(float), top + bottom, atol=1e-12)
    np.testing.assert_allclose(bottom, gas + oil, atol=1e-12)
    np.testing.assert_allclose(loss, 0.01 * oil, atol=1e-12)


def test_the_lying_meter_is_the_suspect_in_its_rows_with_the_size_of_its_lie(usual):
    lying = usual.table[FIRST:LAST]
    suspected = lying["suspect"] == LIAR
    assert suspected.mean() > 0.95
    sizes, half = (lying.loc[suspected, name].astype(float) for name in ("suspect error", "suspect error half-width"))
    assert abs(sizes.mean() - LIE) < 0.03
    assert ((sizes - LIE).abs() < half).mean() > 0.85
    assert set(lying.loc[suspected, "suspect kind"]) == {"sensor"}
    honest = usual.table.drop(lying.index)
    assert (honest["global alarm"] == "True").mean() < 0.1
    assert honest["suspect"].notna().mean() < 0.1


def test_the_level_is_that_of_intervals_and_tests(reconciled, expected):
    table = reconciled("--level", "0.5")
    np.testing.assert_allclose(numbers(table, "half-width"), expected.std * 0.6744897501960817)
    assert (table["global alarm"] == "True").sum() == expected.global_test(0.5).alarm.sum()
    assert table["suspect"].notna().sum() == (expected.likelihood_ratio_test(0.5).worst >= 0).sum()


def test_those_that_cannot_be_told_apart_are_alternatives(reconciled):
    table = plant(3)
    table.loc[1, "feed [kg/s]"] += 5.0
    table.to_csv("plant.csv", index=False)
    row = reconciled().iloc[1]
    assert (row["suspect"], row["suspect kind"]) == ("feed [kg/s]", "sensor")
    assert row["suspect alternatives"] == "top [kg/s], column"


def test_pieces_of_a_table_give_what_the_whole_gives(reconciled, monkeypatch, capsys):
    table = plant()
    table.loc[30:40, "oil [kg/s]"] = np.nan
    table.to_csv("plant.csv", index=False)
    whole, printed = reconciled(), capsys.readouterr().out
    sizes, append = [], reconcile.append_columns
    monkeypatch.setattr(
        reconcile, "append_columns", lambda frame, added: sizes.append(len(frame)) or append(frame, added)
    )
    monkeypatch.setattr(measured_table, "CHUNK_ROWS", 100)
    monkeypatch.setattr(measured_table, "LEAST_ROWS", 1)
    pieces = reconciled()
    assert sizes == [100, 100, 40]
    for name in whole.columns:
        if re.search("reconciled|half-width|adjustment|statistic|error", name):
            np.testing.assert_allclose(pieces[name].astype(float), whole[name].astype(float), rtol=1e-9, atol=1e-12)
        else:
            assert list(pieces[name].fillna("")) == list(whole[name].fillna(""))
    assert capsys.readouterr().out == printed


def test_shares_of_readings_are_errors_row_by_row(reconciled, folder):
    handmade_plant.write(folder, job=JOB.replace("oil = 0.04", 'oil = "1 % + 0.01"'))
    table, readings = reconciled(), plant()
    row = readings.iloc[7]
    constraint = Plant.load("plant.toml").constraint()
    std = [*STD.values(), 1.0]
    std[4] = 0.01 * row["oil [kg/s]"] + 0.01
    values = [*row[list(STD)], np.nan]
    alone = eq.reconcile(values, std, constraint, inputs=[row["dose [kg/s]"]])
    np.testing.assert_allclose(numbers(table, "reconciled")[7], alone.values, rtol=1e-9)
    np.testing.assert_allclose(numbers(table, "half-width")[7], alone.half_widths.after, rtol=1e-9)


def test_inputs_with_a_sensor_are_reconciled_and_tolerances_loosen_balances(reconciled, expected, folder):
    handmade_plant.write(folder, job=JOB + "dose = 0.2\n[tolerances]\nstill = 0.5\n")
    table = reconciled()
    assert np.abs(table["dose [kg/s] adjustment"].astype(float)).max() > 0.01
    missed = table["bottom [kg/s] reconciled"].astype(float) - numbers(
        table, "reconciled", ["gas [kg/s]", "oil [kg/s]"]
    ).sum(1)
    assert np.abs(missed[FIRST:LAST]).mean() > 0.1
    assert table["global alarm"].value_counts()["True"] < expected.global_test().alarm.sum()


# --- Columns and files ------------------------------------------------------------------------------------------------


def test_the_table_keeps_its_columns_as_they_stand(reconciled, folder):
    before = pd.read_csv("plant.csv", dtype=str)
    before.loc[3, "oil [kg/s]"] = "NA"
    before.loc[4, "run"] = '5" pipe, new'
    before.to_csv("plant.csv", index=False)
    table = reconciled()
    kept = pd.read_csv("out.csv", dtype=str, keep_default_na=False)[list(before.columns)]
    assert kept.to_numpy().tolist() == before.to_numpy().tolist()
    added = [f"{name} {part}" for name in VARIABLES for part in ("reconciled", "half-width", "adjustment")]
    rest = ["global statistic", "global threshold", "global alarm", "suspect", "suspect kind", "suspect error"]
    rest += ["suspect error half-width", "suspect alternatives"]
    assert list(table.columns) == [*before.columns, *added, *rest]
    assert np.isnan(float(table["oil [kg/s] adjustment"][3]))


def test_the_table_of_the_job_is_taken_unless_another_one_is_named(folder, usual):
    assert main(["reconcile", "plant.toml", "-o", "other.csv"]) == 0
    assert Path("other.csv").read_bytes() == (usual.folder / "out.csv").read_bytes()


def test_packed_and_other_kinds_of_tables_are_read_and_written(folder, usual, monkeypatch):
    with gzip.open("plant.tsv.gz", "wt") as file:
        plant().to_csv(file, index=False, sep="\t")
    monkeypatch.setattr(measured_table, "CHUNK_ROWS", 50)
    monkeypatch.setattr(measured_table, "LEAST_ROWS", 1)
    assert main(["reconcile", "plant.toml", "plant.tsv.gz", "-o", "out.parquet"]) == 0  # the first piece has no suspect
    stored = pd.read_parquet("out.parquet")
    assert list(stored["suspect"].fillna("")) == list(usual.table["suspect"].fillna(""))
    np.testing.assert_allclose(numbers(stored, "reconciled"), numbers(usual.table, "reconciled"), rtol=1e-12)
    assert main(["reconcile", "plant.toml", "out.parquet", "-o", "again.csv"]) == 2  # results have the names of results


def test_screen_and_page_say_who_lies_what_is_calculated_and_what_it_was_made_from(usual):
    out = usual.printed
    bottom = re.search(
        r"bottom \[kg/s\] +measured redundant +240 +\S+ +0\.098 +\S+ +\S+ +(\S+) +\d+ +\d+ +0\.\d+ ± 0", out
    )
    assert bottom is not None
    before, after = (usual.table[name].astype(float) for name in ("bottom [kg/s]", "bottom [kg/s] reconciled"))
    assert float(bottom[1]) == pytest.approx((after - before).mean(), rel=0.01)
    assert re.search(r"loss \[kg/s\] +unmeasured observable +0 +– +– ", out)
    assert re.search(r"still +kg/s +0 +0\.\d+ +0\.\d+ +\d+ +0 +–", out)
    assert "Sensor 'bottom [kg/s]' is the suspect in " in out
    assert "Calculated from the others where not measured: 'loss [kg/s]'." in out
    assert re.search(r"\nout.csv: 240 rows\nplant.html: 0\.\d MB\n$", out)
    page = (usual.folder / "plant.html").read_text("utf-8")
    assert "Sensor &#39;bottom [kg/s]&#39; is the suspect in" in page
    assert "<title>plant: measured and reconciled</title>" in page
    assert "bottom = gas + oil" in page
    assert "2026-03-01 02:" in page
    assert not re.search(r"<script|<link|src=|@import", page)


# --- What cannot be reconciled ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("gas = 0.02\noil = 0.04\n", ""),
            "for every output that is measured, but got none for 'gas [kg/s]' and 'oil [kg/s]'",
        ),
        (
            ("oil = 0.04", 'oil = "learn"'),
            "plant.toml: [sensors] must give a standard deviation for every output",
        ),
        (
            ("oil = 0.04", "oil = 0.04\nloss = 0.1"),
            "must have the columns that are measured, exact or asked for, but got none called 'loss [kg/s]'",
        ),
        (
            ("[sensors]", '[tolerances]\nstill = "learn"\n[sensors]'),
            "'still' in [tolerances] must be a standard deviation to reconcile, but got 'learn'",
        ),
        (('"dose [kg/s]"', '"does [kg/s]"'), "Equation 'feed + dose = top + bottom'"),
        (
            ("oil = 0.04", 'oil = "4 percent"'),
            "'oil' in [sensors] must be a standard deviation ≥ 0, a share of the reading",
        ),
    ],
)
def test_a_job_that_does_not_fit_is_refused(folder, refused, change, message):
    handmade_plant.write(folder, job=JOB.replace(*change))
    assert message in refused("reconcile", "plant.toml", "plant.csv", "-o", "out.csv", "--report", "out.html")


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("oil [kg/s]", "much", "Column 'oil [kg/s]' must hold numbers, but got 'much' in line 9 of 'plant.csv'"),
        ("dose [kg/s]", "", "Column 'dose [kg/s]' must hold a number in every row, but got none in line 9"),
        (
            "when",
            "noon",
            "Column 'when' must hold numbers, or dates such as 2026-03-01 08:30, in every row, but got 'noon'",
        ),
        ("when", "2025-01-01", "Column 'when' must not go back in time, but got '2025-01-01' in line 9"),
        (
            "gas [kg/s]",
            "0",
            "'gas [kg/s]' in [sensors] must give a reading of 0 an error, too, but got a share alone, and 0 in line 9",
        ),
    ],
)
def test_a_cell_that_cannot_be_used_is_named_and_nothing_is_left(folder, refused, monkeypatch, column, cell, message):
    table = plant().astype(str)
    table.loc[7, column] = cell
    handmade_plant.write(folder, table, JOB.replace("gas = 0.02", 'gas = "1 %"'))
    monkeypatch.setattr(measured_table, "CHUNK_ROWS", 5)  # the piece before was written already
    monkeypatch.setattr(measured_table, "LEAST_ROWS", 1)
    line = ("reconcile", "plant.toml", "plant.csv", "-o", "out.csv", "--report", "out.html", "--time", "when")
    assert message in refused(*line)


@pytest.mark.parametrize("name", ["global alarm", "oil [kg/s] reconciled"])
def test_a_table_with_the_names_of_results_is_refused(folder, refused, name):
    handmade_plant.write(folder, plant().assign(**{name: 1}))
    message = f"'plant.csv' must leave the names of results free, but got {name!r}. Rename or drop what is called so."
    assert message in refused("reconcile", "plant.toml", "plant.csv", "-o", "out.csv")


def test_exact_values_that_contradict_each_other_are_named_with_their_row(folder, refused):
    exact = JOB.replace("bottom = 0.05\ngas = 0.02\noil = 0.04", "bottom = 0\ngas = 0\noil = 0")
    handmade_plant.write(folder, job=exact)
    sentence = refused("reconcile", "plant.toml", "plant.csv", "-o", "out.csv")
    assert "Exact values (std 0) must obey the balances, but got" in sentence
    assert "in row 1, which contradict 'still'" in sentence


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "plant.csv"], "--output must not be a file that is read, but got 'plant.csv'"),
        (
            ["-o", "out.csv", "--report", "plant.csv"],
            "--report must not be a file that is read or written, but got 'plant.csv'",
        ),
        (
            ["-o", "out.csv", "--report", "out.csv"],
            "--report must not be a file that is read or written, but got 'out.csv'",
        ),
        (
            ["-o", "out.csv", "--report", "nowhere/out.html"],
            "--report must be a file in a folder that exists, but got 'nowhere/out.html'",
        ),
        (["-o", "out.csv", "--report", "."], "--report must be a file in a folder that exists, but got '.'"),
        (["-o", "out.xlsx"], "The name of a table must end in .csv, .tsv, .txt"),
        (["-o", "-"], "The name of a table must end in .csv"),
        (["-o", "out.csv", "--level", "95"], "level must lie between 0 and 1, but got 95.0. Use 0.95 for 95 %"),
        (["-o", "out.csv", "--time", "wen"], "but got none called 'wen'. Did you mean 'when'?"),
    ],
)
def test_options_that_cannot_be_used_are_refused(refused, options, message):
    assert message in refused("reconcile", "plant.toml", "plant.csv", *options)


@pytest.fixture
def undrawn(monkeypatch):
    """A page takes longer than all the rest, and nobody looks at it."""
    monkeypatch.setattr(reconcile, "_page", lambda *_: b"a page")


def test_a_report_that_cannot_be_written_leaves_no_table(folder, refused, undrawn):
    name = 250 * "r" + ".html"  # longer than a file system takes, with the name of its part
    sentence = refused("reconcile", "plant.toml", "plant.csv", "-o", "out.csv", "--report", name)
    assert f"--report must be a file that can be written, but got '{name}'" in sentence


def test_rows_that_cannot_be_tested_have_no_statistic_and_no_alarm(reconciled):
    table = plant(5)
    table.loc[2, ["top [kg/s]", "gas [kg/s]"]] = np.nan
    table.to_csv("plant.csv", index=False)
    tested = reconciled()[["global statistic", "global threshold", "global alarm"]]
    assert tested.iloc[2].isna().all()
    assert tested.drop(index=2).notna().all(axis=None)
    assert list(tested["global alarm"].drop(index=2)) == ["False"] * 4


@pytest.mark.parametrize("stage", ["reconcile.append_columns", "reconcile._page", "reconcile._write_page"])
def test_ctrl_c_leaves_earlier_results_as_they_were(folder, undrawn, monkeypatch, stage):
    for name in ("out.csv", "plant.html"):
        (folder / name).write_text("of an earlier run")
    before = contents(folder)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"equipoise.app.commands.{stage}", interrupted)
    assert main(["reconcile", "plant.toml", "plant.csv", "-o", "out.csv", "--report", "plant.html"]) == 130
    assert contents(folder) == before
