"""The account of predictive variance: an identity, term by term, against explicit draws."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from handmade import COUPLED, DISJOINT, NAN, components, network, predictive, stacked, standardizer, variances

import references
from equipoise.network.likelihood import marginal
from equipoise.network.model import ConstrainedBNN
from equipoise.prediction.ledger import Ledger
from equipoise.prediction.predictive import Predictive

INPUTS = {"A": [[1.0, 0.0, 0.5], [0.0, -2.0, 1.0], [0.3, 0.2, 0.1]], "known": ["load"]}
UNITS = {"y_mean": [10.0, -3.0, 0.1, 50.0, 0.0, 2.0], "y_std": [5.0, 0.02, 3.0, 100.0, 0.4, 1.0]}
SENSOR = variances([NAN, 0.0, 0.01, NAN, 0.3, NAN], loc=[-3.0] * 6, std=[0.5] * 6)


def learned(**settings):
    tolerance = variances([NAN, 0.05, NAN], loc=[-1.0, 0.0, -2.0], std=[1.0, 1.0, 0.8])
    return predictive(standardizer(COUPLED, **INPUTS, **UNITS), **({"tolerance": tolerance} | settings))


def fixed(B=COUPLED, r=None, **settings):
    r = np.linspace(0.0, 0.2, len(B)) if r is None else r
    return predictive(standardizer(B, **UNITS), tolerance=variances(r), **settings)


def plain(**settings):
    s = dataclasses.replace(standardizer(COUPLED, **UNITS), constraint=None)
    return predictive(s, tolerance=None, likelihood=marginal, **settings)


CASES = {
    "learned, sensors, offsets": lambda: learned(sensor=SENSOR, offset=([0.5, -0.2, 0.1], [0.1, 0.3, 0.2])),
    "learned, marginal": lambda: learned(likelihood=marginal),
    "fixed and exact": fixed,
    "exact": lambda: fixed(r=[0.0] * 3),
    "disjoint": lambda: fixed(DISJOINT),
    "plain": plain,
    "one draw": lambda: learned(n_draws=1),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
TERMS = ("aleatoric", "reduction", "epistemic", "shift", "interaction", "sensor")


def naive_terms(p):
    """D1 and D2 written out over all draws, with one ddof (0)."""
    parts = components(p)
    mu, v, mean, var = (stacked(parts, name) for name in ("mu", "v", "mean", "var"))
    delta = mean - mu
    return {
        "aleatoric": v.mean(0),
        "reduction": (v - var).mean(0),
        "epistemic": mu.var(0),
        "shift": delta.var(0),
        "interaction": 2 * ((mu - mu.mean(0)) * (delta - delta.mean(0))).mean(0),
        "sensor": stacked(parts, "w").mean(0),
    }


@every_case
@pytest.mark.parametrize("measured", [False, True], ids=["true values", "measured values"])
def test_the_terms_add_up_to_the_predictive_variance(case, measured):
    p = case().measured() if measured else case()
    ledger = p.ledger()
    aleatoric, reduction, epistemic, shift, interaction, sensor = (getattr(ledger, name) for name in TERMS)
    largest = np.max(np.abs([aleatoric, reduction, epistemic, shift, interaction, sensor]), axis=0)
    total = aleatoric - reduction + epistemic + shift + interaction + sensor
    assert np.all(np.abs(total - dataclasses.replace(p).var) <= 1e-12 * largest)  # of a pass of its own
    np.testing.assert_array_equal(ledger.total, total)


def test_the_terms_add_up_however_far_the_network_is_from_its_balances():
    """Balances that miss the network's mean by 1e5 standard deviations make the shift far larger than the sum."""
    s = standardizer(COUPLED, **UNITS)
    far = dataclasses.replace(s, y_mean=s.y_mean + 1e5 * s.y_std)
    p = predictive(far, tolerance=variances([NAN] * 3, loc=[-1.0] * 3, std=[1.0] * 3))
    ledger = p.ledger()
    largest = np.max(np.abs([getattr(ledger, name) for name in TERMS]), axis=0)
    assert np.all(largest[:, [0, 2]] > 1e6 * ledger.aleatoric[:, [0, 2]])
    assert np.all(np.abs(ledger.total - dataclasses.replace(p).var) <= 1e-12 * largest)


