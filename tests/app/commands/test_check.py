"""`equipoise check`: verdicts, advice, and jobs and tables that cannot be used."""

import json

import handmade_table
import numpy as np
import pytest
from handmade_table import JOB, cell

from equipoise.app.commands import main

BALANCE = '"Voltage = OCV - Loss"'
FLIPPED = JOB.replace("OCV - Loss", "OCV + Loss")
NO_BALANCES = JOB.replace(f"[balances]\nvoltage = {BALANCE}\n", "")


def with_cell(row, column, value):
    """The table with one other cell."""
    table = cell().astype({column: object})
    table.loc[row, column] = value
    return table


# --- Verdicts ---------------------------------------------------------------------------------------------------------


def test_a_balance_that_holds_is_shown_with_its_residual_in_its_unit(folder, capsys):
    assert main(["check", "cell.toml"]) == 0
    out, err = capsys.readouterr()
    assert "voltage: Voltage = OCV - Loss\n  holds within noise" in out
    table = cell()
    residual = table["Voltage [V]"] - table["OCV [V]"] + table["Loss [V]"]
    worst = int(residual.abs().argmax())
    (line,) = (line.split() for line in out.splitlines() if line.startswith(" voltage "))
    assert line[:5] == ["voltage", "holds", "within", "noise", "V"]
    assert line[5:7] == [f"{residual.mean():.3g}", f"{residual.std():.3g}"]
    assert line[-2:] == [f"{residual[worst]:.3g}", str(worst + 2)]
    assert err == ""


def test_the_worst_rows_are_shown_in_the_unit_and_beside_their_terms(folder, capsys):
    assert main(["check", "cell.toml"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("  worst rows: "))
    terms = cell()[["Voltage [V]", "OCV [V]", "Loss [V]"]].to_numpy()
    residual, size = terms @ [1, -1, 1], np.abs(terms).sum(axis=1)
    worst = np.argsort(-np.abs(residual))[:3]
    shown = [
        f"line {i + 2} ({residual[i]:.3g} V, {100 * abs(residual[i]) / size[i]:.2g} % of its terms)" for i in worst
    ]
    assert line == f"  worst rows: {', '.join(shown)}"


def test_a_copy_of_a_column_is_told_with_and_without_balances(folder, capsys):
    handmade_table.write(folder, cell().assign(twin=cell()["OCV [V]"]))
    assert main(["check", "cell.toml"]) == 0
    assert "note: Column 'twin' is a copy of 'OCV [V]'.\n" in capsys.readouterr().err
    handmade_table.write(folder, cell().assign(SOC=cell()["Current [A]"]), NO_BALANCES)
    assert main(["check", "cell.toml"]) == 0
    assert "note: Column 'SOC' is a copy of 'Current [A]'.\n" in capsys.readouterr().err


def test_a_wrong_sign_is_found_and_the_line_of_advice_repairs_the_job(folder, capsys):
    handmade_table.write(folder, job=FLIPPED)
    assert main(["check", "cell.toml"]) == 1
    out, err = capsys.readouterr()
    assert "to repair it, flip the sign of `Loss`: residual 0.2 V → 0.0029 V" in out
    assert "  does not hold: " in out
    assert "does not hold" not in err  # said once
    (advice,) = (line.strip() for line in out.splitlines() if line.startswith("  voltage = "))
    handmade_table.write(folder, job=JOB.replace(f"voltage = {BALANCE}", advice))
    assert main(["check", "cell.toml"]) == 0


def test_a_missing_column_of_the_table_is_proposed_for_a_balance(folder, capsys):
    job = JOB.replace('"Loss [V]"]', '"Loss [V]", "Terminal [V]"]').replace(BALANCE, '"Terminal = Voltage"')
    handmade_table.write(folder, job=job)
    assert main(["check", "cell.toml"]) == 1
    out = capsys.readouterr().out
    assert "  and put 'Lead [V]' into known, or into outputs if it is to be predicted" in out
    (advice,) = (line.strip() for line in out.splitlines() if line.startswith("  voltage = "))
    text = job.replace('voltage = "Terminal = Voltage"', advice).replace(
        "[balances]", 'known = ["Lead [V]"]\n[balances]'
    )
    handmade_table.write(folder, job=text)
    assert main(["check", "cell.toml"]) == 0


@pytest.mark.parametrize(("job", "holds"), [(JOB, True), (FLIPPED, False), (NO_BALANCES, True)])
def test_programs_get_json_on_standard_output_and_nothing_else(folder, capsys, job, holds):
    handmade_table.write(folder, job=job)
    assert main(["check", "cell.toml", "--json"]) == (0 if holds else 1)
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["holds"], found["n_rows"]) == (holds, 60)
    assert [balance["holds"] for balance in found["balances"]] == ([] if job == NO_BALANCES else [holds])
    roles = {column["name"]: column["role"] for column in found["columns"]}
    assert (roles["SOC"], roles["OCV [V]"]) == ("input", "output")
    assert err == ""


