"""Scores: against scikit-learn, quantiles and loops written out, on models with gaps in what was measured."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from handmade_findings import OUTPUTS, SHORT, balanced, on_one_worker, table, without_balances
from sklearn.metrics import mean_squared_error, r2_score

import equipoise as eq
from equipoise.app.report.scores import (
    FAR,
    LEVELS,
    POINTS_PER_OUTPUT,
    WORST_ROWS,
    calibration,
    outliers,
    plotted_rows,
    r2,
    score_outputs,
    select_rows,
)

pytestmark = [pytest.mark.usefixtures("long_training"), on_one_worker]


@pytest.fixture
def Y():
    return table()[1].to_numpy()


@pytest.fixture
def p():
    return as_array(balanced().predict_distribution(table()[0]).measured())


def as_array(p):
    return dataclasses.replace(p, wrap=np.asarray)


def test_scores_are_those_of_scikit_learn_on_what_was_measured(p, Y):
    X = table()[0]
    other = as_array(without_balances().predict_distribution(X[["x", "z"]]).measured())
    for j, score in enumerate(score_outputs(p, Y, other)):
        seen = np.isfinite(Y[:, j])
        y, mean, beside = Y[seen, j], p.mean[seen, j], other.mean[seen, j]
        assert (score.output, score.unit, score.n) == (OUTPUTS[j], "kg/s", seen.sum())
        assert score.r2 == pytest.approx(r2_score(y, mean))
        assert score.rmse == pytest.approx(mean_squared_error(y, mean) ** 0.5)
        assert score.bias == pytest.approx(np.mean(mean - y))
        assert score.expected == pytest.approx(np.sqrt(np.mean(p.var[seen, j])))
        assert score.baseline_r2 == pytest.approx(r2_score(y, beside))
        assert score.baseline_rmse == pytest.approx(mean_squared_error(y, beside) ** 0.5)


def test_without_another_model_there_are_no_scores_of_it(p, Y):
    assert all(np.isnan(score.baseline_rmse) and np.isnan(score.baseline_r2) for score in score_outputs(p, Y))


def test_an_output_that_does_not_vary_or_was_not_measured_has_no_r2():
    Y = np.array([[0.1 + 0.2, np.nan], [0.3, np.nan], [0.3, np.nan]])
    assert np.isnan(r2(Y, np.zeros_like(Y))).all()


def test_coverage_is_the_share_inside_the_intervals(p, Y):
    found = calibration(p, Y)
    for level in (LEVELS[0], 0.5, 0.8, 0.95):
        lower, upper = p.interval(level)
        inside = (lower <= Y) & (upper >= Y)
        assert found.at(level) == pytest.approx(inside.sum(0) / np.isfinite(Y).sum(0))


def test_histograms_count_values_between_the_deciles(p, Y):
    deciles = p.quantile(np.arange(1, 10) / 10)
    tenth = (deciles < Y).sum(0)
    for j in range(Y.shape[1]):
        counts = np.bincount(tenth[np.isfinite(Y[:, j]), j], minlength=10)
        assert calibration(p, Y).pit_counts[:, j].tolist() == counts.tolist()
    assert calibration(p, Y).n.tolist() == np.isfinite(Y).sum(0).tolist()


def test_an_output_that_a_balance_fixes_to_rounding_is_not_judged():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (60, 1))
    X, Y = np.hstack([x, 1e9 + x]), np.hstack([1e9 + x, x + 0.1 * rng.normal(size=x.shape)])
    fixed = eq.LinearConstraint.from_equations({"fix": "k = t"}, inputs=["x"], known=["k"], outputs=["t", "free"])
    p = eq.ConstrainedBNNRegressor(fixed, **SHORT).fit(X, Y).predict_distribution(X).measured()
    assert calibration(p, Y).n.tolist() == [0, 60]
    assert np.isnan(calibration(p, Y).coverage[:, 0]).all()
    assert {outlier.output for outlier in outliers(p, Y).worst} == {"free"}


# --- Rows -------------------------------------------------------------------------------------------------------------


def test_pictured_rows_show_what_was_measured_with_its_interval(p, Y):
    some = plotted_rows(p, Y)
    lower, upper = p.interval(0.95)
    everything = {tuple(row): i for i, row in enumerate(p.mean)}
    places = [everything[tuple(row)] for row in some.mean]
    shown = np.isfinite(some.measured)
    assert some.measured[shown].tolist() == Y[places][shown].tolist()
    assert some.lower == pytest.approx(lower[places])
    assert some.upper == pytest.approx(upper[places])
    assert shown.sum(0).tolist() == np.isfinite(Y).sum(0).tolist()  # few rows: all of them


def test_of_many_rows_some_are_pictured_and_none_of_a_rare_output_is_missed():
    rng = np.random.default_rng(1)
    X, Y = pd.DataFrame(rng.uniform(-2, 2, (2000, 2)), columns=["x", "z"]), rng.normal(size=(2000, 4))
    Y[:, 1] = np.nan
    Y[[5, 900, 1999], 1] = 1.0
    p = as_array(without_balances().predict_distribution(X).measured())
    some = plotted_rows(p, Y)
    assert np.isfinite(some.measured).sum(0).tolist() == [POINTS_PER_OUTPUT[1], 3, *[POINTS_PER_OUTPUT[1]] * 2]
    assert len(some.mean) <= POINTS_PER_OUTPUT[1] + 3
    assert np.array_equal(some.measured, plotted_rows(p, Y).measured, equal_nan=True)


def test_the_worst_rows_are_those_with_the_largest_standardized_residual(p, Y):
    Y = Y.copy()
    Y[17, 2] = p.mean[17, 2] - 50 * p.std[17, 2]
    ranking = []
    for i in range(len(Y)):
        z = [(Y[i, j] - p.mean[i, j]) / p.std[i, j] for j in range(Y.shape[1]) if np.isfinite(Y[i, j])]
        ranking.append(max(map(abs, z), default=-1.0))
    found = outliers(p, Y)
    assert [outlier.row for outlier in found.worst] == np.argsort(ranking)[::-1][:WORST_ROWS].tolist()
    first = found.worst[0]
    assert (first.row, first.output, first.unit, first.measured) == (17, "total [kg/s]", "kg/s", Y[17, 2])
    assert first.z == pytest.approx(-50)
    assert (first.predicted, first.std, first.x) == (p.mean[17, 2], p.std[17, 2], tuple(p.X[17]))
    assert found.n_values == np.isfinite(Y).sum()
    assert found.n_far == np.nansum(np.abs((Y - p.mean) / p.std) > FAR)


def test_where_nothing_was_measured_there_is_nothing_to_show(p, Y):
    nothing = np.full_like(Y, np.nan)
    assert outliers(p, nothing).worst == ()
    assert plotted_rows(p, nothing).mean.shape == (0, 4)
    assert all(score.n == 0 and np.isnan(score.rmse) for score in score_outputs(p, nothing))


def test_sensors_that_differ_by_row_follow_their_rows(p):
    std = np.linspace(0.1, 1, len(p.X) * 4).reshape(-1, 4)
    rows = np.array([3, 50])
    assert select_rows(p.measured(std), rows).var == pytest.approx(p.measured(std).var[rows])
