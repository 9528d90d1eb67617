"""The network at weight draws, in memory that serves for some draws after the others.

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
from torch.nn.functional import pad

from equipoise.network import (
    LOG_FACTOR_BOUND,
    LOG_VAR_BOUND,
    BayesianMLP,
    NetworkGaussian,
    PosteriorDraws,
    is_compiled,
    layers,
)

_IN_PLACE = {
    "silu": torch.ops.aten.silu_,
    "tanh": torch.ops.aten.tanh_,
    "relu": torch.ops.aten.relu_,
    "gelu": torch.ops.aten.gelu_,
}


def draws_between(draws: PosteriorDraws, start: int, stop: int) -> PosteriorDraws:
    """Some of the draws of a block."""
    parts = (getattr(draws, part.name) for part in fields(draws))
    return PosteriorDraws(*(None if part is None else part[start:stop] for part in parts))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Drawn:
    """Posterior draws, seen as they are needed again and again.

    Args:
        draws: They themselves.
        layers: Weights `(n_draws, fan_in, fan_out)` and bias `(n_draws, 1, fan_out)` of each layer. The first has its
            bias as the last row of its weights instead, to go with a column of ones beside the inputs.
        tolerances: Both draws of r, balances before draws.
        offset: Offsets of the balances, likewise.
    """

    draws: PosteriorDraws
    layers: tuple[tuple[Tensor, Tensor | None], ...]
    tolerances: Float[Tensor, "2 m n_draws 1"] | None
    offset: Float[Tensor, "m n_draws 1"] | None

    @classmethod
    def of(cls, draws: PosteriorDraws, network: BayesianMLP) -> "Drawn":
        """Views of draws of a network's weights and of what goes with them."""
        n_x, width = network.sizes[:2]
        first = draws.weights[:, : (n_x + 1) * width].unflatten(-1, (n_x + 1, width))  # a bias follows its weights
        rest = ((W, bias.unsqueeze(-2)) for W, bias in layers(draws.weights, network.sizes)[1:])
        both = [part for part in (draws.tol_var, draws.tol_var_again) if part is not None]
        tolerances = torch.stack(both).movedim(-1, 1) if both else None
        offset = None if draws.offset is None else draws.offset.movedim(-1, 0)
        return cls(draws, ((first, None), *rest), tolerances, offset)

    def __len__(self) -> int:
        """How many draws."""
        return self.draws.weights.shape[0]


class DrawnNetwork:
    """A network that is evaluated at some draws after the others.

    Args:
        network: Whose layers.
        sensor_factor: Whether the sensor head, where there is one, is wanted, too.
    """

    def __init__(self, network: BayesianMLP, sensor_factor: bool = True):
        self._network, self._activate = network, _IN_PLACE[network.activation]
        self._n_heads = network.sizes[-1] // network.n_outputs if sensor_factor else 2
        self._memory: dict[tuple[int, int], _Memory] = {}
        self._said: dict[tuple[int, int], Tensor] = {}

    def at(self, drawn: Drawn, x: Float[Tensor, "n n_x"]) -> NetworkGaussian:
        """What `BayesianMLP.at` says, valid until as many draws at as many rows are asked for again.

        Args:
            drawn: Which draws.
            x: Inputs.
        """
        key = len(drawn), x.shape[0]
        if is_compiled(x, self._network.sizes, self._network.activation):
            return self._compiled(drawn, x, key)
        if key not in self._memory:
            self._memory[key] = _Memory(key, self._network, x, self._n_heads)
        memory, h = self._memory[key], pad(x, (0, 1), value=1.0).expand(key[0], -1, -1)  # ones, for the first bias
        for (W, bias), units in zip(drawn.layers, memory.units, strict=True):
            h = torch.bmm(h, W, out=units)
            if bias is not None:
                h.add_(bias)
            if units is not memory.units[-1]:
                self._activate(h)
        for raw, bound, positive in memory.heads:
            torch.div(raw, bound, out=positive).tanh_().mul_(bound).exp_()  # V3, V4
        return memory.said

    def _compiled(self, drawn: Drawn, x: Tensor, key: tuple[int, int]) -> NetworkGaussian:
        """The same by one compiled loop over draws, shared by as many threads as torch has."""
        from equipoise.fast import layers as loops

        network = self._network
        if key not in self._said:
            self._said[key] = x.new_empty(self._n_heads, *key, network.n_outputs)
        said, threads = self._said[key], max(1, min(torch.get_num_threads(), len(drawn)))
        inputs, weights, into = x.contiguous().numpy(), drawn.draws.weights.contiguous().numpy(), said.numpy()
        given = np.array(network.sizes), loops.ACTIVATIONS[network.activation], (LOG_VAR_BOUND, LOG_FACTOR_BOUND)

        def evaluate(share: tuple[int, int]) -> None:
            loops.evaluate(*given, weights, *share, inputs, into)

        if threads == 1:
            evaluate((0, len(drawn)))
        else:
            bounds = [len(drawn) * i // threads for i in range(threads + 1)]
            list(self._threads.map(evaluate, itertools.pairwise(bounds)))
        return NetworkGaussian(*said)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(torch.get_num_threads())


class _Memory:
    """Units of all layers, and what the last one's say."""

    def __init__(self, shape: tuple[int, int], network: BayesianMLP, like: Tensor, n_heads: int):
        self.units = [like.new_empty(*shape, width) for width in network.sizes[1:]]
        mean, *raw = self.units[-1].split(network.n_outputs, dim=-1)[:n_heads]
        positive = [torch.empty_like(part, memory_format=torch.contiguous_format) for part in raw]
        self.heads = list(zip(raw, (LOG_VAR_BOUND, LOG_FACTOR_BOUND), positive, strict=False))
        self.said = NetworkGaussian(mean, *positive)
