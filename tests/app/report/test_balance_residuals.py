"""Residuals of balances, against those written out by hand from measured values, draws and the network alone."""

import dataclasses

import numpy as np
import pytest
import torch
from handmade_findings import BALANCES, SHORT, balanced, on_one_worker, table, without_balances

import equipoise as eq
from equipoise.app.report.balance_residuals import (
    DATA,
    DRAWS,
    DRAWS_AFTER,
    DRAWS_BEFORE,
    MEANS_AFTER,
    MEANS_BEFORE,
    ONE_BY_ONE,
    WITHOUT,
    balance_residuals,
    summarise,
    unconditioned_residuals,
)

pytestmark = [pytest.mark.usefixtures("long_training"), on_one_worker]


@pytest.fixture
def p():
    return dataclasses.replace(balanced().predict_distribution(table()[0]), wrap=np.asarray)


@pytest.fixture
def Y():
    return table()[1].to_numpy()


def by_hand(Y):
    """Residuals of “sum” and “split”, up to their signs."""
    a, b, total, top = np.moveaxis(Y, -1, 0)
    return total - a - b, table()[0]["feed [kg/s]"].to_numpy() - top - total


def same_summary(found, z):
    """Compare to 1e-5: the network computes in single precision, and once more for each call."""
    z = z[np.isfinite(z)]
    assert found.n == z.size
    assert found.rms == pytest.approx(np.sqrt(np.mean(z**2)), rel=1e-5)
    assert abs(found.mean) == pytest.approx(abs(z.mean()), abs=1e-5 * found.rms)  # it may be next to nothing
    assert found.most == pytest.approx(np.percentile(abs(z), 95), rel=1e-5)
    assert found.upper - found.lower == pytest.approx(np.percentile(z, 97.5) - np.percentile(z, 2.5), rel=1e-5)
    assert found.high - found.low == pytest.approx(np.percentile(z, 75) - np.percentile(z, 25), rel=1e-5)
    assert abs(found.median) == pytest.approx(abs(np.median(z)), abs=1e-5 * found.rms)


def test_balances_come_with_their_names_units_and_equations(p, Y):
    found = [(residuals.balance, residuals.unit, residuals.equation) for residuals in balance_residuals(p, Y)]
    assert found == [("sum", "kg/s", "total = a + b"), ("split", "kg/s", "feed = top + total")]


def test_measured_rows_count_where_every_output_was_measured(p, Y):
    for residuals, z in zip(balance_residuals(p, Y), by_hand(Y), strict=True):
        same_summary(residuals.summaries[DATA], z)
        assert residuals.summaries[DATA].n < len(Y)


def test_draws_after_conditioning_are_joint_draws_of_true_values(p, Y):
    for residuals, z in zip(balance_residuals(p, Y), by_hand(p.sample(DRAWS, joint=True)), strict=True):
        same_summary(residuals.summaries[DRAWS_AFTER], z)


def test_the_mean_residual_of_the_means_is_that_of_the_mean(p, Y):
    assert p.n_draws == DRAWS
    for residuals, z in zip(balance_residuals(p, Y), by_hand(p.mean), strict=True):
        assert abs(residuals.summaries[MEANS_AFTER].mean) == pytest.approx(abs(z.mean()))
        assert residuals.summaries[MEANS_AFTER].n == DRAWS * len(Y)


def test_before_conditioning_means_and_draws_are_the_networks_own(p, Y):
    x = torch.as_tensor(p.standardizer.inputs(p.X), dtype=torch.float32)
    with torch.no_grad():
        network = p.model.at(p.model.draw(p.seed, 0), x, None)  # without a target nothing is conditioned
    mean = p.standardizer.outputs_to_user(network.mean.numpy())
    var = network.var.numpy() * p.standardizer.y_std**2
    for residuals, z, var_z in zip(
        balance_residuals(p, Y), by_hand(mean), (var[..., :3].sum(-1), var[..., 2:].sum(-1)), strict=True
    ):
        same_summary(residuals.summaries[MEANS_BEFORE], z)
        square = np.mean(z**2 + var_z)  # of normal residuals; 5 standard errors of their mean square
        error = 5 * np.sqrt(np.sum(2 * var_z**2 + 4 * z**2 * var_z)) / z.size
        assert residuals.summaries[DRAWS_BEFORE].rms ** 2 == pytest.approx(square, abs=error)
        assert error < 0.2 * square


def test_residuals_before_conditioning_do_not_depend_on_how_rows_are_divided(p):
    means, draws = unconditioned_residuals(p, 40)
    assert means.shape == draws.shape == (40, len(p.X), 2)
    assert means[:32] == pytest.approx(unconditioned_residuals(p, 32)[0])
    assert not np.allclose(means[:8], means[32:])


def test_a_model_without_balances_beside_is_drawn_from_as_well(p, Y):
    other = dataclasses.replace(without_balances().predict_distribution(table()[0][["x", "z"]]), wrap=np.asarray)
    for residuals, z in zip(balance_residuals(p, Y, other), by_hand(other.sample(DRAWS)), strict=True):
        same_summary(residuals.summaries[WITHOUT], z)
    assert balance_residuals(other, Y) == ()


def test_a_model_that_draws_output_by_output_shows_that_too():
    X, Y = table()
    complete = Y.notna().all(axis=1)
    X, Y = X[complete], Y[complete]
    model = eq.ConstrainedBNNRegressor(BALANCES, likelihood="marginal", tolerance=0, **SHORT).fit(X, Y)
    p = model.predict_distribution(X)
    summaries = balance_residuals(p, Y.to_numpy())[0].summaries
    z = p.sample(DRAWS, joint=False)
    assert summaries[ONE_BY_ONE].rms == pytest.approx(np.sqrt(np.mean((z[..., 2] - z[..., 0] - z[..., 1]) ** 2)))
    assert summaries[DRAWS_AFTER].most < 1e-9 < summaries[ONE_BY_ONE].most
    assert list(summaries) == [DATA, MEANS_BEFORE, DRAWS_BEFORE, MEANS_AFTER, DRAWS_AFTER, ONE_BY_ONE]


def test_where_nothing_was_measured_there_is_no_spread():
    nothing = summarise(np.full(5, np.nan))
    assert nothing.n == 0
    assert np.isnan([nothing.rms, nothing.most, nothing.upper]).all()
