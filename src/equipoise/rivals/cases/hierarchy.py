"""Electricity demand of a town: 48 feeders, 16 streets, 4 districts and the whole. 69 meters, 21 sums.

The demand of each feeder depends on the hour, the temperature and the sunshine, each feeder with its own coefficients.
The noise of a meter is 2 % of the standard deviation of what it measures. The true demands add up; the readings do not.
"""

import numpy as np
import pandas as pd

from equipoise.rivals.cases.case import CaseTable

FEEDERS, STREETS, DISTRICTS = 48, 16, 4
METER = 0.02  # noise, relative to the standard deviation of what a meter measures


def make_hierarchy(seed: int, n: int = 1500) -> CaseTable:
    """Simulate `n` hours and their measurements; the town is the same for all seeds.

    Args:
        seed: Seed of the case.
        n: Number of hours.
    """
    town, rng = np.random.default_rng(40), np.random.default_rng([seed, 40])
    hour, temperature, sun = rng.uniform(0, 24, n), rng.uniform(-5, 35, n), rng.uniform(0, 1, n)
    base, morning, evening = (town.uniform(low, high, FEEDERS) for low, high in ((20, 120), (0, 0.6), (0, 0.8)))
    heating, cooling, panels = (town.uniform(0, high, FEEDERS) for high in (0.4, 0.3, 0.5))
    peak_m, peak_e = town.uniform(6, 9, FEEDERS), town.uniform(17, 21, FEEDERS)
    h, t, s = hour[:, None], temperature[:, None], sun[:, None]
    daylight = np.clip(np.sin(np.pi * (h - 6) / 12), 0, None)
    share = 1 + morning * _bump(h, peak_m) + evening * _bump(h, peak_e) - panels * s * daylight
    share = share + heating * np.clip(18 - t, 0, None) / 10 + cooling * np.clip(t - 24, 0, None) / 5
    feeders = base * share  # kW
    streets = feeders.reshape(n, STREETS, -1).sum(2)
    districts = streets.reshape(n, DISTRICTS, -1).sum(2)
    truth = np.hstack([feeders, streets, districts, districts.sum(1, keepdims=True)])
    noise = METER * truth.std(0) * rng.standard_normal(truth.shape)
    X = pd.DataFrame({"hour [h]": hour, "temperature [C]": temperature, "sun": sun})
    return CaseTable(X, pd.DataFrame(truth + noise, columns=meters()), pd.DataFrame(truth, columns=meters()))


def meters() -> list[str]:
    """Name the outputs: f1 … f48, s1 … s16, d1 … d4, town."""
    levels = (("f", FEEDERS), ("s", STREETS), ("d", DISTRICTS))
    return [f"{letter}{k} [kW]" for letter, count in levels for k in range(1, count + 1)] + ["town [kW]"]


def sums() -> dict[str, str]:
    """Write the balances: a street is the sum of its feeders, a district of its streets, the town of its districts."""
    balances = {}
    for parent, children, letter, part in (("s", FEEDERS, "f", STREETS), ("d", STREETS, "s", DISTRICTS)):
        width = children // part
        for k in range(part):
            terms = " + ".join(f"{letter}{k * width + i + 1}" for i in range(width))
            balances[f"{parent}{k + 1}"] = f"{parent}{k + 1} = {terms}"
    return balances | {"town": "town = " + " + ".join(f"d{k}" for k in range(1, DISTRICTS + 1))}


def _bump(hour: np.ndarray, peak: np.ndarray) -> np.ndarray:
    """Return 1 at the peak and less at other hours, periodic over the day."""
    return np.exp(4 * (np.cos(2 * np.pi * (hour - peak) / 24) - 1))