def test_the_terms_cancel_where_balances_leave_no_freedom():
    p = predictive(standardizer([[1.0, 1.0], [1.0, -2.0]]), tolerance=variances([0.0, 0.0]))
    ledger = p.ledger()
    largest = np.max(np.abs([getattr(ledger, name) for name in TERMS]), axis=0)
    assert np.all(p.var <= 1e-12 * largest)
    assert np.all(np.abs(ledger.total) <= 1e-12 * largest)
    assert np.all(ledger.epistemic > 0.01)


@every_case
def test_each_term_is_that_of_a_loop_over_draws(case):
    p = case()
    ledger, unit = p.measured().ledger(), p.standardizer.y_std**2
    for name, expected in naive_terms(p).items():
        got = getattr(ledger, name)
        np.testing.assert_allclose(got / unit, expected / unit, rtol=1e-9, atol=1e-12, err_msg=name)


@every_case
def test_the_variance_before_conditioning_is_that_of_the_network_alone(case):
    p = case()
    terms = naive_terms(p)
    np.testing.assert_allclose(p.ledger().before, terms["aleatoric"] + terms["epistemic"], rtol=1e-10)
    with_sensors = terms["aleatoric"] + terms["epistemic"] + terms["sensor"]
    np.testing.assert_allclose(p.measured().ledger().before, with_sensors, rtol=1e-10)
    alone = dataclasses.replace(
        p,
        model=ConstrainedBNN(p.model.network, None, marginal),
        standardizer=dataclasses.replace(p.standardizer, constraint=None),
    )
    np.testing.assert_allclose(p.ledger().before, alone.var, rtol=1e-10)


def test_without_balances_only_the_networks_own_terms_are_left():
    p = plain(sensor=SENSOR)
    ledger = p.measured().ledger()
    for name in ("reduction", "shift", "interaction", "tolerance_share"):
        np.testing.assert_array_equal(getattr(ledger, name), np.zeros((4, 6)), err_msg=name)
    assert ledger.lost_without.shape == (0, 4, 6)
    assert ledger.balances == ()
    np.testing.assert_array_equal(ledger.before, ledger.total)
    np.testing.assert_allclose(ledger.sensor, naive_terms(p)["sensor"], rtol=1e-12)


def test_with_one_draw_nothing_is_epistemic():
    ledger = learned(n_draws=1).ledger()
    for name in ("epistemic", "shift", "interaction"):
        np.testing.assert_array_equal(getattr(ledger, name), np.zeros((4, 6)), err_msg=name)


# --- The tolerance's own share (D2) -----------------------------------------------------------------------------------


def test_the_tolerances_share_compares_two_tolerances_for_the_same_weights():
    p = learned()
    first, second = stacked(components(p), "mean"), stacked(components(p, again=True), "mean")
    unit = p.standardizer.y_std**2
    expected = 0.5 * ((first - second) ** 2).mean(0) / unit
    np.testing.assert_allclose(p.ledger().tolerance_share / unit, expected, rtol=1e-9, atol=1e-13)
    assert np.all(p.ledger().tolerance_share > 0)


def test_the_tolerances_share_is_the_variance_over_tolerances_averaged_over_weights():
    """`E_θ[Var_ρ μ_C]` by Gauss-Hermite quadrature over ρ for each of 1024 θ; within 5 standard errors."""
    s, n = standardizer(DISJOINT[:1]), 1024
    p = predictive(s, tolerance=variances([NAN], loc=[-1.0], std=[1.5]), rows=1, n_draws=n, hidden=())
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    r = s.row_scale**2 * np.exp(-1.0 + 1.5 * nodes[:, None])
    B, inner = s.constraint.B[0], np.empty((n, 6))
    first = components(p)
    for d, (c,) in enumerate(first):
        moved = c.v * B / (B**2 @ c.v + r) * (c.target - B @ c.mu)  # C2, C3 for one balance, at every node
        mean = np.average(moved, axis=0, weights=weights)
        inner[d] = np.average((moved - mean) ** 2, axis=0, weights=weights)
    pairs = 0.5 * (stacked(first, "mean") - stacked(components(p, again=True), "mean"))[:, 0] ** 2
    share, se = p.ledger().tolerance_share[0], (pairs - inner).std(0) / math.sqrt(n)
    touched = B != 0
    assert np.all(np.abs(share - inner.mean(0))[touched] <= 5 * se[touched])
    assert np.all(share[touched] > 8 * se[touched])  # the band says something
    np.testing.assert_array_equal(share[~touched], 0.0)


