"""Linearised Laplace: the network is evaluated at modes, and its means move along their derivatives in the weights.

The points `θ*`, one for each member, are fixed. Given variances, the weights have a normal posterior about the mode of
the linearised network, and a draw of them changes the means along their derivatives::

    μ_d(x) = μ(x; θ*) + J(x) δ_d,   δ_d ~ N(δ*, (Δ + Σ_i J_iᵀ F_i J_i)⁻¹)                        (V5)

with the precision `Δ` of the prior and the curvature `F` of the likelihood (L5). The biases of the variance heads are
drawn, too, and shift the levels of the variances. Draws of `δ` are made when the network has been trained (V9) and
kept: their covariance is too large to be kept itself.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from equipoise.network.heads import NetworkGaussian
from equipoise.network.layers import ACTIVATIONS, SLOPES
from equipoise.network.posterior import DRAW_BLOCK, ForwardPass, WeightDraws, n_weights


class LinearisedLaplace(WeightDraws):
    """Draws of the weights from the posterior (V5) of one or several members; made by `equipoise.training`.

    Args:
        points: `θ*` of each member, shape `(M, P)`.
        changes: Draws of `δ`, shape `(n_kept, P)`; later draws repeat them.
        member: Number of the member that each of them belongs to, shape `(n_kept,)`.

    Example:
        >>> q = LinearisedLaplace(torch.zeros(1, 2), torch.tensor([[0.1, 0.0], [-0.1, 0.0]]), torch.zeros(2, dtype=int))
        >>> q.draw_block(seed=0, block=1)[:3].tolist()  # numbers 32, 33, 34: change of both weights, member
        [[0.10000000149011612, 0.0, 0.0], [-0.10000000149011612, 0.0, 0.0], [0.10000000149011612, 0.0, 0.0]]
    """

    name = "laplace"
    points: Tensor
    changes: Tensor
    member: Tensor

    def __init__(
        self, points: Float[Tensor, "M P"], changes: Float[Tensor, "n_kept P"], member: Int64[Tensor, " n_kept"]
    ):
        super().__init__()
        for name, part in (("points", points), ("changes", changes), ("member", member)):
            self.register_buffer(name, part.detach().clone(memory_format=torch.contiguous_format))

    def draw_block(
        self, seed: int, block: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "n_draws P_and_member"]:
        """Return changes of the weights in turn, with the number of their member in a last column.

        Args:
            seed: No effect: draws are made once.
            block: Number of the block.
            generator: No effect.
        """
        number = torch.arange(DRAW_BLOCK * block, DRAW_BLOCK * (block + 1), device=self.changes.device)
        number = number % len(self.changes)
        return torch.cat([self.changes[number], self.member[number].to(self.changes)[:, None]], -1)

    @torch.no_grad()
    def evaluate(
        self,
        network: Any,
        weights: Float[Tensor, "n_draws P_and_member"],
        x: Float[Tensor, "n n_x"],
        forward: ForwardPass,
    ) -> NetworkGaussian:
        """Evaluate the network at the members' points, and add what the draws change in the means (V5).

        Args:
            network: The `BayesianMLP`.
            weights: Draws from `draw_block`, all or some of them.
            x: Standardized inputs.
            forward: The network's forward pass, which is not used.
        """
        changes, member = weights[:, :-1], weights[:, -1].long()

        def of_draws(of_members: Tensor) -> Tensor:
            """Return, for each draw, what belongs to its member."""
            single = len(self.points) == 1
            return of_members.expand(len(changes), *of_members.shape[1:]) if single else of_members[member]

        n_y, last = network.n_outputs, len(network.sizes) - 2
        h, tangent = x.expand(len(self.points), *x.shape), None
        units = h
        layers = zip(network.layers(self.points), network.layers(changes), strict=True)
        for i, ((W, bias), (dW, dbias)) in enumerate(layers):
            change = torch.baddbmm(dbias.unsqueeze(-2), of_draws(h), dW)
            tangent = change if tangent is None else torch.baddbmm(change, tangent, of_draws(W))
            units = torch.baddbmm(bias.unsqueeze(-2), h, W)
            if i < last:
                h = ACTIVATIONS[network.activation](units)
                tangent = tangent * of_draws(SLOPES[network.activation](units))
        levels = network.layers(changes)[-1][1][:, None, n_y:]
        moved = torch.cat([tangent[..., :n_y], levels.expand(-1, len(x), -1)], -1)  # type: ignore[index]
        return network.heads(of_draws(units) + moved)  # V5

    def settings(self) -> dict[str, Any]:
        """Return the numbers of members and of draws that are kept."""
        return {"n_members": len(self.points), "n_kept": len(self.changes)}

    @classmethod
    def blank(cls, sizes: Sequence[int], prior_std: float, **settings: Any) -> "LinearisedLaplace":
        """Make a posterior of zeros; arguments are those of `WeightDraws.blank`."""
        P, n_kept = n_weights(sizes), settings["n_kept"]
        member = torch.zeros(n_kept, dtype=torch.long)
        return cls(torch.zeros(settings["n_members"], P), torch.zeros(n_kept, P), member)


def spread_over_members(shares: Float[Tensor, " M"], n: int) -> Int64[Tensor, " n"]:
    """Return the member of each of n draws, so that any first few draws have nearly the members' shares.

    Args:
        shares: Weight of each member, adding up to 1.
        n: Number of draws.

    Example:
        >>> spread_over_members(torch.tensor([0.75, 0.25]), 8).tolist()
        [0, 0, 0, 1, 0, 0, 0, 1]
    """
    number, place = torch.arange(n), torch.zeros(n, dtype=torch.float64)
    for bit in range(32):  # van der Corput's sequence: the number's binary digits behind the point, reversed
        place += ((number >> bit) & 1).double() * 2.0 ** -(bit + 1)
    return torch.searchsorted(shares.double().cpu().cumsum(0)[:-1].contiguous(), place, right=True)
