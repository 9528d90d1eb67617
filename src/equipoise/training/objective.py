"""The training objective of a model: gradients for many steps, by compiled code where there is some."""

from collections.abc import Sequence
from typing import Any

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
    VariancePosterior,
    random_keys,
)
from equipoise.network import (
    LOG_FACTOR_BOUND,
    LOG_VAR_BOUND,
    ConstrainedBNN,
    NegativeElbo,
    is_compiled,
    twin_of,
)

BATCH_PART = 512  # rows of a batch that are taken at once: what they need stays in the cache
Arrays = tuple[np.ndarray, ...]
LARGEST_BLOCK = 32  # of coupled balances: the inverses of larger blocks are left to a library


class Objective:
    """The gradient of the training objective of one model, by compiled code where there is some.

    Models on the processor have compiled code if likelihood and posteriors have a compiled twin, coefficients are the
    same for all rows, no block of coupled balances is larger than `LARGEST_BLOCK`, no balance has an offset, and the
    model conditions by definition. All others are differentiated by autograd.

    Args:
        model: The model whose parameters get gradients.
    """

    def __init__(self, model: ConstrainedBNN):
        self.model = model
        self._compiled = _CompiledStep(model) if _CompiledStep.serves(model) else None

    def compile(self) -> None:
        """Compile all code that training will call; it takes seconds once on a machine and is then kept on disk."""
        network = self.model.network
        if is_compiled(network.posterior.loc, network.sizes, network.activation):
            loc = network.posterior.loc
            network.mean_at_means(loc.detach().new_zeros(1, network.sizes[0])).sum().backward()
            loc.grad = None
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
        """Leave the gradient of the negative ELBO per row in every `.grad` (E1, E2).

        Args:
            rows: The batch.
            n_rows: Number of rows in the data set.
            generator: Randomness of the weights, tolerances and sensor variances.
            kl_weight: Weight of all divergences.
            temperature: Additional weight of the divergence of the network's weights.
        Returns:
            The batch's negative log likelihood per row.
        """
        if self._compiled is not None:
            weights = temperature * kl_weight / n_rows, kl_weight / n_rows
            if (nll := self._compiled.backward(rows, generator, weights)) is not None:
                return nll
        return self._differentiate(self.model.negative_elbo(rows, n_rows, generator), kl_weight, temperature)

    def _differentiate(self, elbo: NegativeElbo, kl_weight: float, temperature: float) -> Tensor:
        """Differentiate the definition by autograd."""
        parameters = list(self.model.parameters())
        loss = elbo.per_row(kl_weight, temperature)
        gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        return elbo.nll.detach()


