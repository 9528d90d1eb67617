"""Members: networks with one weight vector each, alone, as an ensemble or with dropout, evaluated in one batched pass.

A member is a flat weight vector of the network whose weights the library samples, so that a set of members, shape
`(M, P)`, can stand in for draws from a posterior. Dropout (Gal and Ghahramani 2016) multiplies hidden units by
`mask / (1 − p)`; multiplying the rows of the next weight matrix instead has the same effect and gives a weight vector.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from equipoise.network import DRAW_BLOCK, BayesianMLP, derived_seed


def dropout_masks(
    network: BayesianMLP, shape: tuple[int, ...], probability: float, generator: torch.Generator
) -> list[Float[Tensor, "..."]]:
    """Draw `mask / (1 − p)` for the units of each hidden layer, shape `(*shape, width)`.

    Args:
        network: The network, which gives the widths.
        shape: Leading axes of the masks.
        probability: Probability p that a unit is left out.
        generator: Randomness of the masks.
    """
    kept, device = 1.0 - probability, generator.device
    uniform = [torch.rand(*shape, width, generator=generator, device=device) for width in network.sizes[1:-1]]
    return [(part < kept) / kept for part in uniform]


class Members(nn.Module):
    """Equally likely weight vectors: one of a deterministic network, several of a deep ensemble.

    Args:
        weights: Trained weights, shape `(M, P)`.

    Example:
        >>> Members(torch.arange(3.0)[:, None]).draw(seed=0, block=1)[:4, 0]      # numbers 32 to 35 of 0 1 2 0 1 2 …
        tensor([2., 0., 1., 2.])
    """

    weights: Tensor

    def __init__(self, weights: Float[Tensor, "M P"]):
        super().__init__()
        self.register_buffer("weights", weights.detach().clone())

    def draw(self, seed: int, block: int) -> Float[Tensor, "n_draws P"]:
        """Return the members in turn; the seed has no effect.

        Args:
            seed: Seed of the prediction.
            block: Number of the block of draws.
        """
        number = torch.arange(DRAW_BLOCK * block, DRAW_BLOCK * (block + 1), device=self.weights.device)
        return self.weights[number % len(self.weights)]


class Dropout(nn.Module):
    """One weight vector, of which every draw leaves out hidden units at random.

    Args:
        network: Gives the sizes of the layers.
        weights: Trained weights, shape `(P,)`.
        probability: Probability that a hidden unit is left out.
    """

    weights: Tensor

    def __init__(self, network: BayesianMLP, weights: Float[Tensor, " P"], probability: float):
        super().__init__()
        self.probability = probability
        self._network = [network]  # not a part of this module
        self.register_buffer("weights", weights.detach().clone())

    def draw(self, seed: int, block: int) -> Float[Tensor, "n_draws P"]:
        """Multiply the rows of each next weight matrix by `mask / (1 − p)`.

        Args:
            seed: Seed of the prediction.
            block: Number of the block of draws.
        """
        generator = torch.Generator().manual_seed(derived_seed(seed, block, 3))
        (network,) = self._network
        draws = self.weights.repeat(DRAW_BLOCK, 1)
        masks = dropout_masks(network, (DRAW_BLOCK,), self.probability, generator)
        for (W, _), mask in zip(network.layers(draws)[1:], masks, strict=True):
            W *= mask.unsqueeze(-1).to(W)
        return draws


def spread_mask(network: BayesianMLP) -> Float[Tensor, " P"]:
    """Mark the weights of the variance and sensor heads by 1, all others by 0."""
    mask = torch.zeros(network.posterior.loc.shape)
    W, bias = network.layers(mask)[-1]
    W[:, network.n_outputs :] = 1.0
    bias[network.n_outputs :] = 1.0
    return mask


def starting_weights(network: BayesianMLP, seeds: list[int]) -> Float[Tensor, "M P"]:
    """Draw the weights with which the estimator would start the network for each of the seeds.

    Args:
        network: The network.
        seeds: Seeds of the fits.
    """
    generators = [torch.Generator().manual_seed(derived_seed(seed, 5)) for seed in seeds]
    return torch.stack([network.starting_weights(generator) for generator in generators])


def member_rmse(mean: Float[Tensor, "M n n_y"], y: Float[Tensor, "M n n_y"]) -> Float[Tensor, " M"]:
    """Compute each member's root mean squared error over what was measured, averaged over outputs.

    Args:
        mean: Predicted means.
        y: Measured outputs, NaN where nothing was measured.

    Example:
        >>> member_rmse(torch.zeros(1, 2, 1), torch.tensor([[[3.0], [torch.nan]]]))
        tensor([3.])
    """
    measured = ~y.isnan()
    squares = torch.where(measured, mean - y, 0.0).square().sum(1) / measured.sum(1).clamp_min(1)
    return squares.clamp_min(torch.finfo(mean.dtype).tiny).sqrt().mean(-1)
