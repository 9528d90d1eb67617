from dataclasses import replace
from pathlib import Path

import handmade
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.stats

import equipoise as eq
from equipoise.network.likelihood import marginal
from equipoise.reconciliation import ReconciliationError
from equipoise.reconciliation.logbook import significant_suspects
from equipoise.reconciliation.model_reconciliation import reconcile_with_model

MODELS = Path(__file__).parents[1] / "models"
NAN = float("nan")
STD = np.array([0.3, 0.2, 0.5, 0.4, 0.3, 0.6])


def predicted(tolerance=(0.0, 0.02, 0.0), rows=4, n_draws=1, sensor=None, **settings):
    """A model whose only draw is known, so that the true values are Gaussian and every test is exact."""
    s = handmade.standardizer(handmade.COUPLED, units=["kg", "W", None])
    return handmade.predictive(
        s, tolerance=handmade.variances(tolerance), sensor=sensor, rows=rows, n_draws=n_draws, **settings
    )


def band(share, rows):
    """Half-width of the interval that holds a binomial share with probability 0.9999: 2.2 % for 5 % of 1500 rows."""
    return scipy.stats.norm.isf(0.5e-4) * np.sqrt(share * (1 - share) / rows)


def simulated(p, seed=0):
    """True values by the model itself, and readings of them."""
    rng = np.random.default_rng(seed)
    truth = p.sample(1)[0]
    return truth, truth + STD * rng.normal(size=truth.shape)


# --- Gross errors -----------------------------------------------------------------------------------------------------


def test_without_gross_errors_alarms_come_at_their_level():
    p = predicted(rows=1500)
    _, Y = simulated(p)
    Y[::2, 3] = NAN
    found = reconcile_with_model(p, Y, STD)
    overall = found.global_test()
    assert abs(overall.alarm.mean() - 0.05) < band(0.05, 1500)
    np.testing.assert_array_equal(np.unique(overall.degrees_of_freedom), [5, 6])
    each = found.measurement_test(correction=None)
    assert (np.abs(each.alarms[1::2].mean(0) - 0.05) < band(0.05, 750)).all()
    assert found.measurement_test().alarms.any(1).mean() < 0.05 + band(0.05, 1500)
    assert np.isnan(each.statistic[::2, 3]).all()


def test_the_statistics_are_those_of_the_innovation_with_its_dense_covariance():
    p = predicted(n_draws=40, weight_std=0.2)
    Y = p.mean + np.random.default_rng(1).normal(size=p.mean.shape)
    Y[0, 2] = NAN
    found, S = reconcile_with_model(p, Y, STD), p.covariance() + np.diag(STD**2)
    test = found.measurement_test()
    for i in range(4):
        seen = ~np.isnan(Y[i])
        inverse, deviation = np.linalg.inv(S[i][np.ix_(seen, seen)]), (Y[i] - p.mean[i])[seen]
        np.testing.assert_allclose(found.statistic[i], deviation @ inverse @ deviation, rtol=1e-9)
        np.testing.assert_allclose(test.statistic[i, seen], inverse @ deviation / np.sqrt(np.diag(inverse)), rtol=1e-9)
        np.testing.assert_allclose(test.size_std[i, seen], 1 / np.sqrt(np.diag(inverse)), rtol=1e-9)


def test_values_statistic_and_threshold_have_the_names_of_a_classical_reconciliation():
    p = predicted()
    Y = p.mean + 0.1
    Y[1] = NAN
    found = reconcile_with_model(p, Y, STD, level=0.9)
    np.testing.assert_array_equal(found.values, found.mean)
    np.testing.assert_array_equal(found.statistic, found.global_test().statistic)
    n = Y.shape[1]
    expected = np.where(np.arange(len(Y)) == 1, NAN, scipy.stats.chi2.ppf(0.9, n))
    np.testing.assert_allclose(found.threshold, expected)


def test_readings_whose_only_sensor_is_tested_twice_count_once():
    p = predicted()
    Y = np.full_like(p.mean, NAN)
    Y[:, 2] = p.mean[:, 2] + 0.1
    test = reconcile_with_model(p, Y, STD).likelihood_ratio_test()
    assert (np.isfinite(test.statistic).sum(axis=1) > 1).any()  # the sensor, and balances that it checks
    np.testing.assert_allclose(test.critical_value, scipy.stats.norm.isf(0.025))


