"""An equality of another kind, brought from outside the package, goes through all of it: B differs from row to row."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from outside import ComponentBalance, LaplaceNoise, Power, RowByRow, SquaredTarget
from scipy import integrate, stats

import equipoise as eq
from equipoise.app.report import findings, report
from equipoise.app.report.page import render
from equipoise.data.scaling import Standardizer

RNG = np.random.default_rng(0)
N, NOISE = 200, np.array([0.05, 0.1, 0.01])


def column_data():
    """Feed, its composition and those measured in both products; the outputs obey both balances."""
    feed, z = RNG.uniform(5, 10, N), RNG.uniform(0.3, 0.6, N)
    x_top, x_bottom = RNG.uniform(0.7, 0.95, N), RNG.uniform(0.05, 0.2, N)
    loss = 0.5 + 0.1 * np.sin(feed)
    top = (z * feed - x_bottom * (feed - loss)) / (x_top - x_bottom)
    return np.column_stack([feed, z, x_top, x_bottom]), np.column_stack([top, feed - loss - top, loss])


X, TRUE = column_data()
Y = TRUE + NOISE * RNG.normal(size=TRUE.shape)


def fitted(constraint, X=X, Y=Y, **parameters):
    options = {"hidden": (6,), "max_epochs": 20, "n_draws": 40, "random_state": 0} | parameters
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eq.ConstrainedBNNRegressor(constraint, **options).fit(X, Y)


@pytest.fixture(scope="module", params=[True, False], ids=["coupled", "one balance"])
def exact(request):
    return fitted(ComponentBalance(mass=request.param), tolerance=0)


@pytest.fixture(scope="module")
def learned():
    return fitted(ComponentBalance(), tolerance={"component": None, "mass": 0.02})


def by_hand(row):
    """The coefficients of a row and its targets, written down once more."""
    feed, z, x_top, x_bottom = row
    return np.array([[1.0, 1.0, 1.0], [x_top, x_bottom, 0.0]]), np.array([feed, z * feed])


def dense(mean, cov, B, target, tol_var):
    """The textbook's conditioned Gaussian, for one row and draw, with the pseudo-inverse of S."""
    S = B @ cov @ B.T + np.diag(tol_var)
    K = cov @ B.T @ np.linalg.pinv(S, hermitian=True)
    return mean + K @ (target - B @ mean), cov - K @ S @ K.T


# --- The class --------------------------------------------------------------------------------------------------------


def test_residual_and_magnitude_are_those_of_each_row_by_hand():
    equality = ComponentBalance()
    for i in range(5):
        (B, target), y = by_hand(X[i]), Y[i]
        np.testing.assert_allclose(equality.residual(X[i], y), B @ y - target, atol=1e-14)
        np.testing.assert_allclose(equality.residual(X, Y)[i], B @ y - target, atol=1e-14)
        np.testing.assert_allclose(equality.magnitude(X[i], y), np.abs(B) @ np.abs(y) + np.abs(target), rtol=1e-14)


def test_the_scale_takes_root_mean_squares_over_rows_and_asks_for_them():
    std = np.array([1.0, 2.0, 3.0])
    squares = [(by_hand(row)[0] ** 2) @ std**2 for row in X]
    np.testing.assert_allclose(ComponentBalance().scale(std, X), np.sqrt(np.mean(squares, 0)), rtol=1e-12)
    with pytest.raises(eq.ConstraintError, match=r"as those of 'mass' and 'component', but got X=None. Pass X\."):
        ComponentBalance().scale(std)


def test_one_B_of_an_equality_that_does_not_say_so_counts_for_every_row():
    class OneB(RowByRow):
        def linearise(self, X, Y=None):
            return self.linear.B, self.linear.target(X)

    for result in ("residual", "magnitude"):
        ours, expected = (getattr(kind(LINEAR), result)(X, Y) for kind in (OneB, RowByRow))
        np.testing.assert_allclose(ours, expected, rtol=1e-14)
    for ours, expected in zip(
        *(Standardizer.fit(X, Y, kind(LINEAR)).linearise(X) for kind in (OneB, RowByRow)), strict=True
    ):
        np.testing.assert_allclose(ours, expected, rtol=1e-12)


