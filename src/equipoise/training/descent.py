"""Descent of one member to the mode of its posterior: all rows at once, by a quasi-Newton method.

With variances, tolerances and sensors held, the loss of the weights is a function of the network's means alone, plus
that of the prior, so that one pass forwards and one backwards give its gradient.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

from equipoise.network import BayesianMLP, MeanHead

LossOfMeans = Callable[[Tensor], tuple[float, Tensor]]
"""From means `(n, n_y)` to their negative log likelihood and its gradient."""
MEMORY, LEAST_GAIN = 30, 1e-12  # steps that the curvature is estimated from; relative change of a loss that ends it


def descend(
    network: BayesianMLP,
    weights: Float[Tensor, " P"],
    x: Float[Tensor, "n n_x"],
    loss: LossOfMeans,
    precision: Float[Tensor, " P"],
    iterations: int,
    in_prior_units: bool = True,
) -> tuple[Float[Tensor, " P"], float]:
    """Return weights with a lower loss, and this loss: that of the means, plus `½ Σ Δ θ²`.

    Args:
        network: Gives sizes and activation.
        weights: Weights to start from.
        x: Standardized inputs.
        loss: Loss of the means.
        precision: Prior precision `Δ` of each weight; where it is 0, the weight stays.
        iterations: Number of steps of L-BFGS, at most.
        in_prior_units: Whether steps are taken in units of the prior, in which all weights are of one size. That is the
            shorter way to the mode. In their own units, the weights of inputs without effect fall first.
    """
    x, start, precision = x.double(), weights.double(), precision.double()
    unit = precision.rsqrt() if in_prior_units else torch.ones_like(precision)
    spread, penalty = torch.where(precision > 0, unit, 0.0), (precision * unit.square()).nan_to_num(0.0).cpu().numpy()

    def at(units: np.ndarray) -> Tensor:
        return torch.where(spread > 0, spread * torch.as_tensor(units, device=x.device), start)

    def objective(units: np.ndarray) -> tuple[float, np.ndarray]:
        head = MeanHead.at(at(units), x, network.sizes, network.n_outputs, network.activation)
        value, cotangents = loss(head.mean)
        gradient = (spread * head.pull_back(cotangents[None])[0]).cpu().numpy()
        pull = penalty * units
        return value + 0.5 * float(units @ pull), gradient + pull

    with torch.no_grad():
        units = torch.where(spread > 0, start / spread, 0.0).cpu().numpy()
        options = {"maxiter": iterations, "maxcor": MEMORY, "ftol": LEAST_GAIN}
        result = minimize(objective, units, jac=True, method="L-BFGS-B", options=options)
    return at(result.x).to(weights), float(result.fun)


def normal_loss(y: Float[Tensor, "n n_y"], var: Float[Tensor, " n_y"], weight: float = 1.0) -> LossOfMeans:
    """Return the loss of independent normal errors with the same variances in all rows; NaN is "not measured".

    Args:
        y: Measured outputs.
        var: Variance of each output.
        weight: How often each row counts.
    """
    share = torch.where(y.isnan(), 0.0, weight / var)
    target, constant = y.nan_to_num(0.0), 0.5 * weight * float((~y.isnan() * var.log()).sum())

    def loss(mean: Tensor) -> tuple[float, Tensor]:
        gradient = share * (mean - target)
        return 0.5 * float((gradient * (mean - target)).sum()) + constant, gradient

    return loss


def density_loss(log_prob: Callable[[Tensor], Tensor], weight: float = 1.0) -> LossOfMeans:
    """Return the loss of a log density, differentiated by autograd.

    Args:
        log_prob: From means to the log density of each row.
        weight: How often each row counts.
    """

    def loss(mean: Tensor) -> tuple[float, Tensor]:
        with torch.enable_grad():
            leaf = mean.detach().requires_grad_()
            value = -weight * log_prob(leaf).sum()
            (gradient,) = torch.autograd.grad(value, leaf)
        return float(value.detach()), gradient

    return loss
