import handmade
import numpy as np
import pytest
import scipy.stats

from equipoise.reconciliation.model_reconciliation import reconcile_with_model

NAN = float("nan")
STD = np.array([0.3, 0.2, 0.5, 0.4, 0.3, 0.6])


def stacked_terms(component, y, w):
    """Terms of sensors and of balances, `(n_y + m, n_y)`, from one gain for all that was told, and the log evidence."""
    seen = ~np.isnan(y)
    H = np.vstack([np.eye(len(y))[seen], handmade.COUPLED])
    R = np.diag(np.concatenate([w[seen], component.r]))
    V = np.diag(component.v)
    innovation = np.concatenate([y[seen], component.target]) - H @ component.mu
    gain = V @ H.T @ np.linalg.inv(H @ V @ H.T + R)
    terms = np.zeros((len(y) + len(component.r), len(y)))
    terms[np.concatenate([seen, np.ones(len(component.r), bool)])] = (gain * innovation).T
    S = component.cov[np.ix_(seen, seen)] + np.diag(w[seen])
    return terms, scipy.stats.multivariate_normal.logpdf(y[seen], component.mean[seen], S)


@pytest.fixture(scope="module")
def predicted():
    s = handmade.standardizer(handmade.COUPLED)
    tolerance = handmade.variances([0.0, NAN, 0.01], loc=[0.0, -3.0, 0.0], std=[0.5] * 3)
    return handmade.predictive(
        s, tolerance=tolerance, weight_std=0.15, rows=3, n_draws=40, offset=([0.1] * 3, [0.1] * 3)
    )


@pytest.fixture(scope="module")
def measured(predicted):
    Y = predicted.mean + np.random.default_rng(0).normal(size=(3, 6))
    Y[1, 2] = NAN
    return Y


def test_each_reading_and_balance_moved_what_its_column_of_the_whole_gain_says(predicted, measured):
    parts, found = handmade.components(predicted), reconcile_with_model(predicted, measured, STD, least_draws=0).moved()
    for i in range(3):
        terms, logs = zip(*(stacked_terms(line[i], measured[i], STD**2) for line in parts), strict=True)
        weight = np.exp(logs - np.max(logs)) / np.exp(logs - np.max(logs)).sum()
        expected = np.einsum("d,dsj->sj", weight, np.array(terms))
        network = np.array([line[i].mu for line in parts])
        np.testing.assert_allclose(found.network[i], network.mean(0), atol=1e-10)
        np.testing.assert_allclose(found.sensors[i], expected[:6], atol=1e-10)
        np.testing.assert_allclose(found.balances[i], expected[6:], atol=1e-10)
        np.testing.assert_allclose(found.draws[i], weight @ network - network.mean(0), atol=1e-10)


@pytest.mark.parametrize("least", [0, 1000])
def test_all_moves_together_lead_from_the_network_to_the_answer(predicted, measured, least):
    result = reconcile_with_model(predicted, measured, STD, least_draws=least)
    found = result.moved()
    np.testing.assert_allclose(found.network + found.total, result.mean, atol=1e-12)
    assert not found.sensors[1, 2].any()  # there was no reading
    assert found.draws.any() == (least == 0)


def test_with_the_matched_gaussian_the_balances_did_what_they_did_to_the_prediction(predicted, measured):
    result = reconcile_with_model(predicted, measured, STD, least_draws=1000)
    found = result.moved([2])
    np.testing.assert_allclose(found.network[0] + found.balances[0].sum(0), result.predicted[2], atol=1e-12)


def test_a_model_without_balances_is_moved_by_each_reading_in_its_own_output_alone():
    s = handmade.standardizer(handmade.COUPLED)
    p = handmade.predictive(s.__class__(s.x_mean, s.x_std, s.y_mean, s.y_std), tolerance=None, rows=2, weight_std=0.1)
    found = reconcile_with_model(p, p.mean + 1.0, STD, least_draws=0).moved()
    assert found.balances.shape == (2, 0, 6)
    np.testing.assert_array_equal(found.sensors[0], np.diag(np.diagonal(found.sensors[0])))
    assert (np.diagonal(found.sensors[0]) > 0).all()


def test_the_frame_names_every_source_and_ends_with_the_answer(predicted, measured):
    result = reconcile_with_model(predicted, measured, STD)
    frame = result.moved(1).to_frame()
    assert list(frame.columns) == [f"y{j}" for j in range(6)]
    assert list(frame.index[[0, 1, 7, -2, -1]]) == [
        "network alone",
        "sensor 'y0'",
        "balance 'balance 0'",
        "weights of draws",
        "reconciled",
    ]
    np.testing.assert_allclose(frame.iloc[:-1].sum(), frame.loc["reconciled"], atol=1e-12)
    np.testing.assert_allclose(frame.loc["reconciled"], result.mean[1], atol=1e-12)
