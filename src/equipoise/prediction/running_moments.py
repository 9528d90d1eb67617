"""Means, variances and covariances over draws that come in blocks, with equal weights or with weights of their own."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.errors import InputError
from equipoise.gaussian import Gaussian

Fields = Mapping[str, Tensor]
"""Values `(n_draws, ...)` of the quantities that are averaged over draws, by name."""


class RunningMoments:
    """Means of fields, and covariances with ddof 0 of pairs of them, over draws that come in blocks.

    Draws may have log weights, for each row (second axis of the fields) its own; by default all weights are equal.
    Moments are computed in one pass over each block from deviations d from the mean of the first block::

        Cov[a, b] = E[d_a d_b] − E[d_a] E[d_b]

    With n₁ of n draws in the first block, its mean differs from that of all by `√(n/n₁ − 1)` standard deviations at
    most. So the subtraction costs `log₁₀(n/n₁)` digits at worst, however small the spread is beside the mean.

    Args:
        pairs: Pairs of fields whose covariance is wanted, `(a, a)` for a variance.

    Example:
        >>> moments = RunningMoments((("y", "y"),))
        >>> for draws in ([1.0, 2.0, 3.0], [6.0, 7.0, 8.0]):
        ...     moments.add({"y": torch.tensor(draws)})
        >>> moments.mean("y"), moments.cov("y", "y")
        (tensor(4.5000), tensor(6.9167))
    """

    def __init__(self, pairs: tuple[tuple[str, str], ...]):
        self.count, self._pairs = 0, pairs
        self._weights = RunningWeights()
        self._paired = {name for pair in pairs for name in pair}
        self._reference: dict[str, Tensor] = {}
        self._average: defaultdict[str | tuple[str, str], RunningMean] = defaultdict(RunningMean)

    def add(self, fields: Fields, log_weight: Float[Tensor, "n_draws n"] | None = None) -> None:
        """Add a block of draws.

        Args:
            fields: Values of all fields, draws on axis 0.
            log_weight: Log weights of the draws, for all blocks or for none; equal weights by default.
        """
        if self.count == 0:
            self._reference = {name: fields[name].mean(0) for name in self._paired}
        n_draws = len(next(iter(fields.values())))
        weight, share = self._weights.add_block(log_weight, n_draws)
        self.count += n_draws
        d = {name: fields[name] - self._reference[name] for name in self._paired}
        averages = {name: weighted_mean(d.get(name, values), weight) for name, values in fields.items()}
        averages |= {(a, b): weighted_mean(d[a] * d[b], weight) for a, b in self._pairs}
        for key, value in averages.items():
            self._average[key].add(value, share)

    def mean(self, name: str) -> Float[Tensor, "..."]:
        """Return the mean of a field over all draws."""
        average = self._average[name].value
        return average + self._reference[name] if name in self._reference else average

    def cov(self, a: str, b: str) -> Float[Tensor, "..."]:
        """Return the covariance of a pair of fields over all draws.

        Args:
            a, b: Names of the fields; they must be one of the pairs.
        """
        return self._average[a, b].value - self._average[a].value * self._average[b].value


class RunningWeights:
    """Weights of draws that arrive in blocks, for each row by itself, normalised at the end::

    π_d = p(y | d) / Σ_d' p(y | d'),    effective draws = 1 / Σ_d π_d²        (R11)
    """

    def __init__(self):
        # The largest logarithm is kept apart: the sum of −1e13 and 0.1 would lose the smaller number.
        self._largest: Tensor | None = None
        self._total: Tensor | float = 0.0
        self._squares: Tensor | float = 0.0

    def add_block(
        self, log_weight: Float[Tensor, "n_draws n"] | None, n_draws: int
    ) -> tuple[Float[Tensor, "n_draws n"] | None, Float[Tensor, " n"] | float]:
        """Add a block of draws that may all have the same weight.

        Args:
            log_weight: As of `add`, or None for equal weights, in all blocks or in none.
            n_draws: Number of draws.
        Returns: Weights within this block, None if they are equal; and the share of the block.
        """
        if log_weight is not None:
            return self.add(log_weight)
        self._total, self._squares = self._total + n_draws, self._squares + n_draws
        return None, n_draws / float(self._total)

    def add(self, log_weight: Float[Tensor, "n_draws n"]) -> tuple[Float[Tensor, "n_draws n"], Float[Tensor, " n"]]:
        """Add a block of draws.

        Args:
            log_weight: Logarithms of the weights, up to one constant for all blocks.
        Returns: Weights within this block, which add up to 1, and the share of the block in the total weight so far.
        """
        largest = log_weight.amax(0) if self._largest is None else torch.maximum(self._largest, log_weight.amax(0))
        before = torch.ones_like(largest) if self._largest is None else (self._largest - largest).exp()
        weight = (log_weight - largest).exp()
        block_total, self._largest = weight.sum(0), largest
        self._total = self._total * before + block_total
        self._squares = self._squares * before.square() + weight.square().sum(0)
        return torch.softmax(log_weight, 0), block_total / self._total

    @property
    def effective(self) -> Float[Tensor, " n"]:
        """Effective number of draws, between 1 and all of them (R11)."""
        return torch.as_tensor(self._total) ** 2 / torch.as_tensor(self._squares)  # R11


def weighted_mean(
    values: Float[Tensor, "n_draws ..."], weight: Float[Tensor, "n_draws n"] | None
) -> Float[Tensor, "..."]:
    """Average the draws of a block.

    Args:
        values: Values of each draw, with rows on axis 1 if there are weights.
        weight: Weights of the draws in each row, which add up to 1; None for equal weights.
    """
    return values.mean(0) if weight is None else torch.einsum("dn,dn...->n...", weight, values)


class RunningMean:
    """A weighted mean over draws that arrive in blocks, each block already averaged within itself."""

    def __init__(self):
        self._value: Tensor | None = None

    def add(self, block: Float[Tensor, "..."], share: Float[Tensor, " n"] | float) -> None:
        """Add the mean of a block with its share in the total weight so far.

        Args:
            block: The mean, rows on axis 0 if each has a share of its own.
            share: The share of the block.
        """
        self._value = block if self._value is None else torch.lerp(self._value, block, _aligned(share, block))

    def value_or(self, default: Tensor) -> Tensor:
        """Return the mean of all blocks so far, or `default` if there are none."""
        return default if self._value is None else self._value

    @property
    def value(self) -> Tensor:
        """The mean of all blocks so far."""
        if self._value is None:
            raise InputError("The mean of draws needs one draw at least, but none was added.")
        return self._value


class MixtureMoments:
    """Mean and variance, or covariance, of a mixture of weighted draws::

        E[z] = Σ_d π_d μ_d,    Cov[z] = Σ_d π_d (Σ_d + (μ_d − E[z]) (μ_d − E[z])ᵀ)        (R12)

    Blocks are merged by Chan's update, which avoids cancellation.

    Args:
        dense: Whether covariances are calculated rather than variances.
    """

    def __init__(self, *, dense: bool = False):
        self.weights = RunningWeights()
        self._within: Callable = _covariance_within if dense else _variance_within
        self._outer: Callable = _outer_product if dense else torch.square
        self._mean, self._second = RunningMean(), RunningMean()

    def add(
        self, log_weight: Float[Tensor, "n_draws _"] | None, gaussian: Gaussian, sensor_var: Tensor | float = 0.0
    ) -> Float[Tensor, " n"]:
        """Add a block of draws with their log weights, and return its share in the total weight so far.

        Args:
            log_weight: Log weights of the draws, for each row or for all of them, shape `(n_draws, 1)`; None for equal
                weights.
            gaussian: Their Gaussians.
            sensor_var: Sensor variances that are added for measured values, broadcast against them.
        """
        zeros = gaussian.mean.new_zeros(gaussian.mean.shape[:-1])
        weight, share = self.weights.add(zeros if log_weight is None else zeros + log_weight)
        mean = (weight.unsqueeze(-1) * gaussian.mean).sum(0)
        second = self._within(gaussian, weight, mean, sensor_var)
        difference = self._outer(mean - self._mean.value_or(mean))
        self._mean.add(mean, share)
        between = (1.0 - _aligned(share, difference)) * difference
        self._second.add(second + between, share)  # adds share · (1 − share) · difference²
        return share

    @property
    def mean(self) -> Float[Tensor, "n n_y"]:
        """Mean of the mixture (R12)."""
        return self._mean.value  # R12

    @property
    def second(self) -> Tensor:
        """Variances `(n, n_y)` of the mixture, or covariances `(n, n_y, n_y)` (R12)."""
        return self._second.value  # R12


def _variance_within(
    gaussian: Gaussian, weight: Tensor, mean: Tensor, sensor_var: Tensor | float = 0.0
) -> Float[Tensor, "n n_y"]:
    """Return the variance of a weighted block of draws about its mean."""
    return weighted_mean(gaussian.var + sensor_var + (gaussian.mean - mean).square(), weight)


def _covariance_within(
    gaussian: Gaussian, weight: Tensor, mean: Tensor, sensor_var: Tensor | float = 0.0
) -> Float[Tensor, "n n_y n_y"]:
    """Return the covariance of a weighted block of draws about its mean, without one matrix for each draw."""
    deviations = (weight.sqrt().unsqueeze(-1) * (gaussian.mean - mean)).movedim(0, 1)
    noise = (weight.unsqueeze(-1) * sensor_var).sum(0)
    return gaussian.weighted_covariance(weight) + torch.diag_embed(noise.expand_as(mean)) + deviations.mT @ deviations


def _aligned(share: Tensor | float, values: Tensor) -> Any:
    """Append axes to the shares of rows until they broadcast with values of rows."""
    if not isinstance(share, Tensor):
        return share
    return share.reshape(-1, *[1] * (values.ndim - 1))


def _outer_product(difference: Tensor) -> Tensor:
    return difference.unsqueeze(-1) * difference.unsqueeze(-2)


class MomentTable:
    """Mean and variance of a mixture at all rows, filled chunk of rows by chunk of rows (P2).

    The last bits of a row's numbers depend on the chunk of rows in which they were computed. So only the chunks of one
    fixed division of the rows are accepted, and these have the same bits whichever pass over the draws brings them.

    Args:
        chunks: The division of the rows.
        shape: `(n, n_y)`.

    Attributes:
        mean, var: Arrays of that shape; rows of chunks that are still lacking have arbitrary numbers.
    """

    def __init__(self, chunks: Iterable[slice], shape: tuple[int, int]):
        self.mean, self.var = np.empty(shape), np.empty(shape)
        self._lacking = {(rows.start, rows.stop) for rows in chunks}

    def lack(self, rows: slice) -> bool:
        """Return whether these rows are a chunk of the division that is not filled yet."""
        return (rows.start, rows.stop) in self._lacking

    def put(self, rows: slice, moments: RunningMoments) -> None:
        """Fill a chunk, if it is lacking, from the moments over all draws of the fields `mean` and `var`.

        Args:
            rows: The chunk of rows.
            moments: Moments of the fields `mean` and `var` over all draws, at these rows.
        """
        if self.lack(rows):
            self.mean[rows] = moments.mean("mean").cpu().numpy()
            self.var[rows] = (moments.mean("var") + moments.cov("mean", "mean")).cpu().numpy()  # P2
            self._lacking.remove((rows.start, rows.stop))