@pytest.mark.parametrize("r", [[0.0] * 3, [0.1] * 3], ids=["exact", "tolerant"])
def test_a_fixed_tolerance_has_no_share_although_the_shift_varies(r):
    ledger = fixed(r=r).ledger()
    np.testing.assert_array_equal(ledger.tolerance_share, np.zeros((4, 6)))
    assert np.all(ledger.shift > 0)


def test_the_share_of_one_learned_tolerance_is_confined_to_its_block():
    tolerance = variances([0.1, NAN], loc=[0.0, -1.0], std=[1.0, 1.0])
    share = predictive(standardizer(DISJOINT, **UNITS), tolerance=tolerance).ledger().tolerance_share
    np.testing.assert_array_equal(share[:, [0, 1, 2, 5]], 0.0)
    assert np.all(share[:, [3, 4]] > 0)


# --- What each balance contributes (D4) -------------------------------------------------------------------------------


@pytest.mark.parametrize("B", [DISJOINT, COUPLED], ids=["disjoint", "coupled"])
@pytest.mark.parametrize("r", [0.0, 0.1])
def test_the_reduction_lost_is_that_of_the_same_network_without_the_balance(B, r):
    p = fixed(B, [r] * len(B))
    ledger, s = p.ledger(), p.standardizer
    assert ledger.lost_without.shape == (len(B), 4, 6)
    assert ledger.balances == s.constraint.names
    for k, name in enumerate(s.constraint.names):
        smaller = dataclasses.replace(s, constraint=s.constraint.without(name))
        q = predictive(smaller, tolerance=variances([r] * (len(B) - 1)))  # the same weights: they are drawn first
        expected = (ledger.reduction - q.ledger().reduction) / s.y_std**2
        np.testing.assert_allclose(ledger.lost_without[k] / s.y_std**2, expected, rtol=1e-8, atol=1e-12)


def test_the_only_balance_loses_the_whole_reduction():
    p = fixed(DISJOINT[:1], [0.1])
    np.testing.assert_allclose(p.ledger().lost_without[0], p.ledger().reduction, rtol=1e-12)


def test_the_reduction_lost_with_learned_tolerances_is_averaged_over_their_draws():
    p = learned()
    B, unit = p.standardizer.constraint.B, p.standardizer.y_std**2
    lost = np.zeros((3, 4, 6))
    for line in components(p):
        for (i, c), k in ((pair, k) for pair in enumerate(line) for k in range(3)):
            kept = [row for row in range(3) if row != k]
            _, cov = references.conditioned(c.mu, c.v, B[kept], c.target[kept], c.r[kept])
            lost[k, i] += (np.diag(cov) - c.var) / p.n_draws
    np.testing.assert_allclose(p.ledger().lost_without / unit, lost / unit, rtol=1e-8, atol=1e-12)


# --- Beside others ----------------------------------------------------------------------------------------------------


def test_the_variance_of_a_separately_trained_model_is_put_beside():
    p, q = learned(), plain(weight_std=0.1)
    ledger = p.ledger(baseline=q)
    np.testing.assert_array_equal(ledger.baseline, q.var)
    np.testing.assert_array_equal(ledger.total, p.ledger().total)
    assert p.ledger().baseline is None
    np.testing.assert_array_equal(ledger.to_frame()["baseline"], q.var.mean(0))
    assert "baseline" not in p.ledger().to_frame()


def test_a_baseline_in_frames_is_put_beside_as_numbers():
    p, q = learned(), plain()
    framed = dataclasses.replace(q, wrap=lambda values: {"a": "frame"})
    np.testing.assert_array_equal(p.ledger(baseline=framed).baseline, q.var)


def test_the_table_holds_averages_over_rows_one_line_per_output():
    p = learned(sensor=SENSOR).measured()
    ledger = p.ledger()
    table = ledger.to_frame()
    assert list(table.index) == list(p.outputs)
    assert table.index.name == "output"
    for name in (*TERMS, "total", "before", "tolerance_share"):
        np.testing.assert_allclose(table[name], getattr(ledger, name).mean(0), rtol=1e-13)
    for k, name in enumerate(p.standardizer.constraint.names):
        np.testing.assert_allclose(table[f"lost without {name}"], ledger.lost_without[k].mean(0), rtol=1e-13)
    total = table["aleatoric"] - table["reduction"] + table[["epistemic", "shift", "interaction", "sensor"]].sum(axis=1)
    np.testing.assert_allclose(total, p.var.mean(0), rtol=1e-9)


