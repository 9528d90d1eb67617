"""Mode search: the weights of one member at the mode of its posterior, while all variances are held.

At fixed variances the joint likelihood (L2) is quadratic in the network's means before conditioning, with the curvature
`F = L Lᵀ` (L5) and the gradient `η` at any means `μ*`; so the loss of the weights is::

    −ηᵀ (μ − μ*) + ½ (μ − μ*)ᵀ F (μ − μ*) + ½ θᵀ Δ θ

and one pass forwards and one backwards give its gradient. Weights are in units of their prior, in which all are of one
size. Hidden units move in the search, and a variance head with them: `held_head` fits it to the variances of before.
"""

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

from equipoise.network import LOG_VAR_BOUND, BayesianMLP, MeanHead
from equipoise.training.evidence import Measurements, PriorPrecisions
from equipoise.training.variance_fit import VarianceHead

STEPS = 400  # of L-BFGS, at most
MEMORY = 30


def nearest_mode(
    network: BayesianMLP,
    weights: Float[Tensor, " P"],
    x: Float[Tensor, "n n_x"],
    precisions: PriorPrecisions,
    measurements: Measurements,
    steps: int = STEPS,
) -> Float[Tensor, " P"]:
    """Return the weights at the mode that is reached downhill; those without a prior stay as they are.

    Args:
        network: Gives sizes and activation.
        weights: The weights to start from.
        x: Standardized inputs.
        precisions: `Δ`.
        measurements: What the likelihood says about the means, expanded about those at `weights`.
        steps: Number of steps, at most.
    """
    x, start, spread = x.double(), weights.double(), precisions.spread
    shape = network.sizes, network.n_outputs, network.activation
    own, root, eta = precisions.group >= 0, measurements.root, measurements.gradient
    expanded_at = MeanHead.at(start, x, *shape).mean

    def objective(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        units = torch.as_tensor(numbers, device=x.device)
        head = MeanHead.at(torch.where(own, spread * units, start), x, *shape)
        change = head.mean - expanded_at
        along = (root.mT @ change.unsqueeze(-1)).squeeze(-1)
        loss = 0.5 * units @ units - (eta * change).sum() + 0.5 * along.square().sum()
        slope = (root @ along.unsqueeze(-1)).squeeze(-1) - eta
        return float(loss), (units + spread * head.pull_back(slope[None])[0]).cpu().numpy()

    with torch.no_grad():
        units = torch.where(own, start / spread, 0.0).cpu().numpy()
        options = {"maxiter": steps, "maxcor": MEMORY, "ftol": 1e-12}
        result = minimize(objective, units, jac=True, method="L-BFGS-B", options=options)
    return torch.where(own, spread * torch.as_tensor(result.x, device=x.device), start).to(weights)


def held_head(head: VarianceHead, var: Float[Tensor, "n n_y"], precisions: Float[Tensor, " n_y"]) -> VarianceHead:
    """Return the variance head that comes closest to known variances.

    Least squares of log v count a half for each row, which is Fisher's information of a normal likelihood.

    Args:
        head: A head over the hidden units as they are.
        var: The variances.
        precisions: Prior precision of each output's slopes.
    """
    raw = LOG_VAR_BOUND * torch.atanh((var.log() / LOG_VAR_BOUND).clamp(-0.99, 0.99))
    level, U = raw.mean(0), head.units
    curvature = 0.5 * U.mT @ U + torch.diag_embed(precisions[:, None].expand(-1, U.shape[1]))
    slopes = torch.linalg.solve(curvature, 0.5 * (U.mT @ (raw - level)).mT.unsqueeze(-1)).squeeze(-1).mT
    return VarianceHead(U, head.centre, head.scale, level, slopes)
