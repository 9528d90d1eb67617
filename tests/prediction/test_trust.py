"""How far balances can be trusted: residuals, what the likelihood says of a tolerance, and the table that tells it."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.stats
import torch
from handmade import COUPLED, NAN, network, standardizer, variances

import references
from equipoise.balances.linear import LinearConstraint
from equipoise.balances.verdicts import Residual, ToleranceEvidence
from equipoise.data import table_passes
from equipoise.data.rows import Rows
from equipoise.gaussian.conditioning import ConditioningLayer
from equipoise.network.likelihood import joint, marginal
from equipoise.network.mlp import BayesianMLP
from equipoise.network.model import ConstrainedBNN
from equipoise.prediction import trust
from equipoise.prediction.trust import (
    balance_residual_var,
    residuals,
    sensor_table,
    tolerance_evidence,
    tolerance_table,
)

EPS = np.finfo(float).eps

# --- Residuals (Z1) ---------------------------------------------------------------------------------------------------

BALANCES = LinearConstraint(
    [[1.0, -1.0, -1.0], [0.0, 1.0, 2.0]], [[0.5, 0.0], [0.0, -1.0]], [1.0, 0.0], inputs=["T"], known=["load"]
)


def noisy_table(n=400, seed=0, offset=(0.0, 0.0), slope=(0.0, 0.0), noise=(0.1, 0.1)):
    """Rows whose residuals are `offset + slope · (load in standard deviations) + noise`."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) * [2.0, 5.0] + [300.0, -4.0]
    load = (X[:, 1] - X[:, 1].mean()) / X[:, 1].std()
    z = np.asarray(offset) + np.outer(load, slope) + rng.normal(size=(n, 2)) * noise
    third = rng.normal(size=n)
    second = X[:, 1] - 2.0 * third + z[:, 1]
    first = 1.0 - 0.5 * X[:, 0] + second + third + z[:, 0]
    return X, np.column_stack([first, second, third])


def test_the_systematic_residual_is_the_mean_with_its_standard_error():
    X, Y = noisy_table()
    for k, found in enumerate(residuals(BALANCES, X, Y, 64 * EPS)):
        z = [BALANCES.A[k] @ X[i] + BALANCES.B[k] @ Y[i] - BALANCES.b[k] for i in range(len(X))]
        np.testing.assert_allclose(found.mean, np.mean(z), rtol=1e-9)
        np.testing.assert_allclose(found.std, np.std(z, ddof=1), rtol=1e-9)
        np.testing.assert_allclose(found.se, scipy.stats.sem(z), rtol=1e-9)
        assert found.n_rows == 400
        assert not found.biased


@pytest.mark.parametrize("n", [5, 30, 400])
@pytest.mark.parametrize("slope", [0.0, 0.02, 0.1, 3.0])
def test_the_dependence_on_an_input_is_that_of_a_straight_line(n, slope):
    """Slope per standard deviation and t-value of the steepest line, by SciPy's regression."""
    X, Y = noisy_table(n, slope=(slope, 0.0))
    found = residuals(BALANCES, X, Y, 64 * EPS)[0]
    z = BALANCES.residual(X, Y)[:, 0]
    lines = {name: scipy.stats.linregress(X[:, j] / X[:, j].std(), z) for j, name in enumerate(("T", "load"))}
    steepest = max(lines, key=lambda name: abs(lines[name].rvalue))
    assert found.input == steepest
    np.testing.assert_allclose(found.input_slope, lines[steepest].slope, rtol=1e-8)
    np.testing.assert_allclose(found.input_z, lines[steepest].slope / lines[steepest].stderr, rtol=1e-6)


@pytest.mark.parametrize(("offset", "slope", "biased"), [(0.0, 0.0, False), (0.05, 0.0, True), (0.0, 0.05, True)])
def test_a_bias_of_one_balance_is_not_blamed_on_another(offset, slope, biased):
    X, Y = noisy_table(offset=(offset, 0.0), slope=(slope, 0.0))
    first, second = residuals(BALANCES, X, Y, 64 * EPS)
    assert first.biased == biased
    assert not second.biased
    if slope:
        assert first.input == "load"
        np.testing.assert_allclose(first.input_slope, slope, atol=5 * 0.1 / math.sqrt(400))  # 5 standard errors


