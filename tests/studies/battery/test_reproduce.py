"""`make reproduce` with the small configuration, for real: every file, and a second start."""

import shutil

import numpy as np
import pytest

from equipoise.rivals.cases.battery.settings import Settings
from studies.battery.__main__ import main
from studies.battery.reproduce import reproduce
from studies.battery.results import read

pytestmark = [pytest.mark.usefixtures("long_training"), pytest.mark.xdist_group("reproduce")]  # one worker, one study


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import jaxtyping

    jaxtyping.config.update("jaxtyping_disable", True)
    place = tmp_path_factory.mktemp("battery")
    assert main(["reproduce", "--config", "small", "--folder", str(place), "--workers", "1"]) == 0
    jaxtyping.config.update("jaxtyping_disable", False)
    return place


def test_everything_is_written(folder):
    names = {path.name for path in folder.iterdir()}
    assert {"results.json", "tables.md", "report.html", "figures", "seed-1"} <= names
    assert len(list((folder / "figures").glob("*.svg"))) >= 4


def test_the_results_hold_together(folder):
    """Numbers that are computed in different ways must agree."""
    results = read(folder / "results.json")
    assert results.rows.train + results.rows.validation + results.rows.test == 240
    arrays = np.load(folder / "seed-1" / "arrays-equipoise.npz")
    s = np.array(list(results.output_std.values()))
    mse = ((arrays["mean"] - arrays["truth_test"]) ** 2).mean(0) / s**2
    np.testing.assert_allclose(list(results.models.equipoise.mse_true.by_output.values()), mse, rtol=1e-9)
    inside = (arrays["lower"] <= arrays["y_test"]) & (arrays["y_test"] <= arrays["upper"])
    np.testing.assert_allclose(
        list(results.models.equipoise.coverage.by_output.values()), inside.mean(0), atol=1.01 / len(inside)
    )
    assert results.deterministic is not None
    assert results.config["hidden"] == [16, 16]


def test_joint_draws_obey_more_than_diagonal_ones_and_than_none(folder):
    models = read(folder / "results.json").models
    ours, papers, none = (
        m.violation_of_draws.overall_relative.mean for m in (models.equipoise, models.paper, models.bnn)
    )
    assert ours < 0.5 * papers
    assert papers < none


def test_a_second_start_trains_nothing_again(folder):
    before = {path: path.read_bytes() for path in (folder / "fits").rglob("*") if path.is_file()}
    again = reproduce(Settings.named("small"), folder, (1,), verbose=False)
    assert {path: path.read_bytes() for path in before} == before
    assert again[0].models == read(folder / "results.json").models


def test_an_interrupted_run_goes_on_from_its_checkpoints(folder, tmp_path):
    """Evaluations are gone, fits are there: the numbers are the same."""
    copy = shutil.copytree(folder, tmp_path / "copy")
    for path in (copy / "fits").rglob("*.json"):
        path.unlink()
    models = reproduce(Settings.named("small"), copy, (1,), workers=1, verbose=False)[0].models
    assert models.paper.mse_true == read(folder / "results.json").models.paper.mse_true


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "--parameter-set", "Chen2021"], "parameter_set must be the name of a PyBaMM parameter set"),
        (["study", "--contact-resistance", "-1"], "contact_resistance"),
    ],
)
def test_a_wrong_option_is_one_sentence_and_exit_code_2(arguments, message, tmp_path, capsys):
    assert main([*arguments, "--folder", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def test_an_error_that_nobody_raised_on_purpose_is_a_bug(tmp_path, monkeypatch, capsys):
    def mistaken(*_, **__):
        raise ValueError("inside the study")

    monkeypatch.setattr("studies.battery.__main__.reproduce", mistaken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["reproduce", "--folder", str(tmp_path)]) == 70
    assert "This is a bug in equipoise" in capsys.readouterr().err


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "--help"])
    assert stop.value.code == 0
    assert "--seeds" in capsys.readouterr().out
