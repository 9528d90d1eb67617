from dataclasses import replace

import handmade
import numpy as np
import pytest
import readings_by_hand as by_hand

from equipoise.balances.linear import LinearConstraint
from equipoise.prediction import predictive as predictive_module
from equipoise.reconciliation import reconcile
from equipoise.reconciliation.model_reconciliation import reconcile_with_model

NAN = float("nan")
LEARNED = handmade.variances([NAN] * 3 + [0.01] * 3, loc=[-2.0, -3.0, -2.0, 0, 0, 0], std=[0.3] * 6)
STD = np.array([0.3, 0.2, 0.5, 0.4, 0.3, 0.6])


def predicted(B=handmade.COUPLED, *, n_draws=40, rows=4, weight_std=0.1, sensor=LEARNED, offset=None, **settings):
    s = handmade.standardizer(B, A=0.3 * np.arange(2 * len(B)).reshape(len(B), 2))
    tolerance = handmade.variances([0.0, NAN, 0.01][: len(B)], loc=[0.0, -3.0, 0.0][: len(B)], std=[0.5] * len(B))
    return handmade.predictive(
        s,
        tolerance=tolerance,
        sensor=sensor,
        offset=offset,
        rows=rows,
        n_draws=n_draws,
        weight_std=weight_std,
        **settings,
    )


def readings_of(p, spread=0.5, seed=0):
    """Readings about the prediction, some of them missing, one row without any."""
    Y = p.mean + spread * np.random.default_rng(seed).normal(size=(len(p.X), 6))
    Y[1, [0, 4]], Y[2] = NAN, NAN
    return Y


# --- Against dense algebra, draw by draw ------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[handmade.COUPLED, handmade.DISJOINT], ids=["coupled", "disjoint"])
def naive(request):
    """A prediction, readings, and the prediction draw by draw."""
    p = predicted(request.param, offset=([0.1] * len(request.param), [0.2] * len(request.param)))
    return p, readings_of(p), handmade.components(p)


@pytest.mark.parametrize("least", [0, 30, 1000])
@pytest.mark.parametrize("std", [None, STD])
def test_the_answer_is_that_of_the_naive_mixture_or_of_its_moments(naive, std, least):
    p, Y, parts = naive
    found = reconcile_with_model(p, Y, std, least_draws=least)
    expected = by_hand.answers(p, Y, None if std is None else std**2, least, parts)
    np.testing.assert_allclose(found.mean, [a.mean for a in expected], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found.std, [np.sqrt(np.diag(a.cov)) for a in expected], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found.covariance(), [a.cov for a in expected], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found.effective_draws, [a.effective for a in expected], rtol=1e-9)
    np.testing.assert_array_equal(found.gaussian, [a.gaussian for a in expected])
    if least == 30:
        assert 0 < found.gaussian.sum() < 4  # both kinds in one table


def test_fewer_than_twenty_effective_draws_are_replaced_by_the_matched_gaussian():
    p = predicted(weight_std=0.5)
    Y = readings_of(p, spread=1.5)
    found, expected = reconcile_with_model(p, Y, STD), by_hand.answers(p, Y, STD**2, 20)
    assert found.gaussian.any()
    np.testing.assert_array_equal(found.gaussian, found.effective_draws < 20)
    np.testing.assert_allclose(found.mean, [a.mean for a in expected], rtol=1e-10, atol=1e-10)


def test_a_row_without_readings_stays_as_predicted():
    p = predicted()
    found = reconcile_with_model(p, readings_of(p), STD)
    np.testing.assert_allclose(found.mean[2], p.mean[2], atol=1e-12)
    np.testing.assert_allclose(found.std[2], p.std[2], atol=1e-12)
    np.testing.assert_allclose(found.effective_draws[2], p.n_draws)


def test_a_network_without_balances_is_weighted_just_so():
    s = handmade.standardizer(handmade.COUPLED)
    p = handmade.predictive(replace(s, constraint=None), tolerance=None, weight_std=0.1, n_draws=40)
    Y = readings_of(p)
    found, expected = reconcile_with_model(p, Y, STD, least_draws=0), by_hand.answers(p, Y, STD**2, 0)
    np.testing.assert_allclose(found.mean, [a.mean for a in expected], atol=1e-10)
    np.testing.assert_allclose(found.covariance([0]), [expected[0].cov], atol=1e-10)


