"""`equipoise predict`: help, and refusals before anything is written; the numbers are in test_prediction_table.py."""

import pytest

from equipoise.app.commands import main
from equipoise.app.commands.prediction_table import LEDGER_TERMS

X = ["Current [A]", "SOC", "Lead [V]"]


def test_the_help_says_which_part_of_a_variance_is_subtracted(capsys):
    assert main(["predict", "--help"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "squared std as " + " + ".join(LEDGER_TERMS).replace("+ reduction", "- reduction") in printed


# --- What cannot be predicted or written ------------------------------------------------------------------------------


@pytest.fixture
def refused_model(fitted, folder, refused):
    """Runs the command with a model file that was changed."""

    def run(change):
        (folder / "changed.safetensors").write_bytes(change(fitted.read_bytes()))
        return refused("predict", "changed.safetensors", "cell.csv", "-o", "out.csv")

    return run


def test_a_corrupt_model_is_refused(refused_model):
    assert "'changed.safetensors' is damaged: its checksum does not match" in refused_model(
        lambda raw: raw[:-7] + bytes([raw[-7] ^ 1]) + raw[-6:]
    )
    assert "'changed.safetensors' is cut short or damaged" in refused_model(lambda raw: raw[:-1000])
    assert "'changed.safetensors' is empty" in refused_model(lambda raw: b"")


def test_a_model_of_a_newer_format_is_refused(refused_model):
    assert "'changed.safetensors' was written by a newer equipoise (format 9)" in refused_model(
        lambda raw: raw.replace(rb"\"format_version\":2", rb"\"format_version\":9")
    )


@pytest.mark.parametrize("missing", X)
def test_a_missing_input_is_named(fitted, new, refused, missing):
    new.drop(columns=missing).to_csv("new.csv", index=False)
    sentence = refused("predict", fitted, "new.csv", "-o", "out.csv")
    assert f"'new.csv' must have the columns asked for, but got none called '{missing}'" in sentence


def test_all_inputs_that_are_missing_are_named(fitted, new, refused):
    new.drop(columns=["SOC", "Current [A]"]).to_csv("new.csv", index=False)
    sentence = refused("predict", fitted, "new.csv", "-o", "out.csv")
    assert (
        "must have the columns asked for, but got none called 'Current [A]' and 'SOC'. Known: 'run', 'Lead" in sentence
    )


@pytest.mark.parametrize("data", ["cell.csv", "./cell.csv", "link.csv"])
def test_the_table_that_is_read_is_not_overwritten(fitted, folder, refused, data):
    (folder / "link.csv").symlink_to("cell.csv")
    assert "--output must not be a file that is read, but got 'cell.csv'. Give another name." in refused(
        "predict", fitted, data, "-o", "cell.csv"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "out.csv", "--level", "95"], "--level must be between 0 and 1, but got 95.0. Use 0.95 for 95 %"),
        (["-o", "out.csv", "--level", "0"], "--level must be between 0 and 1, but got 0.0"),
        (["-o", "out.csv", "--level", "0.9999999999999999"], "must leave a probability of 1e-12 at least outside"),
        (["-o", "out.csv", "--samples", "2", "--ledger"], "--ledger must go without --samples, but got both"),
        (["-o", "out.xlsx"], "The name of a table must end in .csv, .tsv, .txt"),
        (["-o", "nowhere/out.csv"], "The folder of 'out.csv' must exist, but got 'nowhere'"),
        (["-o", "."], "--output must not be the folder of what is read, but got '.', where 'cell.csv' is"),
    ],
)
def test_options_that_cannot_be_used_are_refused(fitted, refused, options, message):
    assert message in refused("predict", fitted, "cell.csv", *options)


def test_a_missing_table_is_refused_with_the_closest_one(fitted, refused):
    assert "A table must exist, but got 'cel.csv', which does not. Did you mean 'cell.csv'?" in refused(
        "predict", fitted, "cel.csv", "-o", "out.csv"
    )


def test_the_number_of_rows_is_told(predicted, capsys):
    predicted()
    assert capsys.readouterr().out == "out.csv: 150 rows\n"
