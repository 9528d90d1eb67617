"""Last-layer Laplace (Daxberger et al. 2021): a Gaussian over the weights of the last layer of a trained network.

With the features `φ` (the last hidden layer's units and a 1 for the bias), every unit of the last layer is linear in
its own weights. The generalised Gauss–Newton matrix of the heteroscedastic likelihood has one block for each unit::

    Λ_j = Σ_i φ_i φ_iᵀ / v_ij + δ I              of the mean of output j
    Λ'_j = Σ_i φ_i φ_iᵀ ½ (d log v / d raw)² + δ I   of its log-variance

since mean and log-variance of a normal are orthogonal in Fisher's metric. The prior's precision `δ` is the one with the
largest marginal likelihood.
"""

import math

import torch
from jaxtyping import Bool, Float
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from equipoise.data import Rows
from equipoise.network import DRAW_BLOCK, LOG_VAR_BOUND, BayesianMLP, derived_seed

LOG_PRECISIONS = (-14.0, 14.0)  # bounds of log δ


class LastLayerLaplace(nn.Module):
    """A source of weight vectors whose last layer has the distribution `N(w*, Λ⁻¹)` and whose other layers are fixed.

    Args:
        network: Gives sizes and activation; it must have mean and log-variance heads only.
        weights: Trained weights, shape `(P,)`.
        rows: Rows that they were trained on.
    """

    weights: Tensor
    root: Tensor

    def __init__(self, network: BayesianMLP, weights: Float[Tensor, " P"], rows: Rows):
        super().__init__()
        self._network = [network]  # not a part of this module
        self.register_buffer("weights", weights.detach().clone())
        curvature = self._curvature(rows)
        eigenvalues, vectors = torch.linalg.eigh(curvature)
        self.precision = prior_precision(eigenvalues.clamp_min(0.0), self._units().double())
        self.register_buffer("root", vectors / (eigenvalues.clamp_min(0.0) + self.precision).sqrt().unsqueeze(-2))

    def covariance(self) -> Float[Tensor, "n_units h h"]:
        """Compute `Λ⁻¹`, the covariance of the weights of each unit, its bias last."""
        return self.root @ self.root.mT

    def draw(self, seed: int, block: int) -> Float[Tensor, "n_draws P"]:
        """Draw the last layer; the other layers are those of the trained weights.

        Args:
            seed: Seed of the prediction.
            block: Number of the block of draws.
        """
        generator = torch.Generator().manual_seed(derived_seed(seed, block, 4))
        noise = torch.randn(DRAW_BLOCK, *self.root.shape[:2], generator=generator, dtype=torch.float64)
        deviations = torch.einsum("uij,duj->dui", self.root, noise.to(self.root.device))
        draws = self.weights.repeat(DRAW_BLOCK, 1)
        W, bias = self._network[0].layers(draws)[-1]
        W += deviations[..., :-1].mT.to(W)
        bias += deviations[..., -1].to(bias)
        return draws

    def _units(self) -> Float[Tensor, "n_units h"]:
        """Gather the weights of each unit of the last layer, its bias last."""
        W, bias = self._network[0].layers(self.weights)[-1]
        return torch.cat([W.mT, bias.unsqueeze(-1)], -1)

    @torch.no_grad()
    def _curvature(self, rows: Rows) -> Float[Tensor, "n_units h h"]:
        (network,) = self._network
        phi = features(network, self.weights, rows.x).double()
        mean_and_raw = phi @ self._units().double().mT
        raw = mean_and_raw[:, network.n_outputs :]
        log_var = LOG_VAR_BOUND * torch.tanh(raw / LOG_VAR_BOUND)
        slope = 1.0 - (log_var / LOG_VAR_BOUND).square()
        return gauss_newton(phi, log_var.exp(), slope, ~rows.y.isnan())


def features(network: BayesianMLP, weights: Float[Tensor, " P"], x: Float[Tensor, "n n_x"]) -> Float[Tensor, "n h"]:
    """Evaluate the units of the last hidden layer, and append a 1.

    Args:
        network: The network.
        weights: Its flat weight vector, shape `(P,)`.
        x: Standardized inputs, shape `(n, n_x)`.
    """
    h = network.features(weights, x)
    return torch.cat([h, torch.ones_like(h[:, :1])], -1)


def gauss_newton(
    phi: Float[Tensor, "n h"], var: Float[Tensor, "n n_y"], slope: Float[Tensor, "n n_y"], seen: Bool[Tensor, "n n_y"]
) -> Float[Tensor, "n_units h h"]:
    """Compute the Gauss–Newton matrices of the last layer's units: of the means, then of the log-variances.

    They are `Σ φ φᵀ / v` and `Σ φ φᵀ ½ slope²`, summed over the rows in which the output was measured.

    Args:
        phi: Features of each row, the last a 1.
        var: Predicted variances `v`.
        slope: Derivative of the log-variance by the raw output of its unit.
        seen: Which outputs were measured.
    """
    weight = torch.where(seen.repeat(1, 2), torch.cat([1.0 / var, 0.5 * slope.square()], -1), 0.0)
    return torch.einsum("ni,nu,nj->uij", phi, weight, phi)


def prior_precision(eigenvalues: Float[Tensor, "n_units h"], weights: Float[Tensor, "n_units h"]) -> float:
    """Return the precision `δ` that maximises the Laplace approximation of the log marginal likelihood::

        ½ P log δ − ½ δ ‖w*‖² − ½ Σ log(λ + δ)

    Args:
        eigenvalues: `λ ≥ 0` of the curvature without the prior.
        weights: Trained weights `w*` of each unit.
    """
    norm2 = float(weights.square().sum())

    def negative_evidence(log_delta: float) -> float:
        delta = math.exp(log_delta)
        return 0.5 * (delta * norm2 - eigenvalues.numel() * log_delta + float((eigenvalues + delta).log().sum()))

    return math.exp(minimize_scalar(negative_evidence, bounds=LOG_PRECISIONS, method="bounded").x)