def test_one_draw_is_classical_reconciliation_with_the_networks_word_as_one_more_instrument():
    """Doubled variables `z` (what the network says) and `u` (what the instruments say) with the balance z = u."""
    p = predicted(n_draws=1, sensor=None)
    Y = readings_of(p)[[0, 1, 3]]
    p = replace(p, X=p.X[[0, 1, 3]])
    (line,), c = handmade.components(p), p.standardizer.constraint
    same = np.hstack([np.eye(6), -np.eye(6)])
    answers = [reconcile_with_model(p, Y, STD, least_draws=least) for least in (0, 20)]  # one draw is its own moments
    for i, component in enumerate(line):
        doubled = LinearConstraint(
            np.vstack([np.hstack([c.B, 0 * c.B]), same]), None, np.concatenate([component.target, np.zeros(6)])
        )
        classical = reconcile(
            np.concatenate([component.mu, Y[i]]),
            np.concatenate([np.sqrt(component.v), STD]),
            doubled,
            tolerance=np.concatenate([np.sqrt(component.r), np.zeros(6)]),
        )
        for found in answers:
            np.testing.assert_allclose(found.mean[i], classical.values[:6], rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(found.std[i], classical.std[:6], rtol=1e-7, atol=1e-9)


# --- Streaming --------------------------------------------------------------------------------------------------------


def test_chunks_of_rows_change_nothing(monkeypatch, long_training):
    p = predicted(rows=66, n_draws=34)
    Y = p.mean + 0.4 * np.random.default_rng(3).normal(size=p.mean.shape)
    whole = reconcile_with_model(p, Y, STD, least_draws=25)
    expected = whole.mean, whole.std, whole.covariance(), whole.sample(5, seed=1), whole.moved().sensors
    monkeypatch.setattr(predictive_module, "CACHE_BYTES", 1)
    assert len(list(p.chunks())) == 2
    again = reconcile_with_model(p, Y, STD, least_draws=25)
    found = again.mean, again.std, again.covariance(), again.sample(5, seed=1), again.moved().sensors
    assert 0 < whole.gaussian.sum() < 66
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


# --- Joint draws ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("least", [0, 1000])
def test_draws_have_the_moments_of_the_answer_and_obey_exact_balances(least):
    """Bands of 5 standard errors; that of a covariance follows from the fourth moment of the draws themselves."""
    p, n = predicted(), 5000
    found = reconcile_with_model(p, readings_of(p), STD, least_draws=least)
    drawn = found.sample(n, seed=2)
    apart = drawn - found.mean
    assert (np.abs(apart.mean(0)) < 5 * found.std / np.sqrt(n) + 1e-12).all()
    products = apart[..., :, None] * apart[..., None, :]
    assert (np.abs(products.mean(0) - found.covariance()) < 5 * products.std(0) / np.sqrt(n) + 1e-12).all()
    exact = p.standardizer.constraint.residual(p.X, drawn)[..., 0]
    assert np.abs(exact).max() < 1e-13 * p.standardizer.constraint.magnitude(p.X, drawn)[..., 0].max() * 100


def test_draws_depend_on_the_seed_alone():
    p = predicted()
    found = reconcile_with_model(p, readings_of(p), STD)
    drawn = found.sample(3, seed=1)
    np.testing.assert_array_equal(found.sample(3, seed=1), drawn)
    assert (found.sample(3, seed=2)[:, 0] != drawn[:, 0]).all()


@pytest.mark.parametrize("least", [0, 1000])
def test_means_obey_exact_balances_to_rounding_also_with_excellent_instruments(least):
    p = predicted()
    found = reconcile_with_model(p, readings_of(p), 1e-7 * STD, least_draws=least)
    magnitude = p.standardizer.constraint.magnitude(p.X, found.mean)
    assert (np.abs(found.residuals.after) < 64 * np.finfo(float).eps * magnitude)[:, 0].all()


# --- Calibration ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def true():
    """A prediction, true values from a random draw of each row, and readings of some of them."""
    p, rng = predicted(rows=1000, n_draws=40, weight_std=0.12), np.random.default_rng(4)
    truth = p.sample(40)[rng.integers(40, size=1000), np.arange(1000)]
    Y = truth + STD * rng.normal(size=truth.shape)
    Y[rng.random(Y.shape) < 0.3] = NAN
    return p, truth, Y


@pytest.mark.parametrize("weighted", [True, False])
def test_errors_are_as_large_as_the_answer_says_when_the_model_is_true(true, weighted):
    """The mean squared standardized error is 1 and 95 % lie inside.

    Bands are 4 standard errors, with the rows' own scatter; outputs of a row are not independent. The matched Gaussian
    is the best *linear* answer, so its mean squared error is right as well.
    """
    p, truth, Y = true
    found = reconcile_with_model(p, Y, STD, least_draws=0 if weighted else 1000)
    square = (((found.mean - truth) / found.std) ** 2).mean(1)
    inside = (np.abs(found.mean - truth) <= found.half_widths.after).mean(1)
    if weighted:
        assert abs(square.mean() - 1) < 4 * square.std() / np.sqrt(1000)
    else:  # one covariance for all readings is right on average, not in every row
        excess = ((found.mean - truth) ** 2 - found.std**2).mean(0)
        scatter = ((found.mean - truth) ** 2 - found.std**2).std(0)
        assert (np.abs(excess) < 4.5 * scatter / np.sqrt(1000)).all()
    assert abs(inside.mean() - 0.95) < 0.015
