"""The evaluation of fitted models against loops over draws and rows, on a made-up cell that obeys both balances."""

import dataclasses
import math
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from handmade import components, stacked

from equipoise import ConstrainedBNNRegressor, TolerancePrior
from equipoise.prediction import metrics
from equipoise.prediction.metrics import LOG10_EDGES
from equipoise.rivals.cases.battery import INPUTS, KEYS, OUTPUTS, BatteryData, balances
from studies.battery import evaluation as module
from studies.battery.evaluation import assemble, evaluate, input_output_table, output_std
from studies.battery.results import Results, read, write

pytestmark = pytest.mark.xdist_group("evaluation")  # one worker has what its tests share

N_DRAWS, VIOLATION_DRAWS = 40, 50
TERMS = ("aleatoric", "reduction", "epistemic", "shift", "interaction", "sensor")
SIGNS = np.array([1, -1, 1, 1, 1, 1])


def made_up(n=150, seed=0):
    """A smooth cell, measured with noise that grows with the current."""
    rng = np.random.default_rng(seed)
    current, soc, T = rng.uniform(0.5, 3, n), rng.uniform(0.05, 0.95, n), rng.uniform(273, 318, n)
    open_circuit, eta_p, eta_n, drop = 3 + np.sqrt(soc), 0.02 * current, 0.01 * current * (1 + soc), 0.05 * current
    reversible = 1e4 * current * np.sin(3 * soc)
    irreversible = 5e5 * current * (eta_p + eta_n + drop)
    voltage = open_circuit - eta_p - eta_n - drop
    columns = (voltage, open_circuit, eta_p, eta_n, drop, reversible + irreversible, reversible, irreversible)
    truth = pd.DataFrame(dict(zip(OUTPUTS, columns, strict=True)))
    X = pd.DataFrame(dict(zip(INPUTS, (current, soc, T), strict=True)))
    heteroscedastic = 1 + current[:, None]
    noise_std = pd.DataFrame(heteroscedastic * np.array([0.001] * 5 + [100.0] * 3), columns=list(OUTPUTS))
    Y = truth + rng.normal(size=truth.shape) * noise_std
    parts = np.split(rng.permutation(n), [90, 115])
    return BatteryData(X, Y, truth, noise_std, np.zeros(n, np.intp), *(np.sort(rows) for rows in parts))


MODELS = {
    "bnn": {},
    "paper": {
        "constraint": balances(),
        "likelihood": "marginal",
        "tolerance": TolerancePrior.paper(),
    },
    "equipoise": {"constraint": balances()},
}
ALSO = {"bnn_residuals": "bnn", "paper_residuals": "paper"}  # which of the evaluations stand for those of other models


@pytest.fixture(scope="module")
def data():
    return made_up()


@pytest.fixture(scope="module")
def fitted(data):
    """Of each model, trained for a few epochs on rows for training, stopped on rows for validation."""
    rows = np.concatenate([data.train, data.validation])
    held_out, models = np.arange(len(data.train), len(rows)), {}
    for name, settings in MODELS.items():
        model = ConstrainedBNNRegressor(**settings, hidden=(8,), max_epochs=9, random_state=0)
        models[name] = model.fit(data.X.iloc[rows], data.Y.iloc[rows], held_out=held_out)
    return models


@pytest.fixture(scope="module")
def evaluated(fitted, data):
    draws = {"n_draws": N_DRAWS, "violation_draws": VIOLATION_DRAWS}
    return {name: evaluate(model, data, **draws) for name, model in fitted.items()}


@pytest.fixture(scope="module")
def results(evaluated, data):
    others = {name: evaluated[model] for name, model in ALSO.items()}
    return assemble(evaluated | others, data, seed=5, config={"hidden": [8]}, seconds={"total": 1.5})


@pytest.fixture(params=MODELS)
def model(request, fitted, evaluated, data):
    """Name, distribution of the true values and evaluation of a model."""
    p = fitted[request.param].predict_distribution(data.X.iloc[data.test])
    return request.param, dataclasses.replace(p, n_draws=N_DRAWS), evaluated[request.param]


def naive(p):
    """All components in the data's units, one draw and row at a time: means, variances, sensor variances."""
    parts = components(p)
    return (stacked(parts, name) for name in ("mean", "var", "w"))


def values(score):
    return np.array(list(score.by_output.values()))


# --- Scores -----------------------------------------------------------------------------------------------------------