class _CompiledStep:
    """A model in the form that the compiled training step takes.

    Parameters and buffers are looked up anew in every step, since their memory may be replaced at any time.

    Args:
        model: A model for which `serves` is true.
    """

    def __init__(self, model: ConstrainedBNN):
        from equipoise.fast import layers, training_step

        self._model, self._negative_elbo = model, training_step.negative_elbo
        network, layer = model.network, model.conditioning
        self._network, self._sensor = network.posterior, model.sensor
        self._tolerance = None if layer is None else layer.tolerance
        posteriors = enumerate((self._network, self._tolerance, self._sensor))
        self._posteriors = {i: posterior for i, posterior in posteriors if posterior is not None}
        self._shape = np.array(network.sizes), layers.ACTIVATIONS[network.activation], (LOG_VAR_BOUND, LOG_FACTOR_BOUND)
        self._no_posterior = _arrays_of(LogNormalVariance(*torch.empty(3, 0)))
        self._no_sensors = np.empty((0, network.n_outputs))
        self._likelihood_switch = training_step.LIKELIHOODS[twin_of(model.likelihood)]  # type: ignore[index]
        self._B: Tensor | None = None
        self._balances: Arrays = ()

    @staticmethod
    def serves(model: ConstrainedBNN) -> bool:
        """Return whether there is compiled code for the model."""
        layer, network = model.conditioning, model.network
        plain = layer is None or (
            layer.offset is None and layer.B is not None and _largest_block(layer) <= LARGEST_BLOCK
        )
        variances = (None if layer is None else layer.tolerance, model.sensor)
        parts = (model.likelihood, network.posterior, *(part for part in variances if part is not None))
        own = model.conditions_by_definition and all(twin_of(part) is not None for part in parts)
        return own and plain and is_compiled(network.posterior.loc, network.sizes, network.activation)

    def backward(self, rows: Rows, generator: torch.Generator | None, weights: tuple[float, float]) -> Tensor | None:
        """Leave gradients in every `.grad`, as `Objective.backward` does.

        Large batches are taken in parts, whose memory stays in the cache.

        Args:
            rows: The batch.
            generator: Randomness.
            weights: Of the network's divergence, and of the others, in the loss per row.
        Returns:
            The negative log likelihood per row; None, with `generator` as it was, if there is no compiled code for
            these rows or if coupled balances are too badly conditioned for an inverse.
        """
        if not (rows.y.dtype == torch.float64 and rows.x.is_cpu and self._network.loc.is_cpu):
            return None
        arguments = self._arguments()
        if not self._accepts(rows, *arguments[1:3]):
            return None
        coupled = self._model.conditioning is not None and self._model.conditioning.coupled
        state = generator.get_state() if generator is not None and coupled else None
        n, keys = len(rows), np.zeros(3, np.int64)
        keys[list(self._posteriors)] = random_keys(len(self._posteriors), generator)
        total, first = (generator.total, generator.rows.start) if isinstance(generator, BatchGenerator) else (n, 0)
        results = []
        for start in range(0, n, BATCH_PART):
            part = rows if n <= BATCH_PART else rows.take(slice(start, start + BATCH_PART))
            results.append(self._part(part, keys, (total, first + start), arguments, weights))
        if not all(largest * np.finfo(np.float64).eps <= LARGEST_INVERSE for _, _, largest in results):  # nor NaN
            if generator is not None and state is not None:
                generator.set_state(state)  # what takes over needs the same numbers
            return None
        shares = [min(BATCH_PART, n - start) / n for start in range(0, n, BATCH_PART)]
        for i, posterior in self._posteriors.items():
            of_loc, of_log_std = zip(*(of_part[i] for _, of_part, _ in results), strict=True)
            posterior.loc.grad, posterior.log_std.grad = _weighted(shares, of_loc), _weighted(shares, of_log_std)
        nll = sum(share * nll for share, (nll, _, _) in zip(shares, results, strict=True))
        return torch.tensor(nll, dtype=torch.float64)

    def _accepts(self, rows: Rows, tolerance: Arrays, sensor: Arrays) -> bool:
        """Return whether there is compiled code for rows: balances may be exact only where sensors are noisy."""
        if self._tolerance is None:
            return True
        noisy = _is_positive(sensor) if rows.sensor_var is None else bool((rows.sensor_var > 0).all())
        return rows.target is not None and (noisy or _is_positive(tolerance))

    def _part(
        self, rows: Rows, keys: np.ndarray, place: tuple[int, int], arguments: tuple, weights: tuple[float, float]
    ) -> tuple[float, list[Arrays], float]:
        """Evaluate a part of a batch.

        Args:
            rows: The part.
            keys: Random bits for network, tolerances and sensors.
            place: Number of rows of the whole batch, and position of the part's first row in it.
            arguments: The model.
            weights: Of the divergences in the loss.
        Returns:
            The negative log likelihood per row, gradients by posterior, and the factor by which roundings grow.
        """
        x, y = rows.x.contiguous().numpy().reshape(-1), rows.y.contiguous().numpy()
        aimed = None if self._tolerance is None else rows.target
        target = np.empty((len(y), 0)) if aimed is None else aimed.contiguous().numpy()
        w = self._no_sensors if rows.sensor_var is None else rows.sensor_var.contiguous().numpy()
        gradients = self._new_gradients(arguments)
        nll, largest = self._negative_elbo(keys, place, *arguments, (x, y, target, w), weights, *gradients)
        return nll, gradients, largest

    def compile(self) -> None:
        """Compile the step by running it on one row and discarding the result."""
        network, layer, arguments = self._model.network, self._model.conditioning, self._arguments()
        x, y = network.posterior.loc.detach().new_zeros(network.sizes[0]).numpy(), np.zeros((1, network.n_outputs))
        data = x, y, np.zeros((1, 0 if layer is None else len(layer.names))), y[:0]
        gradients = self._new_gradients(arguments)
        self._negative_elbo(np.zeros(3, np.int64), (1, 0), *arguments, data, (0.0, 0.0), *gradients)

    def _arguments(self) -> tuple:
        """Return the model as `training_step.negative_elbo` takes it; arrays share the parameters' memory."""
        parameters: Any = self._network._parameters  # attributes of modules are slow
        loc, log_std = parameters["loc"].data.numpy(), parameters["log_std"].data.numpy()
        return (
            (*self._shape, loc, log_std, self._network.prior_std**-2),
            self._no_posterior if self._tolerance is None else _arrays_of(self._tolerance),
            self._no_posterior if self._sensor is None else _arrays_of(self._sensor),
            self._balance_arrays(),
            self._likelihood_switch,
        )

    def _balance_arrays(self) -> Arrays:
        """Return the balances as compiled code takes them, converted again only if their coefficients have changed."""
        layer = self._model.conditioning
        B = _NO_BALANCES if layer is None or layer.B is None else layer.B
        if self._B is None or not torch.equal(B, self._B):
            n_y = self._model.network.n_outputs
            operator = BalanceOperator(B.new_zeros(0, n_y), []) if layer is None else layer.operator(torch.float64)
            self._B, self._balances = B.clone(), operator.entries if operator.coupled else operator.owners
        return self._balances

    @staticmethod
    def _new_gradients(arguments: tuple) -> list[Arrays]:
        """Return memory for the gradients of the weights', the tolerances' and the sensors' `loc` and `log_std`."""
        means = arguments[0][3], arguments[1][0], arguments[2][0]
        return [(np.empty_like(loc), np.empty_like(loc)) for loc in means]