def test_rows_in_which_an_output_of_the_balance_is_missing_are_left_out():
    X, Y = noisy_table(offset=(0.3, -0.2), slope=(0.1, 0.0))
    holes = Y.copy()
    holes[:150, 0] = NAN  # only the first balance involves the first output
    first, second = residuals(BALANCES, X, holes, 64 * EPS)
    assert (first.n_rows, second.n_rows) == (250, 400)
    assert second == residuals(BALANCES, X, Y, 64 * EPS)[1]
    alone = residuals(BALANCES, X[150:], Y[150:], 64 * EPS)[0]
    for name in ("mean", "se", "std", "input_slope", "input_z"):
        np.testing.assert_allclose(getattr(first, name), getattr(alone, name), rtol=1e-12)


def test_a_long_table_has_the_residuals_of_a_short_one(monkeypatch):
    X, Y = noisy_table(offset=(0.3, -0.2), slope=(0.1, 0.0))
    Y[:150, 0] = NAN  # whole pieces without the first balance
    at_once = residuals(BALANCES, X, Y, 64 * EPS)
    monkeypatch.setattr(table_passes, "PIECE", 33)
    for one, other in zip(at_once, residuals(BALANCES, X, Y, 64 * EPS), strict=True):
        assert (one.n_rows, one.input, one.rounding) == (other.n_rows, other.input, other.rounding)
        for name in ("mean", "se", "std", "input_slope", "input_z"):
            np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=1e-10)


@pytest.mark.parametrize("n_seen", [0, 2])
def test_of_fewer_than_three_rows_nothing_is_said(n_seen):
    X, Y = noisy_table(10, offset=(9.0, 0.0))
    Y[n_seen:, 0] = NAN
    first, second = residuals(BALANCES, X, Y, 64 * EPS)
    assert first.n_rows == n_seen
    assert math.isnan(first.mean)
    assert not first.biased
    assert second.n_rows == 10


def test_residuals_that_are_rounding_alone_show_neither_bias_nor_dependence():
    X, Y = noisy_table(noise=(0.0, 0.0))
    for found in residuals(BALANCES, X, Y * 1.0, 64 * EPS):
        assert 0 < found.rounding <= 64 * EPS * 1000
        assert abs(found.mean) <= found.rounding
        assert not found.biased
        assert found.input is None


def test_balances_without_inputs_have_no_input_to_depend_on():
    Y = np.random.default_rng(0).normal(size=(9, 2))
    found = residuals(LinearConstraint([[1.0, 1.0]]), np.zeros((9, 0)), Y, 64 * EPS)[0]
    assert found.input is None
    assert found.n_rows == 9
    assert (found.mean, found.std) == pytest.approx((Y.sum(1).mean(), Y.sum(1).std(ddof=1)), rel=1e-12)
    assert found.se == pytest.approx(scipy.stats.sem(Y.sum(1)), rel=1e-12)


def test_a_constant_input_is_no_cause_of_a_dependence():
    X, Y = noisy_table(slope=(0.5, 0.0))
    Y[:, 0] += 0.5 * X[:, 0] - 150.0
    X[:, 0] = 300.0
    assert residuals(BALANCES, X, Y, 64 * EPS)[0].input == "load"


# --- Lessons ----------------------------------------------------------------------------------------------------------


def test_what_is_averaged_over_rows_does_not_depend_on_how_many_are_looked_at_at_once(monkeypatch):
    model, rows = taught_model(sensor=variances([NAN, 0.3, 0.1]))

    def averages():
        (evidence,) = tolerance_evidence(model, rows, 4)
        left, noise = trust.balance_residual_var(model, rows, 4), trust.mean_sensor_var_over_rows(model, rows, 4)
        return [*dataclasses.astuple(evidence), *left.tolist(), *noise.tolist()]

    at_once = averages()
    monkeypatch.setattr(trust, "AT_ONCE", 17)
    np.testing.assert_allclose(averages(), at_once, rtol=1e-6, atol=1e-9)


def test_fixed_tolerances_are_taught_nothing():
    model, rows = taught_model()
    model.conditioning.tolerance.learned.fill_(False)
    assert tolerance_evidence(model, rows, 4) == [None]


