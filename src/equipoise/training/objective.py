"""The training objective of one model, made ready for many steps."""

import numpy as np
import torch
from torch import Tensor

from equipoise.data import Rows
from equipoise.gaussian import (
    LARGEST_INVERSE,
    BalanceOperator,
    BatchGenerator,
    ConditioningLayer,
    LogNormalVariance,
    random_keys,
)
from equipoise.network import LOG_FACTOR_BOUND, LOG_VAR_BOUND, ConstrainedBNN, is_compiled, joint, marginal
from equipoise.training.gradient import backward

AT_ONCE = 512  # rows of a batch: what they need stays in the cache, and in memory that is used again
LARGEST_BLOCK = 32  # of balances that share outputs: the inverses of larger ones are left to a library


class Objective:
    """`gradient.backward` of a model, by compiled code where there is some for it.

    There is where a model is on the processor, no more than `LARGEST_BLOCK` of its balances hang together, none has an
    offset, and its likelihood is one of the library's.

    Args:
        model: Whose parameters get gradients.
    """

    def __init__(self, model: ConstrainedBNN):
        self.model = model
        self._compiled = _Compiled(model) if _Compiled.serves(model) else None

    def compile(self) -> None:
        """Have everything ready that training calls: it takes seconds once on a machine, and is kept on disk there."""
        network = self.model.network
        if is_compiled(network.posterior.loc, network.sizes, network.activation):
            x = network.posterior.loc.detach().new_zeros(1, network.sizes[0])
            _, pull = network.propagate_means(x)
            pull(x.new_zeros(1, network.n_outputs))
            if self._compiled is not None:
                self._compiled.compile()

    def backward(
        self,
        rows: Rows,
        n_rows: int,
        generator: torch.Generator | None = None,
        kl_weight: float = 1.0,
        temperature: float = 1.0,
    ) -> Tensor:
        """Leave gradients in every `.grad`, and give the batch's negative log likelihood per row, as
        `gradient.backward` does."""
        if self._compiled is not None and self._compiled.takes(rows):
            state = generator.get_state() if generator is not None and self._compiled.may_give_up else None
            weights = temperature * kl_weight / n_rows, kl_weight / n_rows
            if (nll := self._compiled.backward(rows, generator, weights)) is not None:
                return nll
            if generator is not None and state is not None:
                generator.set_state(state)  # the same numbers again
        return backward(self.model, rows, n_rows, generator, kl_weight, temperature)