def test_errors_are_those_of_the_mean_over_the_training_variance(model, data):
    _, p, found = model
    mean, s2 = next(naive(p)).mean(0), data.Y.iloc[data.train].var(ddof=0).to_numpy()
    for score, table in ((found.results.mse_noisy, data.Y), (found.results.mse_true, data.truth)):
        error = (mean - table.iloc[data.test].to_numpy()) ** 2
        np.testing.assert_allclose(values(score), error.mean(0) / s2, rtol=1e-4)  # the network is in single precision
        assert score.overall == pytest.approx(values(score).mean())
    by_output = found.results.mse_true.by_output
    assert found.results.mse_true_voltages == pytest.approx(sum(list(by_output.values())[:5]) / 5)
    assert found.results.mse_true_heats == pytest.approx(sum(list(by_output.values())[5:]) / 3)
    np.testing.assert_allclose(found.arrays["mean"], mean, rtol=1e-5, atol=1e-4)


def test_aleatoric_and_epistemic_parts_are_those_of_a_loop(model, data):
    _, p, found = model
    mean, var, w = naive(p)
    s, noise = output_std(data), (var + w).mean(0)
    np.testing.assert_allclose(values(found.results.aleatoric), np.sqrt(noise).mean(0) / s, rtol=1e-4)
    np.testing.assert_allclose(values(found.results.epistemic), mean.std(0).mean(0) / s, rtol=1e-3)
    learned = np.array(list(found.results.observation_std.values()))
    np.testing.assert_allclose(learned, np.sqrt(noise.mean(0)), rtol=1e-4)


def test_the_ledgers_terms_add_up_to_the_variance_of_measured_values(model, data):
    name, p, found = model
    mean, var, w = naive(p)
    total = ((var + w).mean(0) + mean.var(0)).mean(0) / output_std(data) ** 2
    for key, expected in zip(KEYS, total, strict=True):
        terms = found.results.ledger[key]
        parts = np.array([getattr(terms, term) for term in TERMS])
        assert terms.total == pytest.approx(expected, rel=1e-4)
        assert SIGNS @ parts == pytest.approx(terms.total, rel=1e-9)
        assert set(terms.lost_without) == (set() if name == "bnn" else {"voltage", "heat"})
    assert found.results.ledger["V"].lost_without.get("heat", 0.0) == 0.0


def test_intervals_and_calibration_are_those_of_measured_values(model, data):
    _, p, found = model
    p, Y = p.measured(), data.Y.iloc[data.test].to_numpy()
    results, arrays = found.results, found.arrays
    lower, upper = (bound.to_numpy() for bound in p.interval(0.95))
    np.testing.assert_array_equal(arrays["lower"], lower)
    np.testing.assert_allclose(values(results.interval_width), (upper - lower).mean(0) / output_std(data), rtol=1e-12)
    np.testing.assert_array_equal(values(results.coverage), ((lower <= Y) & (upper >= Y)).mean(0))
    for number, level in enumerate(results.calibration.levels):
        lower, upper = (bound.to_numpy() for bound in p.interval(level))
        inside = ((lower <= Y) & (upper >= Y)).mean(0)
        np.testing.assert_array_equal([shares[number] for shares in results.calibration.coverage.values()], inside)
    for key, column in zip(KEYS, arrays["pit"].T, strict=True):
        expected = [((column >= k / 20) & (column < (k + 1) / 20)).sum() for k in range(20)]
        assert list(results.calibration.pit_counts[key]) == expected
    curve = arrays["calibration_coverage"][np.isclose(arrays["calibration_levels"], 0.95)][0]
    np.testing.assert_array_equal(curve, values(results.coverage))


def test_scores_of_measured_values_are_those_of_their_distribution(model, data):
    _, p, found = model
    p, Y, s = p.measured(), data.Y.iloc[data.test], output_std(data)
    np.testing.assert_allclose(values(found.results.crps), metrics.crps(p, Y).mean(0) / s, rtol=1e-12)
    assert found.results.joint_nll == pytest.approx(-p.log_prob(Y).mean(), rel=1e-12)
    assert found.results.energy_score == pytest.approx(metrics.energy_score(p, Y, s).mean(), rel=1e-12)


# --- Balances ---------------------------------------------------------------------------------------------------------


def test_violations_of_means_are_those_of_all_residuals(model, data):
    _, p, found = model
    z = np.abs(p.residual_of_means(VIOLATION_DRAWS, balances()))
    c = balances().scale(output_std(data))
    expected = {"voltage": z[..., 0], "heat": z[..., 1], "overall": z.mean(-1), "overall_relative": (z / c).mean(-1)}
    expected |= {"voltage_relative": z[..., 0] / c[0], "heat_relative": z[..., 1] / c[1]}
    for name, sizes in expected.items():
        got = getattr(found.results.violation_of_means, name)
        assert got.mean == pytest.approx(sizes.mean(), rel=1e-9)
        assert got.sd_over_draws == pytest.approx(sizes.mean(1).std(), rel=1e-6)
        assert abs(math.log10(got.median / np.median(sizes))) < 0.02


