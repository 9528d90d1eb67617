"""`equipoise init`: a job file that can be used at once, with balances found in the data."""

import errno
import os
import tomllib

import handmade_table
import numpy as np
import pandas as pd
import pytest
from handmade_table import cell

from equipoise.app.commands import main
from equipoise.app.job import Job
from equipoise.balances.equations import parse_equation

SORTED = ["--inputs", "Current [A],SOC", "--outputs", "Voltage [V]", "--outputs", "OCV [V],Loss [V]"]


def test_every_column_is_listed_with_its_range_to_be_sorted(folder, capsys):
    assert main(["init", "cell.csv", "-o", "new.toml"]) == 0
    text = (folder / "new.toml").read_text("utf-8")
    for name, values in cell().drop(columns="run").items():
        (line,) = (line for line in text.splitlines() if line.startswith(f'#   "{name}",'))
        assert line.endswith(f"# {values.min():.6g} to {values.max():.6g}")
    assert tomllib.loads(text)["inputs"] == []
    assert "Edit it, then: equipoise check new.toml" in capsys.readouterr().out


def test_sorted_columns_give_a_job_that_holds_as_it_is(folder, capsys):
    (folder / "cell.toml").unlink()
    assert main(["init", "cell.csv", *SORTED, "--known", "Lead [V]"]) == 0
    job = Job.load("cell.toml")
    assert (job.inputs, job.known, job.outputs) == (("Current [A]", "SOC"), ("Lead [V]",), handmade_table.OUTPUTS)
    assert list(job.balances.values()) == ["`OCV [V]` = `Voltage [V]` + `Loss [V]`"]  # no other one has an output
    assert main(["check", "cell.toml"]) == 0


def test_the_balances_of_the_data_are_found_and_their_residuals_told(folder, capsys):
    assert main(["init", "cell.csv", "-o", "new.toml"]) == 0
    proposed = tomllib.loads((folder / "new.toml").read_text("utf-8"))["balances"].values()
    found = [parse_equation(text, list(cell().columns)).coefficients for text in proposed]
    voltage = {"Voltage [V]": 1.0, "OCV [V]": -1.0, "Loss [V]": 1.0}
    assert any(each in (voltage, {name: -c for name, c in voltage.items()}) for each in found)
    table = cell()
    residual = np.std(sum(c * table[name] for name, c in voltage.items()))
    (line,) = (
        line for line in capsys.readouterr().out.splitlines() if "`OCV [V]` = `Voltage [V]` + `Loss [V]`" in line
    )
    size, unit = line.partition("(residual ")[2].partition(",")[0].split()
    assert (float(size), unit) == (pytest.approx(residual, rel=0.2), "V")