def test_an_equality_is_shown_with_its_columns_and_balances():
    assert repr(ComponentBalance(mass=False)).splitlines() == [
        "ComponentBalance(1 balance, 2 inputs, 2 known, 3 outputs)",
        "  'component' [kg/h]: z*feed = x_top*top + x_bottom*bottom",
    ]


def test_a_nonlinear_residual_is_the_equation_itself_in_every_draw():
    draws = 1.0 + RNG.random((3, 4, 3))
    P, V, I = np.moveaxis(draws, -1, 0)  # noqa: E741
    np.testing.assert_allclose(Power().residual(np.ones((4, 1)), draws)[..., 0], P - V * I, atol=1e-14)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"names": ["a", "a"], "outputs": ["y"]}, "balances with different names, but got balances 'a' and 'a'"),
        ({"names": ["a"], "outputs": []}, "An equality must have outputs"),
        ({"names": ["a"], "outputs": ["y"], "inputs": ["y"]}, "'y' in inputs and in outputs"),
        ({"names": ["a"], "outputs": ["y"], "units": ["W", "W"]}, "units must hold one text for each of 'a'"),
        ({"names": ["a"], "outputs": ["y"], "units": "W"}, "units must hold one text for each of 'a', but got 'W'"),
        ({"names": ["a"], "outputs": ["y"], "equations": []}, "equations must hold one text for each of 'a'"),
    ],
)
def test_names_that_do_not_fit_are_refused(arguments, message):
    class Empty(eq.Equality):
        name = "empty"

        def linearise(self, X, Y=None):
            raise NotImplementedError

    with pytest.raises(eq.ConstraintError, match=message):
        Empty(**arguments)


