"""A newcomer's session: from a table to a report through the real command line, with a wrong sign on the way."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from handmade_table import INPUTS, OUTPUTS, SENSOR_STD, cell

from equipoise.job import Job

# Half of a command's time is imports. This process has done them, and forks one for each command, which is then what
# `python -m equipoise` is: a process with its own arguments, folder, output and exit code.
READY = """
import json, os, runpy, sys
import equipoise.estimator, equipoise.report.story, matplotlib.figure

for line in sys.stdin:
    words, out, err = json.loads(line)
    if (child := os.fork()) == 0:
        for stream, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        sys.argv = ["equipoise", *words]
        try:
            runpy.run_module("equipoise", run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as end:
            code = end.code or 0
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Shell:
    """Runs commands in a folder, as a person at a terminal with a pipe behind would."""

    def __init__(self, folder, output):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, "-c", READY], cwd=folder, env=environment, **pipes)
        self.files = output / "out", output / "err"

    def __call__(self, *words, ends_with=0):
        print(json.dumps([words, *map(str, self.files)]), file=self.process.stdin, flush=True)
        code = int(self.process.stdout.readline())
        out, err = (file.read_text("utf-8") for file in self.files)
        assert code == ends_with, err
        assert "\x1b" not in out + err
        return out, err

    def close(self):
        self.process.communicate()


@pytest.fixture
def equipoise(tmp_path, tmp_path_factory):
    shell = Shell(tmp_path, tmp_path_factory.mktemp("shell"))
    yield shell
    shell.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks a process for each command")
def test_a_newcomer_comes_from_a_table_to_a_report(tmp_path, equipoise):
    job = tmp_path / "cell.toml"
    cell(80).to_csv(tmp_path / "cell.csv", index=False)
    cell(30, seed=1).to_csv(tmp_path / "new.csv", index=False)

    columns = ["--inputs", ",".join(INPUTS), "--outputs", ",".join(OUTPUTS)]
    found, _ = equipoise("init", "cell.csv", *columns)
    assert "`OCV [V]` = `Voltage [V]` + `Loss [V]`" in found
    (right,) = Job.load(job).balances.values()

    job.write_text(job.read_text("utf-8").replace(right, wrong := right.replace("+ `Loss", "- `Loss")), "utf-8")
    told, _ = equipoise("check", "cell.toml", ends_with=1)
    assert "does not hold" in told
    assert "to repair it, flip the sign of `Loss`" in told

    lines = job.read_text("utf-8").splitlines()
    (place,) = (number for number, line in enumerate(lines) if wrong in line and not line.startswith("#"))
    name = lines[place].partition(" = ")[0]
    (advice,) = (line.strip() for line in told.splitlines() if line.startswith(f"  {name} = "))
    lines[place] = advice
    job.write_text("\n".join(lines), "utf-8")
    told, _ = equipoise("check", "cell.toml")
    assert "holds within noise" in told

    told, notes = equipoise("fit", "cell.toml", "--quick")
    assert "Written: cell.safetensors, cell.run.jsonl" in told
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
    assert all(text in page for text in ("cell.safetensors", "new.csv", *OUTPUTS))
    assert len(page.encode()) < 2_000_000
    written = {"cell.toml", "cell.safetensors", "cell.run.jsonl", "out.csv", "report.html"}
    assert {path.name for path in tmp_path.iterdir()} == {"cell.csv", "new.csv"} | written
