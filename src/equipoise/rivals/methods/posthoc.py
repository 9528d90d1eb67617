"""Post-hoc conditioning (ProbConserv, Hansen et al. 2023): train without balances, condition when predicting.

The balances are exact, or all have one tolerance, relative to their scales: the one under which held-out rows are most
likely.
"""

import math

import torch
from scipy.optimize import minimize_scalar

from equipoise.data import Rows
from equipoise.rivals.methods.imposing import ImposedBNN

LOG_VARS = (-25.0, 5.0)  # between which the logarithm of the relative tolerance variance is looked for
GRID = 16


@torch.no_grad()
def set_scalar_tolerance(model: ImposedBNN, rows: Rows, seed: int) -> float:
    """Give every balance of `model` the same relative tolerance variance, the most likely one, and return it.

    Args:
        model: Trained without balances, with a conditioning whose tolerances are fixed.
        rows: Held-out rows.
        seed: Of the posterior draws whose mixture has to explain the rows.
    """
    fixed = model.conditioning.tolerance.fixed  # type: ignore[union-attr]

    def nll(log_var: float) -> float:
        fixed.fill_(math.exp(log_var))
        return -float(model.mixture_log_prob(rows, seed).mean())

    grid = torch.linspace(*LOG_VARS, GRID).tolist()
    best = min(grid, key=nll)
    step = grid[1] - grid[0]
    near = (best - step, best + step)
    found = float(minimize_scalar(nll, bounds=near, method="bounded", options={"xatol": 0.01}).x)  # type: ignore[attr-defined]
    fixed.fill_(math.exp(found))
    return math.exp(found)
