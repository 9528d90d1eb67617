"""Options of several commands: wrong devices and outputs are refused, before anything is read or written."""

import handmade_table
import pytest
from handmade_table import JOB


def test_every_command_that_computes_refuses_an_unknown_device(fitted, refused):
    sentence = refused("fit", "cell.toml", "--device", "abacus")
    assert "device must be one that torch can use here, but got 'abacus' (Expected one of cpu, cuda" in sentence
    for command in (["predict", fitted, "cell.csv", "-o", "out.csv"], ["evaluate", fitted, "cell.csv"]):
        assert refused(*command, "--device", "abacus") == sentence
    assert refused("report", fitted, "cell.csv", "-o", "page.html", "--device", "abacus") == sentence


def test_a_device_in_the_job_file_is_looked_at_too(folder, refused):
    handmade_table.write(folder, job=f'{JOB}device = "abacus"\n')
    assert "but got 'abacus'" in refused("fit", "cell.toml")


@pytest.mark.parametrize(
    "words",
    [
        ["init", "cell.csv", "--force", "-o"],
        ["fit", "cell.toml", "-o"],
        ["predict", "model.safetensors", "cell.csv", "-o"],
        ["report", "model.safetensors", "cell.csv", "-o"],
        ["export", "cell.csv", "-o"],
    ],
)
def test_no_command_overwrites_what_it_reads(folder, refused, words):
    sentence = refused(*words, folder / "cell.csv")
    assert f"--output must not be a file that is read, but got '{folder / 'cell.csv'}'. Give another name." in sentence
