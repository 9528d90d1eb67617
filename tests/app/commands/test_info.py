"""`equipoise info`: what a model file says of itself, without waiting for torch."""

import json
import subprocess
import sys

import pandas as pd
import pytest
from handmade_table import FULL_JOB

from equipoise.app.commands import main
from equipoise.artifact import model_file as artifact


def test_columns_balances_training_and_tolerances_are_shown(fitted, capsys):
    assert main(["info", str(fitted)]) == 0
    out, err = capsys.readouterr()
    s = artifact.load(fitted).standardizer_
    (a, c), (b, d) = s.x_lowest, s.x_highest
    seen = f"Current [A] from {a:.6g} to {b:.6g}, SOC from {c:.6g} to {d:.6g}"
    columns = "  known:    Lead [V]\n  outputs:  Voltage [V], OCV [V], Loss [V], Terminal"
    assert f"  inputs:   Current [A], SOC\n  seen:     {seen}\n{columns}" in out
    assert "  balance:  voltage: Voltage = OCV - Loss\n  balance:  terminal: Terminal = Voltage - Lead\n" in out
    assert "  network:  8, silu\n  training: 30 epochs, " in out
    assert "  data: cell.csv\n" in out
    assert "  rows: 60\n" in out
    tolerances = artifact.load(fitted).tolerances_
    for name, balance in tolerances.iterrows():
        (line,) = (line for line in out.splitlines() if line.startswith(f" {name} "))
        assert str(balance["verdict"]) in line
        assert f" {balance['tol_std']:.3g} " in line
        if balance["note"]:
            assert f"note: balance '{name}': {balance['note']}" in err


def test_programs_get_all_of_it_as_json(fitted, capsys):
    assert main(["info", str(fitted), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["columns"]["known"] == ["Lead [V]"]
    assert [balance["text"] for balance in printed["balances"]] == ["Voltage = OCV - Loss", "Terminal = Voltage - Lead"]
    assert len(printed["training"]["epochs"]) == 30
    expected = artifact.load(fitted).tolerances_["tol_std"]
    assert pd.Series({t["balance"]: t["tol_std"] for t in printed["tolerances"]}).to_dict() == expected.to_dict()


def test_the_job_file_comes_back_as_it_was(fitted, capsys):
    assert main(["info", str(fitted), "--job"]) == 0
    assert capsys.readouterr().out == FULL_JOB


def test_a_model_without_job_file_says_so(fitted, folder, capsys):
    artifact.load(fitted).save("plain.safetensors")
    assert main(["info", "plain.safetensors", "--job"]) == 0
    assert capsys.readouterr().out == "# plain.safetensors was not fitted from a job file.\n"


PROBE = """
import sys
from equipoise.app.commands import main
code = main(["info", sys.argv[1]])
print(code, sorted({"torch", "pandas", "sklearn"} & set(sys.modules)))
"""


def test_neither_torch_nor_pandas_is_imported_and_a_pipe_gets_plain_text(fitted):
    run = subprocess.run([sys.executable, "-c", PROBE, fitted], capture_output=True, text=True, check=False)
    assert run.stdout.splitlines()[-1] == "0 []"
    assert "terminal: Terminal = Voltage - Lead" in run.stdout
    assert "tolerance (sd)" in run.stdout
    assert "\x1b" not in run.stdout + run.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cell.csv", "'cell.csv' is not a safetensors file"),
        ("gone.safetensors", "A model file is needed, but 'gone.safetensors' does not exist"),
        (".", "A model file is needed, but '.' is a folder"),
    ],
)
def test_what_is_no_model_is_refused(refused, name, message):
    assert message in refused("info", name)


def test_a_file_with_damaged_weights_is_refused_though_its_header_can_be_read(fitted, folder, capsys):
    raw = bytearray(fitted.read_bytes())
    raw[-1] ^= 1
    (folder / "damaged.safetensors").write_bytes(raw)
    assert main(["info", "damaged.safetensors"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "'damaged.safetensors' is damaged: its checksum does not match." in err
