"""`equipoise predict` for many tables: each as if alone, whichever engine predicts it, and nothing twice."""

import pickle
import sys

import numpy as np
import pandas as pd
import pytest
from handmade_table import cell, contents

from equipoise.app.commands import main
from equipoise.app.commands.many_tables import SETTINGS_FILE
from equipoise.app.commands.prediction_table import LEDGER_TERMS

NAMES = ("a.parquet", "b.parquet", "c.parquet")
OUTPUTS = ["Voltage [V]", "OCV [V]", "Loss [V]", "Terminal [V]"]
ROWS = (40, 70, 25)


@pytest.fixture
def tables(folder):
    """Real Parquet parts of one table, and the table itself."""
    whole = cell(sum(ROWS), seed=1)
    (folder / "parts").mkdir()
    for name, end, n_rows in zip(NAMES, np.cumsum(ROWS), ROWS, strict=True):
        whole.iloc[end - n_rows : end].to_parquet(folder / "parts" / name)
    whole.to_parquet(folder / "whole.parquet")
    return folder


@pytest.fixture
def predict(tables, fitted):
    """Runs the command on all parts; gives its exit code."""

    def run(*options, data=tuple(f"parts/{name}" for name in NAMES), output="out"):
        return main(["predict", str(fitted), *data, "-o", output, *options])

    return run


def results(folder, name="out"):
    return {file: content for file, content in contents(folder / name).items() if not file.startswith(".")}


@pytest.mark.parametrize("options", [["--ledger"], ["--samples", "3"]])
def test_every_part_is_predicted_as_if_it_were_alone(tables, predict, options, capsys):
    assert predict(*options) == 0
    assert "out: 3 tables, 135 rows" in capsys.readouterr().out
    assert set(results(tables)) == set(NAMES)
    for name in NAMES:
        assert predict(*options, data=(f"parts/{name}",), output="alone.parquet") == 0
        assert (tables / "alone.parquet").read_bytes() == results(tables)[name]


def test_parts_together_are_the_predictions_of_one_table(tables, predict):
    assert predict("--ledger") == 0
    assert predict("--ledger", data=("whole.parquet",), output="one.parquet") == 0
    one = pd.read_parquet(tables / "one.parquet")
    together = pd.concat([pd.read_parquet(tables / "out" / name) for name in NAMES], ignore_index=True)
    assert list(together.columns) == list(one.columns)
    assert together["run"].tolist() == one["run"].tolist()
    suffixes = ["", " std", " lower", " upper", *(f" {term} var" for term in LEDGER_TERMS)]
    columns = [f"{name}{suffix}" for name in OUTPUTS for suffix in suffixes]
    np.testing.assert_allclose(together[columns], one[columns], rtol=1e-6, atol=1e-9)


def test_processes_write_the_same_files(tables, predict, monkeypatch, capsys):
    """Tasks go as far as processes get them; that these run them is tested with `task_pool.py`."""

    def pickled(tasks, workers, told, show):
        assert workers == 2
        return {name: pickle.loads(pickle.dumps(task))(bool) for name, task in tasks.items()}

    monkeypatch.setattr("equipoise.training.task_pool._in_processes", pickled)
    assert predict() == 0
    assert predict("--engine", "processes", "--workers", "2", output="there") == 0
    assert results(tables, "there") == results(tables)
    assert "there: 3 tables, 135 rows" in capsys.readouterr().out


def test_a_dask_cluster_writes_the_same_files(tables, predict, monkeypatch):
    distributed = pytest.importorskip("distributed")
    clusters, cluster = [], distributed.LocalCluster

    def of_threads(**settings):  # processes would import torch, which takes seconds
        clusters.append(settings)
        return cluster(**settings, processes=False)

    monkeypatch.setattr(distributed, "LocalCluster", of_threads)
    assert predict() == 0
    assert predict("--engine", "dask", "--workers", "2", output="there") == 0
    assert results(tables, "there") == results(tables)
    assert [settings["n_workers"] for settings in clusters] == [2]


# --- Going on ---------------------------------------------------------------------------------------------------------


def test_what_is_there_is_not_predicted_again_and_not_overwritten_without_being_told(tables, predict, capsys):
    assert predict() == 0
    before = results(tables)
    (tables / "out" / "b.parquet").unlink()
    assert predict() == 2
    assert "a.parquet'. Add --resume to predict only what is missing, or name another folder" in capsys.readouterr().err
    (tables / "out" / "a.parquet").write_bytes(b"not looked at")
    assert predict("--resume") == 0
    assert "out: 1 tables, 70 rows; 2 were there" in capsys.readouterr().out
    assert results(tables) == before | {"a.parquet": b"not looked at"}


@pytest.mark.parametrize("options", [["--level", "0.5"], ["--measured"]])
def test_a_folder_made_with_other_options_is_not_gone_on_with(tables, predict, options, capsys):
    assert predict(data=("parts/a.parquet", "parts/b.parquet")) == 0
    before = contents(tables / "out")
    assert predict("--resume", *options) == 2
    assert "--resume must go on with the same model and options, but 'out' was made with others" in (
        capsys.readouterr().err
    )
    assert contents(tables / "out") == before


def test_a_table_that_cannot_be_used_is_named_and_those_before_it_are_kept(tables, predict, capsys):
    whole = pd.read_parquet(tables / "parts" / "b.parquet")
    whole.drop(columns="SOC").to_parquet(tables / "parts" / "b.parquet")
    assert predict() == 2
    err = capsys.readouterr().err
    assert "note: 1 of 3 tables are in 'out'; go on with --resume." in err
    assert "'b.parquet' must have the columns asked for, but got none called 'SOC'" in err
    assert set(contents(tables / "out")) == {"a.parquet", SETTINGS_FILE}
    whole.to_parquet(tables / "parts" / "b.parquet")
    assert predict("--resume") == 0
    assert set(results(tables)) == set(NAMES)


def test_nothing_half_written_stays_behind_of_a_process_that_was_killed(tables, predict, monkeypatch):
    def killed(*arguments):
        (tables / "out" / ".a.parquet.123.part").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("equipoise.app.commands.many_tables.write_table", killed)
    assert predict() == 130
    assert set(contents(tables / "out")) == {SETTINGS_FILE}


# --- What cannot be done ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["parts/a.parquet", "other/a.parquet", "-o", "out"], "file names, but got 'parts/a.parquet' and 'other/a.par"),
        (["parts/a.parquet", "parts/b.parquet", "-o", "out.csv"], "must be a folder for several tables, but got 'out."),
        (
            ["parts/a.parquet", "parts/b.parquet", "-o", "cell.toml"],
            "must be a folder for several tables, but got 'ce",
        ),
        (
            ["parts/a.parquet", "parts/b.parquet", "-o", "parts"],
            "not be the folder of what is read, but got 'parts'",
        ),
        (["parts/a.parquet", "parts/d.parquet", "-o", "out"], "must exist, but got 'parts/d.parquet', which does not"),
        (["parts/a.parquet", "parts/b.parquet", "-o", "no/out"], "The folder of 'no/out' must exist, but got none"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_predicted(tables, fitted, refused, arguments, message):
    (tables / "other").mkdir()
    cell(5).to_parquet(tables / "other" / "a.parquet")
    assert message in refused("predict", fitted, *arguments)
    assert not (tables / "out").exists()


def test_without_dask_the_missing_extra_is_named(tables, predict, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert predict("--engine", "dask") == 2
    assert "--engine dask needs Dask, but it is not installed. pip install 'equipoise[cluster]'" in (
        capsys.readouterr().err
    )
