"""Post-hoc conditioning (ProbConserv, Hansen et al. 2023): train without balances, condition when predicting.

The balances are exact, or share one tolerance relative to their scales: the one that makes held-out rows most likely.
"""

import math

import torch
from jaxtyping import Float
from scipy.optimize import minimize_scalar
from torch import Tensor

from equipoise.data import Rows
from equipoise.network import ConstrainedBNN

LOG_VARS = (-25.0, 5.0)  # bounds of the logarithm of the relative tolerance variance
GRID = 16


@torch.no_grad()
def set_scalar_tolerance(model: ConstrainedBNN, rows: Rows, seed: int) -> float:
    """Give every balance of `model` the relative tolerance variance that makes the rows most likely, and return it.

    Args:
        model: Trained without balances, with a conditioning whose tolerances are fixed; it is changed in place.
        rows: Held-out rows, in standardized units.
        seed: Seed of the posterior draws in whose mixture the rows' density is taken.
    """
    tol_var = model.conditioning.tolerance.fixed  # type: ignore[union-attr]

    def nll(log_var: float) -> float:
        tol_var.fill_(math.exp(log_var))
        return -float(mixture_log_prob(model, rows, seed).mean())

    grid = torch.linspace(*LOG_VARS, GRID).tolist()
    best = min(grid, key=nll)
    step = grid[1] - grid[0]
    bounds = (best - step, best + step)
    log_var = float(minimize_scalar(nll, bounds=bounds, method="bounded", options={"xatol": 0.01}).x)  # type: ignore[attr-defined]
    tol_var.fill_(math.exp(log_var))
    return math.exp(log_var)


@torch.no_grad()
def mixture_log_prob(model: ConstrainedBNN, rows: Rows, seed: int) -> Float[Tensor, " n"]:
    """Compute the log density of whole rows under the mixture of the first block of draws (P1).

    Args:
        model: The model.
        rows: In standardized units.
        seed: Seed of the draws.
    """
    gaussian, w = model.measured_at(model.draw(seed, 0), rows.x, rows.target)
    densities = model.likelihood(gaussian, rows.y, w)
    return densities.logsumexp(0) - math.log(len(densities))
