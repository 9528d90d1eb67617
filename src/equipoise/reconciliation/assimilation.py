"""Assimilation of readings: a prediction, which is a mixture over draws of a network, conditioned on measured outputs.

Each draw is a Gaussian of independent outputs that the balances condition (C1–C4). Readings with independent errors
multiply into the independent outputs first, one scalar each, and the balances condition the product: the order does not
matter, and no n_y × n_y matrix is needed. Draws are weighted by their evidence and averaged. Where too few draws have
notable weight, the Gaussian with the mixture's mean and covariance (`MatchedGaussian`) is conditioned instead; readings
are tested against it too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from equipoise.gaussian import DiagonalGaussian, Gaussian
from equipoise.network import joint


@dataclass(frozen=True, eq=False)
class Assimilated:
    """A block of draws before and after conditioning on readings.

    Args:
        before: The Gaussians of network and balances, draws on axis 0, then rows.
        after: The same, conditioned on the readings.
        log_evidence: Log evidence `log p(y | draw)` of the readings of each row.
        step: `g ⊙ (y − μ)`: the change of each output by its own reading, before the balances.
        sensor_var: `w`, variances of the readings; ∞ where there is none.
    """

    before: Gaussian
    after: Gaussian
    log_evidence: Float[Tensor, "n_draws n"]
    step: Float[Tensor, "n_draws n n_y"]
    sensor_var: Float[Tensor, "n_draws n n_y"]


def assimilate(gaussian: Gaussian, y: Float[Tensor, "n n_y"], sensor_var: Float[Tensor, "*draws n n_y"]) -> Assimilated:
    """Condition draws on readings `y = z + e`, `e ~ N(0, diag(w))`, of the true values z.

    With the draw's independent outputs `N(μ, diag(v))`, before its balances::

        g = v / (v + w),   μ̃ = μ + g ⊙ (y − μ),   ṽ = g ⊙ w,   then C1–C4 with (μ̃, ṽ)        (R10)

    and `g = 0`, `ṽ = v` where there is no reading. The evidence `log p(y | θ, ρ)` is the joint likelihood (L2).

    Args:
        gaussian: Gaussians of a block of draws, `(n_draws, n, n_y)`.
        y: Readings, NaN where there are none.
        sensor_var: `w ≥ 0`, for all draws or for each; 0 is an exact reading, ∞ none.
    Example:
        An output predicted as 1 ± 1 reads 3 ± 1.

        >>> predicted = DiagonalGaussian(torch.ones(1, 1, 1), torch.ones(1, 1, 1))
        >>> after = assimilate(predicted, torch.full((1, 1), 3.0), torch.ones(1, 1)).after
        >>> after.mean.item(), after.var.item()
        (2.0, 0.5)
    """
    prior = gaussian.prior
    w = sensor_var.expand_as(prior.mean)
    y = torch.where(w.isfinite(), y.expand_as(prior.mean), torch.nan)
    measured = ~y.isnan()
    g = torch.where(measured, prior.var / (prior.var + torch.where(measured, w, 1.0)), 0.0)
    step = torch.where(measured, g * (y - prior.mean), 0.0)
    combined = DiagonalGaussian(prior.mean + step, torch.where(measured, g * w, prior.var))  # R10
    after = gaussian.with_prior(combined)
    return Assimilated(gaussian, after, joint(gaussian, y, w), step, torch.where(measured, w, torch.inf))


class RunningWeights:
    """Weights of draws that arrive in blocks, for each row by itself, normalised at the end::

    π_d = p(y | d) / Σ_d' p(y | d'),    effective draws = 1 / Σ_d π_d²        (R11)
    """

    def __init__(self):
        # The largest logarithm is kept apart: the sum of −1e13 and 0.1 would lose the smaller number.
        self._largest: Tensor | None = None
        self._total: Tensor | float = 0.0
        self._squares: Tensor | float = 0.0

    def add(self, log_weight: Float[Tensor, "n_draws n"]) -> tuple[Float[Tensor, "n_draws n"], Float[Tensor, " n"]]:
        """Add a block of draws.

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


class RunningMean:
    """A weighted mean over draws that arrive in blocks, each block already averaged within itself."""

    def __init__(self):
        self._value: Tensor | None = None

    def add(self, block: Float[Tensor, "n ..."], share: Float[Tensor, " n"]) -> Float[Tensor, "n ..."]:
        """Add the mean of a block with its share in the total weight so far.

        Returns: The difference between the block and the mean of all earlier blocks.
        """
        difference = torch.zeros_like(block) if self._value is None else block - self._value
        self._value = block if self._value is None else self._value + _aligned(share, block) * difference
        return difference

    @property
    def value(self) -> Tensor:
        """The mean of all blocks so far."""
        if self._value is None:
            raise RuntimeError("No draws were added.")
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
        self._within: Callable = covariance_within if dense else variance_within
        self._outer: Callable = _outer_product if dense else torch.square
        self._mean, self._second = RunningMean(), RunningMean()

    def add(self, log_weight: Float[Tensor, "n_draws n"], gaussian: Gaussian) -> Float[Tensor, " n"]:
        """Add a block of draws with their log weights, and return its share in the total weight so far."""
        weight, share = self.weights.add(log_weight)
        mean = (weight.unsqueeze(-1) * gaussian.mean).sum(0)
        second = self._within(gaussian, weight, mean)
        difference = self._outer(self._mean.add(mean, share))
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


def variance_within(gaussian: Gaussian, weight: Tensor, mean: Tensor) -> Float[Tensor, "n n_y"]:
    """Return the variance of a weighted block of draws about its mean."""
    return (weight.unsqueeze(-1) * (gaussian.var + (gaussian.mean - mean).square())).sum(0)