def test_standardized_coefficients_and_targets_are_those_of_each_row_by_hand():
    s = Standardizer.fit(X, Y, ComponentBalance())
    B, target = s.linearise(X)
    c = np.sqrt(np.mean([(by_hand(row)[0] ** 2) @ s.y_std**2 for row in X], 0))
    np.testing.assert_allclose(s.row_scale, c, rtol=1e-12)
    for i in range(0, N, 50):
        own, t = by_hand(X[i])
        np.testing.assert_allclose(B[i], own * s.y_std / c[:, None], rtol=1e-12)
        np.testing.assert_allclose(target[i], (t - own @ s.y_mean) / c, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(np.square(s.typical_B).sum(1), 1.0, rtol=1e-12)
    assert s.B is None


# --- Fit and predict --------------------------------------------------------------------------------------------------


def test_every_draw_every_mean_and_every_covariance_obeys_exact_balances(exact):
    p, equality = exact.predict_distribution(X[:30]), exact.constraint_
    draws = p.sample(100)
    bound = 1e-12 * equality.magnitude(X[:30], np.abs(draws) + 10.0)
    assert (np.abs(equality.residual(X[:30], draws)) <= bound).all()
    assert (np.abs(equality.residual(X[:30], p.mean)) <= bound[0]).all()
    assert (np.abs(equality.residual(X[:30], Y[:30])) > 1e-3).any()  # which the readings do not
    B, _ = equality.linearise(X[:30])
    np.testing.assert_allclose(B @ p.covariance(), 0.0, atol=1e-10)


def test_components_are_conditioned_row_by_row_as_in_the_textbook(learned):
    p, s = learned.predict_distribution(X[:4]), learned.standardizer_
    B, target = s.linearise(X[:4])
    for part in p.components(slice(0, 4)):
        g = part.gaussian
        cov = g.covariance().numpy()
        for d in range(0, 32, 7):
            for i in range(4):
                r = g.tol_var.expand(*g.mean.shape[:2], 2)[d, i].numpy()
                v = np.diag(g.prior.var[d, i].numpy())
                mean, expected = dense(g.prior.mean[d, i].numpy(), v, B[i], target[i], r)
                np.testing.assert_allclose(g.mean[d, i].numpy(), mean, rtol=1e-8, atol=1e-9)
                np.testing.assert_allclose(cov[d, i], expected, rtol=1e-7, atol=1e-9)
        break


def test_the_likelihood_is_the_density_of_a_dense_normal_in_every_row(learned):
    """log p(y_obs | t) = log N((y_obs, t)) − log N(t), both dense, at one draw for all rows."""
    model, s = learned.model_, learned.standardizer_
    rows, draws = slice(0, 6), learned.model_.draw(0, 0)
    y = torch.as_tensor(s.outputs(Y[rows]))
    B, target = s.linearise(X[rows])
    x = torch.as_tensor(s.inputs(X[rows]), dtype=torch.float32)
    gaussian, w = model.measured_at(draws, x, torch.as_tensor(target), torch.as_tensor(B))
    densities = model.likelihood(gaussian, y, w).detach().numpy()
    for d in (0, 5):
        for i in range(6):
            mu, v = (part[d, i].detach().numpy() for part in (gaussian.prior.mean, gaussian.prior.var))
            noise, r = w[d, i].detach().numpy(), draws.tol_var[d, 0].detach().numpy()
            M = np.vstack([np.eye(3), B[i]])
            both = M @ np.diag(v) @ M.T + np.diag([*noise, *r])
            expected = stats.multivariate_normal(M @ mu, both).logpdf([*y[i], *target[i]])
            expected -= stats.multivariate_normal(B[i] @ mu, both[3:, 3:]).logpdf(target[i])
            np.testing.assert_allclose(densities[d, i], expected, rtol=1e-7)


def test_rows_are_predicted_alone_as_among_others_and_in_any_order(learned):
    p, order = learned.predict_distribution(X[:20]), np.random.default_rng(1).permutation(20)
    np.testing.assert_allclose(learned.predict_distribution(X[order]).mean, p.mean[order], rtol=1e-6)
    np.testing.assert_allclose(learned.predict_distribution(X[7:8]).var, p.var[7:8], rtol=1e-5)


def test_the_terms_of_the_ledger_add_up_to_the_variance_of_the_components(learned):
    p = learned.predict_distribution(X[:10])
    means, variances = [], []
    for part in p.components(slice(0, 10)):
        means.append(part.gaussian.mean)
        variances.append(part.gaussian.var)
    mean, var = torch.cat(means).numpy(), torch.cat(variances).numpy()
    expected = (var.mean(0) + mean.var(0)) * learned.standardizer_.y_std**2
    np.testing.assert_allclose(p.ledger().total, expected, rtol=1e-9)
    np.testing.assert_allclose(p.var, expected, rtol=1e-9)


def test_shares_of_tolerances_and_of_single_balances_are_those_of_dense_draws_row_by_row(learned):
    """E[½ (μ_C(ρ₁) − μ_C(ρ₂))²] (D2), and the variance that comes back without a balance (D4), by the textbook."""
    rows, s = slice(0, 3), learned.standardizer_
    p = learned.predict_distribution(X[rows])
    B, target = s.linearise(X[rows])
    gaussians = [part.gaussian for part in p.components(rows)]
    draws = [p.model.draw(p.seed, block) for block in range(len(gaussians))]
    share, lost = np.zeros((3, 3)), np.zeros((2, 3, 3))
    for g, block in zip(gaussians, draws, strict=True):
        for d in range(len(g.mean)):
            first, second = (r[d, 0].detach().numpy() for r in (block.tol_var, block.tol_var_again))
            for i in range(3):
                prior = g.prior.mean[d, i].numpy(), np.diag(g.prior.var[d, i].numpy())
                mean, cov = dense(*prior, B[i], target[i], first)
                share[i] += 0.5 * (mean - dense(*prior, B[i], target[i], second)[0]) ** 2 / p.n_draws
                for k in (0, 1):
                    without = dense(*prior, B[i][[1 - k]], target[i][[1 - k]], first[[1 - k]])[1]
                    lost[k, i] += np.diag(without - cov) / p.n_draws
    ledger = p.ledger()
    np.testing.assert_allclose(ledger.tolerance_share, share * s.y_std**2, rtol=1e-6)
    np.testing.assert_allclose(ledger.lost_without, lost * s.y_std**2, rtol=1e-5, atol=1e-9)


def test_violations_are_relative_to_the_scale_of_the_training_rows(learned):
    p, s = learned.predict_distribution(X[:10]), learned.standardizer_
    of_means, _ = eq.metrics.violations(p, n=32)
    draws = p.model.draw(p.seed, 0)
    y = s.outputs_to_user(p.model.at(draws, *p.standardized_inputs(slice(0, 10))).mean.detach().numpy())
    sizes = np.abs(ComponentBalance().residual(X[:10], y))
    np.testing.assert_allclose(of_means.mean[1], sizes[..., 1].mean(), rtol=1e-6)
    np.testing.assert_allclose(of_means.mean[-1], (sizes / s.row_scale).mean(), rtol=1e-6)
    again, _ = eq.metrics.violations(p, n=32, constraint=ComponentBalance())
    relative = (sizes / ComponentBalance().scale(s.y_std, X[:10])).mean()
    np.testing.assert_allclose(again.mean[-1], relative, rtol=1e-6)


def test_the_density_on_the_subspace_of_each_row_integrates_to_one_in_the_users_units():
    """With exact balances and exact sensors the density of a row is one along its own line of outputs."""
    model = fitted(ComponentBalance(), Y=TRUE, tolerance=0, sensor_std=None, n_draws=4)
    for i in (3, 50):
        B, _ = by_hand(X[i])
        along = np.linalg.svd(B)[2][-1]  # of length 1 in the user's units
        centre = model.predict_distribution(X[i : i + 1]).mean[0]
        steps = np.linspace(-3.0, 3.0, 2001)
        p = model.predict_distribution(np.repeat(X[i : i + 1], len(steps), 0))
        density = np.exp(p.log_prob(centre + steps[:, None] * along))
        assert integrate.simpson(density, x=steps) == pytest.approx(1.0, rel=1e-3)


def test_tables_that_are_read_from_files_give_the_same_model(tmp_path, learned):
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "Y.npy", Y)
    mapped = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("X", "Y"))
    model = fitted(ComponentBalance(), *mapped, tolerance={"component": None, "mass": 0.02})
    np.testing.assert_array_equal(model.predict(X[:5]), learned.predict(X[:5]))