def test_known_sensors_decide_what_is_noise(folder, capsys):
    sensors = "".join(f'"{name}" = {{}}\n' for name in handmade_table.OUTPUTS)
    job = JOB.replace("[model]", f"[sensors]\n{sensors}[model]")
    handmade_table.write(folder, job=job.format(*3 * [handmade_table.SENSOR_STD]))
    assert main(["check", "cell.toml"]) == 0
    handmade_table.write(folder, job=job.format(*3 * [handmade_table.SENSOR_STD / 10]))
    assert main(["check", "cell.toml"]) == 1


def test_lines_are_those_of_an_editor_with_blank_lines_above_and_line_breaks_in_cells(folder, capsys):
    table = with_cell(3, "run", "two\nlines").astype(object)
    table.loc[40, "Voltage [V]"] += 0.5
    text = table.to_csv(index=False).replace("\n000,", "\n\n\n000,")
    handmade_table.write(folder, text)
    line = next(i for i, shown in enumerate(text.splitlines(), start=1) if shown.startswith("040,"))
    assert line == 40 + 2 + 3
    assert main(["check", "cell.toml"]) == 0
    out, err = capsys.readouterr()
    (shown,) = (shown.split() for shown in out.splitlines() if shown.startswith(" voltage "))
    assert shown[-1] == f"{line}"
    assert err == f"note: Balance 'voltage': the residual of 1 row stands out (line {line}).\n"


def test_rows_of_parquet_are_counted_from_one(folder, capsys):
    table = cell()
    table.loc[40, "Voltage [V]"] += 0.5
    table.to_parquet("cell.parquet")
    handmade_table.write(folder, job=JOB.replace("cell.csv", "cell.parquet"))
    assert main(["check", "cell.toml"]) == 0
    out, err = capsys.readouterr()
    assert " in row" in out
    assert "stands out (row 41)." in err


# --- Remarks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("job", [JOB, NO_BALANCES])
def test_a_constant_output_is_remarked_on_with_and_without_balances(folder, capsys, job):
    handmade_table.write(folder, cell().assign(**{"Loss [V]": 0.1}), job)
    assert main(["check", "cell.toml"]) == 0
    assert "note: Column 'Loss [V]' is constant (0.1)." in capsys.readouterr().err


@pytest.mark.parametrize(("rows", "count", "have"), [(1, "1 row", "1 row has"), (2, "2 rows", "2 rows have")])
def test_fewer_rows_than_outputs_are_remarked_on(folder, capsys, rows, count, have):
    handmade_table.write(folder, cell(rows))
    assert main(["check", "cell.toml"]) == 0
    out, err = capsys.readouterr()
    assert f"note: 'cell.csv' has {count} for 3 outputs: too few to learn from." in err
    assert f"too few rows: {have} all its columns; at least 3 are needed" in out


def test_an_output_without_any_value_is_remarked_on(folder, capsys):
    handmade_table.write(folder, cell().assign(**{"Loss [V]": np.nan}))
    assert main(["check", "cell.toml"]) == 0
    out, err = capsys.readouterr()
    assert "too few rows: 0 rows have all its columns" in out
    assert "note: Column 'Loss [V]' has no values at all." in err


def test_a_job_without_balances_is_told_how_to_find_some(folder, capsys):
    handmade_table.write(folder, job=NO_BALANCES)
    assert main(["check", "cell.toml"]) == 0
    assert "no balances; equipoise init finds those that hide in the data" in capsys.readouterr().out


# --- Tables that cannot be used ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["check", "fit"])
def test_a_table_that_is_not_there_is_named_with_the_closest_one(folder, refused, command):
    handmade_table.write(folder, job=JOB.replace("cell.csv", "cel.csv"))
    assert "A table must exist, but got 'cel.csv', which does not. Did you mean 'cell.csv'?" in refused(
        command, "cell.toml"
    )


HEADER = ",".join(cell().columns) + "\n"
UNUSABLE_TABLES = {
    "empty file": ("", "'cell.csv' must begin with a line of column names, but got an empty file"),
    "header only": (HEADER, "'cell.csv' must hold rows, but got a header only"),
    "wrong delimiter": (
        cell().to_csv(index=False, sep=":"),
        "'cell.csv' must have several columns, but got 'run:Current [A]:SOC:Lead [V]:Voltage [V]:OCV [V]:Loss [V]:"
        "Terminal [V]' alone. Separate its columns by comma, semicolon, tab or |.",
    ),
    "text among numbers": (
        with_cell(5, "SOC", "full"),
        "Column 'SOC' must hold numbers, but got 'full' in line 7 of 'cell.csv'. Correct it",
    ),
    "text among outputs": (
        with_cell(0, "OCV [V]", "3,5"),
        "Column 'OCV [V]' must hold numbers, but got '3,5' in line 2 of 'cell.csv'. Write decimals with a point",
    ),
    "an input without values": (
        cell().assign(SOC=np.nan),
        "Column 'SOC' must hold a number in every row, but got none in any row of 'cell.csv'",
    ),
    "an input with a gap": (
        with_cell(58, "SOC", np.nan),
        "Column 'SOC' must hold a number in every row, but got none in line 60 of 'cell.csv'",
    ),
    "infinite": (
        with_cell(3, "OCV [V]", np.inf),
        "Column 'OCV [V]' must hold numbers, but got 'inf' in line 5 of 'cell.csv'",
    ),
    "no such column": (
        cell().rename(columns={"SOC": "soc "}),
        "cell.toml: 'inputs' must name columns of 'cell.csv', but got 'SOC'. Did you mean 'soc'",
    ),
}