def taught_model(*, tol_std=0.1, n=60, log_var=-8.0, loc=-6.0, std=3.0, likelihood=joint, sensor=None, offset=0.0):
    """One balance over three outputs, and rows that miss it by `tol_std` about a network whose means are all 0.

    The balance is known to be off by `offset`; the network's own variance is `exp(log_var)`.
    """
    s = standardizer([[1.0, -1.0, -1.0]], y_mean=np.zeros(3), y_std=np.ones(3))
    net = network(2, 3, hidden=(), weight_std=1e-6)
    with torch.no_grad():
        net.posterior.loc.fill_(0.0)
        net.posterior.loc[-3:] = log_var
    tolerance = variances([NAN], loc=[loc], std=[std])
    layer = ConditioningLayer(LinearConstraint(s.B), tolerance, offset=offset != 0.0)
    if offset:
        with torch.no_grad():
            layer.offset.loc.fill_(offset)
    rng = np.random.default_rng(0)
    y = math.exp(log_var / 2) * rng.normal(size=(n, 3))
    target = y @ s.B.T - offset + tol_std * rng.normal(size=(n, 1))
    x = torch.as_tensor(rng.normal(size=(n, 2)))
    rows = Rows(x, torch.as_tensor(y), torch.as_tensor(target))
    return ConstrainedBNN(net, layer, likelihood, sensor), rows


def naive_log_likelihood(model, rows, rho, seed=0, n_draws=4):
    """`Σ_i E_θ log p(y_i | θ, ρ)` by dense normals, row by row and draw by draw."""
    weights = model.draw(seed, 0).weights[:n_draws].detach().numpy()
    mu, v = references.network(weights, model.network.sizes, model.network.activation, rows.x.tolist())
    B, total = model.conditioning.B.numpy(), 0.0
    offset = 0.0 if model.conditioning.offset is None else model.conditioning.offset.loc.detach().numpy()
    w = np.zeros(B.shape[1]) if model.sensor is None else model.sensor.median().detach().numpy()
    for d in range(n_draws):
        for i in range(len(rows)):
            problem = (mu[d, i], v[d, i], B, rows.target[i].numpy() + offset, np.exp(rho))
            row_w = w if rows.sensor_var is None else rows.sensor_var[i].numpy()
            y = rows.y[i].numpy()
            if model.likelihood is marginal:
                mean, cov = references.conditioned(*problem)
                total += references.marginal_log_prob(mean, np.diag(cov), y, row_w)
            else:
                total += references.joint_log_prob(*problem, y, row_w)
    return total / n_draws


def naive_evidence(model, rows):
    """The range over prior mean ± 3 sd, and how far below the best the posterior mean lies, on the same 18 points."""
    q = model.conditioning.tolerance
    prior_mean, prior_std, loc, std = (float(part[0].detach()) for part in (q.prior_mean, q.prior_std, q.loc, q.std))
    grid = prior_mean + prior_std * np.linspace(-3, 3, 13)
    near = loc + std * np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    log_likelihoods = [naive_log_likelihood(model, rows, np.array([rho])) for rho in (*grid, *near)]
    posterior = [
        ll - 0.5 * ((rho - prior_mean) / prior_std) ** 2
        for ll, rho in zip(log_likelihoods, (*grid, *near), strict=True)
    ]
    return max(log_likelihoods[:13]) - min(log_likelihoods[:13]), max(posterior) - posterior[15]


EVIDENCE_CASES = {
    "joint": {},
    "marginal": {"likelihood": marginal},
    "sensors": {"sensor": variances([0.01, NAN, 0.02], loc=[-4.0] * 3)},
    "off the optimum": {"loc": -2.0, "std": 0.3},
    "offset": {"offset": 0.7},
}


@pytest.mark.parametrize("settings", EVIDENCE_CASES.values(), ids=EVIDENCE_CASES)
def test_evidence_is_read_from_the_expected_log_likelihood(settings):
    model, rows = taught_model(n=8, **settings)
    (evidence,) = tolerance_evidence(model, rows, seed=0)
    information, shortfall = naive_evidence(model, rows)
    np.testing.assert_allclose(evidence.information, information, rtol=1e-7)
    np.testing.assert_allclose(evidence.shortfall, shortfall, rtol=1e-7, atol=1e-7)


def test_sensors_that_differ_per_row_enter_the_evidence():
    model, rows = taught_model(n=8)
    w = torch.as_tensor(np.random.default_rng(0).uniform(0.001, 0.1, (8, 3)))
    rows = dataclasses.replace(rows, sensor_var=w)
    (evidence,) = tolerance_evidence(model, rows, seed=0)
    information, shortfall = naive_evidence(model, rows)
    np.testing.assert_allclose(
        [evidence.information, evidence.shortfall], [information, shortfall], rtol=1e-7, atol=1e-7
    )


