"""The network evaluated at weight draws, one block of draws after the other in the same memory.

At the sizes of these networks fresh memory costs as much as the matrix products: it is not in cache, and the system may
hand it out page by page. `BayesianMLP.at` is the definition, and the tests' oracle.
"""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.network import LOG_FACTOR_BOUND, LOG_VAR_BOUND, BayesianMLP, NetworkGaussian, PosteriorDraws, is_compiled

Heads = tuple[Tensor, ...]
"""Mean, variance and, if it is wanted, sensor factor, each `(n_draws, n, n_y)`; buffers, not values."""


def draws_between(draws: PosteriorDraws, start: int, stop: int) -> PosteriorDraws:
    """Return the draws of a block from number `start` up to, but not including, number `stop`.

    Args:
        draws: The draws of a block.
        start, stop: Numbers of the first draw and of the one after the last.
    """
    parts = (getattr(draws, part.name) for part in fields(draws))
    return PosteriorDraws(*(None if part is None else part[start:stop] for part in parts))  # type: ignore[arg-type]


@dataclass(frozen=True)
class ArrangedDraws:
    """Posterior draws, and views of them in the shapes in which predictions use them again and again.

    Args:
        draws: The draws.
        tolerances: Both draws of r, balances before draws.
        offset: Offsets of the balances, likewise.
    """

    draws: PosteriorDraws
    tolerances: Float[Tensor, "2 m n_draws 1"] | None
    offset: Float[Tensor, "m n_draws 1"] | None

    @classmethod
    def of(cls, draws: PosteriorDraws) -> "ArrangedDraws":
        """Arrange draws of tolerances and of offsets."""
        both = [part for part in (draws.tol_var, draws.tol_var_again) if part is not None]
        tolerances = torch.stack(both).movedim(-1, 1) if both else None
        offset = None if draws.offset is None else draws.offset.movedim(-1, 0)
        return cls(draws, tolerances, offset)

    def __len__(self) -> int:
        """Return the number of draws."""
        return self.draws.weights.shape[0]


class NetworkEvaluator:
    """Evaluates a network at one block of weight draws after the other.

    Args:
        network: The network.
        sensor_factor: Whether the sensor head, if there is one, is evaluated, too.
    """

    def __init__(self, network: BayesianMLP, sensor_factor: bool = True):
        self._network = network
        self._n_heads = network.sizes[-1] // network.n_outputs if sensor_factor else 2
        self._head_buffers: dict[tuple[int, int], Tensor] = {}

    def heads(self, draws: ArrangedDraws, x: Float[Tensor, "n n_x"]) -> Heads:
        """Evaluate the network at all draws for all rows.

        Args:
            draws: Weight draws.
            x: Standardized inputs.
        Returns:
            Buffers that the next call with as many draws and rows overwrites: what is to be kept must be copied.
        """
        gaussian = self._network.at_draws(draws.draws.weights, x, self._forward)
        heads = gaussian.mean, gaussian.var, gaussian.sensor_factor
        return tuple(head for head in heads[: self._n_heads] if head is not None)

    def _forward(self, weights: Float[Tensor, "n_draws P"], x: Float[Tensor, "n n_x"]) -> NetworkGaussian:
        """Evaluate the network's forward pass: compiled where there is compiled code for it."""
        network = self._network
        if is_compiled(x, network.sizes, network.activation):
            return NetworkGaussian(*self._compiled(weights, x))
        return network.at(weights, x)

    def _compiled(self, weights: Tensor, x: Tensor) -> Heads:
        """Evaluate the network by one compiled loop over draws, shared by as many threads as torch has."""
        from equipoise.fast import layers as loops

        network, shape = self._network, (weights.shape[0], x.shape[0])
        if shape not in self._head_buffers:
            self._head_buffers[shape] = x.new_empty(self._n_heads, *shape, network.n_outputs)
        heads, threads = self._head_buffers[shape], max(1, min(torch.get_num_threads(), shape[0]))
        inputs, drawn, buffer = x.contiguous().numpy(), weights.contiguous().numpy(), heads.numpy()
        settings = np.array(network.sizes), loops.ACTIVATIONS[network.activation], (LOG_VAR_BOUND, LOG_FACTOR_BOUND)

        def evaluate(share: tuple[int, int]) -> None:
            loops.evaluate(*settings, drawn, *share, inputs, buffer)

        if threads == 1:
            evaluate((0, shape[0]))
        else:
            bounds = [shape[0] * i // threads for i in range(threads + 1)]
            list(self._threads.map(evaluate, itertools.pairwise(bounds)))
        return tuple(heads)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(torch.get_num_threads())
