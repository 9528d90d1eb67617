"""A search that takes a second, for tests: 80 rows, a network of 8 units, a rate that is right or hopeless."""

import numpy as np
import pandas as pd

from equipoise.app.tuning import Choice, tune
from equipoise.estimator import ConstrainedBNNRegressor
from equipoise.training.plan import TrainingPlan

N = 80
HELD_OUT = np.arange(60, N)
RATES = {"mean_learning_rate": Choice([1e-7, 2e-2])}
BAD, GOOD = {"mean_learning_rate": 1e-7}, {"mean_learning_rate": 2e-2}


def problem():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (N, 1))
    return x, np.hstack([np.sin(3 * x), x**2]) + 0.05 * rng.standard_normal((N, 2))


X, Y = problem()


def small(**settings) -> ConstrainedBNNRegressor:
    """Fits in a fraction of a second: 10 epochs of means, 8 of the ELBO, 2 of the noise."""
    plan = TrainingPlan(max_epochs=20, learning_rate=1e-4, kl_warmup=0.1)
    return ConstrainedBNNRegressor(**({"hidden": (8,), "training": plan, "random_state": 0} | settings))


def search(journal, space=RATES, estimator=None, **settings):
    settings = {"held_out": HELD_OUT, "n_trials": 2} | settings
    return tune(estimator or small(), X, Y, space, journal=journal, **settings)


def known(result) -> pd.DataFrame:
    """What must be the same in two studies of the same trials: all but clocks and numbers of trials."""
    return result.trials.drop(columns="seconds").reset_index(drop=True)
