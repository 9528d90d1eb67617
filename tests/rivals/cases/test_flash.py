"""The flash against boiling points, and against the equilibrium it has to be in."""

import numpy as np
import pytest

from equipoise.rivals.cases.flash import COMPONENT_STD, TOTAL_STD, make_flash, vapour_pressure, vapour_shares


@pytest.mark.parametrize(("component", "boiling_point"), [(0, 80.1), (1, 110.6), (2, 144.4)])
def test_each_component_boils_where_handbooks_say(component, boiling_point):
    assert vapour_pressure(component, np.array([boiling_point])) == pytest.approx(101.325, rel=0.005)


def test_both_phases_are_in_equilibrium():
    table = make_flash(0, 400)
    parts = table.truth.to_numpy()
    vapour, liquid = parts[:, :3], parts[:, 3:6]
    both = (vapour.sum(1) > 1e-6) & (liquid.sum(1) > 1e-6)
    assert both.mean() > 0.5
    temperature, pressure, *_ = table.X.to_numpy()[both].T
    y, x = (phase[both] / phase[both].sum(1, keepdims=True) for phase in (vapour, liquid))
    for i in range(3):  # Raoult: partial pressures of vapour and liquid agree
        np.testing.assert_allclose(y[:, i] * pressure, x[:, i] * vapour_pressure(i, temperature), rtol=1e-6)


def test_cold_feed_stays_liquid_and_hot_feed_becomes_vapour():
    feed = np.ones((2, 3))
    shares = vapour_shares(np.array([20.0, 200.0]), np.array([100.0, 100.0]), feed)
    np.testing.assert_allclose(shares, [[0, 0, 0], [1, 1, 1]], atol=1e-12)


def test_meters_add_their_noise_and_true_flows_balance():
    table = make_flash(1, 4000)
    noise = (table.Y - table.truth).to_numpy()
    stated = np.array([COMPONENT_STD] * 6 + [TOTAL_STD] * 2)
    assert np.abs(noise.std(0) / stated - 1).max() < 5 / np.sqrt(2 * 4000)
    truth, feed = table.truth.to_numpy(), table.X.to_numpy()[:, 2:]
    np.testing.assert_allclose(truth[:, :3] + truth[:, 3:6], feed, atol=1e-12)