def covariance_within(gaussian: Gaussian, weight: Tensor, mean: Tensor) -> Float[Tensor, "n n_y n_y"]:
    """Return the covariance of a weighted block of draws about its mean, without one matrix for each draw."""
    prior = gaussian.prior
    root = weight.sqrt().unsqueeze(-1)
    deviations = (root * (gaussian.mean - mean)).movedim(0, 1)
    half = (root.unsqueeze(-1) * gaussian.reduction_root()).movedim(1, 0).flatten(1, 2)
    before = torch.diag_embed((weight.unsqueeze(-1) * prior.var).sum(0))
    return before + deviations.mT @ deviations - half.mT @ half  # C4


def _aligned(share: Tensor, values: Tensor) -> Tensor:
    """Append axes to the shares of rows until they broadcast with values of rows."""
    return share.reshape(-1, *[1] * (values.ndim - 1))


def _outer_product(difference: Tensor) -> Tensor:
    return difference.unsqueeze(-1) * difference.unsqueeze(-2)


Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MatchedGaussian:
    """The Gaussian with the moments of a mixture, `z ~ N(m, Σ)`, conditioned on readings `y = z + e`, `e ~ N(0, w)`.

    With the innovations `i = y − m` and `S = Σ + diag(w)`, both for the measured outputs, and `S⁻¹ = Tᵀ T`::

        ẑ = m + Σ S⁻¹ i,    Σ̂ = Σ − Σ S⁻¹ Σ,    T i ~ N(0, 1)        (R13)

    Args:
        mean: `m`, shape `(rows, n_y)`.
        cov: `Σ`, shape `(rows, n_y, n_y)`; singular where balances are exact.
        y: Readings, NaN where there are none.
        sensor_var: `w`; ignored where there is no reading, ∞ is as good as no reading.
    Example:
        >>> cov = np.array([[[2.0, 1.0], [1.0, 2.0]]])
        >>> MatchedGaussian(np.zeros((1, 2)), cov, np.array([[3.0, np.nan]]), np.ones((1, 2))).conditioned_mean
        array([[2., 1.]])
    """

    mean: Float[np.ndarray, "rows n_y"]
    cov: Float[np.ndarray, "rows n_y n_y"]
    y: Float[np.ndarray, "rows n_y"]
    sensor_var: Float[np.ndarray, "rows n_y"]

    @property
    def measured(self) -> Bool[np.ndarray, "rows n_y"]:
        """Whether there is a reading with a finite variance, shape `(rows, n_y)`."""
        return ~np.isnan(self.y) & np.isfinite(self.sensor_var)

    @cached_property
    def innovation(self) -> Float[np.ndarray, "rows n_y"]:
        """Innovations `y − m`, 0 where there is no reading."""
        return np.where(self.measured, self.y - self.mean, 0.0)

    @cached_property
    def whitener(self) -> Float[np.ndarray, "rows n_y n_y"]:
        """`T` with `Tᵀ T = S⁻¹` (R13); its columns are 0 where there is no reading.

        It is made of the eigenvectors of the correlations in S, with eigenvalues no smaller than their rounding, so
        that it exists however accurate the instruments are.
        """
        n_y = self.mean.shape[1]
        pairs = self.measured[:, :, None] & self.measured[:, None, :]
        noise = np.where(self.measured, self.sensor_var, 0.0)[:, :, None] * np.eye(n_y)
        S = np.where(pairs, self.cov + noise, np.eye(n_y))
        std = np.sqrt(np.diagonal(S, axis1=1, axis2=2))
        values, vectors = np.linalg.eigh(S / std[:, :, None] / std[:, None, :])
        values = np.maximum(values, n_y * np.finfo(float).eps)
        T = vectors.mT / np.sqrt(values)[:, :, None] / std[:, None, :]
        return T * self.measured[:, None, :]

    @cached_property
    def whitened(self) -> Float[np.ndarray, "rows n_y"]:
        """Whitened innovations `T i`: one standard normal number for each reading, without gross errors (R13)."""
        return _times(self.whitener, self.innovation)  # R13

    @cached_property
    def conditioned_mean(self) -> Float[np.ndarray, "rows n_y"]:
        """Mean of the true values given the readings, `ẑ` (R13)."""
        return self.mean + _times(self.cov, _times(self.whitener.mT, self.whitened))  # R13

    @cached_property
    def conditioned_cov(self) -> Float[np.ndarray, "rows n_y n_y"]:
        """Covariance of the true values given the readings, `Σ̂` (R13)."""
        half = self.whitener @ self.cov
        return self.cov - half.mT @ half  # R13

    def contributions(self) -> Float[np.ndarray, "rows sensors n_y"]:
        """Return the contribution of each reading to each output, `(Σ S⁻¹)_ij i_j`; their sum is `ẑ − m` (R14)."""
        gain = self.cov @ (self.whitener.mT @ self.whitener)
        return (gain * self.innovation[:, None, :]).mT

    def sample(self, noise: Float[np.ndarray, "n rows n_y"]) -> Float[np.ndarray, "n rows n_y"]:
        """Draw from the true values given the readings.

        Args:
            noise: Standard normal numbers, shape `(n, rows, n_y)`.
        """
        values, vectors = np.linalg.eigh(self.conditioned_cov)
        rounding = len(values.T) * np.finfo(float).eps * np.trace(self.cov, axis1=1, axis2=2)
        root = vectors * np.sqrt(np.where(values > rounding[:, None], values, 0.0))[:, None, :]
        return self.conditioned_mean + np.einsum("rij,nrj->nri", root, noise)


def _times(matrices: Array, rows: Array) -> Array:
    return (matrices @ rows[:, :, None])[:, :, 0]
