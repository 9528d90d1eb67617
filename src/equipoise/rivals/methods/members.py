"""Networks with one weight vector each, all evaluated in one batched pass: alone, as an ensemble, or with dropout.

A member is a flat weight vector of the same network that the core samples, so that a set of them, shape `(M, P)`, is
drawn from like a posterior. Dropout (Gal and Ghahramani 2016) multiplies hidden units by `mask / (1 − p)`; done to the
rows of the next weight matrix instead, it is a weight vector again.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from equipoise.network import DRAW_BLOCK, BayesianMLP, NetworkGaussian, derived_seed


def evaluate_members(
    network: BayesianMLP,
    weights: Float[Tensor, "M P"],
    x: Float[Tensor, "M n n_x"],
    keep: list[Float[Tensor, "M n _"]] | None = None,
) -> NetworkGaussian:
    """Each member's Gaussians for its own rows, shape `(M, n, n_y)`.

    Args:
        network: Whose layers.
        weights: A flat weight vector for each member.
        x: Inputs of each member.
        keep: What each hidden unit is multiplied by, row by row, for each hidden layer; None for nothing.
    """
    h, layers = x, network._layers(weights)
    for i, (W, bias) in enumerate(layers):
        h = network._activate(torch.baddbmm(bias.unsqueeze(-2), h, W), i)
        if keep is not None and i < len(layers) - 1:
            h = h * keep[i]
    return network._heads(h)


def masks(
    network: BayesianMLP, shape: tuple[int, ...], probability: float, generator: torch.Generator
) -> list[Float[Tensor, "..."]]:
    """`mask / (1 − p)` for the units of each hidden layer, shape `(*shape, width)`."""
    kept, device = 1.0 - probability, generator.device
    uniform = [torch.rand(*shape, width, generator=generator, device=device) for width in network.sizes[1:-1]]
    return [(part < kept) / kept for part in uniform]


class Members(nn.Module):
    """Equally likely weight vectors: one for a deterministic network, several for a deep ensemble.

    Example:
        >>> Members(torch.arange(3.0)[:, None]).draw(seed=0, block=1)[:4, 0]      # numbers 32 to 35 of 0 1 2 0 1 2 …
        tensor([2., 0., 1., 2.])
    """

    weights: Tensor

    def __init__(self, weights: Float[Tensor, "M P"]):
        super().__init__()
        self.register_buffer("weights", weights.detach().clone())

    def draw(self, seed: int, block: int) -> Float[Tensor, "n_draws P"]:
        """Members in turn, whatever the seed."""
        number = torch.arange(DRAW_BLOCK * block, DRAW_BLOCK * (block + 1), device=self.weights.device)
        return self.weights[number % len(self.weights)]


class Dropout(nn.Module):
    """One weight vector, whose hidden units are left out at random in every draw.

    Args:
        network: Whose layers.
        weights: The trained weights, shape `(P,)`.
        probability: That a hidden unit is left out.
    """

    weights: Tensor

    def __init__(self, network: BayesianMLP, weights: Float[Tensor, " P"], probability: float):
        super().__init__()
        self.probability = probability
        self._network = [network]  # not a part of this module
        self.register_buffer("weights", weights.detach().clone())

    def draw(self, seed: int, block: int) -> Float[Tensor, "n_draws P"]:
        """The rows of each next weight matrix multiplied by `mask / (1 − p)`."""
        generator = torch.Generator().manual_seed(derived_seed(seed, block, 3))
        (network,) = self._network
        drawn = self.weights.repeat(DRAW_BLOCK, 1)
        for (W, _), keep in zip(
            network._layers(drawn)[1:], masks(network, (DRAW_BLOCK,), self.probability, generator), strict=True
        ):
            W *= keep.unsqueeze(-1).to(W)
        return drawn


def head_mask(network: BayesianMLP) -> Float[Tensor, " P"]:
    """1 for weights of the heads that speak of noise, 0 for others."""
    mask = torch.zeros(network.posterior.loc.shape)
    W, bias = network._layers(mask)[-1]
    W[:, network.n_outputs :] = 1.0
    bias[network.n_outputs :] = 1.0
    return mask


def starting_weights(network: BayesianMLP, seeds: list[int]) -> Float[Tensor, "M P"]:
    """As the core starts its network for each of these seeds."""
    generators = [torch.Generator().manual_seed(derived_seed(seed, 5)) for seed in seeds]
    return torch.stack([network._starting_weights(generator) for generator in generators])


def member_rmse(mean: Float[Tensor, "M n n_y"], y: Float[Tensor, "M n n_y"]) -> Float[Tensor, " M"]:
    """Root mean squared error of each output over what was measured, averaged over outputs, of each member.

    Example:
        >>> member_rmse(torch.zeros(1, 2, 1), torch.tensor([[[3.0], [torch.nan]]]))
        tensor([3.])
    """
    measured = ~y.isnan()
    squares = torch.where(measured, mean - y, 0.0).square().sum(1) / measured.sum(1).clamp_min(1)
    return squares.clamp_min(torch.finfo(mean.dtype).tiny).sqrt().mean(-1)
