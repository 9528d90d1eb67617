"""A heat exchanger that loses heat to the room, under a balance that says it does not.

Counter-current, by the effectiveness method::

    Q = ε C_min (T_hot − T_cold),   ε = (1 − e) / (1 − c e),   e = exp(−NTU (1 − c)),   c = C_min / C_max

The hot side gives off more heat than the cold side takes up, by a loss that grows with its temperature. The balance
`Q_hot = Q_cold` is wrong by ten times the noise, so that enforcing it makes predictions worse.
"""

import numpy as np
import pandas as pd

from equipoise.rivals.cases.case import CaseTable

UA, UA_LOSS, ROOM = 4.0, 0.4, 293.0  # kW/K, kW/K, K
CP = 4.18  # kJ/(kg K)
HEAT_STD, TEMPERATURE_STD = 2.0, 0.2  # kW, K


def make_exchanger(seed: int, n: int = 1200) -> CaseTable:
    """Simulate `n` operating points and their measurements.

    Args:
        seed: Seed of the case.
        n: Number of operating points.
    """
    rng = np.random.default_rng([seed, 30])
    hot_flow, cold_flow = rng.uniform(0.5, 3.0, (2, n))  # kg/s
    hot, cold = rng.uniform(340, 370, n), rng.uniform(285, 305, n)  # K
    C_hot, C_cold = CP * hot_flow, CP * cold_flow
    C_min, C_max = np.minimum(C_hot, C_cold), np.maximum(C_hot, C_cold)
    c = C_min / C_max
    e = np.exp(-UA / C_min * (1 - c))
    Q_cold = (1 - e) / (1 - c * e) * C_min * (hot - cold)
    Q_hot = Q_cold + UA_LOSS * (hot - ROOM)
    X = {"m_hot [kg/s]": hot_flow, "m_cold [kg/s]": cold_flow, "T_hot [K]": hot, "T_cold [K]": cold}
    outlets = {"T_hot_out [K]": hot - Q_hot / C_hot, "T_cold_out [K]": cold + Q_cold / C_cold}
    truth = pd.DataFrame({"Q_hot [kW]": Q_hot, "Q_cold [kW]": Q_cold} | outlets)
    std = np.array([HEAT_STD, HEAT_STD, TEMPERATURE_STD, TEMPERATURE_STD])
    return CaseTable(pd.DataFrame(X), truth + std * rng.standard_normal(truth.shape), truth)
