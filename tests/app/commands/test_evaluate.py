"""`equipoise evaluate`: residuals of balances and densities by definition; scores are in test_model_summary.py."""

import io
import json
from contextlib import redirect_stdout

import handmade_table
import numpy as np
import pytest
from handmade_table import FULL_INPUTS, FULL_OUTPUTS, new_rows

from equipoise.app.commands import main
from equipoise.artifact import model_file as artifact


@pytest.fixture(scope="module")
def new(tmp_path_factory):
    """The new rows in a file."""
    path = tmp_path_factory.mktemp("evaluated") / "new.csv"
    new_rows().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def said(new, fitted):
    with redirect_stdout(io.StringIO()) as out:
        assert main(["evaluate", str(fitted), str(new), "--json"]) == 0
    return json.loads(out.getvalue())


def test_balances_are_missed_by_data_means_and_draws_as_the_model_says(said, fitted):
    new = new_rows()
    residual = {
        "voltage": new["Voltage [V]"] - new["OCV [V]"] + new["Loss [V]"],
        "terminal": new["Terminal [V]"] - new["Voltage [V]"] + new["Lead [V]"],
    }
    for name, values in residual.items():
        assert said["balances"][name]["unit"] == "V"
        assert said["balances"][name]["data"] == pytest.approx(values.abs().mean(), rel=1e-9)
    exact, learned = said["balances"]["voltage"], said["balances"]["terminal"]
    assert max(exact["means"], exact["draws"]) < 1e-13
    p = artifact.load(fitted).predict_distribution(new[FULL_INPUTS])
    draws = np.abs(p.residual_of_samples(200)[..., 1])
    assert learned["draws"] == pytest.approx(draws.mean(), rel=0.05)  # 8,000 draws each of the same tolerances: 1.2 %
    means = np.abs(p.residual_of_means(200)[..., 1])
    assert learned["means"] == pytest.approx(means.mean(), rel=1e-6)


def test_the_joint_density_is_that_of_the_measured_values(said, fitted):
    new = new_rows()
    p = artifact.load(fitted).predict_distribution(new[FULL_INPUTS]).measured()
    seen = new[FULL_OUTPUTS].notna().any(axis=1).to_numpy()
    assert (~seen).sum() == 2  # which say nothing, and do not dilute what others say
    assert said["joint_nll"] == pytest.approx(-p.log_prob(new[FULL_OUTPUTS])[seen].mean(), rel=1e-9)


def test_people_get_the_same_numbers_in_tables(said, new, fitted, capsys):
    assert main(["evaluate", str(fitted), str(new)]) == 0
    lines = capsys.readouterr().out.splitlines()
    scores = said["outputs"]["Loss [V]"]
    (line,) = (line.split() for line in lines if line.startswith(" Loss [V] "))
    assert line[2:5] == [f"{scores['rmse']:.3g}", f"{scores['expected_rmse']:.3g}", f"{scores['r2']:.4g}"]
    assert line[5:] == [f"{100 * scores['coverage_50']:.1f}", "%", f"{100 * scores['coverage_95']:.1f}", "%", line[-1]]
    (line,) = (line.split() for line in lines if line.startswith(" terminal "))
    missed = said["balances"]["terminal"]
    assert line == ["terminal", "V", *(f"{missed[kind]:.3g}" for kind in ("means", "draws", "data"))]
    assert f"Joint negative log density: {said['joint_nll']:.5g} nats per row." in lines


def test_an_output_that_was_never_measured_has_no_scores(fitted, folder, capsys):
    handmade_table.write(folder, new_rows().assign(**{"Terminal [V]": np.nan}))
    assert main(["evaluate", str(fitted), "cell.csv", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    scores = printed["outputs"]["Terminal [V]"]
    assert set(scores.values()) == {None}
    assert printed["balances"]["terminal"]["data"] is None
    assert printed["outputs"]["Loss [V]"]["rmse"] is not None


def test_a_table_in_which_nothing_was_measured_has_no_density(fitted, folder, capsys):
    handmade_table.write(folder, new_rows().assign(**dict.fromkeys(FULL_OUTPUTS, np.nan)))
    assert main(["evaluate", str(fitted), "cell.csv"]) == 0
    assert "Joint negative log density: – nats per row." in capsys.readouterr().out


@pytest.mark.parametrize("options", [[], ["--samples", "2"]])
def test_a_prediction_is_not_taken_for_measurements(fitted, folder, refused, options):
    assert main(["predict", str(fitted), "cell.csv", "-o", "out.csv", *options]) == 0
    for command in ("evaluate", "report"):
        message = refused(command, fitted, "out.csv")
        assert "'out.csv' must hold what was measured, but got a prediction: 'Voltage [V]' beside" in message


def test_a_prediction_from_inputs_alone_is_not_taken_for_measurements(fitted, folder, refused):
    handmade_table.write(folder, new_rows().drop(columns=list(FULL_OUTPUTS)))
    assert main(["predict", str(fitted), "cell.csv", "-o", "out.csv"]) == 0
    for command in ("evaluate", "report"):
        assert "but got a prediction: 'Voltage [V]' beside 'Voltage [V] std'" in refused(command, fitted, "out.csv")


def test_a_table_without_an_output_is_refused(fitted, folder, refused):
    handmade_table.write(folder, new_rows().drop(columns="Loss [V]"))
    assert "'cell.csv' must have the columns asked for, but got none called 'Loss [V]'" in refused(
        "evaluate", fitted, "cell.csv"
    )