class _Compiled:
    """A model as `kernels.objective` takes it."""

    def __init__(self, model: ConstrainedBNN):
        from equipoise.fast import training_step as objective

        self._model, self._negative_elbo = model, objective.negative_elbo
        layer, sensor = model.conditioning, model.sensor
        self._tolerance, self._sensor = None if layer is None else layer.tolerance, sensor
        self._exact = self._tolerance is not None and not self._tolerance.is_positive
        self._noisy = sensor is not None and sensor.is_positive
        self._posteriors = [part for part in (model.network.posterior, self._tolerance, sensor) if part is not None]
        self._drawn = [0, *(i for i, part in ((1, self._tolerance), (2, sensor)) if part is not None)]
        self._memory: tuple[int, ...] = ()
        self._views: tuple = ()

    @property
    def may_give_up(self) -> bool:
        """Whether some draws may be left to others, which is known only afterwards."""
        return self._model.conditioning is not None and self._model.conditioning.coupled

    @property
    def _given(self) -> tuple:
        """Views of all that the model knows, made anew where the memory of its parameters was replaced."""
        memory = tuple(parameter.data_ptr() for part in self._posteriors for parameter in (part.loc, part.log_std))
        if memory != self._memory:
            self._memory, self._views = memory, self._view()
        return self._views

    def _view(self) -> tuple:
        from equipoise.fast import layers

        network, layer, n_y = self._model.network, self._model.conditioning, self._model.network.n_outputs
        q, kind = network.posterior, layers.ACTIVATIONS[network.activation]
        none = BalanceOperator(torch.zeros(0, n_y, dtype=torch.float64), [])
        operator = none if layer is None else layer.operator(torch.float64)
        bounds = LOG_VAR_BOUND, LOG_FACTOR_BOUND
        return (
            (np.array(network.sizes), kind, bounds, *_arrays(q.loc, q.log_std), q.prior_std**-2),
            _posterior(self._tolerance),
            _posterior(self._sensor),
            operator.entries if operator.coupled else operator.owners,
            None if self._model.likelihood is joint else True,
        )

    @staticmethod
    def serves(model: ConstrainedBNN) -> bool:
        """Whether there is compiled code for the model."""
        layer, network = model.conditioning, model.network
        plain = layer is None or (layer.offset is None and layer.B.ndim == 2 and _largest_block(layer) <= LARGEST_BLOCK)
        own = model.conditions_by_definition and model.likelihood in (joint, marginal)
        return own and plain and is_compiled(network.posterior.loc, network.sizes, network.activation)

    def takes(self, rows: Rows) -> bool:
        """Whether there is for these rows: exact balances need noise, or the density is one on a subspace."""
        noisy = self._noisy if rows.sensor_var is None else bool((rows.sensor_var > 0).all())
        aimed = self._tolerance is None or rows.target is not None
        return aimed and rows.y.dtype == torch.float64 and (noisy or not self._exact)

    def backward(self, rows: Rows, generator: torch.Generator | None, weights: tuple[float, float]) -> Tensor | None:
        """As `Objective.backward`, with the weights of the network's divergence and of the others.

        Large batches are taken in parts, whose memory stays in the cache.

        Returns:
            None if coupled balances are too badly conditioned for an inverse.
        """
        n, keys = len(rows), np.zeros(3, np.int64)
        keys[self._drawn] = random_keys(len(self._drawn), generator)
        shared = isinstance(generator, BatchGenerator)
        total, first = (generator.total, generator.rows.start) if shared else (n, 0)
        found = [
            self._part(
                rows if n <= AT_ONCE else rows.take(slice(start, start + AT_ONCE)), keys, total, first + start, weights
            )
            for start in range(0, n, AT_ONCE)
        ]
        if not all(largest * np.finfo(np.float64).eps <= LARGEST_INVERSE for _, _, largest in found):  # nor NaN
            return None
        sizes = [min(AT_ONCE, n - start) / n for start in range(0, n, AT_ONCE)]
        for i, part in zip(self._drawn, self._posteriors, strict=True):
            part.loc.grad, part.log_std.grad = _weighted(sizes, [of[i] for _, of, _ in found])
        return torch.tensor(
            sum(size * nll for size, (nll, _, _) in zip(sizes, found, strict=True)), dtype=torch.float64
        )

    def _part(self, rows: Rows, keys: np.ndarray, total: int, first: int, weights: tuple[float, float]) -> tuple:
        """Of some rows of a batch the loss per row, its gradients, and what roundings grow by."""
        x, y, n = rows.x.contiguous().view(-1), rows.y.contiguous(), len(rows)
        target = y.new_empty(n, 0) if rows.target is None or self._tolerance is None else rows.target
        w = y.new_empty(0, y.shape[-1]) if rows.sensor_var is None else rows.sensor_var
        data, into = _arrays(x, y, target.contiguous(), w.contiguous()), self._gradients()
        arrays = (_arrays(*of) for of in into)
        nll, largest = self._negative_elbo(keys, (total, first), *self._given, data, weights, *arrays)
        return nll, into, largest

    def compile(self) -> None:
        """By a step of one row that leads nowhere."""
        network, layer = self._model.network, self._model.conditioning
        x, y = network.posterior.loc.detach().new_zeros(network.sizes[0]), np.zeros((1, network.n_outputs))
        data = x.numpy(), y, np.zeros((1, 0 if layer is None else len(layer.B))), y[:0]
        into = (_arrays(*of) for of in self._gradients())
        self._negative_elbo(np.zeros(3, np.int64), (1, 0), *self._given, data, (0.0, 0.0), *into)

    def _gradients(self) -> list[tuple[Tensor, Tensor]]:
        """Memory for those of the network, the tolerances and the sensors."""
        into = [_NOTHING] * 3
        for i, part in zip(self._drawn, self._posteriors, strict=True):
            into[i] = torch.empty_like(part.loc), torch.empty_like(part.loc)
        return into


def _weighted(sizes: list[float], gradients: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Gradients of parts of a batch, put together by their sizes."""
    of_loc, of_log_std = gradients[0]
    if len(sizes) > 1:
        of_loc.mul_(sizes[0])
        of_log_std.mul_(sizes[0])
    for size, more in zip(sizes[1:], gradients[1:], strict=True):
        of_loc.add_(more[0], alpha=size)
        of_log_std.add_(more[1], alpha=size)
    return of_loc, of_log_std


def _largest_block(layer: ConditioningLayer) -> int:
    return max((group.rows.shape[-1] for group in layer.layout), default=0)


def _arrays(*tensors: Tensor) -> tuple[np.ndarray, ...]:
    return tuple(tensor.detach().numpy() for tensor in tensors)


def _posterior(q: LogNormalVariance | None) -> tuple[np.ndarray, ...]:
    """As `kernels.spreads.draw_log_normal` takes it; of nothing, without any."""
    if q is None:
        q = LogNormalVariance(*torch.empty(3, 0))
    return _arrays(q.loc, q.log_std, q.floor, q.learned, q.fixed, q.prior_mean, q.prior_std)


_NOTHING = torch.empty(0, dtype=torch.float64), torch.empty(0, dtype=torch.float64)
