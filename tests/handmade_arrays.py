"""Made-up arrays of the battery study, as its evaluation writes them, for tests of whatever draws them."""

from itertools import product

import numpy as np
from handmade_results import DRAWS, MEANS, WIDTH

from equipoise.prediction.metrics import LOG10_EDGES
from equipoise.rivals.cases.battery import KEYS
from studies.battery.results import MODELS

STD = {"bnn": 1.3, "paper": 1.1, "bnn_residuals": 1.2, "paper_residuals": 1.05, "equipoise": 1.0}
SERIES = ("voltage", "heat", "overall", "overall_relative")


def made_up_arrays(points: int = 100) -> dict[str, dict[str, np.ndarray]]:
    """Arrays of all models as evaluation writes them, with those of the test rows beside our model's."""
    rng = np.random.default_rng(7)
    grid = list(product((0.5, 1.0, 1.5, 2.0, 2.5, 3.0), (273.0, 283.0, 293.0, 298.0, 303.0, 313.0, 318.0)))
    x = np.array([(i, soc, t) for i, t in grid for soc in np.sort(rng.uniform(0.05, 0.95, points))])
    truth = made_up_truth(*x.T)
    noise = np.where(np.arange(len(KEYS)) < 5, 0.0035, 0.04)
    y = truth + noise * rng.standard_normal(truth.shape)
    found = {model: made_up_model(model, truth, y, noise, rng) for model in MODELS}
    found["equipoise"] |= {"x_test": x, "y_test": y, "truth_test": truth}
    return found


def made_up_truth(current, soc, temperature):
    v_ocv = 3.1 + 0.9 * soc + 0.15 * np.tanh(12 * (soc - 0.1))
    eta_p, eta_n = 0.02 * current * 300 / temperature, 0.015 * current * (1.2 - soc)
    q_rev = 9000 * current * np.sin(9 * soc) * temperature / 300
    q_irr = 14_000 * current**2
    columns = (v_ocv - eta_p - eta_n - 0.05 * current, v_ocv, eta_p, eta_n, 0.05 * current, q_rev + q_irr, q_rev, q_irr)
    return np.stack(columns, axis=1)


def made_up_model(model, truth, y, noise, rng):
    shape = noise * np.array([1, 1, 1, 1, 1, 900, 900, 900])
    phase = rng.uniform(0, 6, len(KEYS))
    mean = truth + 0.4 * shape * np.sin(np.linspace(0, 60, len(truth))[:, None] + phase)
    std = STD[model] * shape * np.ones_like(truth)
    pit = rng.uniform(size=truth.shape) ** (1.05 if model == "paper" else 1.0)
    levels = np.linspace(0.01, 0.99, 99)
    epochs = np.arange(120)
    return {
        "mean": mean,
        "lower": mean - 1.96 * std,
        "upper": mean + 1.96 * std,
        "pit": pit,
        "calibration_levels": levels,
        "calibration_coverage": np.stack([(np.abs(pit - 0.5) <= level / 2).mean(0) for level in levels]),
        "violation_series": np.array(SERIES),
        "violation_log10_edges": LOG10_EDGES,
        "violation_of_means": made_up_counts(*MEANS[model], rng),
        "violation_of_draws": made_up_counts(*DRAWS[model], rng),
        "history_phase": np.where(epochs < 40, "means", "elbo"),
        "history_validation": WIDTH[model] + 12 * np.exp(-epochs / 15) + 0.02 * rng.uniform(size=120),
    }


def made_up_counts(voltage, heat, rng):
    scales = (voltage, heat, 0.5 * (voltage + heat), 0.5 * (voltage / 0.39 + heat / 71_000))
    sizes = [np.log10(scale * np.abs(rng.standard_normal(20_000))) for scale in scales]
    return np.array([[0, *np.histogram(values, LOG10_EDGES)[0], 0] for values in sizes])
