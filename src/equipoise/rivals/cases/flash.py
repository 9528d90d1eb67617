"""An isothermal flash of benzene, toluene and o-xylene: Raoult's law with Antoine's vapour pressures.

With `K_i = p_i(T) / P` and a share `β` of the feed leaving as vapour, Rachford and Rice's equation is solved for β::

    Σ_i z_i (K_i − 1) / (1 + β (K_i − 1)) = 0

The true flows obey the balances; every meter adds its own noise.
"""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from equipoise.rivals.cases.case import CaseTable

COMPONENTS = ("benzene", "toluene", "xylene")
ANTOINE = ((6.90565, 1211.033, 220.790), (6.95464, 1344.800, 219.482), (6.99891, 1474.679, 213.686))  # mmHg, °C
KPA_PER_MMHG = 0.133322
COMPONENT_STD, TOTAL_STD = 0.4, 1.0  # kmol/h

Array = NDArray[np.float64]


def make_flash(seed: int, n: int = 1500) -> CaseTable:
    """Simulate `n` operating points and their measurements.

    Args:
        seed: Seed of the case.
        n: Number of operating points.
    """
    rng = np.random.default_rng([seed, 20])
    temperature, pressure = rng.uniform(96, 116, n), rng.uniform(80, 105, n)  # °C, kPa
    feed = rng.uniform(10, 50, (n, 3))  # kmol/h
    vapour = feed * vapour_shares(temperature, pressure, feed)
    liquid = feed - vapour
    parts = np.hstack([vapour, liquid, vapour.sum(1, keepdims=True), liquid.sum(1, keepdims=True)])
    std = np.array([COMPONENT_STD] * 6 + [TOTAL_STD] * 2)
    names = [f"{phase}_{c} [kmol/h]" for phase in "VL" for c in COMPONENTS] + ["V [kmol/h]", "L [kmol/h]"]
    X = {"T [C]": temperature, "P [kPa]": pressure} | {f"F_{c} [kmol/h]": feed[:, i] for i, c in enumerate(COMPONENTS)}
    truth = pd.DataFrame(parts, columns=names)
    return CaseTable(pd.DataFrame(X), truth + std * rng.standard_normal(parts.shape), truth)


def vapour_shares(temperature: Array, pressure: Array, feed: Array) -> Array:
    """Share each component's feed between vapour and liquid.

    Args:
        temperature: In °C, shape `(n,)`.
        pressure: In kPa, shape `(n,)`.
        feed: Flows of the components in kmol/h, shape `(n, 3)`.
    Returns: Share of each component that leaves as vapour, shape `(n, 3)`; 0 below the bubble point, 1 above the dew
        point.
    """
    K = np.stack([vapour_pressure(c, temperature) / pressure for c in range(3)], axis=1)
    z = feed / feed.sum(1, keepdims=True)
    low, high = np.zeros(len(z)), np.ones(len(z))
    for _ in range(60):  # the function falls in β: halve to the last bit
        middle = 0.5 * (low + high)
        positive = (z * (K - 1) / (1 + middle[:, None] * (K - 1))).sum(1) > 0
        low, high = np.where(positive, middle, low), np.where(positive, high, middle)
    beta = 0.5 * (low + high)[:, None]
    return beta * K / (1 + beta * (K - 1))


def vapour_pressure(component: int, temperature: Array) -> Array:
    """Compute the vapour pressure in kPa at a temperature in °C by Antoine's equation.

    Args:
        component: Name of the component.
        temperature: In °C, of any shape.
    """
    a, b, c = ANTOINE[component]
    return KPA_PER_MMHG * 10 ** (a - b / (temperature + c))