def test_evidence_from_some_of_the_rows_is_scaled_up_to_all(monkeypatch):
    model, rows = taught_model(n=200)
    monkeypatch.setattr(trust, "EVIDENCE_WORK", 0)  # the least: 64 rows
    (some,) = tolerance_evidence(model, rows, seed=0)
    evenly = np.round(np.arange(64) * 199 / 63).astype(int)
    (those,) = tolerance_evidence(model, rows.take(torch.as_tensor(evenly)), seed=0)
    np.testing.assert_allclose(some.information, those.information * 200 / 64, rtol=1e-10)
    monkeypatch.setattr(trust, "EVIDENCE_WORK", 10**9)
    (every,) = tolerance_evidence(model, rows, seed=0)
    np.testing.assert_allclose(some.information, every.information, rtol=0.3)  # rows are alike


def test_only_learned_tolerances_are_taught():
    s = standardizer(COUPLED, y_mean=np.zeros(6), y_std=np.ones(6))
    layer = ConditioningLayer(LinearConstraint(s.B), variances([0.1, NAN, 0.0], loc=[0.0, -2.0, 0.0]))
    model = ConstrainedBNN(network(2, 6), layer, joint, variances([0.1] * 6))
    rng = np.random.default_rng(0)
    rows = Rows(*(torch.as_tensor(rng.normal(size=(9, k))) for k in (2, 6, 3)))
    first, second, third = tolerance_evidence(model, rows, seed=0)
    assert first is None
    assert third is None
    assert isinstance(second, ToleranceEvidence)


def test_without_balances_there_is_no_evidence():
    rows = Rows(torch.zeros(3, 2).double(), torch.zeros(3, 1).double())
    assert tolerance_evidence(ConstrainedBNN(network(2, 1), None, marginal), rows, seed=0) == []


def verdict_of(model, rows):
    s = standardizer([[1.0, -1.0, -1.0]], y_mean=np.zeros(3), y_std=np.ones(3))
    unbiased = [Residual(0.0, 0.1, 1.0, 60)]
    table = tolerance_table(
        model, s, tolerance_evidence(model, rows, seed=0), unbiased, np.array([False]), np.zeros(3), np.ones(1)
    )
    return table.iloc[0]


FLAT = {
    "marginal, v = e¹⁶": {"likelihood": marginal, "log_var": 16.0},
    "joint, w = e¹²": {"sensor": variances([math.exp(12.0)] * 3), "log_var": 12.0},
}


@pytest.mark.parametrize("settings", FLAT.values(), ids=FLAT)
def test_a_flat_likelihood_teaches_nothing(settings):
    """Under L1 a network, under L2 sensors far less certain than any tolerance of the prior: r does not matter."""
    verdict = verdict_of(*taught_model(**settings))
    assert verdict["information"] < 0.1
    assert verdict["verdict"] == "not informed by the data"
    assert verdict["kl"] < 1e-12


def test_without_sensor_noise_the_joint_likelihood_speaks_however_uncertain_the_network():
    """Measured outputs are the true ones: their residuals show the tolerance."""
    verdict = verdict_of(*taught_model(log_var=16.0))
    assert verdict["information"] > 100


def test_a_sharp_likelihood_that_the_posterior_followed_informs():
    model, rows = taught_model(tol_std=0.1, loc=2 * math.log(0.1), std=math.sqrt(2 / 60))
    text = verdict_of(model, rows)
    assert text["information"] > 100
    assert text["verdict"] == "informed"
    assert text["contraction"] > 0.99


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"tol_std": 0.1}, "the likelihood speaks, but the posterior stayed at the prior"),
        ({"tol_std": 0.1, "loc": 4.0, "std": 0.2}, "the posterior moved to the wrong place"),
        (
            FLAT["marginal, v = e¹⁶"] | {"loc": 0.0, "std": 0.2},
            "the posterior moved although the likelihood says nothing",
        ),
    ],
)
def test_a_posterior_that_does_not_follow_the_likelihood_has_not_converged(settings, why):
    assert verdict_of(*taught_model(**settings))["verdict"] == "not converged", why


