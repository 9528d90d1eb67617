"""A newcomer's session: from a table to a report through the real command line, with a wrong sign on the way."""

import numpy as np
import pandas as pd
import pytest
from handmade_table import INPUTS, OUTPUTS, SENSOR_STD, cell
from process_group import command, one_server

from equipoise.app.job import Job


@pytest.fixture
def equipoise(tmp_path, tmp_path_factory):
    """Runs a command in the folder, as a person at a terminal with a pipe behind would; gives what it printed."""
    files = [tmp_path_factory.mktemp("shell") / name for name in ("out", "err")]

    def run(*words, ends_with=0):
        code = command(words, tmp_path, *files)
        out, err = (file.read_text("utf-8") for file in files)
        assert code == ends_with, err
        assert "\x1b" not in out + err
        return out, err

    return run


@one_server
def test_a_newcomer_comes_from_a_table_to_a_report(tmp_path, equipoise):
    job = tmp_path / "cell.toml"
    cell(80).to_csv(tmp_path / "cell.csv", index=False)
    cell(30, seed=1).to_csv(tmp_path / "new.csv", index=False)

    columns = ["--inputs", ",".join(INPUTS), "--outputs", ",".join(OUTPUTS)]
    found, _ = equipoise("init", "cell.csv", *columns)
    assert "`OCV [V]` = `Voltage [V]` + `Loss [V]`" in found
    (right,) = Job.load(job).balances.values()

    job.write_text(job.read_text("utf-8").replace(right, wrong := right.replace("+ `Loss", "- `Loss")), "utf-8")
    message, _ = equipoise("check", "cell.toml", ends_with=1)
    assert "does not hold" in message
    assert "to repair it, flip the sign of `Loss`" in message

    lines = job.read_text("utf-8").splitlines()
    (place,) = (number for number, line in enumerate(lines) if wrong in line and not line.startswith("#"))
    name = lines[place].partition(" = ")[0]
    (advice,) = (line.strip() for line in message.splitlines() if line.startswith(f"  {name} = "))
    lines[place] = advice
    job.write_text("\n".join(lines), "utf-8")
    message, _ = equipoise("check", "cell.toml")
    assert "holds within noise" in message

    message, notes = equipoise("fit", "cell.toml", "--quick")
    assert "Written: cell.safetensors, cell.run.jsonl" in message
    assert "--quick is for a first look" in notes

    equipoise("predict", "cell.safetensors", "new.csv", "-o", "out.csv")
    out, new = pd.read_csv(tmp_path / "out.csv"), cell(30, seed=1)
    for name in OUTPUTS:
        measured = new[name]
        assert np.sqrt(np.mean((out[name] - measured) ** 2)) < 0.5 * measured.std()  # far better than a constant
        low, high = out[f"{name} lower"] - 2 * SENSOR_STD, out[f"{name} upper"] + 2 * SENSOR_STD
        assert measured.between(low, high).mean() > 0.8

    equipoise("report", "cell.safetensors", "new.csv", "-o", "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert all(text in page for text in ("cell.safetensors", "new.csv", "fit --quick, a first look", *OUTPUTS))
    assert "fit cell.toml -o cell.safetensors --seed 0 --quick\nequipoise report cell.safetensors new.csv" in page
    assert len(page.encode()) < 2_000_000
    written = {"cell.toml", "cell.safetensors", "cell.run.jsonl", "out.csv", "report.html"}
    assert {path.name for path in tmp_path.iterdir()} == {"cell.csv", "new.csv"} | written
