"""Last-layer Laplace (Daxberger et al. 2021): a Gaussian over the weights of the last layer of a trained network.

With the features `φ` (the last hidden layer's units and a 1 for the bias), every unit of the last layer is linear in
its own weights. The generalised Gauss–Newton matrix of the heteroscedastic likelihood has one block for each unit::

    Λ_j = Σ_i φ_i φ_iᵀ / v_ij + δ I              of the mean of output j
    Λ'_j = Σ_i φ_i φ_iᵀ ½ (d log v / d raw)² + δ I   of its log-variance

since mean and log-variance of a normal are orthogonal in Fisher's metric. The prior's precision `δ` is the one with the
largest marginal likelihood.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from scipy.optimize import minimize_scalar
from torch import Tensor

from equipoise.data import Rows
from equipoise.network import (
    DRAW_BLOCK,
    LOG_VAR_BOUND,
    BayesianMLP,
    WeightDraws,
    bounded,
    derived_seed,
    layer_views,
    n_weights,
)

LOG_PRECISIONS = (-14.0, 14.0)  # bounds of log δ


class LastLayerLaplace(WeightDraws):
    """Weight vectors whose last layer has the distribution `N(w*, Λ⁻¹)` and whose other layers are fixed.

    Args:
        weights: Trained weights, shape `(P,)`.
        root: A root of `Λ⁻¹` for each unit of the last layer, shape `(n_units, h, h)`.
        sizes: Widths of inputs, hidden layers and last layer.
        precision: Precision `δ` of the prior of the last layer.
        prior_std: Standard deviation of the prior in training.
    """

    name = "last-layer Laplace"
    weights: Tensor
    root: Tensor

    def __init__(
        self,
        weights: Float[Tensor, " P"],
        root: Float[Tensor, "n_units h h"],
        sizes: Sequence[int],
        precision: float,
        prior_std: float = 1.0,
    ):
        super().__init__(prior_std)
        self.sizes, self.precision = tuple(sizes), precision
        self.register_buffer("weights", weights.detach().clone())
        self.register_buffer("root", root)

    @classmethod
    @torch.no_grad()
    def fit(
        cls, network: BayesianMLP, weights: Float[Tensor, " P"], rows: Rows, prior_std: float = 1.0
    ) -> "LastLayerLaplace":
        """Compute the curvature at trained weights, and the most likely precision of the prior.

        Args:
            network: Gives sizes and activation; it must have mean and log-variance heads only.
            weights: Trained weights.
            rows: Rows that they were trained on.
            prior_std: Standard deviation of the prior in training.
        """
        eigenvalues, vectors = torch.linalg.eigh(_curvature(network, weights, rows))
        eigenvalues = eigenvalues.clamp_min(0.0)
        precision = prior_precision(eigenvalues, _last_units(network.sizes, weights).double())
        root = vectors / (eigenvalues + precision).sqrt().unsqueeze(-2)
        return cls(weights, root, network.sizes, precision, prior_std)

    def covariance(self) -> Float[Tensor, "n_units h h"]:
        """Compute `Λ⁻¹`, the covariance of the weights of each unit, its bias last."""
        return self.root @ self.root.mT

    def draw_block(self, seed: int, block: int, generator: torch.Generator | None = None) -> Float[Tensor, "n_draws P"]:
        """Draw the last layer; the other layers are those of the trained weights.

        The arguments are those of `WeightDraws.draw_block`, of which `generator` has no effect.
        """
        own = torch.Generator().manual_seed(derived_seed(seed, block, 4))
        noise = torch.randn(DRAW_BLOCK, *self.root.shape[:2], generator=own, dtype=torch.float64)
        deviations = torch.einsum("uij,duj->dui", self.root, noise.to(self.root.device))
        draws = self.weights.repeat(DRAW_BLOCK, 1)
        W, bias = layer_views(draws, self.sizes)[-1]
        W += deviations[..., :-1].mT.to(W)
        bias += deviations[..., -1].to(bias)
        return draws

    def settings(self) -> dict[str, Any]:
        """Return the precision of the prior."""
        return {"precision": self.precision}

    @classmethod
    def blank(cls, sizes: Sequence[int], prior_std: float, **settings: Any) -> "LastLayerLaplace":
        """Make one whose weights and covariances are all 0; arguments are those of `WeightDraws.blank`."""
        h, n_units = sizes[-2] + 1, sizes[-1]
        root = torch.zeros(n_units, h, h, dtype=torch.float64)
        return cls(torch.zeros(n_weights(sizes)), root, sizes, settings["precision"], prior_std)


def _last_units(sizes: Sequence[int], weights: Float[Tensor, " P"]) -> Float[Tensor, "n_units h"]:
    """Gather the weights of each unit of the last layer, its bias last."""
    W, bias = layer_views(weights, sizes)[-1]
    return torch.cat([W.mT, bias.unsqueeze(-1)], -1)


def _curvature(network: BayesianMLP, weights: Float[Tensor, " P"], rows: Rows) -> Float[Tensor, "n_units h h"]:
    phi = features(network, weights, rows.x).double()
    raw = (phi @ _last_units(network.sizes, weights).double().mT)[:, network.n_outputs :]
    log_var = bounded(raw, LOG_VAR_BOUND)
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
