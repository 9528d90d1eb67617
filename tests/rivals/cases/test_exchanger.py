"""The heat exchanger against an integration along its length, and its loss against its noise."""

import numpy as np
import scipy.integrate

from equipoise.rivals.cases.exchanger import CP, HEAT_STD, UA, make_exchanger


def test_the_duty_is_that_of_two_streams_along_a_wall():
    table = make_exchanger(0, 4)
    for i in range(4):
        hot_flow, cold_flow, hot, cold = table.X.iloc[i]
        duty = table.truth["Q_cold [kW]"].iloc[i]
        cold_out = cold + duty / (CP * cold_flow)

        def along(_, t, h=hot_flow, c=cold_flow):  # from the hot inlet, where the cold stream leaves
            flux = UA * (t[0] - t[1])
            return [-flux / (CP * h), -flux / (CP * c)]

        end = scipy.integrate.solve_ivp(along, (0, 1), [hot, cold_out], rtol=1e-10).y[:, -1]
        np.testing.assert_allclose(end, [hot - duty / (CP * hot_flow), cold], atol=1e-4)


def test_the_declared_balance_is_wrong_by_far_more_than_its_noise():
    table = make_exchanger(1)
    missed = (table.truth["Q_hot [kW]"] - table.truth["Q_cold [kW]"]).to_numpy()
    assert missed.min() > 6 * np.sqrt(2) * HEAT_STD
    noise = (table.Y - table.truth).to_numpy()[:, :2]
    assert np.abs(noise.std(0) / HEAT_STD - 1).max() < 5 / np.sqrt(2 * len(noise))
