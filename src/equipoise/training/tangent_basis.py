"""A basis of the changes of the weights that rows can determine, where the means are linear in the weights.

The covariance `J Δ⁻¹ Jᵀ` of the means at some rows has fewer large eigenvalues than rows × outputs. A Cholesky
factorisation that takes the most uncertain mean first, and stops when little is left, has a column for each of some of
the means, the pivots p::

    J Δ⁻¹ Jᵀ ≈ U Uᵀ,   U = K_·p C⁻ᵀ,   C Cᵀ = K_pp,   f = μ* − J θ* + U c,   c ~ N(0, 1)         (V7)

`c` are coordinates of the weights themselves: with `A = J_p Δ^(−½)`, the rows of `C⁻¹ A` are orthonormal directions of
the weights in units of their prior, and c is what a weight vector has along them. All other directions have no effect
on the means at these rows, and keep their prior.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from equipoise.network import MeanHead, layer_views
from equipoise.training.evidence import PriorPrecisions

REST = 4e-3  # variance that is left to no direction, in units of the noise, on average over means
MOST_DIRECTIONS = 1600
AT_ONCE, CANDIDATES = 32, 128  # pivots
SINGULAR = 1e-9  # share of a variance below which a pivot is rounding


@dataclass(frozen=True)
class TangentBasis:
    """Directions of the weights that the means at some rows determine; made by `of`.

    Args:
        point: `θ*`.
        head: The mean head there, in float64.
        precisions: `Δ`.
        pivots: Row and output of each of the k pivots.
        columns: `U`, with the outputs of a row side by side.
    """

    point: Float[Tensor, " P"]
    head: MeanHead
    precisions: PriorPrecisions
    pivots: Int64[Tensor, "k 2"]
    columns: Float[Tensor, "n_by_n_y k"]

    @classmethod
    def of(
        cls,
        head: MeanHead,
        point: Float[Tensor, " P"],
        precisions: PriorPrecisions,
        information: Float[Tensor, "n n_y"],
        rest: float = REST,
    ) -> "TangentBasis":
        """Choose as many directions as the likelihood can tell from nothing.

        Args:
            head: The mean head at n rows, in float64.
            point: `θ*`.
            precisions: `Δ`.
            information: Diagonal of the likelihood's curvature in each row's means.
            rest: Variance of the means that may be left out, on average and in units of `1 / information`.
        """
        signals = head.signals()
        weight, left = information.double().flatten(), _variances(head, signals, precisions)
        scale, n_y = left.clone(), head.mean.shape[1]
        U, pivots = left.new_zeros(len(left), 0), torch.zeros(0, dtype=torch.long, device=left.device)
        most = min(MOST_DIRECTIONS, len(left))
        while len(pivots) == 0 or (float((weight * left).mean()) > rest and len(pivots) < most):
            chosen = _next_pivots(head, signals, precisions, U, weight, left, scale)
            if len(chosen) == 0:
                break
            columns = _columns(head, signals, precisions, chosen) - U @ U[chosen].mT
            factor = torch.linalg.cholesky(columns[chosen])
            columns = torch.linalg.solve_triangular(factor, columns.mT, upper=False).mT
            U, pivots = torch.cat([U, columns], 1), torch.cat([pivots, chosen])
            left = (left - columns.square().sum(1)).clamp_min(0.0)
            left[chosen] = 0.0
        return cls(point.double(), head, precisions, torch.stack([pivots // n_y, pivots % n_y], 1), U)

    @property
    def offset(self) -> Float[Tensor, "n n_y"]:
        """`J θ*`, by how much the means at `θ*` differ from those of the prior."""
        return self.head.tangents(self.point[None])[0]

    def means(self, c: Float[Tensor, "k_draws k"]) -> Float[Tensor, "k_draws n n_y"]:
        """Compute the means `μ* − J θ* + U c`.

        Args:
            c: Coordinates.
        """
        prior = self.head.mean - self.offset
        return prior + (c @ self.columns.mT).view(-1, *prior.shape)  # V7

    def changes(self, c: Float[Tensor, "k_draws k"], noise: Float[Tensor, "k_draws P"]) -> Float[Tensor, "k_draws P"]:
        """Compute changes of the weights whose coordinates are c, with their prior in all other directions (V7).

        Args:
            c: Coordinates.
            noise: Standard normal numbers for all weights.
        """
        spread, own = self.precisions.spread, self.precisions.group >= 0
        A = self._pivot_derivatives() * spread
        C = self.columns[self.pivots[:, 0] * self.head.mean.shape[1] + self.pivots[:, 1]]
        noise = torch.where(own, noise, 0.0)
        missing = c.mT - torch.linalg.solve_triangular(C, A @ noise.mT, upper=False)
        white = noise + torch.linalg.solve_triangular(C.mT, missing, upper=True).mT @ A  # V7
        return spread * white - torch.where(own, self.point, 0.0)

    def _pivot_derivatives(self) -> Float[Tensor, "k P"]:
        """Return the rows of J that belong to the pivots."""
        result = self.point.new_zeros(len(self.pivots), len(self.point))
        (row, output), n_y = self.pivots.unbind(1), self.head.mean.shape[1]
        layers = zip(layer_views(result, self.head.sizes), self.head.inputs, self.head.signals(), strict=True)
        for i, ((W, bias), h, signal) in enumerate(layers):
            last = i == len(self.head.weights) - 1
            W, bias = (W[..., :n_y], bias[..., :n_y]) if last else (W, bias)
            W.copy_(h[row].unsqueeze(-1) * signal[row, output].unsqueeze(-2))
            bias.copy_(signal[row, output])
        return result


def _variances(head: MeanHead, signals: list[Tensor], precisions: PriorPrecisions) -> Float[Tensor, " n_by_n_y"]:
    """Compute the prior variance of each mean."""
    total = torch.zeros_like(head.mean)
    for layer, (h, signal) in enumerate(zip(head.inputs, signals, strict=True)):
        of_weights, of_biases = precisions.layer_variances(layer)
        total += ((h.square() * of_weights).sum(1) + of_biases)[:, None] * signal.square().sum(-1)
    return total.flatten()


def _columns(
    head: MeanHead,
    signals: list[Tensor],
    precisions: PriorPrecisions,
    chosen: Int64[Tensor, " k"],
    among: Int64[Tensor, " i"] | None = None,
) -> Float[Tensor, "i k"]:
    """Compute columns of the means' prior covariance, at all means or among some."""
    n_y = head.mean.shape[1]
    among = torch.arange(head.mean.numel(), device=head.mean.device) if among is None else among
    total = head.mean.new_zeros(len(among), len(chosen))
    for layer, (h, signal) in enumerate(zip(head.inputs, signals, strict=True)):
        of_weights, of_biases = precisions.layer_variances(layer)
        flat = signal.flatten(0, 1)
        rows = (h * of_weights) @ h[chosen // n_y].mT + of_biases
        total += rows[among // n_y] * (flat[among] @ flat[chosen].mT)
    return total


def _next_pivots(
    head: MeanHead,
    signals: list[Tensor],
    precisions: PriorPrecisions,
    U: Float[Tensor, "n_by_n_y k"],
    weight: Float[Tensor, " n_by_n_y"],
    left: Float[Tensor, " n_by_n_y"],
    scale: Float[Tensor, " n_by_n_y"],
) -> Int64[Tensor, " chosen"]:
    """Choose the next pivots among the means of which most is left: those that leave least of the others."""
    score = torch.where(left > SINGULAR * scale, weight * left, 0.0)
    candidates = score.topk(min(CANDIDATES, int((score > 0).sum()))).indices
    if len(candidates) == 0:
        return candidates
    root = weight[candidates].sqrt()
    G = _columns(head, signals, precisions, candidates, candidates) - U[candidates] @ U[candidates].mT
    G = (root[:, None] * G * root).cpu()
    kept, diagonal = [], G.diagonal().clone()
    least = SINGULAR * (weight * scale)[candidates].cpu()
    for _ in range(min(AT_ONCE, len(candidates))):
        best = int(diagonal.argmax())
        if float(diagonal[best]) <= float(least[best]) or float(diagonal[best]) < 0.05 * float(score.max()):
            break
        kept.append(best)
        column = G[:, best] / diagonal[best].sqrt()
        G = G - column[:, None] * column
        diagonal = G.diagonal().clone()
        diagonal[kept] = 0.0
    return candidates[torch.tensor(kept, dtype=torch.long, device=candidates.device)]
