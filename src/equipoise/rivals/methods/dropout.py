"""MC dropout (Gal and Ghahramani 2016): one weight vector, of which every draw leaves out hidden units at random.

Dropout multiplies hidden units by `mask / (1 − p)`. Multiplying the rows of the next weight matrix instead has the same
effect and gives a weight vector, so that masks make draws as from a posterior.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.network import (
    DRAW_BLOCK,
    BayesianMLP,
    Members,
    NetworkGaussian,
    WeightDraws,
    derived_seed,
    layer_views,
    n_weights,
)


def dropout_masks(
    sizes: Sequence[int], shape: tuple[int, ...], probability: float, generator: torch.Generator
) -> list[Float[Tensor, "..."]]:
    """Draw `mask / (1 − p)` for the units of each hidden layer.

    Args:
        sizes: Widths of inputs, hidden layers and last layer.
        shape: Leading shape of the masks, before the axis of units.
        probability: Probability that a hidden unit is left out.
        generator: Source of random numbers.
    """
    kept, device = 1.0 - probability, generator.device
    uniform = [torch.rand(*shape, width, generator=generator, device=device) for width in sizes[1:-1]]
    return [(part < kept) / kept for part in uniform]


class MaskedMembers(Members):
    """Members that are trained with dropout: a step draws a mask for every row.

    Args:
        weights: Starting weights, shape `(M, P)`.
        prior_std: Standard deviation of the prior of each weight.
        probability: Probability that a hidden unit is left out.
    """

    name = "masked members"

    def __init__(self, weights: Float[Tensor, "M P"], prior_std: float = 1.0, probability: float = 0.0):
        super().__init__(weights, prior_std)
        self.probability = probability

    @property
    def is_random(self) -> bool:
        """Whether any unit is left out."""
        return self.probability > 0

    def at_own_rows(
        self, network: BayesianMLP, x: Float[Tensor, "M n n_x"], generator: torch.Generator | None = None
    ) -> NetworkGaussian:
        """Evaluate each member at rows of its own, each with a mask; arguments are those of `Members.at_own_rows`."""
        if not self.is_random or generator is None:
            return super().at_own_rows(network, x)
        masks = dropout_masks(network.sizes, tuple(x.shape[:2]), self.probability, generator)
        return network.at(self.weights, x, [mask.to(x) for mask in masks])

    def settings(self) -> dict[str, Any]:
        """Return the number of members and the probability."""
        return super().settings() | {"probability": self.probability}


class Dropout(WeightDraws):
    """Draws of one weight vector with hidden units left out at random.

    Args:
        weights: Trained weights, shape `(P,)`.
        sizes: Widths of inputs, hidden layers and last layer.
        prior_std: Standard deviation of the prior of each weight.
        probability: Probability that a hidden unit is left out.
    """

    name = "dropout"
    weights: Tensor

    def __init__(self, weights: Float[Tensor, " P"], sizes: Sequence[int], prior_std: float, probability: float):
        super().__init__(prior_std)
        self.sizes, self.probability = tuple(sizes), probability
        self.register_buffer("weights", weights.detach().clone())

    def draw_block(self, seed: int, block: int, generator: torch.Generator | None = None) -> Float[Tensor, "n_draws P"]:
        """Multiply the rows of each next weight matrix by `mask / (1 − p)`.

        The arguments are those of `WeightDraws.draw_block`, of which `generator` has no effect.
        """
        own = torch.Generator().manual_seed(derived_seed(seed, block, 3))
        draws = self.weights.repeat(DRAW_BLOCK, 1)
        masks = dropout_masks(self.sizes, (DRAW_BLOCK,), self.probability, own)
        for (W, _), mask in zip(layer_views(draws, self.sizes)[1:], masks, strict=True):
            W *= mask.unsqueeze(-1).to(W)
        return draws

    def settings(self) -> dict[str, Any]:
        """Return the probability."""
        return {"probability": self.probability}

    @classmethod
    def blank(cls, sizes: Sequence[int], prior_std: float, **settings: Any) -> "Dropout":
        """Make such draws of weights that are all 0; arguments are those of `WeightDraws.blank`."""
        return cls(torch.zeros(n_weights(sizes)), sizes, prior_std, **settings)
