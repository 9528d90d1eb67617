"""`equipoise evaluate`: scores against slow and obvious versions of them."""

import io
import json
from contextlib import redirect_stdout

import handmade_table
import numpy as np
import pytest
from handmade_table import cell
from scipy.stats import norm

from equipoise.app.commands import main
from equipoise.artifact import model_file as artifact

X = ["Current [A]", "SOC", "Lead [V]"]
OUTPUTS = ["Voltage [V]", "OCV [V]", "Loss [V]", "Terminal [V]"]


def rows():
    """New rows, some outputs of which were not measured."""
    table = cell(40, seed=1)
    table.loc[[2, 5], "OCV [V]"] = np.nan
    table.loc[[7, 8], OUTPUTS] = np.nan
    return table


@pytest.fixture(scope="module")
def new(tmp_path_factory):
    """The new rows in a file."""
    path = tmp_path_factory.mktemp("evaluated") / "new.csv"
    rows().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def said(new, fitted):
    with redirect_stdout(io.StringIO()) as out:
        assert main(["evaluate", str(fitted), str(new), "--json"]) == 0
    return json.loads(out.getvalue())


@pytest.fixture(scope="module")
def components(fitted):
    """Means and standard deviations of measured values, `(draws, rows, outputs)`, in the user's units."""
    p = artifact.load(fitted).predict_distribution(rows()[X]).measured()
    s, parts = p.standardizer, list(p._components(slice(0, len(rows()))))
    mean = np.concatenate([s.outputs_to_user(g.mean.numpy()) for g, _, _ in parts])
    return mean, np.concatenate([s.y_std * (g.var + w).sqrt().numpy() for g, w, _ in parts])


def test_errors_are_those_that_numpy_finds_over_what_was_measured(said, components):
    new = rows()
    mean, std = components[0].mean(0), np.sqrt((components[1] ** 2).mean(0) + components[0].var(0))
    for j, name in enumerate(OUTPUTS):
        y = new[name].to_numpy()
        seen = np.isfinite(y)
        rmse = np.sqrt(np.mean((mean[seen, j] - y[seen]) ** 2))
        scores = said["outputs"][name]
        assert scores["rmse"] == pytest.approx(rmse, rel=1e-6)
        assert scores["expected_rmse"] == pytest.approx(np.sqrt(np.mean(std[seen, j] ** 2)), rel=1e-6)
        assert scores["r2"] == pytest.approx(1 - rmse**2 / np.var(y[seen]), rel=1e-6)
    assert said["rows"] == 40


def test_coverage_is_the_share_of_values_between_quantiles_of_the_mixture(said, components):
    new = rows()
    for j, name in enumerate(OUTPUTS):
        y = new[name].to_numpy()
        F = norm.cdf(y[:, None], components[0][:, :, j].T, components[1][:, :, j].T).mean(1)[np.isfinite(y)]
        for level in (50, 95):
            inside = np.abs(F - 0.5) <= level / 200
            assert said["outputs"][name][f"coverage_{level}"] == pytest.approx(inside.mean())


def test_crps_is_the_integral_over_the_mixtures_distribution_function(said, components):
    y, scores = rows()["Voltage [V]"].to_numpy(), []
    mean, std = (part[:, :, 0] for part in components)
    for i, value in enumerate(y):
        if np.isnan(value):
            continue
        reach = 9 * std[:, i].max()
        grid = np.linspace(min(mean[:, i].min(), value) - reach, max(mean[:, i].max(), value) + reach, 10_001)
        F = norm.cdf(grid[:, None], mean[:, i], std[:, i]).mean(1)
        scores.append(np.trapezoid((F - (grid >= value)) ** 2, grid))
    assert said["outputs"]["Voltage [V]"]["crps"] == pytest.approx(np.mean(scores), rel=1e-3)


def test_balances_are_missed_by_data_means_and_draws_as_the_model_says(said, fitted):
    new = rows()
    residual = {
        "voltage": new["Voltage [V]"] - new["OCV [V]"] + new["Loss [V]"],
        "terminal": new["Terminal [V]"] - new["Voltage [V]"] + new["Lead [V]"],
    }
    for name, values in residual.items():
        assert said["balances"][name]["unit"] == "V"
        assert said["balances"][name]["data"] == pytest.approx(values.abs().mean(), rel=1e-9)
    exact, learned = said["balances"]["voltage"], said["balances"]["terminal"]
    assert max(exact["means"], exact["draws"]) < 1e-13
    p = artifact.load(fitted).predict_distribution(new[X])
    draws = np.abs(p.residual_of_samples(200)[..., 1])
    assert learned["draws"] == pytest.approx(draws.mean(), rel=0.05)  # 8,000 draws each of the same tolerances: 1.2 %
    means = np.abs(p.residual_of_means(200)[..., 1])
    assert learned["means"] == pytest.approx(means.mean(), rel=1e-6)


def test_the_joint_density_is_that_of_the_measured_values(said, fitted):
    new = rows()
    p = artifact.load(fitted).predict_distribution(new[X]).measured()
    seen = new[OUTPUTS].notna().any(axis=1).to_numpy()
    assert (~seen).sum() == 2  # which say nothing, and do not dilute what others say
    assert said["joint_nll"] == pytest.approx(-p.log_prob(new[OUTPUTS])[seen].mean(), rel=1e-9)


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
    handmade_table.write(folder, rows().assign(**{"Terminal [V]": np.nan}))
    assert main(["evaluate", str(fitted), "cell.csv", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    scores = said["outputs"]["Terminal [V]"]
    assert set(scores.values()) == {None}
    assert said["balances"]["terminal"]["data"] is None
    assert said["outputs"]["Loss [V]"]["rmse"] is not None


def test_a_table_in_which_nothing_was_measured_has_no_density(fitted, folder, capsys):
    handmade_table.write(folder, rows().assign(**dict.fromkeys(OUTPUTS, np.nan)))
    assert main(["evaluate", str(fitted), "cell.csv"]) == 0
    assert "Joint negative log density: – nats per row." in capsys.readouterr().out


@pytest.mark.parametrize("options", [[], ["--samples", "2"]])
def test_a_prediction_is_not_taken_for_measurements(fitted, folder, refused, options):
    assert main(["predict", str(fitted), "cell.csv", "-o", "out.csv", *options]) == 0
    for command in ("evaluate", "report"):
        told = refused(command, fitted, "out.csv")
        assert "'out.csv' must hold what was measured, but got a prediction: 'Voltage [V]' beside" in told


def test_a_prediction_from_inputs_alone_is_not_taken_for_measurements(fitted, folder, refused):
    handmade_table.write(folder, rows().drop(columns=list(OUTPUTS)))
    assert main(["predict", str(fitted), "cell.csv", "-o", "out.csv"]) == 0
    for command in ("evaluate", "report"):
        assert "but got a prediction: 'Voltage [V]' beside 'Voltage [V] std'" in refused(command, fitted, "out.csv")


def test_a_table_without_an_output_is_refused(fitted, folder, refused):
    handmade_table.write(folder, rows().drop(columns="Loss [V]"))
    assert "'cell.csv' must have the columns asked for, but got none called 'Loss [V]'" in refused(
        "evaluate", fitted, "cell.csv"
    )
