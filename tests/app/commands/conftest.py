"""What the tests of the command line share: a folder to work in, fitted models, predictions, and refusals."""

import json

import handmade_table
import jaxtyping
import pandas as pd
import pytest

from equipoise.app.commands import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with a table and a job file in it."""
    monkeypatch.chdir(tmp_path)
    handmade_table.write(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def fitted(tmp_path_factory):
    """A model file; nothing may be written beside it."""
    folder = tmp_path_factory.mktemp("fitted")
    handmade_table.write(folder, job=handmade_table.FULL_JOB)
    jaxtyping.config.update("jaxtyping_disable", True)  # executed shapes cost more than the training
    assert main(["fit", str(folder / "cell.toml")]) == 0
    jaxtyping.config.update("jaxtyping_disable", False)
    return folder / "cell.safetensors"


@pytest.fixture
def refused(folder, capsys):
    """Runs a command that must end with 2 and one sentence, and leave all files as they were; gives the sentence."""

    def run(*arguments):
        before = handmade_table.contents(folder)
        capsys.readouterr()
        assert main(list(map(str, arguments))) == 2
        out, err = capsys.readouterr()
        sentence = err.splitlines()[-1]
        assert (out, sentence[:11]) == ("", "equipoise: ")
        assert "Traceback" not in err
        assert handmade_table.contents(folder) == before
        return sentence

    return run


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The folder of a fit that nothing disturbed; nothing may be written into it."""
    folder = tmp_path_factory.mktemp("whole")
    handmade_table.write(folder)
    jaxtyping.config.update("jaxtyping_disable", True)
    assert main(["fit", str(folder / "cell.toml")]) == 0
    jaxtyping.config.update("jaxtyping_disable", False)
    return folder


@pytest.fixture
def epochs():
    """A function that reads the epochs in a history file, without times."""

    def read(path):
        records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        return [{name: value for name, value in record.items() if name != "seconds"} for record in records]

    return read


@pytest.fixture
def new(folder):
    """New rows, as they stand in new.csv."""
    table = handmade_table.cell(150, seed=1)  # more than two chunks of 64 rows
    table.to_csv("new.csv", index=False)
    return table


@pytest.fixture
def predicted(fitted, new):
    """A function that predicts new.csv, or another table, and reads what was written, every cell as text."""

    def run(*options, data="new.csv"):
        assert main(["predict", str(fitted), data, "-o", "out.csv", *options]) == 0
        return pd.read_csv("out.csv", dtype=str, keep_default_na=False)

    return run