def test_the_ledger_is_the_same_in_other_units_of_an_output():
    """Output 3 in units a thousand times smaller: its variances grow by 1e6, all others stay."""
    unit = np.array([1.0, 1.0, 1.0, 1000.0, 1.0, 1.0])
    tolerance = variances([NAN, 0.05, NAN], loc=[-1.0, 0.0, -2.0], std=[1.0, 1.0, 0.8])
    units = {name: np.array(values) * unit for name, values in UNITS.items()}
    p = predictive(standardizer(COUPLED / unit, **INPUTS, **units), tolerance=tolerance, sensor=SENSOR)
    ours, theirs = learned(sensor=SENSOR).measured().ledger(), p.measured().ledger()
    for name in (*TERMS, "tolerance_share", "lost_without"):
        expected = getattr(ours, name) * unit**2
        np.testing.assert_allclose(getattr(theirs, name), expected, rtol=1e-8, atol=1e-9, err_msg=name)


# --- Linear model in closed form --------------------------------------------------------------------------------------


def test_the_terms_of_a_linear_model_are_those_of_its_closed_form():
    """Linear in its weights: `μ ~ N(m, P)` over draws, so `Var Δ = K B P Bᵀ Kᵀ` and `Cov[μ, Δ] = −P Bᵀ Kᵀ`.

    1,024 draws; bands of 5 standard errors, `√(2/n)` of a variance and `√((ab + c²)/n)` of a covariance.
    """
    s, n = standardizer(DISJOINT, y_mean=np.zeros(6), y_std=np.ones(6)), 1024
    net = network(2, 6, hidden=(), weight_std=0.5)
    with torch.no_grad():  # the variance head neither depends on x nor on the draw
        W, bias = net.layers(net.posterior.loc)[-1]
        W_std, bias_std = net.layers(net.posterior.log_std)[-1]
        W[:, 6:], bias[6:] = 0.0, -1.0
        W_std[:, 6:], bias_std[6:] = -30.0, -30.0
    base = predictive(s, tolerance=variances([0.3, 0.3]), rows=1)
    p = dataclasses.replace(base, model=ConstrainedBNN(net, base.model.conditioning), n_draws=n)
    x = (p.X[0] - s.x_mean) / s.x_std
    v, P = np.full(6, math.exp(20 * math.tanh(-1 / 20))), 0.25 * (1 + x @ x) * np.eye(6)
    S = s.B @ np.diag(v) @ s.B.T + 0.3 * np.eye(2)
    K = np.diag(v) @ s.B.T @ np.linalg.inv(S)
    shift, cov = np.diag(K @ s.B @ P @ s.B.T @ K.T), -np.diag(P @ s.B.T @ K.T)
    ledger, band = p.ledger(), 5 * math.sqrt(2 / n)
    np.testing.assert_allclose(ledger.aleatoric[0], v, rtol=1e-9)
    np.testing.assert_allclose(ledger.reduction[0], np.diag(K @ S @ K.T), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ledger.epistemic[0], np.diag(P), rtol=band)
    np.testing.assert_allclose(ledger.shift[0], shift, rtol=band, atol=1e-12)
    se = np.sqrt((np.diag(P) * shift + cov**2) / n)
    assert np.all(np.abs(ledger.interaction[0] - 2 * cov) <= 2 * 5 * se + 1e-12)


def test_a_ledger_can_be_read_without_a_model():
    """It is plain data: the sum and the table follow from its arrays alone."""
    one = np.ones((2, 1))
    terms = {"aleatoric": 5 * one, "reduction": 2 * one, "epistemic": 3 * one, "shift": one, "interaction": -one}
    ledger = Ledger(
        **terms, sensor=0.5 * one, tolerance_share=one, lost_without=one[None], outputs=("y",), balances=("mass",)
    )
    assert np.all(ledger.total == 6.5)
    assert np.all(ledger.before == 8.5)
    assert ledger.to_frame().loc["y", "lost without mass"] == 1.0


def test_a_predictive_of_many_rows_has_the_ledger_of_each_row():
    p = learned(rows=70)
    whole = p.ledger()
    for i in (0, 63, 64, 69):
        alone = Predictive(p.model, p.standardizer, p.X[i : i + 1], p.outputs, p.n_draws, p.seed).ledger()
        for name in (*TERMS, "tolerance_share"):
            np.testing.assert_allclose(getattr(alone, name)[0], getattr(whole, name)[i], rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(alone.lost_without[:, 0], whole.lost_without[:, i], rtol=1e-9, atol=1e-11)
