"""Fits with posterior="laplace", from the table to the prediction."""

import jaxtyping
import numpy as np
import pytest
import torch
from sklearn.linear_model import BayesianRidge

import equipoise as eq
from equipoise.errors import InputError
from equipoise.training.checkpoint import Checkpoint

BALANCE = eq.LinearConstraint.from_equations("total = a + b", inputs=["x"], outputs=["a", "b", "total"])
NOISE = 0.1


def truth(x):
    a, b = 0.8 * np.sin(2 * x), 0.5 * x**2
    return np.column_stack([a, b, a + b])


def table(n=120, seed=0):
    """Rows without any between 0.2 and 0.7, and three sensors of the same accuracy."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.5, 1.5, 4 * n)
    x = x[(x < 0.2) | (x > 0.7)][:n]
    return x[:, None], truth(x) + NOISE * rng.standard_normal((n, 3))


def fitted(X, Y, constraint=BALANCE, hidden=(16,), n_members=2, max_epochs=240, **options):
    model = eq.ConstrainedBNNRegressor(
        constraint, hidden=hidden, posterior=eq.Laplace(n_members), random_state=0, max_epochs=max_epochs, **options
    )
    return model.fit(X, Y)


@pytest.fixture(scope="module")
def model():
    jaxtyping.config.update("jaxtyping_disable", True)  # thousands of steps
    yield fitted(*table())
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("long_training")
def test_intervals_of_the_truth_hold_it_in_the_data_and_in_the_gap_and_are_wider_there(model):
    x = np.linspace(-1.5, 1.5, 121)
    gap, p = (x > 0.25) & (x < 0.65), model.predict_distribution(x[:, None])
    lower, upper = p.interval(0.95)
    covered = (truth(x) >= lower) & (truth(x) <= upper)
    assert covered[~gap].mean() > 0.85
    assert covered[gap].mean() > 0.85
    assert np.sqrt(((p.mean - truth(x))[~gap] ** 2).mean()) < 0.5 * NOISE
    ledger = p.ledger()
    of_means = ledger.epistemic + ledger.shift + ledger.interaction  # Var[μ_C] over draws (D1)
    assert of_means[gap].mean() > 1.5 * of_means[~gap].mean()


@pytest.mark.usefixtures("long_training")
def test_sensors_and_an_exact_law_are_learned_from_the_data(model):
    assert model.sensor_std_["std"].to_numpy() == pytest.approx(3 * [NOISE], rel=0.35)
    assert model.tolerances_["tol_std"].iloc[0] < 0.5 * NOISE
    X, Y = table()
    of_this_table = (Y - truth(X[:, 0])).std(0)
    assert (model.sensor_std_["lower"] < of_this_table).all()
    assert (model.sensor_std_["upper"] > of_this_table).all()
    assert model.tolerances_["tol_std_lower"].iloc[0] < 0.1 * NOISE  # down to where its prior makes it unlikely


@pytest.mark.usefixtures("long_training")
def test_draws_of_weights_levels_tolerances_and_sensors_belong_together_in_predictions(model):
    network, tolerance, sensor = model.model_.network, model.model_.conditioning.tolerance, model.model_.sensor
    draws, kept = model.model_.draw(seed=7, block=9), torch.arange(288, 320) % 256
    for name, q in (("tol_var", tolerance), ("sensor_var", sensor)):
        torch.testing.assert_close(getattr(draws, name)[:, 0], q.at(q.rho[kept]), rtol=0, atol=0)
    torch.testing.assert_close(draws.tol_var_again[:, 0], tolerance.at(tolerance.rho_again[kept]), rtol=0, atol=0)
    levels = network.layers(draws.weights[:, :-1])[-1][1][:, 3:6]
    assert float(levels.std(0).min()) > 0.1


@pytest.mark.usefixtures("long_training")
def test_the_ledger_adds_up_to_the_variance_and_readings_narrow_it(model):
    X, Y = table(30, seed=2)
    p = model.predict_distribution(X)
    ledger = p.ledger()
    np.testing.assert_allclose(ledger.total, p.std**2, rtol=1e-6)
    assert (ledger.tolerance_share >= 0).all()
    log = model.reconcile(X, Y)
    assert np.sqrt(np.mean((log.mean - truth(X[:, 0])) ** 2)) < NOISE
    assert (log.std.mean(0) < NOISE).all()


@pytest.mark.usefixtures("long_training")
def test_all_rows_are_trained_on_and_the_last_state_is_kept(model):
    assert (model.n_rows_, len(model.held_out_), model.history_.best_epoch) == (120, 0, -1)
    assert {record["phase"] for record in model.history_.epochs} == {"misfit", "mode"}


@pytest.mark.usefixtures("long_training")
def test_a_model_file_predicts_the_same_bits(model, tmp_path):
    X, _ = table(20, seed=1)
    model.save(tmp_path / "model.safetensors")
    again = eq.load(tmp_path / "model.safetensors")
    p, q = model.predict_distribution(X), again.predict_distribution(X)
    np.testing.assert_array_equal(p.mean, q.mean)
    np.testing.assert_array_equal(p.sample(300), q.sample(300))
    assert again.posterior == eq.Laplace(2)


@pytest.mark.usefixtures("long_training")
def test_draws_obey_exact_balances_and_unmeasured_outputs_are_inferred():
    X, Y = table()
    Y[::3, 0] = np.nan
    exact = fitted(X, Y, tolerance=0.0, sensor_std=NOISE, max_epochs=80)
    p = exact.predict_distribution(X)
    assert np.abs(p.residual_of_samples(40)).max() < 1e-12
    unmeasured = np.isnan(Y[:, 0])
    error = (p.mean - truth(X[:, 0]))[unmeasured, 0]
    assert np.sqrt((error**2).mean()) < 0.6 * NOISE


@pytest.mark.usefixtures("long_training")
def test_a_network_without_hidden_layers_is_bayesian_linear_regression():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((80, 2))
    y = X @ [1.0, -0.5] + 0.3 + 0.4 * rng.standard_normal(80)
    ours = fitted(X, y, constraint=None, hidden=(), n_members=1, n_draws=256).predict_distribution(X)
    mean, std = BayesianRidge().fit(X, y).predict(X, return_std=True)
    np.testing.assert_allclose(ours.mean[:, 0], mean, atol=0.03)
    np.testing.assert_allclose(ours.std[:, 0], std, rtol=0.06)  # our variance is free to depend on the inputs


@pytest.mark.usefixtures("long_training")
def test_a_run_that_was_killed_continues_to_the_same_bits(tmp_path):
    X, Y = table(40)
    options = {"max_epochs": 16, "hidden": (6,)}
    whole = fitted(X, Y, **options).predict(X)

    def kill(record):
        if record["epoch"] == 11:
            raise KeyboardInterrupt

    estimator = eq.ConstrainedBNNRegressor(
        BALANCE, posterior=eq.Laplace(2), random_state=0, checkpoint=tmp_path / "run", **options
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "save_if_due", lambda self, state: self.save(state()))
        with pytest.raises(KeyboardInterrupt):
            estimator.fit(X, Y, callback=kill)
    np.testing.assert_array_equal(estimator.fit(X, Y).predict(X), whole)


def test_what_a_laplace_posterior_does_not_serve_is_refused():
    X, Y = table(20)
    with pytest.raises(InputError, match="offset must be False"):
        fitted(X, Y, offset=True)
    with pytest.raises(InputError, match="at most 8 outputs, but got 9"):
        fitted(X, np.hstack([Y] * 3), constraint=None)
