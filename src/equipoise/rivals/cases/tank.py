"""A stirred tank in steady state: A → B → C with Arrhenius rates. Both balances are exact and depend on the inputs.

For a residence time `τ = V / F`::

    c_A = c_0 / (1 + k₁ τ),   c_B = k₁ τ c_A / (1 + k₂ τ),   c_C = k₂ τ c_B,   k = k₀ exp(−E / R T)

The heats of reaction leave with the product, which is warmer than the feed, and through the jacket. There is no
measurement noise, and the balances hold exactly.
"""

import numpy as np
import pandas as pd

from equipoise.rivals.cases.case import CaseTable

GAS_CONSTANT = 8.314  # J/(mol K)
VOLUME = 100.0  # L
RATES = ((1.2e6, 45e3), (4.0e7, 58e3))  # k₀ in 1/min and E in J/mol
HEATS = (75.0, 50.0)  # kJ/mol released
HEAT_CAPACITY = 4.0  # kJ/(L K)


def make_tank(seed: int, n: int = 1000) -> CaseTable:
    """Simulate `n` operating points; the measured outputs are the true ones.

    Args:
        seed: Seed of the case.
        n: Number of operating points.
    """
    rng = np.random.default_rng([seed, 10])
    flow, feed = rng.uniform(0.5, 5.0, n), rng.uniform(0.5, 2.0, n)  # L/min, mol/L
    temperature, feed_temperature = rng.uniform(300, 350, n), rng.uniform(285, 300, n)  # K
    k1, k2 = (k0 * np.exp(-energy / (GAS_CONSTANT * temperature)) for k0, energy in RATES)
    tau = VOLUME / flow
    a = feed / (1 + k1 * tau)
    b = k1 * tau * a / (1 + k2 * tau)
    first, second = (VOLUME * k * c * heat / 60 for k, c, heat in zip((k1, k2), (a, b), HEATS, strict=True))  # kW
    warming = flow * HEAT_CAPACITY * (temperature - feed_temperature) / 60
    X = {"F [L/min]": flow, "c_0 [mol/L]": feed, "T [K]": temperature, "T_0 [K]": feed_temperature}
    Y = {"c_A [mol/L]": a, "c_B [mol/L]": b, "c_C [mol/L]": feed - a - b}
    Y |= {"Q_1 [kW]": first, "Q_2 [kW]": second, "Q_jacket [kW]": first + second - warming}
    exact = pd.DataFrame(Y)
    return CaseTable(pd.DataFrame(X | {"Q_warm [kW]": warming}), exact, exact)
