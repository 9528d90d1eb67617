"""Findings: what they are of, how large tables are thinned, and what is refused."""

import dataclasses

import numpy as np
import pandas as pd
import polars as pl
import pytest
from handmade_findings import BALANCES, OUTPUTS, SHORT, balanced, on_one_worker, table, without_balances
from sklearn.metrics import r2_score

import equipoise as eq
from equipoise.app.report import findings, model_findings, render, report
from equipoise.app.report.model_findings import thinned_rows
from equipoise.training.loop import History

pytestmark = [pytest.mark.usefixtures("long_training"), on_one_worker]


def test_findings_say_what_they_are_of():
    f = findings(balanced(), *table())
    assert (f.n_rows, f.n_scored, f.n_decomposed) == (120, 120, 120)
    assert (f.inputs, f.known) == (("x", "z"), ("feed [kg/s]",))
    assert (f.outputs, f.balances) == (tuple(OUTPUTS), ("sum", "split"))
    assert repr(f) == f"Findings(120 of 120 rows; {', '.join(OUTPUTS)})"
    assert f.seed == balanced().seed_
    assert f.settings["hidden"] == "(8,)"
    assert f.settings["likelihood"] == "joint"
    assert f.history is balanced().history_
    assert {"Python", "equipoise", "torch"} <= set(f.versions)
    assert (f.n_extrapolated, f.extrapolated_inputs) == (0, ())


def test_rows_beyond_what_was_trained_on_are_counted():
    X, Y = (frame.head(10).copy() for frame in table())
    X.loc[X.index[2:5], "z"] = 1e3
    X.loc[X.index[4:6], "x"] = -1e3
    f = findings(balanced(), X, Y)
    assert (f.n_extrapolated, f.extrapolated_inputs) == (4, ("x", "z"))
    assert balanced().extrapolates(X).sum() == 4


def test_the_ledger_adds_up_to_the_variance_of_measured_values():
    f = findings(balanced(), *table())
    p = balanced().predict_distribution(table()[0])
    assert f.ledger["total"] == pytest.approx(p.measured().var.to_numpy().mean(0))
    assert f.true_var == pytest.approx(p.var.to_numpy().mean(0))
    assert f.before_var == pytest.approx(f.ledger["aleatoric"] + f.ledger["epistemic"])


def test_a_single_balance_buys_the_whole_reduction():
    X, Y = table()
    one = BALANCES.without("split")
    f = findings(eq.ConstrainedBNNRegressor(one, **SHORT).fit(X, Y), X, Y)
    assert f.lost_share.shape == (1, 4)
    assert f.lost_share[0] * f.before_var == pytest.approx(f.ledger["reduction"], abs=1e-12)
    assert f.lost_share[0, 3] == 0  # “top” is not in it
    assert f.lost_share[0, 2] > 0.05


def test_a_model_beside_is_scored_and_its_variance_kept():
    X, Y = table()
    f = findings(balanced(), X, Y, baseline=without_balances())
    other = without_balances().predict_distribution(X[["x", "z"]])
    seen = Y["top [kg/s]"].notna()
    expected = r2_score(Y["top [kg/s]"][seen], other.mean["top [kg/s]"][seen])
    assert f.scores[3].baseline_r2 == pytest.approx(expected)
    assert f.ledger["baseline"] == pytest.approx(other.var.to_numpy().mean(0))


def test_frames_of_any_kind_and_order_and_arrays_give_the_same():
    X, Y = table()
    usual = findings(balanced(), X, Y)
    turned = findings(balanced(), pl.from_pandas(X[X.columns[::-1]]), pl.from_pandas(Y[Y.columns[::-1]]))
    assert turned.scores == usual.scores
    assert turned.outliers == usual.outliers
    assert findings(balanced(), X, Y.to_numpy()).residuals == usual.residuals


def test_a_plain_model_of_one_output_has_findings():
    x = np.linspace(-1, 1, 20)
    model = eq.ConstrainedBNNRegressor(**SHORT).fit(x[:, None], x**2)
    f = findings(model, x[:, None], x**2)
    assert (f.inputs, f.known, f.outputs, f.residuals, f.tolerances) == (("x0",), (), ("y0",), (), ())
    assert f.scores[0].r2 == pytest.approx(r2_score(x**2, model.predict(x[:, None])))
    assert f.lost_without.shape == (0, 1)


def test_a_model_that_does_not_remember_its_training_has_findings():
    forgetful = eq.ConstrainedBNNRegressor(**SHORT).fit(np.arange(20.0)[:, None], np.arange(20.0))
    del forgetful.history_
    assert findings(forgetful, np.arange(20.0)[:, None], np.arange(20.0)).history == History()


