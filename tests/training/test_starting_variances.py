"""Where variances start: what residuals show is split between network, sensors and tolerances."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from outside import ComponentBalance

from equipoise.balances.linear import LinearConstraint
from equipoise.data import rows as data_rows
from equipoise.data.rows import Rows, standardize
from equipoise.data.scaling import Standardizer
from equipoise.gaussian.conditioning import ConditioningLayer
from equipoise.gaussian.tolerance import LogNormalVariance, TolerancePrior, tolerance_posterior
from equipoise.network.likelihood import joint, marginal
from equipoise.network.mlp import BayesianMLP
from equipoise.network.model import ConstrainedBNN
from equipoise.training.starting_variances import balance_var, mean_squares, output_residual_var, split_residuals

B = torch.tensor([[-1.0, -1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 2.0]], dtype=torch.float64)  # c = a + b, and 2 d is known
SQUARES = np.array([3.0, 4.0])  # the layer divides its rows by their lengths, so tolerances are relative to these
N = 20_000


def scattered(fit_error: float, sensor_std: float) -> Rows:
    """Outputs around zero: errors that a, b and c share as the truth does, and noise of independent sensors."""
    rng = np.random.default_rng(0)
    parts = fit_error * rng.normal(size=(N, 2))
    y = np.column_stack([parts, parts.sum(1), np.zeros(N)]) + sensor_std * rng.normal(size=(N, 4))
    return Rows(torch.zeros(N, 1), torch.as_tensor(y), torch.zeros(N, 2, dtype=torch.float64))


def model_of(sensor=(math.nan,) * 4, likelihood=joint, tolerance=None) -> ConstrainedBNN:
    """Its means are zero."""
    network = BayesianMLP(1, 4, (2,), sensor_head=sensor is not None, generator=torch.Generator().manual_seed(0))
    torch.nn.init.zeros_(network.posterior.loc)
    constraint = LinearConstraint(B.numpy(), names=["sum", "known"])
    q = tolerance_posterior(tolerance or {}, constraint.names, torch.ones(2, dtype=torch.float64))
    given = None if sensor is None else torch.tensor(sensor, dtype=torch.float64) ** 2
    prior = TolerancePrior()
    w = None if given is None else LogNormalVariance(torch.full((4,), prior.mean), torch.full((4,), prior.std), given)
    return ConstrainedBNN(network, ConditioningLayer(constraint, q), likelihood, w)


def start(model: ConstrainedBNN, rows: Rows, held_out: Rows | None = None) -> dict[str, np.ndarray]:
    split_residuals(model, rows, held_out)
    values = {"v": model.network.at_means(rows.x[:1]).var[0], "r": model.conditioning.tolerance.median()}
    if model.sensor is not None:
        values["w"] = model.sensor.median()
    return {name: value.detach().double().numpy() for name, value in values.items()}


def test_errors_that_cancel_in_a_balance_go_to_the_network_and_the_rest_to_the_sensors():
    """The residual of the sum scatters by 3 · 0.01², its outputs together by 0.09 + 0.09 + 0.18 + 3 · 0.01²."""
    values = start(model_of(), scattered(fit_error=0.3, sensor_std=0.01))
    s2 = np.array([0.09, 0.09, 0.18, 0.0]) + 1e-4
    share = np.array([3e-4 / s2[:3].sum()] * 3 + [0.95])
    np.testing.assert_allclose(values["w"], share * s2, rtol=0.05)
    np.testing.assert_allclose(values["v"], (1 - share) * s2, rtol=0.05)
    np.testing.assert_allclose(values["r"], 0.05 * np.array([3e-4, 4e-4]) / SQUARES, rtol=0.05)


def test_where_a_balance_shows_all_of_the_scatter_the_sensors_take_nearly_all_of_it():
    values = start(model_of(), scattered(fit_error=0.0, sensor_std=0.01))
    np.testing.assert_allclose(values["w"], 0.95e-4, rtol=0.05)
    np.testing.assert_allclose(values["v"], 0.05e-4, rtol=0.05)


def test_given_sensors_stay_and_what_they_do_not_explain_is_the_tolerances():
    rows = scattered(fit_error=0.3, sensor_std=0.01)
    values = start(model_of(sensor=(0.005,) * 4), rows)
    np.testing.assert_allclose(values["w"], 0.005**2)
    np.testing.assert_allclose(values["r"], 1e-4 - 0.005**2, rtol=0.05)
    np.testing.assert_allclose(values["v"], output_residual_var(torch.zeros_like(rows.y), rows.y), rtol=1e-5)


def test_sensors_known_for_each_row_count_by_their_mean_variance():
    rows = scattered(fit_error=0.3, sensor_std=0.01)
    w = 0.005**2 * torch.where(torch.arange(N) % 2 == 0, 0.5, 1.5).double()[:, None].expand(N, 4)
    values = start(model_of(sensor=None), dataclasses.replace(rows, sensor_var=w))
    np.testing.assert_allclose(values["r"], 1e-4 - 0.005**2, rtol=0.05)
    np.testing.assert_allclose(values["v"], output_residual_var(torch.zeros_like(rows.y), rows.y), rtol=1e-5)


def test_the_larger_scatter_of_training_and_held_out_rows_counts_output_by_output():
    rows, factor = scattered(fit_error=0.3, sensor_std=0.01), torch.tensor([2.0, 0.5, 0.1, 3.0]).double()
    held_out = Rows(rows.x[:1000], rows.y[:1000] * factor, rows.target[:1000])
    values = start(model_of(sensor=None), rows, held_out)
    trained, unseen = (np.square(part.y.numpy()).mean(0) for part in (rows, held_out))
    assert (unseen > trained).tolist() == [True, False, False, True]
    np.testing.assert_allclose(values["v"], np.maximum(trained, unseen), rtol=1e-5)


def test_learned_sensors_start_far_narrower_than_their_prior():
    model = model_of()
    torch.testing.assert_close(model.sensor.std, model.sensor.prior_std)
    start(model, scattered(fit_error=0.3, sensor_std=0.01))
    assert (model.sensor.std < 0.1 * model.sensor.prior_std).all()


def test_a_tolerance_starts_at_its_prior_where_that_is_smaller_and_fixed_ones_stay():
    tolerance = {"sum": TolerancePrior(-20.0, 2.0), "known": 0.5}
    values = start(model_of(tolerance=tolerance), scattered(fit_error=0.3, sensor_std=0.01))
    np.testing.assert_allclose(values["r"], [math.exp(-20.0), 0.25], rtol=1e-6)


@pytest.mark.parametrize("likelihood", [joint, marginal])
def test_without_sensors_the_network_starts_with_all_of_the_scatter(likelihood):
    rows = scattered(fit_error=0.3, sensor_std=0.01)
    values = start(model_of(sensor=None, likelihood=likelihood), rows)
    np.testing.assert_allclose(values["v"], output_residual_var(torch.zeros_like(rows.y), rows.y), rtol=1e-5)
    np.testing.assert_allclose(values["r"], 1e-4, rtol=0.05)


def test_the_scatter_of_a_balance_is_about_its_mean_and_over_rows_that_have_all_of_it():
    rows = scattered(fit_error=0.3, sensor_std=0.01)
    y = rows.y.clone()
    y[:, 2] += 7.0  # a bias is not scatter
    y[::2, 0] = math.nan
    layer = model_of().conditioning
    found = balance_var(layer, Rows(rows.x, y, rows.target)) * layer.row_scale**2
    residual = (rows.y[1::2, 2] - rows.y[1::2, 0] - rows.y[1::2, 1]).numpy()
    np.testing.assert_allclose(found[0], residual.var(), rtol=1e-10)
    np.testing.assert_allclose(found[1], 4 * rows.y[:, 3].numpy().var(), rtol=1e-10)


def test_variances_of_many_pieces_start_as_those_of_one(monkeypatch):
    rows = scattered(fit_error=0.3, sensor_std=0.01)
    rows.y[::3, 1] = math.nan
    in_one = start(model_of(), rows)
    monkeypatch.setattr(data_rows, "PIECE", 999)
    in_pieces = start(model_of(), rows)
    for name, values in in_one.items():
        np.testing.assert_allclose(in_pieces[name], values, rtol=1e-6)


def test_a_balance_that_no_row_has_in_full_leaves_its_tolerance_at_the_prior():
    rows = scattered(fit_error=0.3, sensor_std=0.01)
    y = rows.y.clone()
    y[::2, 0], y[1::2, 1] = math.nan, math.nan
    values = start(model_of(), Rows(rows.x, y, rows.target))
    assert values["r"][0] == pytest.approx(math.exp(TolerancePrior().mean))
    assert np.isfinite(np.concatenate(list(values.values()))).all()


def test_coefficients_that_differ_by_row_give_the_scatter_of_the_users_residuals_and_their_mean_squares():
    rng = np.random.default_rng(0)
    X, Y = rng.uniform(1.0, 2.0, (50, 4)), rng.normal(size=(50, 3))
    standardizer = Standardizer.fit(X, Y, ComponentBalance())
    layer, c = ConditioningLayer(standardizer.balances()), standardizer.row_scale
    Y[::2, 2] = math.nan  # the loss, which is in the mass balance alone
    rows = standardize(standardizer, X, Y)
    z = ComponentBalance().residual(X, Y)
    np.testing.assert_allclose(balance_var(layer, rows), np.nanvar(z, 0) / c**2, rtol=1e-10)
    squares = (standardizer.linearise(X)[0] ** 2).mean(0)
    np.testing.assert_allclose(mean_squares(layer, rows), squares, rtol=1e-12)
    np.testing.assert_allclose(
        mean_squares(model_of().conditioning, rows), (B**2).numpy() / SQUARES[:, None], rtol=1e-12
    )