def test_what_is_left_to_a_residual_is_the_variance_of_the_conditioned_residual():
    """B Σ_C Bᵀ by the dense textbook formula, row by row; coupled balances, one exact, one far wider than v."""
    s = standardizer(COUPLED, **UNITS)
    model = hand_made(s, fixed=(0.0, 0.05, 1e4))
    rng = np.random.default_rng(3)
    rows = Rows(*(torch.as_tensor(rng.normal(size=(9, k))) for k in (2, 6, 3)))
    var = model.network.at(model.draw(4, 0).weights[:4], rows.x).var.double().detach().numpy()
    B, R = s.B, np.diag([0.0, 0.05, 1e4])
    expected = []
    for v in var.reshape(-1, 6):
        G = B @ np.diag(v) @ B.T
        expected.append(np.diag(G - G @ np.linalg.solve(G + R, G)))
    np.testing.assert_allclose(balance_residual_var(model, rows, 4), np.mean(expected, 0), rtol=1e-9, atol=1e-12)


def test_under_the_papers_likelihood_what_is_left_to_a_residual_is_that_of_independent_outputs():
    s = standardizer(COUPLED, **UNITS)
    own = hand_made(s, fixed=(0.0, 0.05, 1e4))
    model = ConstrainedBNN(own.network, own.conditioning, marginal, own.sensor)
    rng = np.random.default_rng(3)
    rows = Rows(*(torch.as_tensor(rng.normal(size=(9, k))) for k in (2, 6, 3)))
    output = model.network.at(model.draw(4, 0).weights[:4], rows.x)
    expected = []
    for d, i in np.ndindex(4, 9):
        mu, v = (part[d, i].detach().numpy() for part in (output.mean, output.var))
        _, cov = references.conditioned(mu, v, s.B, rows.target[i].numpy(), np.array([0.0, 0.05, 1e4]))
        expected.append(s.B**2 @ np.diag(cov))
    np.testing.assert_allclose(balance_residual_var(model, rows, 4), np.mean(expected, 0), rtol=1e-9, atol=1e-12)


def test_scatter_that_is_more_or_less_than_explained_is_noted():
    s = standardizer(COUPLED, **UNITS, units=["V", "W", "A"])
    explained = float(np.sqrt(RELATIVE_R[1]) * s.row_scale[1])
    for factor, words in ((2.0, "more than tolerance and sensors explain"), (0.3, "less than tolerance"), (1.0, "")):
        systematic = [Residual(0.0, 0.1, factor * explained, 10_000)] * 3
        note = table_of(s, hand_made(s, sensor=None), systematic=systematic)["note"].iloc[1]
        assert (words in note) if words else note == ""


# --- The table --------------------------------------------------------------------------------------------------------

SENSOR = {"fixed": [0.04, 0.0, NAN, NAN, 0.01, 0.09], "loc": [-3.0] * 6, "std": [0.2] * 6}
RELATIVE_R = np.array([0.0, 0.05, math.exp(-2.0)])  # what hand_made's tolerances leave to the residuals, v → ∞
SENSOR_VAR = np.array([0.04, 0.0, math.exp(-3.0), math.exp(-3.0), 0.01, 0.09])
UNITS = {"y_mean": [10.0, -3.0, 0.1, 50.0, 0.0, 2.0], "y_std": [5.0, 0.02, 3.0, 100.0, 0.4, 1.0]}


def hand_made(s, fixed=(0.0, 0.05, NAN), *, sensor=SENSOR, offset=False):
    tolerance = variances(fixed, loc=[0.0, 0.0, -2.0], std=[1.0, 1.0, 0.5])
    layer = ConditioningLayer(LinearConstraint(s.B, names=s.constraint.names), tolerance, offset=offset)
    n_outputs = len(s.y_mean)
    return ConstrainedBNN(network(2, n_outputs), layer, joint, None if sensor is None else variances(**sensor))


def table_of(s, model=None, *, systematic=None, taught=None, obeyed=(False, False, False)):
    model = hand_made(s) if model is None else model
    systematic = [Residual(0.0, 0.1, 1.0, 50)] * 3 if systematic is None else systematic
    return tolerance_table(
        model, s, taught or [None] * 3, systematic, np.array(obeyed), sensor_var_of(model), RELATIVE_R
    )


def sensor_var_of(model):
    """Median sensor variances in standardized units."""
    return np.zeros(6) if model.sensor is None else SENSOR_VAR


def sensors_of(s, sensor=SENSOR):
    model = hand_made(s, sensor=sensor)
    return sensor_table(model, s, tuple("abcdef"), sensor_var_of(model))


