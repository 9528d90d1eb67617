"""Scores of a fitted method against what they are defined to be, on a model whose distribution is known."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from equipoise.balances.linear import LinearConstraint
from equipoise.rivals.cases.case import Case, CaseTable, Split
from equipoise.rivals.comparison.scoring import LEVELS, LOWER_IS_BETTER, SCORES, score
from equipoise.rivals.methods.regressor import MethodRegressor

BALANCE = LinearConstraint.from_equations({"sum": "c = a + b"}, inputs=["x"], outputs=["a", "b", "c"])


def table(n, noise, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, n)
    truth = np.stack([x, 2 * x, 3 * x], 1)
    names = ["a", "b", "c"]
    Y = truth + noise * rng.standard_normal(truth.shape)
    return CaseTable(pd.DataFrame({"x": x}), pd.DataFrame(Y, columns=names), pd.DataFrame(truth, columns=names))


def scored(imposition, noise, inference="deterministic"):
    split = Split(table(60, noise, 0), np.arange(48, 60), table(40, 2 * noise, 1))  # noisier than expected
    case = Case("line", "a line", BALANCE, {}, lambda seed: split)
    options = {"hidden": (), "max_epochs": 40, "random_state": 0, "n_draws": 16}
    model = MethodRegressor(BALANCE, inference=inference, imposition=imposition, **options)
    return model.fit(split.fit.X, split.fit.Y, held_out=split.held_out), case, split


def energy_score(mean, std, Y, scale, n=4000):
    """`E‖y − Y‖ − ½ E‖y − y'‖` in units of the scale, by draws of its own."""
    rng = np.random.default_rng(0)
    one, other = (mean + std * rng.standard_normal((n, *mean.shape)) for _ in range(2))
    first, second = (np.linalg.norm(part / scale, axis=-1).mean() for part in (one - Y, one - other))
    return first - 0.5 * second


@pytest.mark.usefixtures("long_training")
def test_what_was_measured_is_scored_with_the_noise_of_its_sensors():
    model, case, split = scored("learned", 0.1, "vi")
    found, Y = score(model, case, split, 0.0), split.test.Y.to_numpy()
    p = model.predict_distribution(split.test.X)
    measured, s = p.measured(), split.fit.Y.to_numpy().std(0)
    assert (np.asarray(measured.std) > 1.005 * np.asarray(p.std)).all()
    assert found["joint_nll"] == pytest.approx(-measured.log_prob(Y).mean(), rel=1e-9)
    lower, upper = map(np.asarray, measured.interval(0.95))
    assert found["coverage"] == pytest.approx(np.mean((lower <= Y) & (upper >= Y)), abs=0.01)
    assert found["width"] == pytest.approx(((upper - lower).mean(0) / s).mean(), rel=1e-3)


@pytest.mark.usefixtures("long_training")
def test_a_value_that_is_missing_makes_no_balance_less_of_a_fact():
    model, case, split = scored("none", 0.0)
    for part in (split.fit, split.test):
        part.Y["c"] = part.Y["a"] + part.Y["b"]
    assert np.isnan(score(model, case, split, 0.0)["joint_nll"])
    split.test.Y.iloc[3, 1] = np.nan
    assert np.isnan(score(model, case, split, 0.0)["joint_nll"])


@pytest.mark.usefixtures("long_training")
def test_scores_of_one_normal_are_those_of_the_normal():
    model, case, split = scored("none", 0.1)
    found = score(model, case, split, 1.5)
    p, Y = model.predict_distribution(split.test.X), split.test.Y.to_numpy()
    mean, std, s = np.asarray(p.mean), np.asarray(p.std), split.fit.Y.to_numpy().std(0)
    z = (Y - mean) / std
    crps = std * (z * (2 * scipy.stats.norm.cdf(z) - 1) + 2 * scipy.stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    inside = np.array([(np.abs(z) <= scipy.stats.norm.ppf(0.5 + level / 2)).mean(0) for level in LEVELS])
    expected = {
        "rmse": (np.sqrt(((mean - Y) ** 2).mean(0)) / s).mean(),
        "rmse_true": (np.sqrt(((mean - split.test.truth.to_numpy()) ** 2).mean(0)) / s).mean(),
        "crps": (crps.mean(0) / s).mean(),
        "joint_nll": -scipy.stats.norm(mean, std).logpdf(Y).sum(1).mean(),
        "energy_score": energy_score(mean, std, Y, s),
        "coverage": inside[-1].mean(),
        "width": (2 * scipy.stats.norm.ppf(0.975) * std.mean(0) / s).mean(),
        "calibration_error": np.abs(inside - np.array(LEVELS)[:, None]).mean(),
        "residual_of_mean": np.abs(mean @ [1, 1, -1]).mean() / np.sqrt((s**2).sum()),
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=0.02 if name == "energy_score" else 1e-5), name
    spread = np.sqrt((std**2).sum(1))
    in_theory = (spread * np.sqrt(2 / np.pi)).mean() / np.sqrt((s**2).sum())
    assert found["residual_of_draws"] == pytest.approx(in_theory, rel=0.1)
    assert found["worst_draw"] > 3 * found["residual_of_draws"]
    assert (found["fit_seconds"], found["parameters"]) == (1.5, 12)
    assert set(found) == set(SCORES)
    assert set(LOWER_IS_BETTER) < set(SCORES)


@pytest.mark.usefixtures("long_training")
@pytest.mark.parametrize(
    ("imposition", "noise", "has_density"),
    [("none", 0.1, True), ("projection", 0.1, False), ("projection", 0.0, True), ("none", 0.0, False)],
)
def test_densities_are_compared_only_where_rows_and_draws_live_in_the_same_space(imposition, noise, has_density):
    model, case, split = scored(imposition, noise)
    if noise == 0.0:  # to the last bit
        for part in (split.fit, split.test):
            part.Y["c"] = part.Y["a"] + part.Y["b"]
    assert np.isfinite(score(model, case, split, 0.0)["joint_nll"]) == has_density
