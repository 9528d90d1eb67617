"""`equipoise report`: one page with the findings of a model on a table. What it says is tested with `report/`."""

import errno
import os
import shlex

import handmade_table
import numpy as np
import pytest
from handmade_table import FULL_JOB, cell

from equipoise.app.commands import fit, main
from equipoise.artifact import model_file as artifact

X = ["Current [A]", "SOC", "Lead [V]"]
OUTPUTS = ["Voltage [V]", "OCV [V]", "Loss [V]", "Terminal [V]"]


@pytest.fixture
def asked(monkeypatch):
    """What the report was asked for; the page is its title."""
    options = {}

    def findings(model, X, Y, **_):
        options.update(model=model, X=X, Y=Y)
        return "findings"

    def report(found, **settings):
        options.update(settings, found=found)
        return settings["title"]

    monkeypatch.setattr("equipoise.app.report.findings", findings)
    monkeypatch.setattr("equipoise.app.report.report", report)
    monkeypatch.setattr("equipoise.app.report.render", lambda page: f"<h1>{page}</h1>")
    return options


def test_the_findings_are_of_the_rows_of_the_table_in_the_models_order(asked, fitted, folder):
    new = cell(40, seed=1)
    new[new.columns[::-1]].to_csv("new.csv", index=False)
    assert main(["report", str(fitted), "new.csv", "-o", "page.html", "--title", "Cell 7"]) == 0
    assert (folder / "page.html").read_text("utf-8") == "<h1>Cell 7</h1>"
    assert asked["lines"]([0, 39]) == [2, 41]  # rows are called by their line, as `check` calls them
    assert (list(asked["X"].columns), list(asked["Y"].columns)) == (X, OUTPUTS)
    np.testing.assert_array_equal(asked["X"], new[X])
    np.testing.assert_array_equal(asked["Y"], new[OUTPUTS])
    np.testing.assert_array_equal(asked["model"].predict(new[X]), artifact.load(fitted).predict(new[X]))


def test_job_files_and_data_are_told_so_that_it_can_be_done_again(asked, fitted, folder):
    assert main(["report", str(fitted), "cell.csv", "-o", "page.html"]) == 0
    trained_on = artifact.describe(fitted).notes["data_sha256"]
    assert (asked["found"], asked["job"]) == ("findings", FULL_JOB)
    assert asked["notes"] == {
        "model file": "cell.safetensors",
        "table": "cell.csv",
        "trained on: data": "cell.csv",
        "trained on: data_sha256": trained_on,
        "trained on: rows": 60,
        "trained with": ", ".join(f"{name} {v}" for name, v in artifact.describe(fitted).versions.items()),
    }


@pytest.mark.usefixtures("long_training")
def test_the_commands_on_the_page_lead_to_the_same_model_and_the_same_page(asked, folder, monkeypatch):
    monkeypatch.setattr(fit, "QUICK", {"hidden": (3,), "max_epochs": 3, "n_draws": 2})
    (folder / "cell.toml").rename(folder / "my job.toml")
    assert main(["fit", "my job.toml", "-o", "m.safetensors", "--quick", "--seed", "3"]) == 0
    assert main(["report", "m.safetensors", "cell.csv", "--title", "Cell 7", "--skip-incomplete"]) == 0
    lines = asked["commands"]
    assert lines == [
        "equipoise fit 'my job.toml' -o m.safetensors --seed 3 --quick",
        "equipoise report m.safetensors cell.csv --output m.html --title 'Cell 7' --skip-incomplete",
    ]
    first = handmade_table.contents(folder)
    for name in ("m.safetensors", "m.html", "my job.toml"):
        (folder / name).unlink()
    (folder / "my job.toml").write_text(asked["job"], "utf-8")
    assert [main(shlex.split(line)[1:]) for line in lines] == [0, 0]
    again = handmade_table.contents(folder)
    assert {**again, "m.run.jsonl": b""} == {**first, "m.run.jsonl": b""}  # which has times
    assert asked["commands"] == lines


@pytest.mark.usefixtures("long_training")
def test_the_job_file_is_named_from_where_one_is(asked, folder, monkeypatch):
    monkeypatch.setattr(fit, "QUICK", {"hidden": (3,), "max_epochs": 3, "n_draws": 2})
    for name in ("jobs", "models"):
        (folder / name).mkdir()
    handmade_table.write(folder / "jobs")
    assert main(["fit", "jobs/cell.toml", "-o", "models/m.safetensors", "--quick"]) == 0
    assert main(["report", "models/m.safetensors", "cell.csv"]) == 0
    assert asked["commands"][0] == "equipoise fit jobs/cell.toml -o models/m.safetensors --seed 0 --quick"
    monkeypatch.chdir(folder / "models")
    assert main(["report", "m.safetensors", "../cell.csv"]) == 0
    assert asked["commands"][0] == "equipoise fit ../jobs/cell.toml -o m.safetensors --seed 0 --quick"


def test_a_model_that_no_command_made_comes_without_the_line_of_one(asked, fitted, folder):
    artifact.save(artifact.load(fitted), "python.safetensors", job=FULL_JOB)
    assert main(["report", "python.safetensors", "cell.csv"]) == 0
    assert asked["commands"] == ["equipoise report python.safetensors cell.csv --output python.html"]


def test_a_joint_fit_on_a_device_is_done_again_as_one(asked, fitted, folder):
    notes = {"quick": False, "device": "cuda:1", "processes": 2}
    artifact.save(artifact.load(fitted), "joint.safetensors", job=FULL_JOB, notes=notes)
    assert main(["report", "joint.safetensors", "cell.csv"]) == 0
    assert asked["commands"][0] == (
        "torchrun --nproc-per-node 2 -m equipoise fit joint.toml -o joint.safetensors --seed 0 --device cuda:1"
    )


def test_it_is_written_beside_the_model_by_default(asked, fitted, folder, capsys):
    (folder / "my.safetensors").write_bytes(fitted.read_bytes())
    assert main(["report", "my.safetensors", "cell.csv"]) == 0
    assert (folder / "my.html").read_text("utf-8") == "<h1>my: what was learned</h1>"
    assert capsys.readouterr().out == "my.html: 0.0 MB\n"


@pytest.mark.usefixtures("asked")
def test_a_full_disk_leaves_no_page_behind(fitted, monkeypatch, refused):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "'page.html' cannot be written: No space left on device" in refused(
        "report", fitted, "cell.csv", "-o", "page.html"
    )


@pytest.mark.usefixtures("asked")
def test_rows_beyond_what_was_trained_on_are_told(fitted, folder, capsys):
    new = cell(40, seed=1)
    new.loc[3:5, "SOC"] = 7
    new.to_csv("new.csv", index=False)
    assert main(["report", str(fitted), "new.csv", "-o", "page.html"]) == 0
    assert "note: 3 of 40 rows have inputs beyond those trained on ('SOC' from" in capsys.readouterr().err


def test_a_missing_table_is_refused_before_anything_is_computed(asked, fitted, refused):
    assert "A table must exist, but got 'cel.csv'" in refused("report", fitted, "cel.csv", "-o", "page.html")
    assert asked == {}