@pytest.mark.usefixtures("long_training")
def test_a_killed_fit_goes_on_from_its_checkpoint_to_the_same_bits(tmp_path):
    class KilledError(Exception):
        pass

    def kill(record):
        if record["epoch"] == 5:
            raise KilledError

    options = {"hidden": (4,), "max_epochs": 12, "random_state": 0, "checkpoint": tmp_path / "run"}
    whole = eq.ConstrainedBNNRegressor(ComponentBalance(), **(options | {"checkpoint": None})).fit(X, Y)
    with pytest.raises(KilledError):
        eq.ConstrainedBNNRegressor(ComponentBalance(), **options).fit(X, Y, callback=kill)
    again = eq.ConstrainedBNNRegressor(ComponentBalance(), **options).fit(X, Y)
    np.testing.assert_array_equal(again.predict(X[:5]), whole.predict(X[:5]))


@pytest.mark.usefixtures("long_training")
def test_the_data_recover_a_tolerance_of_balances_that_differ_by_row():
    """Component flows scatter by 0.3 about the balance, sensors are known: the tolerance is that scatter."""
    loose = TRUE.copy()
    loose[:, 0] += 0.3 * np.random.default_rng(3).normal(size=N) / X[:, 2]
    model = fitted(ComponentBalance(mass=False), Y=loose, sensor_std=0.01, max_epochs=60)
    row = model.tolerances_.loc["component"]
    assert row["kind"] == "learned"
    assert row["tol_std"] == pytest.approx(0.3, rel=0.25)  # 200 rows: 5 % standard error of a standard deviation