def _weighted(shares: Sequence[float], gradients: Sequence[np.ndarray]) -> Tensor:
    """Add up the gradients of parts of a batch, each weighted by its share of the rows, in the first one's memory."""
    total, *others = map(torch.from_numpy, gradients)
    if others:
        total.mul_(shares[0])
    for share, gradient in zip(shares[1:], others, strict=True):
        total.add_(gradient, alpha=share)
    return total


def _largest_block(layer: ConditioningLayer) -> int:
    return max((group.rows.shape[-1] for group in layer.layout), default=0)


def _is_positive(q: Arrays) -> bool:
    """Return whether all variances are above 0, as those that are learned are by definition; False without any."""
    _, _, _, learned, fixed, *_ = q
    return bool(learned.size) and bool((learned | (fixed > 0)).all())


def _arrays_of(q: VariancePosterior) -> Arrays:
    """Return the arrays of a `LogNormalVariance` in the order that `fast.log_normal.draw_log_normal` expects."""
    parameters: Any = q._parameters  # attributes of modules are slow
    buffers: Any = q._buffers
    return (
        parameters["loc"].data.numpy(),
        parameters["log_std"].data.numpy(),
        buffers["floor"].numpy(),
        buffers["learned"].numpy(),
        buffers["fixed"].numpy(),
        buffers["prior_mean"].numpy(),
        buffers["prior_std"].numpy(),
    )


_NO_BALANCES = torch.empty(0, dtype=torch.float64)
