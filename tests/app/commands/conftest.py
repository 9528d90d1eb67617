"""What the tests of the command line share: a folder to work in, a fitted model, and how a refusal looks."""

import handmade_table
import jaxtyping
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
