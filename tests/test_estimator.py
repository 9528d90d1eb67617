"""The estimator: scikit-learn's contract, frames in kind, messages, and what it learns where the truth is known."""

import math
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn.exceptions
import torch
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import equipoise as eq
from equipoise.errors import InputError, InputTypeError

pytestmark = pytest.mark.usefixtures("long_training")
SMALL = {"hidden": (8,), "max_epochs": 12, "n_draws": 32, "random_state": 0}
SUM = eq.LinearConstraint.from_equations(
    {"sum": "total = a + b"}, inputs=["x", "z"], outputs=["a [kg]", "b [kg]", "total [kg]"]
)


def table(n=700, seed=0, tol_std=0.0, sensor_std=0.05, bias=0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, true outputs with total = a + b + bias + N(0, tol_std²), and what sensors show of them."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, 2))
    a, b = np.sin(x[:, 0]), 0.5 * x[:, 0] * x[:, 1]
    truth = np.stack([a, b, a + b + bias + tol_std * rng.normal(size=n)], 1)
    return x, truth, truth + sensor_std * rng.normal(size=truth.shape)


def fit(X, Y, constraint=SUM, **options):
    options = {"hidden": (16,), "activation": "tanh", "max_epochs": 150, "random_state": 0} | options
    options.setdefault("training", eq.TrainingPlan(batch_size=128, learning_rate=1e-2))
    return eq.ConstrainedBNNRegressor(constraint, **options).fit(X, Y)


QUICK = eq.ConstrainedBNNRegressor(
    hidden=(16,), max_epochs=30, n_draws=8, random_state=0, training=eq.TrainingPlan(batch_size=256)
)


@pytest.mark.global_random_numbers  # scikit-learn's checks shuffle rows by numpy's
@parametrize_with_checks([QUICK])
def test_scikit_learns_estimator_contract(estimator, check):
    check(estimator)


# ---------------------------------------------------------------- what is learned, where the truth is known


def test_a_tolerance_is_recovered_when_the_sensors_are_known():
    X, _, Y = table(tol_std=0.2)
    balance = fit(X, Y, sensor_std=[0.05] * 3).tolerances_.loc["sum"]
    assert balance.tol_std_lower < 0.2 < balance.tol_std_upper
    assert balance.tol_std_upper < 0.25
    assert balance.tol_std_lower > 0.16
    assert balance.verdict == "informed"
    assert balance.separable
    assert balance.unit == "kg"
    assert not balance.biased


def test_sensor_noise_is_recovered_when_the_law_is_exact():
    X, _, Y = table()
    model = fit(X, Y, tolerance=0)
    assert np.all(np.abs(model.sensor_std_["std"] / 0.05 - 1) < 0.10)
    assert list(model.sensor_std_["kind"]) == ["learned"] * 3
    assert model.tolerances_.loc["sum"].verdict == "exact"


def test_noise_that_depends_on_the_inputs_is_the_sensors_and_not_the_truths():
    X, truth, _ = table(1200)
    noise_std = 0.06 * np.exp(0.6 * X[:, :1])
    Y = truth + noise_std * np.random.default_rng(5).normal(size=truth.shape)
    p = fit(X, Y, tolerance=0, max_epochs=90).predict_distribution(X)
    learned = np.sqrt(p.measured().ledger().sensor)
    quiet, loud = X[:, 0] < -1.4, X[:, 0] > 1.4
    for rows in (quiet, loud):
        np.testing.assert_allclose(learned[rows].mean(0), noise_std[rows].mean(), rtol=0.35)
    assert (np.asarray(p.std)[loud].mean(0) < 0.5 * noise_std[loud].mean()).all()


def test_with_both_learned_only_their_sum_is_promised_and_the_label_says_so():
    X, _, Y = table(tol_std=0.1)
    balance = fit(X, Y).tolerances_.loc["sum"]
    assert not balance.separable
    assert balance.informed
    assert balance.verdict == "not separable from sensor noise"
    assert "not separable from sensor noise" in balance.note
    assert balance.noise_std == pytest.approx(math.sqrt(0.1**2 + 3 * 0.05**2), rel=0.15)


def test_a_biased_balance_is_labelled_its_offset_found_and_the_prediction_unharmed():
    X, _, Y = table(bias=1.0)  # 20 standard deviations of a sensor
    X_test, truth, _ = table(500, seed=9, bias=1.0)
    biased, plain = (fit(X, Y, constraint=constraint, max_epochs=150) for constraint in (SUM, None))
    offset = fit(X, Y, offset=True, max_epochs=80)
    assert biased.tolerances_.loc["sum"].biased
    assert "biased by" in biased.tolerances_.loc["sum"].note
    assert "kg" in biased.tolerances_.loc["sum"].note
    found = offset.tolerances_.loc["sum"]
    assert abs(found.offset - 1.0) < 1.96 * found.offset_std < 0.2
    squares = [((model.predict(X_test) - truth) ** 2).mean(1) for model in (biased, plain)]
    difference = squares[0] - squares[1]
    rmse = [math.sqrt(s.mean()) for s in squares]
    se = difference.std() / math.sqrt(len(difference))
    assert rmse[0] < 1.25 * rmse[1] or difference.mean() < 3 * se
    assert rmse[0] < 0.05  # below one sensor's noise, while the bias is 1


def test_a_tolerance_the_data_do_not_inform_keeps_its_prior_and_says_so():
    """The paper's prior in a unit so small that r ≈ 0.14 is nothing beside the outputs' own variance."""
    X, _, Y = table(400)
    model = fit(X, 1e6 * Y, likelihood="marginal", tolerance=eq.TolerancePrior.paper(), max_epochs=60)
    balance = model.tolerances_.loc["sum"]
    assert balance.verdict == "not informed by the data"
    assert balance.mu_rho == pytest.approx(-2.0, abs=0.1)
    assert balance.sigma_rho == pytest.approx(1.0, abs=0.05)
    assert balance.kl < 0.1
    assert balance.information < 1.0


def test_started_at_their_prior_and_left_there_tolerances_and_sensors_are_the_priors():
    """At rate 0 nothing moves: what is reported is what training starts from, the paper's N(−2, 1) in the own unit."""
    X, _, Y = table(200, tol_std=0.2)
    still = {"tolerance": eq.TolerancePrior.paper(), "training": eq.TrainingPlan(learning_rate=0.0), "max_epochs": 2}
    model = fit(X, Y, start="prior", **still)
    balance = model.tolerances_.loc["sum"]
    assert (balance.mu_rho, balance.sigma_rho, balance.kl) == pytest.approx((-2.0, 1.0, 0.0), abs=1e-12)
    assert np.allclose(model.model_.sensor.kl_terms().detach(), 0.0)
    assert fit(X, Y, **still).tolerances_.loc["sum"].kl > 0.1


def test_the_papers_training_has_one_phase_and_minimises_the_whole_bound():
    X, _, Y = table(100)
    plan = eq.TrainingPlan(mean_epochs=4, noise_epochs=2, kl_warmup=0.5, temperature=0.5, learning_rate=0.004)
    model = fit(X, Y, start="prior", training=plan, max_epochs=8)
    assert [record["phase"] for record in model.history_.epochs] == 8 * ["elbo"]
    assert (model.plan_.temperature, model.plan_.kl_warmup, model.plan_.learning_rate) == (1.0, 0.0, 0.004)
    assert model.get_params()["training"] == plan  # what the user passed is kept


def test_data_that_obey_to_rounding_make_the_balance_exact():
    X, truth, _ = table(200)
    truth[:, 2] = truth[:, 0] + truth[:, 1]
    model = fit(X, truth, max_epochs=20)
    assert model.tolerances_.loc["sum"].kind == "exact to rounding"
    draws = model.sample_y(X, 50)
    residual = np.abs(SUM.residual(X, draws))
    assert np.all(residual <= 1e-9 * SUM.magnitude(X, draws))
    assert np.isfinite(model.predict_distribution(X).log_prob(truth)).all()


@pytest.mark.parametrize("likelihood", ["joint", "marginal"])
def test_outputs_that_were_not_measured_are_inferred_through_the_balance(likelihood):
    X, truth, Y = table(600)
    Y[::2, 1] = np.nan
    model = fit(X, Y, tolerance=0, likelihood=likelihood, max_epochs=120)
    rmse = math.sqrt(((model.predict(X) - truth)[::2, 1] ** 2).mean())
    assert rmse < 0.15 * truth[:, 1].std()


# ---------------------------------------------------------------- the face


def test_the_same_seed_gives_the_same_bits_after_clone_and_pickle():
    X, _, Y = table(80)
    model = eq.ConstrainedBNNRegressor(SUM, **SMALL).fit(X, Y)
    again = clone(model).fit(X, Y)
    copy = pickle.loads(pickle.dumps(model))
    expected = model.predict(X, return_std=True)
    for other in (again, copy):
        assert all(np.array_equal(a, b) for a, b in zip(expected, other.predict(X, return_std=True), strict=True))
    assert np.array_equal(model.sample_y(X, 40), copy.sample_y(X, 40))


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    X, _, Y = table(80)
    return pd.DataFrame(
        np.hstack([Y, X]), columns=["a [kg]", "b [kg]", "total [kg]", "x", "z"], index=np.arange(80) + 7
    )


@pytest.fixture(scope="module")
def fitted(frame) -> eq.ConstrainedBNNRegressor:
    return eq.ConstrainedBNNRegressor(SUM, **SMALL).fit(frame, frame)


def test_frames_come_back_in_kind_with_names_and_index(fitted, frame):
    mean = fitted.predict(frame)
    assert isinstance(mean, pd.DataFrame)
    assert list(mean.columns) == ["a [kg]", "b [kg]", "total [kg]"]
    assert mean.index.equals(frame.index)
    lower, upper = fitted.predict_interval(pl.from_pandas(frame), 0.5)
    assert isinstance(lower, pl.DataFrame)
    assert lower.columns == list(mean.columns)
    assert (lower.to_numpy() < mean.to_numpy()).all()
    assert (mean.to_numpy() < upper.to_numpy()).all()
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        assert isinstance(fitted.predict(frame[["x", "z"]].to_numpy()), np.ndarray)


def test_columns_are_matched_by_name_whatever_their_order(fitted, frame):
    shuffled = frame[["total [kg]", "z", "b [kg]", "x", "a [kg]"]]
    assert np.array_equal(fitted.predict(shuffled), fitted.predict(frame))


def test_known_columns_enter_the_balance_and_not_the_network():
    X, _, Y = table(80)
    feed = np.random.default_rng(1).normal(size=80)
    constraint = eq.LinearConstraint.from_equations(
        "total = a + b + feed", inputs=["x", "z"], outputs=["a", "b", "total"], known=["feed"]
    )
    Y[:, 2] += feed
    model = eq.ConstrainedBNNRegressor(constraint, tolerance=0, **SMALL).fit(np.column_stack([X, feed]), Y)
    assert model.model_.network.sizes[0] == 2
    draws = model.sample_y(np.column_stack([X, feed]), 20)
    assert np.abs(draws[..., 2] - draws[..., 0] - draws[..., 1] - feed).max() < 1e-9
    changed = model.predict(np.column_stack([X, feed + 1.0])) - model.predict(np.column_stack([X, feed]))
    assert np.allclose(changed @ [-1, -1, 1], 1.0)


def test_a_constraint_without_inputs_takes_whatever_inputs_there_are():
    X, _, Y = table(80)
    model = eq.ConstrainedBNNRegressor(eq.LinearConstraint([[-1, -1, 1]]), tolerance=0, **SMALL).fit(X, Y)
    assert np.abs(model.sample_y(X, 5) @ [-1, -1, 1]).max() < 1e-9


def test_predictions_do_not_depend_on_units():
    """The same data in other units is the same model: constraint, tolerances and sensors change with them."""
    X, _, Y = table(150, tol_std=0.1)
    unit = np.array([1e3, 1e3, 1e3])
    one = eq.ConstrainedBNNRegressor(SUM, **SMALL).fit(X, Y)
    other = eq.ConstrainedBNNRegressor(SUM, **SMALL).fit(X, Y * unit)
    assert np.allclose(other.predict(X), one.predict(X) * unit, rtol=1e-3, atol=1e-2)
    assert other.tolerances_.tol_std.iloc[0] == pytest.approx(1e3 * one.tolerances_.tol_std.iloc[0], rel=1e-3)
    assert np.allclose(other.sensor_std_["std"], one.sensor_std_["std"] * unit, rtol=1e-3)


def test_score_is_r2_over_what_was_measured(fitted, frame):
    Y = frame[["a [kg]", "b [kg]", "total [kg]"]].to_numpy(copy=True)
    mean = fitted.predict(frame).to_numpy()
    assert fitted.score(frame, Y) == pytest.approx(r2_score(Y, mean))
    Y[:10, 0] = np.nan
    expected = np.mean([r2_score(Y[10:, 0], mean[10:, 0]), r2_score(Y[:, 1:], mean[:, 1:])] * np.array([1, 2])) * 2 / 3
    assert fitted.score(frame, Y) == pytest.approx(expected)


def test_a_single_output_gives_one_dimensional_results():
    X, _, Y = table(60)
    model = eq.ConstrainedBNNRegressor(**SMALL).fit(X, Y[:, 0])
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (60,)
    assert model.sample_y(X, 3).shape == (3, 60)
    assert isinstance(model.fit(pd.DataFrame(X), pd.Series(Y[:, 0], name="a")).predict(pd.DataFrame(X)), pd.Series)


def test_a_constant_output_is_predicted_as_the_constant():
    X, _, Y = table(60)
    Y[:, 1] = 273.15
    model = eq.ConstrainedBNNRegressor(**SMALL).fit(X, Y)
    assert np.allclose(model.predict(X)[:, 1], 273.15, rtol=1e-5)


def test_training_continues_from_a_checkpoint_to_the_same_model(tmp_path):
    X, _, Y = table(80)
    file = tmp_path / "fit.ckpt"
    first = eq.ConstrainedBNNRegressor(SUM, checkpoint=file, **SMALL).fit(X, Y)
    again = eq.ConstrainedBNNRegressor(SUM, checkpoint=file, **SMALL).fit(X, Y)
    assert np.array_equal(first.predict(X), again.predict(X))
    with pytest.raises(eq.TrainingError, match="belongs to another run"):
        eq.ConstrainedBNNRegressor(SUM, checkpoint=file, **SMALL).fit(X, Y + 1.0)


def test_given_sensors_per_row_weigh_rows_by_their_noise():
    """Half the rows are useless for output a; where their sensors say so, the fit is that of the good half."""
    X, truth, Y = table(300)
    std = np.full(Y.shape, 0.05)
    std[::2, 0] = 5.0
    Y[::2, 0] += 5.0 * np.random.default_rng(3).normal(size=150)
    constraint = eq.LinearConstraint([[0, 1, 1]], b=[0], outputs=["a", "b", "c"])  # a stands alone
    Y[:, 2] = -Y[:, 1]
    weighed = fit(X, Y, constraint, sensor_std=std, tolerance=0.05, max_epochs=90)
    blind = fit(X, Y, constraint, sensor_std=None, tolerance=0.05, max_epochs=90)
    errors = [math.sqrt(((m.predict(X) - truth)[:, 0] ** 2).mean()) for m in (weighed, blind)]
    assert errors[0] < 0.7 * errors[1]  # 0.15 against 0.26
    assert list(weighed.sensor_std_["kind"]) == ["given per row"] * 3
    with pytest.raises(ValueError, match="given per training row"):
        weighed.predict_distribution(X).measured()


# ---------------------------------------------------------------- messages

BAD_PARAMETERS = [
    ({"constraint": "a = b"}, TypeError, "constraint must be a LinearConstraint or None, but got str"),
    ({"likelihood": "both"}, ValueError, "likelihood must be one of 'joint', 'marginal', but got 'both'"),
    ({"activation": "sin"}, ValueError, "activation must be one of 'silu'"),
    ({"sensor_std": "auto"}, ValueError, "sensor_std as text must be 'learn', but got 'auto'"),
    ({"sensor_std": {"c": 1.0}}, ValueError, "sensor_std names outputs, but got 'c'. The outputs are 'a"),
    ({"sensor_std": {"a [kg]": -1.0}}, ValueError, r"sensor_std of 'a \[kg\]' must be a number ≥ 0 or 'learn'"),
    ({"sensor_std": [1.0, 2.0]}, ValueError, r"sensor_std must have shape \(3,\), one per output"),
    ({"sensor_std": [1.0, 2.0, math.nan]}, ValueError, "sensor_std must hold finite standard deviations"),
    ({"sensor_std": [0.1] * 3, "likelihood": "marginal"}, ValueError, "takes what was measured for the truth"),
    ({"tolerance": {"sums": 0}}, ValueError, "tolerance names the balances it applies to, but got 'sums'.*'sum'"),
    ({"tolerance": -1.0}, ValueError, "tolerance of balance 'sum' must be None, 0, a positive"),
    ({"tolerance": 0, "sensor_std": None}, ValueError, r"'sum' is exact .* the data miss it by up to .* kg"),
    ({"start": "ahead"}, InputError, "start must be one of 'residuals', 'prior', but got 'ahead'"),
    ({"start": ["prior"]}, InputError, "start must be one of 'residuals', 'prior', but got"),
    (
        {"start": "prior", "posterior": "laplace"},
        InputError,
        "start must be 'residuals' with posterior='laplace', but got 'prior'. Use posterior='mean-field'",
    ),
    ({"device": "abacus"}, InputError, "device must be one that torch can use here, but got 'abacus'"),
    ({"training": 3}, InputTypeError, "training must be a TrainingPlan or None, but got int"),
    ({"hidden": 8}, ValueError, "hidden must hold positive whole numbers, but got 8"),
    ({"validation_fraction": None}, ValueError, r"validation_fraction must be in \[0, 1\), but got None"),
    ({"hidden": (0,)}, ValueError, r"hidden must hold positive whole numbers, but got \(0,\)"),
    ({"n_draws": 0}, ValueError, "n_draws must be a whole number of at least 1, but got 0"),
    ({"max_epochs": 1.5}, ValueError, "max_epochs must be a whole number of at least 1, but got 1.5"),
    ({"prior_std": 0}, ValueError, "prior_std must be a positive number, but got 0"),
    ({"validation_fraction": 1.0}, ValueError, r"validation_fraction must be in \[0, 1\), but got 1.0"),
]


@pytest.mark.parametrize(("options", "error", "message"), BAD_PARAMETERS)
def test_a_bad_parameter_is_named_with_its_value(options, error, message):
    X, _, Y = table(40)
    model = eq.ConstrainedBNNRegressor(**({"constraint": SUM} | SMALL | options))
    with pytest.raises(error, match=message):
        model.fit(X, Y)


def test_bad_data_are_named(frame):
    X, _, Y = table(40)
    model = eq.ConstrainedBNNRegressor(SUM, **SMALL)
    with pytest.raises(ValueError, match=r"y must have one column per output of the balances \('a \[kg\]'"):
        model.fit(X, Y[:, :2])
    with pytest.raises(ValueError, match=r"X must have one column for each input .*'x', 'z'"):
        model.fit(X[:, :1], Y)
    with pytest.raises(ValueError, match="every column that the balances name, but got none called 'z'"):
        model.fit(frame.drop(columns="z"), frame)
    with pytest.raises(ValueError, match=r"got none called 'total \[kg\]' \(did you mean 'totals \[kg\]'\?\)"):
        model.fit(frame, frame.rename(columns={"total [kg]": "totals [kg]"}))
    with pytest.raises(ValueError, match=r"X must hold finite numbers only, but got NaN in column '[xz]', row"):
        model.fit(np.where(X > 1.9, np.nan, X), Y)
    Y[:, 1] = np.nan
    with pytest.raises(ValueError, match=r"at least that are trained on, but got 0 for 'b \[kg\]'"):
        model.fit(X, Y)


UNUSABLE = {
    "NaN in X": lambda X, Y: (np.where(X > 1.9, np.nan, X), Y),
    "infinity in X": lambda X, Y: (np.where(X > 1.9, np.inf, X), Y),
    "infinity in Y": lambda X, Y: (X, np.where(Y > 1.9, -np.inf, Y)),
    "a vector for X": lambda X, Y: (X[:, 0], Y),
    "three axes": lambda X, Y: (X[:, :, None], Y),
    "unequal lengths": lambda X, Y: (X[:-1], Y),
    "two rows": lambda X, Y: (X[:2], Y[:2]),
    "one input": lambda X, Y: (X[:, :1], Y),
    "complex numbers": lambda X, Y: (X + 0j, Y),
    "text": lambda X, Y: (X.astype(str), np.full(Y.shape, "a")),
    "no table": lambda X, Y: (3.0, Y),
}


@pytest.mark.parametrize("change", UNUSABLE.values(), ids=UNUSABLE)
def test_every_table_that_cannot_be_used_is_refused_by_an_error_of_the_library(change):
    X, _, Y = table(40)
    model = eq.ConstrainedBNNRegressor(SUM, **SMALL)
    with pytest.raises(InputError):
        model.fit(*change(X, Y))


@pytest.mark.parametrize("parameters", [{"random_state": "seven"}, {"random_state": -1}])
def test_a_seed_that_cannot_be_used_is_refused_by_an_error_of_the_library(parameters):
    X, _, Y = table(40)
    with pytest.raises(InputError, match="eed"):
        eq.ConstrainedBNNRegressor(SUM, **SMALL | parameters).fit(X, Y)


def test_every_table_that_does_not_fit_the_model_is_refused_by_an_error_of_the_library():
    X, _, Y = table(40)
    fitted = eq.ConstrainedBNNRegressor(SUM, **SMALL | {"max_epochs": 1}).fit(X, Y)
    for inputs in (X[:, :1], X[0], np.where(X > 1.9, np.nan, X), "text"):
        with pytest.raises(eq.EquipoiseError):
            fitted.predict(inputs)
    for arguments in ((X, Y[:-1]), (X, Y[:, :2]), (X, Y, np.ones(3)), (X, np.full(Y.shape, np.inf))):
        with pytest.raises(eq.EquipoiseError):
            fitted.score(*arguments)


def test_an_unfitted_model_is_refused_by_an_error_of_the_library_and_of_scikit_learn():
    X, _, _ = table(40)
    model = eq.ConstrainedBNNRegressor(SUM, **SMALL)
    for ask in (model.predict, model.predict_distribution, model.extrapolates):
        with pytest.raises(eq.EquipoiseError, match="not fitted yet") as caught:
            ask(X)
        assert isinstance(caught.value, sklearn.exceptions.NotFittedError)


def test_a_value_that_is_no_number_is_named_with_its_column_and_row(frame):
    model = eq.ConstrainedBNNRegressor(SUM, **SMALL)
    text = frame.astype(object)
    text.iloc[3, 4] = "Bad"
    with pytest.raises(ValueError, match="X must hold finite numbers only, but got 'Bad' in column 'z', row 3"):
        model.fit(text, frame)
    text = frame.astype(object)
    text.iloc[2, 0] = "No Data"
    with pytest.raises(ValueError, match=r"y must hold numbers.*got 'No Data' in column 'a \[kg\]', row 2"):
        model.fit(frame, text)


def test_printing_is_short(fitted, frame):
    p = fitted.predict_distribution(frame)
    assert repr(p) == "Predictive(80 rows of a [kg], b [kg], total [kg]; true values, 32 draws)"
    assert "aleatoric" in repr(p.ledger())
    assert len(repr(p.ledger()).splitlines()) < 20


def test_the_device_is_where_the_model_lives():
    X, _, Y = table(40)
    model = eq.ConstrainedBNNRegressor(SUM, device=torch.device("cpu"), **SMALL).fit(X, Y)
    assert {p.device.type for p in model.model_.parameters()} == {"cpu"}


# ---------------------------------------------------------------- corners


@pytest.mark.parametrize("offset", [False, True])
def test_exact_data_with_missing_outputs_train_and_have_a_density(offset):
    X, truth, _ = table(60)
    truth[:, 2] = truth[:, 0] + truth[:, 1]
    truth[np.random.default_rng(0).random(truth.shape) < 0.3] = np.nan
    model = eq.ConstrainedBNNRegressor(SUM, offset=offset, **SMALL).fit(X, truth)
    assert model.tolerances_.loc["sum"].kind == "exact to rounding"
    assert model.tolerances_.loc["sum"].offset == 0.0
    assert np.isfinite(model.predict_distribution(X).log_prob(truth)).all()


@pytest.mark.parametrize(
    "change", [{"activation": "tanh"}, {"prior_std": 0.1}, {"likelihood": "marginal"}, {"start": "prior"}]
)
def test_a_checkpoint_of_another_model_is_refused(tmp_path, change):
    X, _, Y = table(40)
    options = {"sensor_std": None, "checkpoint": tmp_path / "fit.ckpt"} | SMALL
    eq.ConstrainedBNNRegressor(SUM, **options).fit(X, Y)
    with pytest.raises(eq.TrainingError, match="belongs to another run"):
        eq.ConstrainedBNNRegressor(SUM, **(options | change)).fit(X, Y)


def test_a_constant_input_that_changes_later_does_not_explode():
    X, _, Y = table(60)
    constant = np.full((60, 1), 300.0)
    model = eq.ConstrainedBNNRegressor(**SMALL).fit(np.hstack([X, constant]), Y)
    before, after = (model.predict(np.hstack([X, constant + change])) for change in (0.0, 0.3))
    assert np.abs(after - before).max() < 0.05


def test_outputs_are_matched_by_name_wherever_frames_are_taken(fitted, frame):
    p = fitted.predict_distribution(frame)
    names = ["total [kg]", "a [kg]", "b [kg]"]
    assert np.array_equal(p.log_prob(frame), p.log_prob(frame[names]))
    std = pd.Series({"total [kg]": 0.3, "a [kg]": 0.1, "b [kg]": 0.2})
    model = eq.ConstrainedBNNRegressor(SUM, sensor_std=std, **SMALL).fit(frame, frame)
    assert np.allclose(model.sensor_std_["std"], [0.1, 0.2, 0.3])
    plain = eq.ConstrainedBNNRegressor(**SMALL).fit(frame[["x", "z"]], frame[names])
    assert plain.score(frame[["x", "z"]], frame[names[::-1]]) == plain.score(frame[["x", "z"]], frame[names])


def test_column_labels_that_are_numbers_come_back_as_they_were():
    X, _, Y = table(40)
    model = eq.ConstrainedBNNRegressor(**SMALL).fit(pd.DataFrame(X), pd.DataFrame(Y))
    assert list(model.predict(pd.DataFrame(X)).columns) == [0, 1, 2]


def test_a_predictive_distribution_can_be_sent_to_another_process(fitted, frame):
    p = fitted.predict_distribution(frame)
    assert pickle.loads(pickle.dumps(p)).mean.equals(p.mean)


def test_outputs_that_were_not_measured_do_not_spoil_the_score(fitted, frame):
    Y = frame[["a [kg]", "b [kg]", "total [kg]"]].to_numpy(copy=True)
    Y[:, 0] = np.nan
    assert fitted.score(frame, Y) == pytest.approx(r2_score(Y[:, 1:], fitted.predict(frame).to_numpy()[:, 1:]))
    with pytest.raises(ValueError, match="measured in 2 rows at least"):
        fitted.score(frame, np.full_like(Y, np.nan))


def test_a_ledgers_baseline_must_be_of_the_same_rows(fitted, frame):
    p = fitted.predict_distribution(frame)
    assert np.array_equal(p.ledger(baseline=p).baseline, np.asarray(p.var))
    with pytest.raises(ValueError, match="must predict the same rows and outputs"):
        p.ledger(baseline=fitted.predict_distribution(frame[:5]))


def test_the_rows_that_are_held_out_can_be_chosen(frame):
    X, Y = frame[["x", "z"]], frame[list(SUM.outputs)]
    held_out = np.arange(0, len(X), 4)
    model = eq.ConstrainedBNNRegressor(SUM, **SMALL).fit(X, Y, held_out=held_out)
    rest = np.setdiff1d(np.arange(len(X)), held_out)
    np.testing.assert_allclose(model.standardizer_.y_mean, np.asarray(Y)[rest].mean(0), rtol=1e-12)


def test_rows_that_cannot_be_held_out_are_refused(frame):
    X, Y = frame[["x", "z"]], frame[list(SUM.outputs)]
    with pytest.raises(ValueError, match="held_out must hold positions of rows"):
        eq.ConstrainedBNNRegressor(SUM, **SMALL).fit(X, Y, held_out=[10**6])


def test_an_output_measured_only_in_rows_held_out_is_named(frame):
    X, Y = frame[["x", "z"]], frame[list(SUM.outputs)]
    Y = Y.copy()
    Y.iloc[5:, 1] = np.nan
    with pytest.raises(ValueError, match=r"3 rows at least that are trained on, but got 0 for 'b \[kg\]'"):
        eq.ConstrainedBNNRegressor(SUM, **SMALL).fit(X, Y, held_out=range(5))


def test_a_callback_follows_the_epochs(frame):
    seen = []
    model = eq.ConstrainedBNNRegressor(SUM, **SMALL).fit(
        frame[["x", "z"]], frame[list(SUM.outputs)], callback=seen.append
    )
    assert [record["epoch"] for record in seen] == list(range(SMALL["max_epochs"]))
    assert seen == model.history_.epochs


@pytest.mark.parametrize(("named", "column"), [(True, "load"), (False, "x1")])
def test_an_input_that_single_precision_cannot_hold_is_named(named, column):
    X = np.random.default_rng(0).normal(size=(30, 2))
    far = X[:4].copy()
    far[2, 1] = -1e39
    if named:
        X, far = (pd.DataFrame(data, columns=["speed", "load"]) for data in (X, far))
    model = eq.ConstrainedBNNRegressor(hidden=(2,), max_epochs=2, n_draws=2, random_state=0).fit(X, np.asarray(X)[:, 0])
    with pytest.raises(ValueError, match=rf"within 1e\+30 standard .* but got -1e\+39 in column '{column}', row 2\."):
        model.predict_distribution(far)


def test_rows_without_a_measurement_are_not_held_out():
    X, _, Y = table(40)
    Y[:30] = np.nan
    model = eq.ConstrainedBNNRegressor(**(SMALL | {"validation_fraction": 0.5})).fit(X, Y)
    assert len(model.held_out_) == 5
    assert model.held_out_.min() >= 30
    assert min(model.history_.column("validation")) != 0.0


def test_it_knows_which_rows_lie_beyond_those_trained_on(tmp_path):
    x = np.linspace(0, 1, 40)[:, None]
    model = eq.ConstrainedBNNRegressor(hidden=(4,), max_epochs=3, random_state=0).fit(x, x)
    new = np.array([[0.5], [1.2], [-0.2], [1.01]])
    assert model.extrapolates(new).tolist() == [False, True, True, False]
    model.save(tmp_path / "model.safetensors")
    assert eq.load(tmp_path / "model.safetensors").extrapolates(new).tolist() == [False, True, True, False]