def test_a_tolerance_is_told_in_its_balances_own_unit():
    s = standardizer(COUPLED, **UNITS, units=["V", None, "W"])
    table = table_of(s)
    assert list(table.index) == list(s.constraint.names)
    assert table["unit"].isna().tolist() == [False, True, False]
    assert table["unit"].dropna().tolist() == ["V", "W"]
    assert table["kind"].tolist() == ["exact", "fixed", "learned"]
    c = np.sqrt((COUPLED**2) @ s.y_std**2)
    np.testing.assert_allclose(table["tol_std"], c * np.sqrt([0.0, 0.05, math.exp(-2.0)]), rtol=1e-12)
    np.testing.assert_allclose(table["mu_rho_relative"].iloc[1:], [math.log(0.05), -2.0], rtol=1e-12)
    np.testing.assert_allclose(table["mu_rho"].iloc[1:], np.log([0.05, math.exp(-2.0)] * c[1:] ** 2), rtol=1e-12)
    assert table["mu_rho"].iloc[0] == -math.inf
    np.testing.assert_array_equal(table["sigma_rho"], [0.0, 0.0, 0.5])


def test_the_moments_of_a_learned_tolerance_are_those_of_the_log_normal_and_beside_them_the_papers():
    s = standardizer(COUPLED, **UNITS)
    row = table_of(s).iloc[2]
    mu = -2.0 + 2 * math.log(s.row_scale[2])
    r = scipy.stats.lognorm(0.5, scale=math.exp(mu))
    np.testing.assert_allclose([row["mean_r"], row["std_r"]], [r.mean(), r.std()], rtol=1e-12)
    np.testing.assert_allclose(
        [row["paper_mean_r"], row["paper_std_r"]], [math.exp(mu), 0.5 * math.exp(mu)], rtol=1e-12
    )
    interval = np.sqrt(r.ppf([0.025, 0.5, 0.975]))
    np.testing.assert_allclose([row["tol_std_lower"], row["tol_std"], row["tol_std_upper"]], interval, rtol=1e-4)
    prior, posterior = torch.distributions.Normal(-6.0, 3.0), torch.distributions.Normal(-2.0, 0.5)
    np.testing.assert_allclose(row["kl"], torch.distributions.kl_divergence(posterior, prior), rtol=1e-6)
    np.testing.assert_allclose(row["contraction"], 1 - (0.5 / 3) ** 2, rtol=1e-12)


def test_moments_of_fixed_tolerances_are_the_given_values():
    s = standardizer(COUPLED, **UNITS)
    table = table_of(s).iloc[:2]
    r = [0.0, 0.05 * s.row_scale[1] ** 2]
    for name in ("mean_r", "paper_mean_r"):
        np.testing.assert_allclose(table[name], r, rtol=1e-12)
    for name in ("std_r", "paper_std_r", "kl", "contraction"):
        np.testing.assert_array_equal(table[name], 0.0)
    np.testing.assert_array_equal(table["tol_std_lower"], table["tol_std_upper"])
    assert table["verdict"].tolist() == ["exact", "fixed"]


def test_the_unit_of_an_output_changes_no_tolerance():
    """The same physics with output 3 in units a thousand times smaller."""
    unit = np.array([1.0, 1.0, 1.0, 1000.0, 1.0, 1.0])
    ours = standardizer(COUPLED, **UNITS)
    theirs = standardizer(COUPLED / unit, **{name: np.array(values) * unit for name, values in UNITS.items()})
    first, second = table_of(ours), table_of(theirs)
    for name in ("tol_std", "tol_std_lower", "tol_std_upper", "mean_r", "std_r", "noise_std", "mu_rho_relative", "kl"):
        np.testing.assert_allclose(second[name], first[name], rtol=1e-12, err_msg=name)
    sensors = [sensors_of(s) for s in (ours, theirs)]
    for name in ("std", "lower", "upper"):
        np.testing.assert_allclose(sensors[1][name], sensors[0][name] * unit, rtol=1e-12)


def test_the_unit_of_a_balance_is_that_of_its_tolerance():
    """A balance written in millivolts instead of volts: relative tolerances stay, standard deviations follow."""
    factor = np.array([1.0, 1000.0, 1e-6])
    first, second = (table_of(standardizer(B, **UNITS)) for B in (COUPLED, factor[:, None] * COUPLED))
    for name in ("tol_std", "tol_std_lower", "tol_std_upper", "noise_std"):
        np.testing.assert_allclose(second[name], first[name] * factor, rtol=1e-12, err_msg=name)
    np.testing.assert_allclose(second["mean_r"], first["mean_r"] * factor**2, rtol=1e-12)
    np.testing.assert_allclose(second["mu_rho_relative"], first["mu_rho_relative"], rtol=1e-12)