@pytest.mark.parametrize("lead", [(6,), (2, 3)])
def test_the_layer_behind_any_torch_model_conditions_row_by_row_as_the_textbook(lead):
    std = np.array([1.0, 2.0, 0.5])
    layer = eq.ConditioningLayer(ComponentBalance(), {"mass": 0, "component": 0.3}, output_std=std, X=X).eval()
    mean, var = torch.as_tensor(Y[:6]), torch.as_tensor(RNG.uniform(0.5, 2.0, (6, 3)))
    x = torch.as_tensor(X[:6])
    gaussian = layer(mean.reshape(*lead, 3), var.reshape(*lead, 3), x.reshape(*lead, 4))
    for i in range(6):
        B, target = by_hand(X[i])
        expected, cov = dense(Y[i], np.diag(var[i].numpy()), B, target, [0.0, 0.09])
        np.testing.assert_allclose(gaussian.mean.detach().reshape(6, 3)[i], expected, rtol=1e-9)
        np.testing.assert_allclose(gaussian.var.detach().reshape(6, 3)[i], np.diag(cov), rtol=1e-7, atol=1e-12)
    with_one_B = eq.ConditioningLayer(SquaredTarget([1.0, 1.0, 1.0]), 0).eval()
    mean = with_one_B(torch.zeros(2, 3), torch.ones(2, 3), torch.tensor([[3.0], [6.0]])).mean
    np.testing.assert_allclose(mean.detach(), [[3.0] * 3, [12.0] * 3], rtol=1e-6)


def test_columns_of_frames_are_matched_by_name(learned):
    equality = ComponentBalance()
    inputs = pd.DataFrame(X, columns=equality.columns)[["x_bottom", "z", "feed", "x_top"]]
    outputs = pd.DataFrame(Y, columns=equality.outputs)[["loss", "top", "bottom"]]
    model = fitted(equality, inputs, outputs, tolerance={"component": None, "mass": 0.02})
    np.testing.assert_array_equal(model.predict(inputs[:5])[list(equality.outputs)], learned.predict(X[:5]))


# --- As one B for all rows --------------------------------------------------------------------------------------------


LINEAR = eq.LinearConstraint.from_equations(
    {"mass": "feed = top + bottom + loss", "component": "z = 0.5*top + 0.1*bottom"},
    inputs=["feed", "z"],
    known=["x_top", "x_bottom"],
    outputs=["top", "bottom", "loss"],
)


@pytest.mark.usefixtures("long_training")
@pytest.mark.parametrize("tolerance", [0, None], ids=["exact", "learned"])
@pytest.mark.parametrize("likelihood", ["joint", "marginal"])
def test_the_same_coefficients_in_every_row_give_the_model_of_one_B(tolerance, likelihood):
    options = {"tolerance": tolerance, "likelihood": likelihood, "max_epochs": 6}
    shared, by_row = fitted(LINEAR, **options), fitted(RowByRow(LINEAR), **options)
    for name in ("tol_std", "noise_std", "residual_mean"):
        np.testing.assert_allclose(by_row.tolerances_[name], shared.tolerances_[name], rtol=1e-4)
    np.testing.assert_allclose(by_row.sensor_std_["std"], shared.sensor_std_["std"], rtol=1e-4)
    p, expected = by_row.predict_distribution(X[:9]), shared.predict_distribution(X[:9])
    for name in ("mean", "var"):
        np.testing.assert_allclose(getattr(p, name), getattr(expected, name), rtol=1e-3)


