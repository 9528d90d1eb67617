"""Members: networks with one weight vector each, alone or as an ensemble, evaluated in one batched pass."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from equipoise.network.mlp import BayesianMLP, NetworkGaussian
from equipoise.network.posterior import DRAW_BLOCK, WeightDraws, n_weights
from equipoise.network.seeds import derived_seed


class Members(WeightDraws):
    """Equally likely weight vectors: one of a deterministic network, several of a deep ensemble.

    Args:
        weights: Starting weights, shape `(M, P)`.
        prior_std: Standard deviation of the prior of each weight, which training adds to the loss.

    Example:
        >>> draws = Members(torch.arange(3.0)[:, None]).draw_block(seed=0, block=1)  # numbers 32 … of 0 1 2 0 1 2 …
        >>> draws[:4, 0].tolist()
        [2.0, 0.0, 1.0, 2.0]
    """

    name = "members"

    def __init__(self, weights: Float[Tensor, "M P"], prior_std: float = 1.0):
        super().__init__(prior_std)
        self.weights = nn.Parameter(weights.detach().clone())

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self.weights)

    @property
    def n_distinct(self) -> int:
        """Number of different draws."""
        return len(self.weights)

    def draw_block(self, seed: int, block: int, generator: torch.Generator | None = None) -> Float[Tensor, "n_draws P"]:
        """Return the members in turn; arguments are those of `WeightDraws.draw_block`, of which only `block` counts."""
        number = torch.arange(DRAW_BLOCK * block, DRAW_BLOCK * (block + 1), device=self.weights.device)
        return self.weights[number % len(self.weights)]

    def at_own_rows(
        self, network: BayesianMLP, x: Float[Tensor, "M n n_x"], generator: torch.Generator | None = None
    ) -> NetworkGaussian:
        """Evaluate each member at rows of its own, as in a training step.

        Args:
            network: The network.
            x: Inputs of each member.
            generator: Randomness; members as such have none.
        """
        return network.at(self.weights, x)

    @property
    def is_random(self) -> bool:
        """Whether `at_own_rows` depends on its generator."""
        return False

    def settings(self) -> dict[str, Any]:
        """Return the number of members."""
        return {"n_members": len(self.weights)}

    @classmethod
    def blank(cls, sizes: Sequence[int], prior_std: float, **settings: Any) -> "Members":
        """Make members whose weights are all 0; arguments are those of `WeightDraws.blank`."""
        return cls(torch.zeros(settings["n_members"], n_weights(sizes)), prior_std)


def member_seeds(seed: int, n: int) -> list[int]:
    """Return a seed for each member; the first member is the network of the same seed alone.

    Args:
        seed: Seed of all.
        n: Number of members.
    """
    return [seed, *(derived_seed(seed, 11, member) for member in range(1, n))]


def starting_members(network: BayesianMLP, seeds: Sequence[int]) -> Float[Tensor, "M P"]:
    """Draw the weights with which the estimator would start the network for each of the seeds.

    Args:
        network: The network.
        seeds: A seed for each member.
    """
    generators = [torch.Generator().manual_seed(derived_seed(seed, 5)) for seed in seeds]
    return torch.stack([network.starting_weights(generator) for generator in generators])
