"""Passes over draws: two ways to the same numbers, how often draws are evaluated, and what is kept of them."""

import dataclasses

import numpy as np
import pytest
import torch
from handmade import COUPLED, DISJOINT, NAN, predictive, standardizer, variances

from equipoise.network.likelihood import marginal
from equipoise.network.mlp import BayesianMLP
from equipoise.network.model import ConstrainedBNN
from equipoise.prediction import mixture, predictive as predictive_module
from equipoise.prediction.weight_draws import NetworkEvaluator, draws_between

UNITS = {"y_mean": [10.0, -3.0, 0.1, 50.0, 0.0, 2.0], "y_std": [5.0, 0.02, 3.0, 100.0, 0.4, 1.0]}
INPUTS = {"A": [[1.0, 0.0, 0.5], [0.0, -2.0, 1.0]], "known": ["load"]}
SENSOR = variances([NAN, 0.0, 0.01, NAN, 0.3, NAN], loc=[-3.0] * 6, std=[0.5] * 6)
SPLIT = slice(0, 35), slice(35, 70)
TERMS = ("aleatoric", "reduction", "epistemic", "shift", "interaction", "sensor", "tolerance_share", "lost_without")


def learned(**settings):
    tolerance = variances([NAN, NAN], loc=[-1.0, -4.0], std=[0.7, 0.4])
    s = standardizer(DISJOINT, **INPUTS, **UNITS)
    return predictive(s, **({"tolerance": tolerance, "sensor": SENSOR, "rows": 70} | settings))


def plain(**settings):
    s = dataclasses.replace(standardizer(DISJOINT, **UNITS), constraint=None)
    return predictive(s, **({"tolerance": None, "likelihood": marginal, "sensor": SENSOR, "rows": 70} | settings))


CASES_OF_ANY_SIZE = {
    "learned": learned,
    "offsets": lambda **settings: learned(offset=([0.5, -0.2], [0.1, 0.3]), **settings),
    "exact": lambda **settings: learned(tolerance=variances([0.0, 0.0]), **settings),
    "measured": lambda **settings: learned(**settings).measured(),
    "plain": lambda **settings: plain(**settings),
    "coupled": lambda **settings: predictive(
        standardizer(COUPLED), tolerance=variances([NAN] * 3, loc=[-1.0] * 3, std=[1.0] * 3), **settings
    ),
}
CASES = {
    "learned": learned,
    "offsets": lambda: learned(offset=([0.5, -0.2], [0.1, 0.3])),
    "exact": lambda: learned(tolerance=variances([0.0, 0.0])),
    "one draw": lambda: learned(n_draws=1),
    "many draws": lambda: learned(n_draws=130),
    "measured": lambda: learned().measured(),
    "given sensors": lambda: learned().measured(np.array(UNITS["y_std"]) / 10),
    "plain": plain,
    "plain, measured": lambda: plain().measured(),
}


@pytest.mark.parametrize("B", [DISJOINT, COUPLED], ids=["closed form", "general"])
def test_given_sensors_add_their_variance_and_nothing_else(B):
    std, s = np.linspace(0.1, 2.0, 6), standardizer(B)
    true = predictive(s, tolerance=variances([0.1] * len(B)), n_draws=40)
    measured = true.measured(std)
    np.testing.assert_allclose(measured.var - true.var, np.tile(std**2, (4, 1)), rtol=1e-12)
    np.testing.assert_allclose(true.measured(std).ledger().sensor, np.tile(std**2, (4, 1)), rtol=1e-13)


def test_the_sensor_head_is_used_where_measured_values_are_asked_for():
    p = learned()
    net = BayesianMLP(2, 6, (6,), "tanh", sensor_head=True, init_std=0.3, generator=torch.Generator().manual_seed(0))
    model = ConstrainedBNN(net.double(), p.model.conditioning, sensor=SENSOR)
    p = dataclasses.replace(p, model=model).measured()
    expected = 0.0
    for block in range(2):
        draws = draws_between(model.draw(p.seed, block), 0, 32 if block == 0 else 8)
        with torch.no_grad():
            expected = expected + model.measured_at(draws, *p.standardized_inputs(slice(0, 70)))[1].sum(0) / 40
    np.testing.assert_allclose(p.ledger().sensor, expected.numpy() * p.standardizer.y_std**2, rtol=1e-12)
    true = dataclasses.replace(p, sensor_var=None)
    np.testing.assert_allclose(p.var - true.var, p.ledger().sensor, rtol=1e-9)


# --- How often draws are evaluated ------------------------------------------------------------------------------------


@pytest.fixture
def evaluations(monkeypatch):
    """Numbers of draws at which the network was evaluated, one entry per call."""
    calls, heads = [], NetworkEvaluator.heads

    def counted(self, drawn, x):
        calls.append(len(drawn.weights))
        return heads(self, drawn, x)

    monkeypatch.setattr(NetworkEvaluator, "heads", counted)
    return calls


def test_the_ledger_brings_mean_and_variance_in_the_same_pass(evaluations):
    p = learned(rows=4)
    ledger = p.ledger()
    assert evaluations == [32, 8]
    alone = learned(rows=4)
    np.testing.assert_array_equal(p.mean, alone.mean)
    np.testing.assert_array_equal(p.var, alone.var)
    np.testing.assert_allclose(p.std, np.sqrt(ledger.total), rtol=1e-12)
    assert evaluations == [32, 8] * 2