@pytest.mark.parametrize("sensor", [None, SENSOR], ids=["no sensors", "sensors"])
def test_the_noise_of_a_balance_is_that_of_its_sensors_and_its_tolerance(sensor):
    s = standardizer(COUPLED, **UNITS)
    w = np.zeros(6) if sensor is None else SENSOR_VAR * s.y_std**2
    r = np.array([0.0, 0.05, math.exp(-2.0)]) * s.row_scale**2
    expected = [math.sqrt(sum(COUPLED[k, j] ** 2 * w[j] for j in range(6)) + r[k]) for k in range(3)]
    np.testing.assert_allclose(table_of(s, hand_made(s, sensor=sensor))["noise_std"], expected, rtol=1e-12)


def test_offsets_are_told_in_the_balances_unit():
    s = standardizer(COUPLED, **UNITS)
    model = hand_made(s, offset=True)
    with torch.no_grad():
        model.conditioning.offset.loc.copy_(torch.tensor([0.5, -2.0, 0.0]))
        model.conditioning.offset.log_std.copy_(torch.tensor([0.1, 0.2, 0.3]).log())
    table = table_of(s, model)
    np.testing.assert_allclose(table["offset"], [0.5, -2.0, 0.0] * s.row_scale, rtol=1e-12)
    np.testing.assert_allclose(table["offset_std"], [0.1, 0.2, 0.3] * s.row_scale, rtol=1e-5)  # single precision
    np.testing.assert_array_equal(table_of(s)["offset"], 0.0)


def test_a_learned_tolerance_beside_learned_sensors_is_not_separable():
    """Balance 2 is learned and shares the learned sensor of output 2; balance 0 shares it too, but is exact."""
    s = standardizer(COUPLED, **UNITS)
    table = table_of(s)
    assert table["separable"].tolist() == [True, True, False]
    assert "not separable from sensor noise" in table["note"].iloc[2]
    assert f"only both together are known, {table['noise_std'].iloc[2]:.3g}" in table["note"].iloc[2]
    assert table["note"].iloc[0] == ""
    elsewhere = SENSOR | {"fixed": [0.04, NAN, 0.1, NAN, 0.01, 0.09]}  # outputs 1 and 3 are not in balance 2
    assert table_of(s, hand_made(s, sensor=elsewhere))["separable"].all()
    assert table_of(s, hand_made(s, sensor=None))["separable"].all()


def test_a_biased_balance_is_noted_with_its_size_and_unit():
    s = standardizer(COUPLED, **UNITS, units=["V", "W", None])
    systematic = [
        Residual(0.25, 0.01, 0.1, 100),
        Residual(0.0, 0.1, 1.0, 100, "load", 0.75, 9.0),
        Residual(0.0, 0.1, 1.0, 100, "load", 0.75, 3.0),
    ]
    table = table_of(s, hand_made(s, sensor=None), systematic=systematic)
    assert table["biased"].tolist() == [True, True, False]
    notes = [note.split("; the data scatter")[0] for note in table["note"]]
    assert notes == [
        "biased by 0.25 ± 0.02 V",
        "biased: residual changes by 0.75 W per sd of 'load'",
        "",
    ]
    np.testing.assert_array_equal(table["residual_mean"], [0.25, 0.0, 0.0])
    np.testing.assert_array_equal(table["residual_n_rows"], 100)
    assert table["residual_input"].isna().tolist() == [True, False, False]
    assert table["residual_input"].dropna().tolist() == ["load", "load"]


def test_two_remarks_on_one_balance_stand_side_by_side():
    s = standardizer(COUPLED, **UNITS)
    last = table_of(s, systematic=[Residual(10.0, 0.1, 1.0, 100)] * 3).iloc[2]
    remarks = last["note"].split("; ")
    assert remarks[:2] == [
        f"tolerance not separable from sensor noise: only both together are known, {last['noise_std']:.3g}",
        "biased by 10 ± 0.2",
    ]


def test_a_balance_that_the_data_obey_to_rounding_is_called_that():
    table = table_of(standardizer(COUPLED, **UNITS), obeyed=(True, False, False))
    assert table["kind"].tolist() == ["exact to rounding", "fixed", "learned"]
    assert table["verdict"].iloc[0] == "exact to rounding"