def test_sensors_that_differed_by_training_row_are_taken_at_their_average():
    X, Y = table()
    std = np.linspace(0.02, 0.1, Y.size).reshape(Y.shape)
    model = eq.ConstrainedBNNRegressor(BALANCES, sensor_std=std, **SHORT).fit(X, Y)
    f = findings(model, X, Y)
    assert f.ledger["sensor"] == pytest.approx(model.sensor_std_["std"].to_numpy() ** 2)


# --- Large tables -----------------------------------------------------------------------------------------------------


def test_large_tables_are_thinned_always_to_the_same_rows(monkeypatch):
    monkeypatch.setattr(model_findings, "SCORED_ROWS", 50)
    monkeypatch.setattr(model_findings, "DECOMPOSED_ROWS", 30)
    X, Y = table()
    f, again = (findings(balanced(), X, Y) for _ in range(2))
    assert (f.n_rows, f.n_scored, f.n_decomposed) == (120, 50, 30)
    many, few = thinned_rows(120, 50), thinned_rows(120, 30)
    y, mean = Y["a [kg/s]"].iloc[many], balanced().predict(X.iloc[many])["a [kg/s]"]
    assert f.scores[0].rmse == pytest.approx(np.sqrt(np.nanmean((y - mean) ** 2)))
    assert f.ledger["total"] == pytest.approx(
        balanced().predict_distribution(X.iloc[few]).measured().var.to_numpy().mean(0)
    )
    assert (f.scores, f.outliers, f.residuals) == (again.scores, again.outliers, again.residuals)


def test_worst_rows_are_counted_in_the_whole_table(monkeypatch):
    monkeypatch.setattr(model_findings, "SCORED_ROWS", 50)
    X, Y = table()
    chosen = thinned_rows(120, 50)
    Y = Y.copy()
    Y.iloc[chosen[7], 1] = 1e6
    worst = findings(balanced(), X, Y).outliers.worst[0]
    assert (worst.row, worst.measured, worst.output) == (chosen[7], 1e6, "b [kg/s]")
    assert worst.x == tuple(X.iloc[chosen[7]])


def test_some_rows_are_different_rows_in_order_spread_over_the_table():
    rows = thinned_rows(1_000_000, 20_000)
    assert len(np.unique(rows)) == 20_000
    assert np.all(np.diff(rows) > 0)
    assert abs(rows.mean() / 1e6 - 0.5) < 0.02  # a standard error is 0.002
    assert np.array_equal(rows, thinned_rows(1_000_000, 20_000))


def test_progress_is_shown_on_request_only(capsys):
    findings(balanced(), *table(), progress=True)
    assert "findings" in capsys.readouterr().err
    findings(balanced(), *table())
    assert capsys.readouterr().err == ""


# --- What is refused --------------------------------------------------------------------------------------------------


def changed(**cells) -> pd.DataFrame:
    Y = table()[1].astype(object)
    for (name, row), value in cells["at"].items():
        Y.loc[row, name] = value
    return Y


@pytest.mark.parametrize(
    ("Y", "message"),
    [
        (changed(at={("b [kg/s]", 3): np.inf}), r"finite numbers.* got inf in column 'b \[kg/s\]', row 3"),
        (changed(at={("top [kg/s]", 2): "off"}), r"must hold numbers.* got 'off' in column 'top \[kg/s\]', row 2"),
        (np.zeros((120, 3)), r"shape \(120, 4\), a row of outputs for each of X, but got shape \(120, 3\)"),
        (table()[1].iloc[:100], r"but got shape \(100, 4\)"),
        (table()[1].rename(columns={"a [kg/s]": "aa [kg/s]"}), r"'a \[kg/s\]' \(did you mean 'aa \[kg/s\]'\?\)"),
    ],
)
def test_outputs_that_cannot_be_judged_are_refused_with_their_place(Y, message):
    with pytest.raises(ValueError, match=message):
        findings(balanced(), table()[0], Y)


def test_another_model_must_predict_the_same_outputs():
    X, Y = table()
    other = eq.ConstrainedBNNRegressor(**SHORT).fit(X[["x", "z"]], Y[["a [kg/s]"]])
    with pytest.raises(
        ValueError, match=r"same outputs, 'a \[kg/s\]', .* in this order, but got 'a \[kg/s\]'\. Fit it"
    ):
        findings(balanced(), X, Y, baseline=other)


def test_a_model_that_predicts_without_its_balances_is_reported_as_one_without():
    X, Y = table()
    model = eq.MethodRegressor(BALANCES, imposition="penalty", penalties=(1.0,), **SHORT).fit(X, Y)
    f = findings(model, X, Y)
    assert (f.residuals, f.tolerances, f.balances) == ((), (), ())
    np.testing.assert_allclose(f.true_var, f.before_var)  # nothing is conditioned
    assert "How far each balance" not in render(report(f, title="penalised"))


def test_findings_cannot_be_changed():
    f = findings(balanced(), *table())
    with pytest.raises(dataclasses.FrozenInstanceError):
        f.n_rows = 3  # type: ignore[misc]