@pytest.mark.parametrize("exactly", [False, True], ids=["learned", "exact"])
def test_a_model_of_one_B_answers_the_same_when_its_coefficients_are_repeated(exactly):
    """The same weights: what differs is only whether coefficients come from the layer or with the rows."""
    options = {"tolerance": 0, "sensor_std": None} if exactly else {}
    obeying = TRUE - LINEAR.residual(X, TRUE) @ np.linalg.pinv(LINEAR.B).T
    shared, by_row = (
        fitted(c, Y=obeying if exactly else Y, max_epochs=3, **options) for c in (LINEAR, RowByRow(LINEAR))
    )
    state = {name: value for name, value in shared.model_.state_dict().items() if name in by_row.model_.state_dict()}
    by_row.model_.load_state_dict(state)
    p, expected = by_row.predict_distribution(X[:9]), shared.predict_distribution(X[:9])
    for name in ("mean", "var"):
        np.testing.assert_allclose(getattr(p, name), getattr(expected, name), rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(p.sample(40), expected.sample(40), rtol=1e-5, atol=1e-6)
    target = obeying if exactly else Y
    np.testing.assert_allclose(p.log_prob(target[:9]), expected.log_prob(target[:9]), rtol=1e-5)
    np.testing.assert_allclose(p.ledger().lost_without, expected.ledger().lost_without, rtol=1e-5, atol=1e-12)
    for least in (0, 1e9):  # the draws, and the matched Gaussian
        one, other = (m.reconcile(X[:9], Y[:9], NOISE, least_draws=least) for m in (by_row, shared))
        np.testing.assert_allclose(one.mean, other.mean, rtol=1e-5)
        np.testing.assert_allclose(one.std, other.std, rtol=1e-4, atol=1e-9)
        np.testing.assert_allclose(one.sample(20), other.sample(20), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(one.likelihood_ratio_test().z, other.likelihood_ratio_test().z, rtol=1e-3, atol=1e-6)


# --- Reconciliation, files, reports -----------------------------------------------------------------------------------


def test_reconciliation_is_that_of_dense_draws_weighted_row_by_row(exact):
    """For each row and draw: balances and readings in one dense update, weighted by the evidence of the readings."""
    model, rows, std = exact, slice(0, 5), np.array([0.3, 0.3, 0.1])
    s, equality = model.standardizer_, model.constraint_
    result = model.reconcile(X[rows], Y[rows], std, least_draws=0)
    B, target = s.linearise(X[rows])
    y, w = s.outputs(Y[rows]), (std / s.y_std) ** 2
    gaussians = [part.gaussian for part in model.predict_distribution(X[rows]).components(rows)]
    for i in range(5):
        means, logs = [], []
        for g in gaussians:
            for d in range(len(g.mean)):
                prior = g.prior.mean[d, i].numpy(), np.diag(g.prior.var[d, i].numpy())
                mean, cov = dense(*prior, B[i], target[i], np.zeros(len(B[i])))
                logs.append(stats.multivariate_normal(mean, cov + np.diag(w)).logpdf(y[i]))
                means.append(mean + cov @ np.linalg.solve(cov + np.diag(w), y[i] - mean))
        weights = np.exp(np.array(logs) - np.max(logs))
        expected = s.outputs_to_user(np.average(means, axis=0, weights=weights))
        np.testing.assert_allclose(result.mean[i], expected, rtol=1e-6)
    assert np.abs(equality.residual(X[rows], result.mean)).max() < 1e-10
    assert np.abs(equality.residual(X[rows], result.sample(50))).max() < 1e-10


def test_contributions_of_readings_and_balances_add_up_to_the_reconciled_mean(exact):
    result = exact.reconcile(X[:6], Y[:6], NOISE)
    parts = result.moved()
    total = parts.network + parts.sensors.sum(1) + parts.balances.sum(1) + parts.draws
    np.testing.assert_allclose(total, result.mean, rtol=1e-8)


def test_matched_gaussians_obey_exact_balances_of_their_rows_however_accurate_the_readings(exact):
    """Dense algebra alone would miss by the root of a rounding, 4e-8 here."""
    result = exact.reconcile(X[:6], Y[:6] * [1.0, 1.0, np.nan], [1e-5, 1e-5, 1.0], least_draws=1e9)
    assert result.gaussian.all()
    for values in (result.mean, result.sample(30)):
        assert np.abs(exact.constraint_.residual(X[:6], values)).max() < 1e-11


def test_exact_readings_that_leave_nothing_uncertain_are_refused_in_their_row(exact):
    readings = np.array([[1.0, np.nan, np.nan], [1.0, 2.0, np.nan]])
    message = r"'component' something uncertain, but got 'top' and 'bottom' in row 1"
    with pytest.raises(eq.ReconciliationError, match=message):
        exact.reconcile(X[:2], readings, [0.0, 0.0, 0.1])


def test_a_model_file_brings_the_equality_back_if_its_class_is_there(tmp_path, learned):
    learned.save(tmp_path / "m.safetensors")
    with pytest.raises(eq.ArtifactError, match=r"The model's balances must be known, but got 'component balance'"):
        eq.load(tmp_path / "m.safetensors")
    again = eq.load(tmp_path / "m.safetensors", implementations=[ComponentBalance])
    assert type(again.constraint) is ComponentBalance
    p, expected = again.predict_distribution(X[:5]), learned.predict_distribution(X[:5])
    np.testing.assert_array_equal(p.sample(5), expected.sample(5))
    np.testing.assert_array_equal(p.measured().log_prob(Y[:5]), expected.measured().log_prob(Y[:5]))
    np.testing.assert_array_equal(again.reconcile(X[:5], Y[:5]).mean, learned.reconcile(X[:5], Y[:5]).mean)


def test_settings_that_json_cannot_hold_are_refused_by_name_when_a_model_is_saved(tmp_path):
    class Weighted(SquaredTarget):
        name = "weighted"

        def settings(self):
            return {"weights": self.weights}

    x = np.linspace(1, 2, 40)[:, None]
    model = fitted(Weighted([1.0, 1.0]), x, np.hstack([x, x**2 - x]), max_epochs=4)
    with pytest.raises(
        eq.ArtifactError, match=r"settings\(\) of Weighted must hold .* arrays of balances are returned"
    ):
        model.save(tmp_path / "m.safetensors")


def test_the_class_of_an_equality_instead_of_an_object_is_refused_with_advice():
    with pytest.raises(eq.EquipoiseError, match=r"the class ComponentBalance\. Pass an object, ComponentBalance\("):
        fitted(ComponentBalance)


def test_a_likelihood_and_an_equality_of_one_name_are_not_confused(tmp_path):
    class Noise(LaplaceNoise):
        name = "own"

    class Balance(SquaredTarget):
        name = "own"

    x = np.linspace(1, 2, 40)[:, None]
    y = np.hstack([x, x**2 - x])
    fitted(Balance([1.0, 1.0]), x, y, likelihood=Noise(), max_epochs=4).save(tmp_path / "m.safetensors")
    for order in ([Noise, Balance], [Balance, Noise]):
        again = eq.load(tmp_path / "m.safetensors", implementations=order)
        assert (type(again.constraint), type(again.likelihood)) == (Balance, Noise)
    with pytest.raises(eq.ArtifactError, match="The model's likelihood must be known, but got 'own'"):
        eq.load(tmp_path / "m.safetensors", implementations=[Balance])


def test_arrays_of_an_equality_are_kept_as_tensors_and_its_targets_need_not_be_linear(tmp_path):
    x = np.linspace(1, 2, 60)[:, None]
    y = np.hstack([np.sin(x), (x**2 - np.sin(x)) / 3.0])
    model = fitted(SquaredTarget([1.0, 3.0]), x, y, max_epochs=4, tolerance=0)
    model.save(tmp_path / "m.safetensors")
    again = eq.load(tmp_path / "m.safetensors", implementations=SquaredTarget)
    np.testing.assert_array_equal(again.constraint.weights, [1.0, 3.0])
    draws = again.sample_y(x[:7], 20)
    np.testing.assert_allclose(draws @ [1.0, 3.0], np.broadcast_to(x[:7, 0] ** 2, (20, 7)), rtol=1e-12)


def test_a_report_names_the_balances_and_their_residuals(learned):
    page = render(report(findings(learned, X, Y), title="Column"))
    assert "component" in page
    assert "x_top*top + x_bottom*bottom" in page


# --- What is refused, in a sentence -----------------------------------------------------------------------------------


class Unfinished(ComponentBalance):
    def linearise(self, X, Y=None):
        B, target = super().linearise(X)
        B[3, 1, 0] = np.nan
        return B, target


class LogTarget(SquaredTarget):
    def linearise(self, X, Y=None):
        return self.weights[None], np.log(np.abs(X - X[4]))


class Narrow(ComponentBalance):
    @property
    def pattern(self):
        return np.array([[True, True, False], [True, True, False]])


class NotThere(ComponentBalance):
    def linearise(self, X, Y=None):
        B, target = super().linearise(X)
        return B * [[1.0], [0.0]], target


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (ComponentBalance, "must be a LinearConstraint or None, but got the class ComponentBalance"),
        (Power(), "must be linear in the outputs to be fitted, but got Power, whose is_linear is False"),
        (NotThere(), "Balance 'component' must involve an output, but got coefficients 0 in all rows"),
        (Unfinished(), "Balance 'component' must have finite coefficients and a finite target in every row, but got"),
        (
            type("Taken", (ComponentBalance,), {"name": "linear"})(),
            "Taken must have a name of its own, but got 'linear'",
        ),
        (LogTarget([1.0, 1.0, 1.0]), "Balance 'sum' must have finite coefficients .* and -inf in row 4 of the rows"),
        (
            Narrow(),
            "outside pattern must be 0, but got others for 'loss' in balance 'mass'. Add it to the pattern of Na",
        ),
    ],
    ids=["class", "nonlinear", "zero", "not finite", "name of the library", "target", "pattern"],
)
def test_what_cannot_be_fitted_is_refused_with_advice(constraint, message):
    columns, y = (ONE, np.ones((30, 3))) if isinstance(constraint, Power | SquaredTarget) else (X, Y)
    with pytest.raises(eq.EquipoiseError, match=message):
        fitted(constraint, columns, y, max_epochs=2)