def test_information_is_told_of_learned_tolerances_only():
    table = table_of(standardizer(COUPLED, **UNITS), taught=[None, None, ToleranceEvidence(12.5, 0.1)])
    assert table["information"].isna().tolist() == [True, True, False]
    assert table["information"].iloc[2] == 12.5
    assert table["verdict"].tolist() == ["exact", "fixed", "not separable from sensor noise"]
    assert table["informed"].tolist() == [False, False, True]
    s = standardizer(COUPLED, **UNITS)
    known = table_of(s, hand_made(s, sensor=None), taught=[None, None, ToleranceEvidence(12.5, 0.1)])
    assert known["verdict"].tolist() == ["exact", "fixed", "informed"]


def test_without_balances_the_table_is_empty():
    s = dataclasses.replace(standardizer(COUPLED), constraint=None)
    assert tolerance_table(
        ConstrainedBNN(network(2, 6), None), s, [], [], np.zeros(0, bool), np.zeros(6), np.zeros(0)
    ).empty


def test_sensors_are_told_in_their_outputs_unit_with_an_interval_where_learned():
    s = standardizer(COUPLED, **UNITS)
    table = sensors_of(s)
    assert table["kind"].tolist() == ["given", "none", "learned", "learned", "given", "given"]
    np.testing.assert_allclose(table.loc[["a", "e", "f"], "std"], [0.2 * 5.0, 0.1 * 0.4, 0.3], rtol=1e-12)
    assert table.loc["b", "std"] == 0.0
    w = scipy.stats.lognorm(0.2, scale=math.exp(-3.0))
    for name, unit in (("c", 3.0), ("d", 100.0)):
        expected = unit * np.sqrt(w.ppf([0.025, 0.5, 0.975]))
        np.testing.assert_allclose(table.loc[name, ["lower", "std", "upper"]].astype(float), expected, rtol=1e-4)
    given = table.loc[["a", "b", "e", "f"]]
    np.testing.assert_array_equal(given["lower"], given["upper"])
    np.testing.assert_array_equal(given["kl"], 0.0)
    prior, posterior = torch.distributions.Normal(-6.0, 3.0), torch.distributions.Normal(-3.0, 0.2)
    np.testing.assert_allclose(table.loc["c", "kl"], torch.distributions.kl_divergence(posterior, prior), rtol=1e-6)


def test_without_sensor_noise_the_table_of_sensors_says_none():
    s = standardizer(COUPLED, **UNITS)
    table = sensors_of(s, None)
    assert table["kind"].tolist() == ["none"] * 6
    np.testing.assert_array_equal(table[["std", "lower", "upper", "kl"]], 0.0)


def test_sensors_that_differ_per_row_are_told_by_their_average():
    s = standardizer(COUPLED, **UNITS)
    model, w = hand_made(s, sensor=None), np.array([0.04, 0.0, 0.25, 0.0, 0.0, 1.0])
    table = sensor_table(model, s, tuple("abcdef"), w)
    assert table["kind"].tolist() == ["given per row", "none", "given per row", "none", "none", "given per row"]
    np.testing.assert_allclose(table["std"], np.sqrt(w) * s.y_std, rtol=1e-12)
    table = tolerance_table(model, s, [], [Residual(0.0, 0.1, 1.0, 50)] * 3, np.zeros(3, bool), w, RELATIVE_R)
    r = np.array([0.0, 0.05, math.exp(-2.0)]) * s.row_scale**2
    np.testing.assert_allclose(table["noise_std"], np.sqrt((COUPLED**2) @ (w * s.y_std**2) + r), rtol=1e-12)


def test_the_sensors_average_is_over_rows_and_weights():
    net = BayesianMLP(1, 2, (3,), sensor_head=True, init_std=0.5, generator=torch.Generator().manual_seed(0))
    model = ConstrainedBNN(net, None, joint, variances([math.nan, 0.3]))
    x = torch.linspace(-1, 1, 7)[:, None]
    rows = Rows(x, torch.zeros(7, 2, dtype=torch.float64))
    with torch.no_grad():
        weights = model.draw(4, 0).weights[: trust.EVIDENCE_DRAWS]
        factor = references.network_with_sensors(weights.numpy(), net.sizes, net.activation, x.tolist())[2]
        level = float(model.sensor.median()[0])
    np.testing.assert_allclose(
        trust.mean_sensor_var_over_rows(model, rows, 4), [level * factor[..., 0].mean(), 0.3], rtol=1e-5
    )
    given = Rows(x, rows.y, None, torch.arange(14.0).double().reshape(7, 2))
    assert trust.mean_sensor_var_over_rows(model, given, 4).tolist() == [6.0, 7.0]