def test_the_ledger_after_the_mean_is_a_second_pass_and_changes_no_mean(evaluations):
    p = learned(rows=4)
    mean, var = p.mean, p.var
    p.ledger()
    assert evaluations == [32, 8] * 2
    np.testing.assert_array_equal(p.mean, mean)
    np.testing.assert_array_equal(p.var, var)


def test_an_interval_brings_mean_and_variance_in_the_same_pass(evaluations):
    p = learned(rows=4)
    p.interval(0.9)
    np.testing.assert_array_equal(p.mean, learned(rows=4).mean)
    np.testing.assert_array_equal(p.std, learned(rows=4).std)
    assert len(evaluations) == 3 * 2


def test_a_variance_that_the_ledgers_terms_cancel_to_is_found_on_its_own():
    """An exact balance of one output fixes it: its terms are far from 0, and their sum is rounding."""
    p = predictive(standardizer(np.eye(6)[:1]), tolerance=variances([0.0]))
    ledger, fresh = p.ledger(), dataclasses.replace(p)
    assert np.all(ledger.epistemic[:, 0] > 1e-3)
    assert np.all(np.abs(ledger.total[:, 0]) < 1e-14)
    np.testing.assert_array_equal(p.var, fresh.var)
    assert np.all(p.std[:, 0] <= 1e-7 * p.standardizer.y_std[0])
    assert np.all(p.std[:, 0] >= 0.0)


ASKED_BEFORE = {
    "nothing": lambda p: None,
    "ledger": lambda p: p.ledger(),
    "interval": lambda p: p.interval(0.9),
    "quantile, ledger": lambda p: (p.quantile([0.1, 0.5]), p.ledger()),
    "ledger, interval": lambda p: (p.ledger(), p.interval(0.9)),
    "sample, covariance": lambda p: (p.sample(3), p.covariance()),
}


@pytest.mark.parametrize("case", ["learned", "offsets", "exact", "measured", "plain", "coupled"])
@pytest.mark.parametrize("small", [False, True], ids=["one chunk", "chunks of several sizes"])
def test_mean_and_variance_have_the_same_bits_whatever_was_asked_before(case, small, monkeypatch):
    if small:  # moments are computed for 192 rows at a time, quantiles for 128, the ledger for 64
        monkeypatch.setattr(predictive_module, "UNITS_BYTES", 192 * 4 * 32 * 12)
        monkeypatch.setattr(predictive_module, "CACHE_BYTES", 2**20)
        monkeypatch.setattr(predictive_module, "COMPONENTS_BYTES", 2**19)

    def fresh():
        return CASES_OF_ANY_SIZE[case](rows=200 if small else 20)

    seen = {}
    for name, ask in ASKED_BEFORE.items():
        p = fresh()
        ask(p)
        seen[name] = np.concatenate([p.mean, p.var, p.std]).tobytes()
    assert len(set(seen.values())) == 1, [name for name, bits in seen.items() if bits != seen["nothing"]]


# --- What is kept of draws --------------------------------------------------------------------------------------------


def test_draws_are_kept_up_to_a_size_and_the_same_when_made_anew(monkeypatch):
    p = learned()
    first = p._draws(0)
    assert p._draws(0) is first
    monkeypatch.setattr(mixture, "DRAWS_BYTES", 0)
    q = dataclasses.replace(p)
    again = q._draws(0)
    assert q._draws(0) is not again
    assert not q._kept_draws
    assert torch.equal(first.weights, again.weights)
    assert torch.equal(first.tol_var_again, again.tol_var_again)


@pytest.mark.parametrize("n", [1, 8, 20, 32])
def test_the_first_draws_of_a_block_come_in_parts_of_the_whole(n):
    p = learned(offset=([0.5, -0.2], [0.1, 0.3]))
    whole, parts = p._draws(1), list(p._blocks(range(32, 32 + n), 8))
    assert [len(part.weights) for part in parts] == [8] * (n // 8) + [n % 8] * (n % 8 > 0)
    for name in ("weights", "tol_var", "tol_var_again", "offset", "sensor_var"):
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name)[:n])


def test_components_are_what_the_model_says_and_may_be_kept():
    p = learned(n_draws=96, rows=4)
    rows = slice(0, 4)
    kept = list(p.components(rows))
    assert len(kept) == 3
    for block, part in enumerate(kept):
        gaussian = part.gaussian
        expected = p.model.at(p.model.draw(p.seed, block), *p.standardized_inputs(rows))
        np.testing.assert_allclose(gaussian.mean, expected.mean.detach(), rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(gaussian.var, expected.var.detach(), rtol=1e-12)


def test_components_of_coupled_balances_come_with_a_second_draw_of_tolerances_when_asked():
    p = predictive(standardizer(COUPLED), tolerance=variances([NAN] * 3, loc=[-1.0] * 3, std=[1.0] * 3))
    for part in p.components(slice(0, 4), again=True):
        gaussian, w, again = part.gaussian, part.sensor_var, part.second
        assert torch.equal(gaussian.prior.mean, again.prior.mean)
        assert not torch.equal(gaussian.tol_var, again.tol_var)
        assert w == 0.0
    assert all(part.second is None for part in p.components(slice(0, 4)))