ONE = np.linspace(1, 2, 30)[:, None]


def test_parts_of_the_library_that_need_one_B_say_so(tmp_path, learned):
    with pytest.raises(eq.ArtifactError, match="balances of a LinearConstraint only, but got ComponentBalance"):
        eq.export(learned, tmp_path / "m.pt2")
    with pytest.raises(
        eq.ConstraintError, match=r"LinearConstraint for a diagnosis, but got ComponentBalance\. Look at"
    ):
        eq.diagnose(ComponentBalance(), X, Y)
    with pytest.raises(eq.ReconciliationError, match="constraint must be a LinearConstraint with at least one balance"):
        eq.reconcile(Y, 0.1, ComponentBalance())
    with pytest.raises(
        eq.MethodError, match="LinearConstraint for methods other than our own, but got ComponentBalance"
    ):
        eq.MethodRegressor(ComponentBalance(), inference="ensemble", imposition="posthoc").fit(X, Y)
    with pytest.raises(eq.ConstraintError, match="scale needs rows of data where coefficients differ by row"):
        eq.ConditioningLayer(ComponentBalance())
    layer = learned.model_.conditioning
    with pytest.raises(eq.EquipoiseError, match=r"differ from row to row, but got B=None\. Pass B"):
        layer.operator(torch.float64)
    own, y = eq.ConditioningLayer(ComponentBalance(), X=X).eval(), torch.ones(2, 3)
    with pytest.raises(
        eq.EquipoiseError, match=r"x must have columns \('feed', 'z', 'x_top', 'x_bottom'\) on its last"
    ):
        own(y, y, torch.ones(2, 3))
    with pytest.raises(eq.EquipoiseError, match="input_var needs the coefficients A of a LinearConstraint"):
        own(y, y, torch.ones(2, 4), input_var=torch.ones(2, 4))
    with pytest.raises(eq.EquipoiseError, match="These balances involve inputs, but got x=None"):
        own(y, y)