def test_rows_that_break_a_balance_are_counted(folder, capsys):
    rng = np.random.default_rng(0)
    top, bottom = rng.uniform(1, 3, (2, 2000)).round(3)
    table = pd.DataFrame({"feed": (top + bottom).round(3), "top": top, "bottom": bottom})
    table.loc[:39, "top"] = 0.0
    table.to_csv("column.csv", index=False)
    assert main(["init", "column.csv"]) == 0
    assert "\n  feed = top + bottom    (holds to rounding in all but 40 of 2,000 rows)\n" in capsys.readouterr().out
    table["feed"] += 0.01 * rng.standard_normal(2000)
    table.to_csv("column.csv", index=False)
    assert main(["init", "column.csv", "--force"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "feed = " in line)
    assert line.endswith(" % of the spread of its terms; holds in all but 40 of 2,000 rows)")


def test_the_job_file_has_the_whole_name_of_the_table(folder):
    for year, suffix in ((2024, "csv"), (2025, "csv"), (2026, "csv.gz")):
        cell().to_csv(f"plant.{year}.{suffix}", index=False)
        assert main(["init", f"plant.{year}.{suffix}", *SORTED]) == 0
        assert Job.load(f"plant.{year}.toml").data.name == f"plant.{year}.{suffix}"


def test_a_table_elsewhere_is_found_from_the_job_file(folder, capsys):
    (folder / "jobs").mkdir()
    assert main(["init", "cell.csv", *SORTED, "-o", "jobs/cell.toml"]) == 0
    assert Job.load("jobs/cell.toml").data == folder / "cell.csv"
    assert main(["check", "jobs/cell.toml"]) == 0


def test_a_column_with_a_comma_in_its_name_is_one_column(folder):
    handmade_table.write(folder, cell().rename(columns={"SOC": "SOC, mean"}))
    assert main(["init", "cell.csv", "-o", "new.toml", "--inputs", "SOC, mean", "--outputs", "OCV [V]"]) == 0
    assert Job.load("new.toml").inputs == ("SOC, mean",)


def test_text_and_empty_columns_are_said_to_be_so(folder):
    handmade_table.write(folder, cell().assign(run="a", empty=np.nan))
    assert main(["init", "cell.csv", "-o", "new.toml"]) == 0
    lines = (folder / "new.toml").read_text("utf-8").splitlines()
    assert [line.rpartition("# ")[2] for line in lines if line.startswith(('#   "run"', '#   "empty"'))] == [
        "text",
        "empty",
    ]


def test_a_cell_that_makes_a_column_text_is_told(folder, capsys):
    table = cell(30).astype(object)
    table.loc[4, "OCV [V]"] = "Bad Input"
    table["operator"] = "Ann"
    table.to_csv("bad.csv", index=False)
    assert main(["init", "bad.csv"]) == 0
    err = capsys.readouterr().err
    assert "note: 'OCV [V]' is taken for text: Column 'OCV [V]' must hold numbers, but got 'Bad Input' in line 6" in err
    assert "operator" not in err


@pytest.mark.parametrize("sign", [".", ","])
def test_columns_without_a_single_number_are_told_with_an_example(folder, capsys, sign):
    cells = {"load": "12.5 kW", "share": "5%", "below": "<0.1", "when": "2024-01-01", "operator": "Ann", "unit": "A4"}
    rows = [";".join([*cells.values(), f"{i}.5"]).replace(".", sign) for i in range(9)]
    (folder / "plant.csv").write_text("\n".join([";".join([*cells, "x"]), *rows]))
    assert main(["init", "plant.csv"]) == 0
    printed = capsys.readouterr().err.splitlines()
    rule, where = "is taken for text: Column {0!r} must hold numbers, but got", "in line 2 of 'plant.csv'."
    load = f"note: 'load' {rule.format('load')} '12{sign}5 kW' {where} Write numbers alone, and their unit into the "
    assert [line.split()[1] for line in printed] == ["'load'", "'share'", "'below'"]
    assert printed[0] == f"{load}column's name: [kW]."
    assert printed[1].endswith("[%].")


def test_a_cell_that_is_no_number_is_told_where_decimals_have_a_comma(folder, capsys):
    (folder / "plant.csv").write_text("x;y\n1,5;2,5\n2,5;bad\n3,5;3,5\n;4,5\n" + "1,5;\n" * 5)
    assert main(["init", "plant.csv"]) == 0
    assert "'y' is taken for text: Column 'y' must hold numbers, but got 'bad' in line 3" in capsys.readouterr().err


def test_columns_of_which_no_cell_tells_what_their_commas_are_are_told_together(folder, capsys):
    (folder / "plant.tsv").write_text("id\ttotal\ta\tb\n0\t173,525\t80,527\t92,998\n1\t10,539\t9,393\t1,146\n")
    assert main(["init", "plant.tsv"]) == 0
    (note,) = (line for line in capsys.readouterr().err.splitlines() if "taken for text" in line)
    assert note.startswith("note: 'total', 'a' and 'b' are taken for text: Column 'total' must hold numbers, but got")
    assert "'173,525' in line 2 of 'plant.tsv'. Is it 173525 or 173,525? No cell tells. Write it" in note


def test_columns_with_separators_of_thousands_are_told(folder, capsys):
    (folder / "plant.csv").write_text("n;x;y\n1.926;0,5;1,5\n947;1,5;2,5\n12.004;2,5;1,5\n")
    assert main(["init", "plant.csv"]) == 0
    assert " # 947 to 12004\n" in (folder / "plant.toml").read_text("utf-8")
    note = "note: points in 'n' are read as separators of thousands: 1.926 is 1926.\n"
    assert note in capsys.readouterr().err


def test_a_job_file_that_is_there_is_replaced_only_by_force(folder, refused):
    assert "'cell.toml' is there already. Give another name with -o, or --force" in refused("init", "cell.csv")
    assert main(["init", "cell.csv", "--force"]) == 0
    assert (folder / "cell.toml").read_text("utf-8") != handmade_table.JOB


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'cell.csv' must begin with a line of column names, but got an empty file"),
        ("a,b\n", "'cell.csv' must hold rows, but got a header only"),
        ("a b\n1 2\n", "'cell.csv' must have several columns, but got 'a b' alone"),
        ("a,b\n1,2\n3\n", "Every line of 'cell.csv' must have 2 cells, as many as its header, but got 1 in line 3"),
        ("a,a\n1,2\n", "Columns of 'cell.csv' must have different names, but got 'a' more than once"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(folder, refused, text, message):
    handmade_table.write(folder, text)
    assert message in refused("init", "cell.csv", "-o", "new.toml")


def test_an_unknown_column_is_refused_with_the_closest_one(refused):
    sentence = refused("init", "cell.csv", "-o", "new.toml", "--inputs", "Curent,SOC")
    assert "inputs must name columns of the table, but got 'Curent'. Did you mean 'Current [A]'?" in sentence


def test_a_column_with_two_places_is_refused(refused):
    sentence = refused("init", "cell.csv", "-o", "new.toml", "--inputs", "SOC", "--outputs", "SOC,OCV [V]")
    assert "columns must have one place each, but got 'SOC' in 'inputs' and in 'outputs'. Remove" in sentence


def test_a_missing_table_is_refused_with_the_closest_one(refused):
    assert "A table must exist, but got 'cel.csv', which does not. Did you mean 'cell.csv'?" in refused(
        "init", "cel.csv"
    )


def test_a_full_disk_leaves_no_job_file_behind(monkeypatch, refused):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "'new.toml' cannot be written: No space left on device" in refused("init", "cell.csv", "-o", "new.toml")
