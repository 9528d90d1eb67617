"""Confidence: lines of the model's own tables, and priors in the balances' own units."""

import math

import numpy as np
import pytest
from handmade_findings import BALANCES, OUTPUTS, SHORT, balanced, on_one_worker, table, without_balances

import equipoise as eq
from equipoise.app.report.tolerances import balance_tolerances, sensor_noise

pytestmark = [pytest.mark.usefixtures("long_training"), on_one_worker]


def test_every_balance_has_its_line_of_the_models_table():
    model = balanced()
    found = balance_tolerances(model)
    assert [(tolerance.balance, tolerance.unit) for tolerance in found] == [("sum", "kg/s"), ("split", "kg/s")]
    for tolerance in found:
        line = model.tolerances_.loc[tolerance.balance]
        for name in ("kind", "verdict", "note", "biased", "tol_std", "tol_std_lower", "tol_std_upper", "noise_std"):
            assert getattr(tolerance, name) == line[name]
        for name in ("kl", "contraction", "mu_rho", "sigma_rho", "offset", "offset_std"):
            assert getattr(tolerance, name) == line[name]


def test_priors_are_in_the_balances_own_units():
    """The paper's is given in that unit; ours is relative to c = √(s_a² + s_b² + s_total²)."""
    ours, papers = balance_tolerances(balanced())
    assert (papers.prior_mu_rho, papers.prior_sigma_rho) == pytest.approx((-2.0, 1.0))
    squares = (balanced().standardizer_.y_std[:3] ** 2).sum()
    assert (ours.prior_mu_rho, ours.prior_sigma_rho) == pytest.approx((-6.0 + math.log(squares), 3.0))


def test_what_was_not_learned_has_no_prior():
    model = eq.ConstrainedBNNRegressor(BALANCES, tolerance={"sum": 0.1, "split": 0}, **SHORT).fit(*table())
    given, exact = balance_tolerances(model)
    assert (given.kind, exact.kind) == ("fixed", "exact")
    assert np.isnan([given.prior_mu_rho, given.prior_sigma_rho, exact.prior_mu_rho, exact.prior_sigma_rho]).all()
    assert given.tol_std == pytest.approx(0.1)


def test_without_balances_there_is_nothing_to_trust():
    assert balance_tolerances(without_balances()) == ()


def test_every_output_has_its_line_of_the_sensors_table():
    found = sensor_noise(balanced())
    table_ = balanced().sensor_std_
    assert [sensor.output for sensor in found] == OUTPUTS
    assert [sensor.unit for sensor in found] == ["kg/s"] * 4
    assert [(s.std, s.lower, s.upper, s.kind) for s in found] == list(
        table_[["std", "lower", "upper", "kind"]].itertuples(index=False, name=None)
    )
    assert {sensor.kind for sensor in sensor_noise(without_balances())} == {"none"}