@pytest.mark.parametrize("command", ["check", "fit"])
@pytest.mark.parametrize("kind", UNUSABLE_TABLES)
def test_a_table_that_cannot_be_used_is_refused_with_column_line_and_value(folder, refused, kind, command):
    table, message = UNUSABLE_TABLES[kind]
    handmade_table.write(folder, table)
    assert message in refused(command, "cell.toml")


# --- Jobs that cannot be used -----------------------------------------------------------------------------------------

TWICE = f'{BALANCE}\nagain = "2*OCV = 2*Voltage + 2*Loss{{}}"'
UNUSABLE_BALANCES = {
    "an unknown column": (
        '"Voltage = OCV - Los"',
        "must use known columns only, but got 'Los'. Did you mean 'Loss [V]'?",
    ),
    "no outputs": (
        '"Current = 2*SOC"',
        "Balance 'voltage' must involve an output, but got only 'Current [A]' and 'SOC'",
    ),
    "not linear": ('"Voltage = OCV*Loss"', "must be linear in its columns, but got the product OCV * Loss"),
    "code": (
        "\"Voltage = __import__('os')\"",
        """must consist of columns, numbers and + - * /, but got the character "'""",
    ),
    "a call": ('"Voltage = exec(OCV)"', "but got the call exec(OCV)"),
    "dependent": (TWICE.format(""), "Balances 'voltage' and 'again' are duplicates, equal up to a factor (rank 1 of 2"),
    "contradictory": (TWICE.format(" + 1"), "Balances 'voltage' and 'again' contradict each other by 0.5"),
}


@pytest.mark.parametrize("command", ["check", "fit"])
@pytest.mark.parametrize("kind", UNUSABLE_BALANCES)
def test_a_balance_that_cannot_be_used_is_refused_with_its_name(folder, refused, kind, command):
    balance, message = UNUSABLE_BALANCES[kind]
    handmade_table.write(folder, job=JOB.replace(BALANCE, balance))
    sentence = refused(command, "cell.toml")
    assert message in sentence
    assert "cell.toml" in sentence
    assert "voltage" in sentence


def test_code_in_a_balance_is_not_run(folder, refused):
    code = f"__import__('pathlib').Path('{folder.as_posix()}/hacked').touch()"  # `refused` looks for new files
    handmade_table.write(folder, job=JOB.replace(BALANCE, f'"Voltage = {code}"'))
    assert "must consist of columns, numbers and + - * /" in refused("check", "cell.toml")


@pytest.mark.parametrize("command", ["check", "fit"])
def test_a_sensor_of_an_unknown_column_is_refused_with_the_closest_name(folder, refused, command):
    handmade_table.write(folder, job=JOB.replace("[model]", "[sensors]\nVoltag = 0.1\n[model]"))
    assert "cell.toml: [sensors] must name outputs, but got 'Voltag'. Did you mean 'Voltage [V]'?" in refused(
        command, "cell.toml"
    )


@pytest.mark.parametrize("command", ["check", "fit", "tune", "compare"])
@pytest.mark.parametrize(
    ("job", "message"),
    [
        (JOB.replace('inputs = ["Current [A]", "SOC"]\n', ""), "cell.toml: 'inputs' must be given, but got none."),
        (JOB.replace("[model]", '[sensors]\nOCV = "1 %"\n[model]'), "'OCV' in [sensors] must be"),
    ],
)
def test_the_job_of_a_plant_is_told_its_command(refused, folder, job, message, command):
    handmade_table.write(folder, job=job)
    sentence = refused(command, "cell.toml", *(["-o", "out"] if command == "compare" else []))
    assert message in sentence
    assert sentence.endswith("If it is the job of a plant, use: equipoise reconcile cell.toml")


@pytest.mark.parametrize("command", ["check", "fit", "tune"])
def test_a_job_that_is_no_plants_either_is_not_sent_elsewhere(refused, folder, command):
    handmade_table.write(folder, job=JOB.replace("inputs", "input"))
    assert "reconcile" not in refused(command, "cell.toml")


def test_a_job_file_that_is_not_there_is_named_with_those_that_are(refused):
    assert "A job file must exist, but got 'cel.toml', which does not. Did you mean 'cell.toml'?" in refused(
        "check", "cel.toml"
    )
