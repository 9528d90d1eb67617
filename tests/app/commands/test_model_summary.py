"""Scores of outputs against slow and obvious versions of them; scores and tolerances as commands print them."""

import numpy as np
import pytest
from handmade_table import FULL_INPUTS, FULL_OUTPUTS, new_rows
from scipy.stats import norm

from equipoise.app.commands import main
from equipoise.app.commands.model_summary import output_scores, print_tolerances
from equipoise.artifact import model_file as artifact


@pytest.fixture(scope="module")
def scores(fitted):
    return output_scores(artifact.load(fitted), new_rows()[FULL_INPUTS], new_rows()[FULL_OUTPUTS])


@pytest.fixture(scope="module")
def components(fitted):
    """Means and standard deviations of measured values, `(draws, rows, outputs)`, in the user's units."""
    p = artifact.load(fitted).predict_distribution(new_rows()[FULL_INPUTS]).measured()
    s, parts = p.standardizer, list(p.components(slice(0, len(new_rows()))))
    mean = np.concatenate([s.outputs_to_user(part.gaussian.mean.numpy()) for part in parts])
    return mean, np.concatenate([s.y_std * (part.gaussian.var + part.sensor_var).sqrt().numpy() for part in parts])


def test_errors_are_those_that_numpy_finds_over_what_was_measured(scores, components):
    new = new_rows()
    mean, std = components[0].mean(0), np.sqrt((components[1] ** 2).mean(0) + components[0].var(0))
    for j, name in enumerate(FULL_OUTPUTS):
        y = new[name].to_numpy()
        seen = np.isfinite(y)
        rmse = np.sqrt(np.mean((mean[seen, j] - y[seen]) ** 2))
        score = scores[name]
        assert score["rmse"] == pytest.approx(rmse, rel=1e-6)
        assert score["expected_rmse"] == pytest.approx(np.sqrt(np.mean(std[seen, j] ** 2)), rel=1e-6)
        assert score["r2"] == pytest.approx(1 - rmse**2 / np.var(y[seen]), rel=1e-6)


def test_coverage_is_the_share_of_values_between_quantiles_of_the_mixture(scores, components):
    new = new_rows()
    for j, name in enumerate(FULL_OUTPUTS):
        y = new[name].to_numpy()
        F = norm.cdf(y[:, None], components[0][:, :, j].T, components[1][:, :, j].T).mean(1)[np.isfinite(y)]
        for level in (50, 95):
            inside = np.abs(F - 0.5) <= level / 200
            assert scores[name][f"coverage_{level}"] == pytest.approx(inside.mean())


def test_crps_is_the_integral_over_the_mixtures_distribution_function(scores, components):
    y, integrals = new_rows()["Voltage [V]"].to_numpy(), []
    mean, std = (part[:, :, 0] for part in components)
    for i, value in enumerate(y):
        if np.isnan(value):
            continue
        reach = 9 * std[:, i].max()
        grid = np.linspace(min(mean[:, i].min(), value) - reach, max(mean[:, i].max(), value) + reach, 10_001)
        F = norm.cdf(grid[:, None], mean[:, i], std[:, i]).mean(1)
        integrals.append(np.trapezoid((F - (grid >= value)) ** 2, grid))
    assert scores["Voltage [V]"]["crps"] == pytest.approx(np.mean(integrals), rel=1e-3)


def test_scores_of_held_out_rows_are_those_that_fit_told(fitted, capsys):
    assert main(["info", str(fitted)]) == 0
    out = capsys.readouterr().out
    notes = artifact.describe(fitted).notes
    for name in ("Voltage [V]", "Terminal [V]"):
        rmse, crps = (notes[f"held-out {score} of {name}"] for score in ("rmse", "crps"))
        (line,) = (line for line in out.splitlines() if line.startswith(f" {name} "))
        assert line.split()[2] == f"{rmse:.3g}"
        assert line.split()[-1] == f"{crps:.3g}"


def test_a_model_without_balances_has_no_table_of_tolerances(capsys):
    print_tolerances([])
    assert capsys.readouterr() == ("", "")
