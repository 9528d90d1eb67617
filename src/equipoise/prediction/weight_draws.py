"""The network evaluated at weight draws, one block of draws after the other in the same memory.

At the sizes of these networks fresh memory costs as much as the matrix products: it is not in cache, and the system may
hand it out page by page. `BayesianMLP.at` is the definition, and the tests' oracle.
"""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
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

    def heads(self, draws: PosteriorDraws, x: Float[Tensor, "n n_x"]) -> Heads:
        """Evaluate the network at all draws for all rows.

        Args:
            draws: Weight draws.
            x: Standardized inputs.
        Returns:
            Buffers that the next call with as many draws and rows overwrites: what is to be kept must be copied.
        """
        gaussian = self._network.at_draws(draws.weights, x, self._forward)
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
