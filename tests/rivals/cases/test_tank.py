"""The stirred tank against an integration of its differential equations to steady state."""

import numpy as np
import scipy.integrate

from equipoise.rivals.cases.tank import HEAT_CAPACITY, HEATS, VOLUME, make_tank


def rate(k0, energy, temperature):
    return k0 * np.exp(-energy / (8.314 * temperature))


def test_concentrations_are_where_the_reactor_comes_to_rest():
    table = make_tank(0, 5)
    for i in range(5):
        flow, feed, temperature, _, _ = table.X.iloc[i]
        k1, k2 = rate(1.2e6, 45e3, temperature), rate(4e7, 58e3, temperature)

        def change(_, c, d=flow / VOLUME, c0=feed, k1=k1, k2=k2):
            return [d * (c0 - c[0]) - k1 * c[0], -d * c[1] + k1 * c[0] - k2 * c[1], -d * c[2] + k2 * c[1]]

        end = scipy.integrate.solve_ivp(change, (0, 5000), [0, 0, 0], method="LSODA", rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(table.truth.iloc[i, :3], end.y[:, -1], rtol=1e-6)


def test_the_jacket_takes_what_reactions_give_and_warming_does_not():
    table = make_tank(1, 50)
    flow, feed, temperature, cold, _ = table.X.to_numpy().T
    a, _, c, *_ = table.truth.to_numpy().T
    turned, further = flow * (feed - a), flow * c  # mol/min: what left A, and what arrived at C
    expected = (HEATS[0] * turned + HEATS[1] * further) / 60 - HEAT_CAPACITY * flow * (temperature - cold) / 60
    np.testing.assert_allclose(table.truth["Q_jacket [kW]"], expected, rtol=1e-9)


def test_nothing_is_measured_with_noise():
    table = make_tank(2, 10)
    assert table.Y.equals(table.truth)