def test_violations_of_draws_are_those_of_the_models_own_draws(model):
    """Other noise, the same distribution: within 5 standard errors, the sd of |z| being below its mean."""
    _, p, found = model
    z = np.abs(p.residual_of_samples(VIOLATION_DRAWS, constraint=balances())).mean((0, 1))
    got = found.results.violation_of_draws
    band = 5 * math.sqrt(2 / (VIOLATION_DRAWS * len(p.X)))
    np.testing.assert_allclose([got.voltage.mean, got.heat.mean], z, rtol=band)


def test_histograms_count_every_draw_and_row(model):
    _, p, found = model
    arrays = found.arrays
    assert arrays["violation_series"].tolist() == ["voltage", "heat", "overall", "overall_relative"]
    for name in ("violation_of_means", "violation_of_draws"):
        assert arrays[name].shape == (4, len(arrays["violation_log10_edges"]) + 1)
        assert arrays[name].sum(1).tolist() == [VIOLATION_DRAWS * len(p.X)] * 4
    np.testing.assert_array_equal(arrays["violation_log10_edges"], LOG10_EDGES)


def test_tolerances_are_those_of_the_estimator(fitted, evaluated):
    assert evaluated["bnn"].tolerances is None
    for name in ("paper", "equipoise"):
        table = fitted[name].tolerances_
        for balance, found in evaluated[name].tolerances:
            assert {key: table.loc[balance, key] for key in found.model_dump()} == found.model_dump()


# --- Together ---------------------------------------------------------------------------------------------------------


def test_results_hold_what_was_evaluated(results, evaluated, fitted, data, tmp_path):
    assert results.models.paper == evaluated["paper"].results
    assert results.tolerances.equipoise == evaluated["equipoise"].tolerances
    rms = np.sqrt((data.noise_std.to_numpy()[data.test] ** 2).mean(0))
    np.testing.assert_allclose(list(results.observation_std.true.values()), rms)
    assert results.observation_std.learned == results.models.equipoise.observation_std
    np.testing.assert_array_equal(list(results.sensor_std.values()), fitted["equipoise"].sensor_std_["std"])
    assert set(results.models.bnn.sensor_std.values()) == {0.0}
    np.testing.assert_allclose(list(results.output_std.values()), fitted["bnn"].standardizer_.y_std)
    np.testing.assert_allclose(list(results.scales.model_dump().values()), fitted["paper"].standardizer_.row_scale)
    assert results.rows.model_dump() == {"train": 90, "validation": 25, "test": 35}
    write(results, tmp_path / "results.json")
    assert read(tmp_path / "results.json") == results
    assert isinstance(results, Results)


def test_the_history_is_summed_up(model, fitted):
    name, _, found = model
    history = fitted[name].history_
    assert found.results.history.epochs == 9
    assert found.results.history.best_epoch == history.best_epoch
    assert found.results.history.stopped == "all epochs run"
    assert found.results.history.seconds == pytest.approx(sum(epoch["seconds"] for epoch in history.epochs))


def test_the_table_of_variables_has_their_units_and_ranges(data):
    lines = {line.symbol: line for line in input_output_table(data)}
    assert list(lines) == ["I", "SOC", "T", *KEYS]
    assert [line.unit for line in lines.values()] == ["A", "", "K", *["V"] * 5, *["W.m-3"] * 3]
    assert [line.role for line in lines.values()] == ["input"] * 3 + ["output"] * 8
    assert (lines["Q_rev"].min, lines["Q_rev"].max) == (
        data.truth[KEYS["Q_rev"]].min(),
        data.truth[KEYS["Q_rev"]].max(),
    )
    assert lines["I"].max == data.X["I [A]"].max()
    assert lines["eta_n"].description == "Negative electrode overpotential"


def test_versions_are_those_that_run():
    found = module.versions()
    assert found.torch == torch.__version__
    assert found.python == ".".join(map(str, sys.version_info[:3]))


def test_progress_grows_to_the_end(fitted, data):
    texts = []
    evaluate(fitted["bnn"], data, n_draws=4, violation_draws=70, progress=texts.append)
    assert texts == sorted(texts)
    assert len(texts) >= 10
    assert texts[-1] == pytest.approx(1.0)


def test_arrays_can_be_saved_and_loaded_without_running_code(evaluated, tmp_path):
    np.savez(tmp_path / "arrays.npz", **evaluated["paper"].arrays)
    with np.load(tmp_path / "arrays.npz", allow_pickle=False) as file:
        for name, array in evaluated["paper"].arrays.items():
            np.testing.assert_array_equal(file[name], array)