def test_a_biased_sensor_is_found_with_its_size():
    p = predicted(rows=1000, log_var=-4.0)
    _, Y = simulated(p)
    Y[:, 4] += 2.0
    test = reconcile_with_model(p, Y, STD).measurement_test()
    sizes = test.size[:, 4]
    spread = ((sizes - 2.0) / test.size_std[:, 4]).std()
    assert abs(spread - 1) < 4 / np.sqrt(2 * len(sizes))
    assert abs(sizes.mean() - 2.0) < 4 * sizes.std() / np.sqrt(len(sizes))
    power = scipy.stats.norm.sf(test.critical_value - 2.0 / test.size_std[:, 4]).mean()
    assert abs(test.alarms[:, 4].mean() - power) < band(power, len(sizes)) + 1e-4  # that of the wrong sign
    assert test.candidates[4].name == "y4"


def test_a_leak_is_found_with_its_size_and_the_sign_of_the_residual():
    """True values that miss a balance by s are those of the model with the target moved by s."""
    p = predicted(rows=1000, tolerance=(0.0, 0.0, 0.0))
    c, leak = p.standardizer.constraint, 3.0
    leaking = replace(p, standardizer=replace(p.standardizer, constraint=_moved(c, 1, leak)))
    truth, Y = simulated(leaking)
    np.testing.assert_allclose(c.residual(p.X, truth), [[0, leak, 0]] * 1000, atol=1e-9)
    test = reconcile_with_model(p, Y, STD).likelihood_ratio_test()
    sizes = test.size[:, 7]
    assert (test.candidates[7].name, test.candidates[7].kind, test.candidates[7].unit) == ("balance 1", "balance", "W")
    assert abs(sizes.mean() - leak) < 4 * sizes.std() / np.sqrt(len(sizes))
    assert (np.abs(test.statistic).mean(0).argmax()) == 7


def _moved(constraint, k, leak):
    b = constraint.b + leak * np.eye(len(constraint.b))[k]
    return eq.LinearConstraint(constraint.B, constraint.A, b, inputs=constraint.inputs)


# --- The battery study's model ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cell():
    """A model of the study, and test rows of it: inputs, true outputs, standard deviations; all rows twice."""
    model, table = eq.load(MODELS / "cell.safetensors"), pd.read_csv(MODELS / "cell.csv")
    table = pd.concat([table] * 2, ignore_index=True)
    outputs = list(model.output_names_)
    heat = np.array(["W.m-3" in name for name in outputs])
    std = np.where(heat, table[["std of heats"]], table[["std of voltages"]])
    return model, table[["I [A]", "SOC", "T [K]"]], table[outputs], pd.DataFrame(std, columns=outputs)


@pytest.fixture(scope="module")
def readings(cell):
    _, _, truth, std = cell
    return truth + std * np.random.default_rng(0).normal(size=std.shape)


def test_a_voltage_sensor_of_the_cell_that_lies_by_five_sigma_is_found_and_can_be_done_without(cell, readings):
    """Standard deviations are those that the model learned."""
    model, X, truth, std = cell
    X, truth, std, readings = (table[: len(table) // 2] for table in (X, truth, std, readings))
    lying = readings.assign(**{"V [V]": readings["V [V]"] + 5 * std["V [V]"]})
    found = model.reconcile(X, lying)
    test = found.measurement_test()
    assert (test.suspect == "V [V]").mean() >= 0.95
    ratio = test.size[:, 0] / (5 * std["V [V]"])
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(len(X))
    without = found.without("V [V]")
    error = (without.mean - truth)["V [V]"]
    assert np.sqrt((error**2).mean()) < 0.4 * np.sqrt((std["V [V]"] ** 2).mean())  # better than a sensor that works
    assert (np.abs(error) <= without.half_widths.after["V [V]"]).mean() > 0.93
    assert without.readings.measured[:, 0].sum() == 0


def test_honest_sensors_of_the_cell_are_hardly_suspected_and_reconciled_values_are_nearer_the_truth(cell, readings):
    model, X, truth, std = cell
    found = model.reconcile(X, readings, std)
    assert (found.suspects != None).mean() < 0.05 + band(0.05, len(X))  # noqa: E711
    before, after = ((values - truth).pow(2).mean() for values in (readings, found.mean))
    assert (after < before).all()
    inside = (np.abs(found.mean - truth) <= found.half_widths.after).mean()
    assert (inside > 0.93).all()


def test_the_logbook_of_a_table_names_the_liar_and_its_plot_shows_it_first(cell, readings):
    model, X, _, std = cell
    X, std, lying = (table[:80] for table in (X, std, readings.copy()))
    lying.loc[20:49, "eta_p [V]"] += 6 * std["eta_p [V]"]
    found = model.reconcile(X, lying, std)
    log, hours = found.logbook(), np.arange(80.0)
    assert log.totals.alarms == found.global_test().alarm.sum()
    assert [candidate.name for candidate in significant_suspects(log)] == ["eta_p [V]"]
    np.testing.assert_array_equal(
        log.totals.errors.count, np.bincount(found.likelihood_ratio_test().worst + 1, minlength=11)[1:]
    )
    assert list(log.balances()["tolerance"]) == list(model.tolerances_["tol_std"])
    pieces = [model.reconcile(X[rows], lying[rows], std[rows]).logbook() for rows in (slice(0, 30), slice(30, 80))]
    pd.testing.assert_frame_equal((pieces[0] + pieces[1]).sensors(), log.sensors(), rtol=1e-6)
    assert found.plot(hours, sensors=2).axes[1].get_title() == "eta_p [V]"
    assert found.without("eta_p [V]").logbook().sensors().loc["eta_p [V]", "readings"] == 0


def test_a_logbook_counts_the_rows_in_which_each_output_was_read_and_was_not():
    p = predicted(rows=9)
    Y = p.mean + 0.1
    Y[:7, 3], Y[2, 0] = NAN, NAN
    log = reconcile_with_model(p, Y, STD).logbook()
    redundant, _, observable, unobservable = log.totals.classes.T  # in the order of the classes of a classical one
    assert redundant.tolist() == [8, 9, 9, 2, 9, 9]
    assert observable.tolist() == [1, 0, 0, 7, 0, 0]
    assert unobservable.tolist() == [0] * 6
    assert log.calculated == ("y0", "y3")


# --- What users see ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def column():
    """A fitted distillation column with an exact and a tolerant balance, a known column, offsets, learned sensors."""
    model = eq.load(MODELS / "format_1.safetensors")
    X = pd.DataFrame(
        {"feed [kg/s]": [6.0, 7.0], "reflux": [1.5, 2.5], "purge [kg/s]": [0.1, 0.2]}, index=["mon", "tue"]
    )
    return model, X


def test_frames_come_back_as_frames_with_names_and_index(column):
    model, X = column
    measured = pd.DataFrame({"top [kg/s]": [1.8, 2.2]}, index=X.index)
    found = model.reconcile(X, measured)
    for table in (found.mean, found.std, found.predicted, found.adjustments, *found.half_widths):
        assert list(table.index) == ["mon", "tue"]
        assert tuple(table.columns) == model.output_names_
    assert found.adjustments["bottom [kg/s]"].isna().all()
    assert list(found.global_test().to_frame().index) == ["mon", "tue"]
    in_polars = model.reconcile(pl.from_pandas(X), pl.from_pandas(measured))
    np.testing.assert_array_equal(in_polars.mean.to_numpy(), found.mean.to_numpy())


def test_a_table_with_inputs_and_outputs_is_read_by_name(column):
    model, X = column
    whole = X.assign(**{"top [kg/s]": [1.8, NAN]})
    np.testing.assert_array_equal(
        model.reconcile(whole[X.columns], whole).mean, model.reconcile(X, {"top [kg/s]": [1.8, NAN]}).mean
    )


def test_a_reading_moves_what_the_exact_balance_ties_to_it(column):
    model, X = column
    found = model.reconcile(X, {"top [kg/s]": X["feed [kg/s]"] * 0.5}, 1e-6)
    np.testing.assert_allclose(found.mean["top [kg/s]"], X["feed [kg/s]"] * 0.5, atol=1e-5)
    assert np.isnan(found.residuals.before).all()
    drawn = found.sample(500)[..., :2].sum(-1)  # top and bottom are feed less purge, up to what the balance learned
    np.testing.assert_allclose(drawn.std(0), found.std["bottom [kg/s]"], rtol=0.15)


def test_rows_are_chosen_by_position_slice_or_mask(column):
    model, X = column
    found = model.reconcile(X, {"top [kg/s]": [1.8, 2.2]})
    last = found.covariance()[1:]
    for rows in (1, -1, [1], slice(1, 2), np.array([False, True])):
        np.testing.assert_allclose(found.covariance(rows), last, rtol=1e-12)
    with pytest.raises(ReconciliationError, match="rows must be positions of 2 rows, but got 5"):
        found.moved(5)


def test_more_draws_can_be_asked_for(column):
    model, X = column
    assert (model.reconcile(X, {}, n_draws=100).effective_draws > 99).all()
    with pytest.raises(ValueError, match="n_draws must be a whole number of at least 1, but got 0"):
        model.reconcile(X, {}, n_draws=0)


def test_the_overview_has_a_line_for_each_output(column):
    model, X = column
    found = model.reconcile(X, {"top [kg/s]": [1.8, NAN]})
    frame = found.to_frame()
    assert list(frame["readings"]) == [1, 0, 0, 0]
    assert frame.loc["top [kg/s]", "measured"] == pytest.approx(1.8)
    assert frame.loc["duty [kW]", "reconciled"] == pytest.approx(found.mean["duty [kW]"].mean())
    alone = model.predict_distribution(X)
    np.testing.assert_allclose(frame["predicted"], alone.mean.mean(), rtol=1e-6)
    np.testing.assert_allclose(frame["± before"], 1.959964 * np.sqrt(alone.var.mean()), rtol=1e-6)
    np.testing.assert_allclose(frame["± after"], 1.959964 * np.sqrt(np.square(found.std).mean()), rtol=1e-6)
    assert (frame["± after"] < frame["± before"]).tolist()[:3] == [True] * 3  # what the balance ties to the reading
    assert "'top [kg/s]': " in repr(found)
    assert "40 draws" in repr(model.predict_distribution(X))
    assert "the matched Gaussian in" in repr(found)


def test_a_model_trained_by_the_papers_likelihood_is_weighted_by_the_joint_density():
    p = predicted(n_draws=40, weight_std=0.2)
    paper = replace(p, model=_with_likelihood(p, marginal))
    Y = p.mean + 0.3
    np.testing.assert_array_equal(
        reconcile_with_model(paper, Y, STD, least_draws=0).mean, reconcile_with_model(p, Y, STD, least_draws=0).mean
    )


def _with_likelihood(p, likelihood):
    return handmade.predictive(
        p.standardizer, tolerance=handmade.variances([0.0, 0.02, 0.0]), likelihood=likelihood, weight_std=0.2
    ).model.eval()


def test_exact_readings_are_taken_at_their_word_as_long_as_they_leave_something_open():
    p = predicted(n_draws=40, weight_std=0.1)
    Y = p.mean + 0.1
    Y[:, 0] = NAN
    for least in (0, 1000):
        found = reconcile_with_model(p, Y, [1.0, 0.0, 0.3, 0.3, 0.3, 0.3], least_draws=least)
        np.testing.assert_allclose(found.mean[:, 1], Y[:, 1], atol=1e-9)
        np.testing.assert_allclose(found.std[:, 1], 0.0, atol=1e-7)


@pytest.mark.parametrize(
    ("measured", "options", "complaint"),
    [
        (np.ones((4, 6)), {}, r"std must be given for outputs.*no sensor noise, but got none for 'y0', 'y1'"),
        (
            np.ones((4, 6)),
            {"std": 0.0},
            r"Exact readings \(std 0\) must leave 'balance 0' and 'balance 2' something.*row 0",
        ),
        (np.ones((4, 6)), {"std": 0.1, "least_draws": -1}, "least_draws must be a number ≥ 0, but got -1"),
        (np.ones((4, 6)), {"std": 0.1, "level": 95}, "level must lie between 0 and 1, but got 95"),
        ({"y9": [1.0] * 4}, {"std": 0.1}, "measured must name outputs of the model, but got 'y9'"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_to_do(measured, options, complaint):
    with pytest.raises(ReconciliationError, match=complaint):
        reconcile_with_model(predicted(), measured, **options)


def test_a_single_reading_without_any_standard_deviation_is_refused_by_name():
    measured = {"y2": [NAN, NAN, 1.0, NAN], "y3": [1.0, 1.0, 1.0, 1.0]}
    with pytest.raises(ReconciliationError, match=r"no sensor noise, but got none for 'y2'\."):
        reconcile_with_model(predicted(), measured, {"y3": 0.1})


def test_sensors_that_were_given_for_each_training_row_must_be_given_again():
    p = replace(predicted(sensor=handmade.variances([0.1] * 6)), sensors_per_row=True)
    with pytest.raises(ReconciliationError, match=r"given per training row, but got none for 'y3'"):
        reconcile_with_model(p, {"y3": [1.0] * 4})
