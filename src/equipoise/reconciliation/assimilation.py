"""Readings of instruments and one draw of a network: a Gaussian again, and how well the draw foresaw the readings.

Each draw is a Gaussian of independent outputs that the balances condition (C1–C4). Readings with independent errors
multiply into the independent outputs first, one scalar each, and the balances condition the product: the order does not
matter, and no n_y × n_y matrix is needed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from equipoise.gaussian import ConditionedGaussian, DiagonalGaussian
from equipoise.network import joint

AnyGaussian = DiagonalGaussian | ConditionedGaussian


@dataclass(frozen=True, eq=False)
class Assimilated:
    """A block of draws before and after the readings.

    Args:
        before: What the network and the balances say, draws on axis 0, then rows.
        after: The same with the readings.
        log_evidence: How well each draw foresaw the readings of each row.
        step: `g ⊙ (reading − μ)`: what each reading does to its own output before the balances.
        sensor_var: `w`, with which the readings were made; ∞ where there is none.
    """

    before: AnyGaussian
    after: AnyGaussian
    log_evidence: Float[Tensor, "n_draws n"]
    step: Float[Tensor, "n_draws n n_y"]
    sensor_var: Float[Tensor, "n_draws n n_y"]


def assimilate(
    gaussian: AnyGaussian, y: Float[Tensor, "n n_y"], sensor_var: Float[Tensor, "*draws n n_y"]
) -> Assimilated:
    """Condition draws on readings `y = z + e`, `e ~ N(0, diag(w))`, of the true values z.

    With the draw's independent outputs `N(μ, diag(v))`, before its balances::

        g = v / (v + w),   μ̃ = μ + g ⊙ (y − μ),   ṽ = g ⊙ w,   then C1–C4 with (μ̃, ṽ)        (R10)

    and `g = 0`, `ṽ = v` where there is no reading. The evidence `log p(y | θ, ρ)` is the joint likelihood (L2).

    Args:
        gaussian: Of a block of draws, `(n_draws, n, n_y)`.
        y: Readings, NaN where there are none.
        sensor_var: `w ≥ 0`, for all draws or for each; 0 is an exact reading, ∞ none.
    Example:
        A reading of 3 ± 1 of what was expected to be 1 ± 1.

        >>> said = DiagonalGaussian(torch.ones(1, 1, 1), torch.ones(1, 1, 1))
        >>> after = assimilate(said, torch.full((1, 1), 3.0), torch.ones(1, 1)).after
        >>> after.mean.item(), after.var.item()
        (2.0, 0.5)
    """
    prior = gaussian.prior if isinstance(gaussian, ConditionedGaussian) else gaussian
    w = sensor_var.expand_as(prior.mean)
    y = torch.where(w.isfinite(), y.expand_as(prior.mean), torch.nan)
    seen = ~y.isnan()
    g = torch.where(seen, prior.var / (prior.var + torch.where(seen, w, 1.0)), 0.0)
    step = torch.where(seen, g * (y - prior.mean), 0.0)
    combined = DiagonalGaussian(prior.mean + step, torch.where(seen, g * w, prior.var))  # R10
    after = replace(gaussian, prior=combined) if isinstance(gaussian, ConditionedGaussian) else combined
    return Assimilated(gaussian, after, joint(gaussian, y, w), step, torch.where(seen, w, torch.inf))


class RunningWeights:
    """Weights of draws that come in blocks, each row with its own, normalised at the end::

    π_d = p(y | d) / Σ_d' p(y | d'),    effective draws = 1 / Σ_d π_d²        (R11)
    """

    def __init__(self):
        self._largest: Tensor | None = (
            None  # logarithms are kept apart: of −1e13 and 0.1 together nothing would be left
        )
        self._total: Tensor | float = 0.0
        self._squares: Tensor | float = 0.0

    def add(self, log_weight: Float[Tensor, "n_draws n"]) -> tuple[Float[Tensor, "n_draws n"], Float[Tensor, " n"]]:
        """Weights within this block, which add up to 1, and the share of the block in all so far."""
        largest = log_weight.amax(0) if self._largest is None else torch.maximum(self._largest, log_weight.amax(0))
        before = torch.ones_like(largest) if self._largest is None else (self._largest - largest).exp()
        weight = (log_weight - largest).exp()
        own, self._largest = weight.sum(0), largest
        self._total = self._total * before + own
        self._squares = self._squares * before.square() + weight.square().sum(0)
        return torch.softmax(log_weight, 0), own / self._total

    @property
    def effective(self) -> Float[Tensor, " n"]:
        """How many draws of equal weight would scatter as much; between 1 and all of them (R11)."""
        return torch.as_tensor(self._total) ** 2 / torch.as_tensor(self._squares)  # R11


class RunningMean:
    """A weighted mean over draws that come in blocks, each block already averaged within itself."""

    def __init__(self):
        self._value: Tensor | None = None

    def add(self, block: Float[Tensor, "n ..."], share: Float[Tensor, " n"]) -> Float[Tensor, "n ..."]:
        """Add a block with its share in all so far; returns how far it was from the mean of those before."""
        gap = torch.zeros_like(block) if self._value is None else block - self._value
        self._value = block if self._value is None else self._value + _beside(share, block) * gap
        return gap

    @property
    def value(self) -> Tensor:
        if self._value is None:
            raise RuntimeError("No draws were added.")
        return self._value


class MixtureMoments:
    """Mean and variance, or covariance, of a mixture of weighted draws::

        E[z] = Σ_d π_d μ_d,    Cov[z] = Σ_d π_d (Σ_d + (μ_d − E[z]) (μ_d − E[z])ᵀ)        (R12)

    Blocks are merged like Chan's update, so that nothing is lost to cancellation.

    Args:
        dense: Whether the whole covariance is wanted.
    """

    def __init__(self, *, dense: bool = False):
        self.weights = RunningWeights()
        self._within: Callable = covariance_within if dense else variance_within
        self._outer: Callable = _outer_product if dense else torch.square
        self._mean, self._second = RunningMean(), RunningMean()

    def add(self, log_weight: Float[Tensor, "n_draws n"], gaussian: AnyGaussian) -> Float[Tensor, " n"]:
        """Add a block of draws; returns its share in all so far."""
        weight, share = self.weights.add(log_weight)
        mean = (weight.unsqueeze(-1) * gaussian.mean).sum(0)
        second = self._within(gaussian, weight, mean)
        gap = self._outer(self._mean.add(mean, share))
        self._second.add(second + (1.0 - _beside(share, gap)) * gap, share)  # share (1 − share) gap², in the end
        return share

    @property
    def mean(self) -> Float[Tensor, "n n_y"]:
        """Of the mixture (R12)."""
        return self._mean.value  # R12

    @property
    def second(self) -> Tensor:
        """Variances `(n, n_y)`, or covariances `(n, n_y, n_y)` (R12)."""
        return self._second.value  # R12


def variance_within(gaussian: AnyGaussian, weight: Tensor, mean: Tensor) -> Float[Tensor, "n n_y"]:
    """Variance of a weighted block about its mean."""
    return (weight.unsqueeze(-1) * (gaussian.var + (gaussian.mean - mean).square())).sum(0)


def covariance_within(gaussian: AnyGaussian, weight: Tensor, mean: Tensor) -> Float[Tensor, "n n_y n_y"]:
    """Covariance of a weighted block about its mean, without one matrix for each draw."""
    prior = gaussian.prior if isinstance(gaussian, ConditionedGaussian) else gaussian
    root = weight.sqrt().unsqueeze(-1)
    apart = (root * (gaussian.mean - mean)).movedim(0, 1)
    total = torch.diag_embed((weight.unsqueeze(-1) * prior.var).sum(0)) + apart.mT @ apart
    if isinstance(gaussian, ConditionedGaussian):
        half = root.unsqueeze(-1) * gaussian.factor.half() * prior.var.unsqueeze(-2)
        half = half.movedim(1, 0).flatten(1, 2)
        total = total - half.mT @ half  # C4
    return total


def _beside(share: Tensor, values: Tensor) -> Tensor:
    """Shares of rows with as many axes as values of rows."""
    return share.reshape(-1, *[1] * (values.ndim - 1))


def _outer_product(gap: Tensor) -> Tensor:
    return gap.unsqueeze(-1) * gap.unsqueeze(-2)


Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MatchedGaussian:
    """True values `z ~ N(m, Σ)`, dense, and readings `y = z + e`, `e ~ N(0, diag(w))`, of some of them.

    With i the innovation `y − m` and `S = Σ + diag(w)`, both for what is measured, and `S⁻¹ = Tᵀ T`::

        ẑ = m + Σ S⁻¹ i,    Σ̂ = Σ − Σ S⁻¹ Σ,    T i ~ N(0, 1)        (R13)

    Args:
        mean: `m`, shape `(rows, n_y)`.
        cov: `Σ`; singular where balances are exact.
        y: Readings, NaN where there are none.
        sensor_var: `w`; not looked at where there is no reading.
    Example:
        >>> both = np.array([[[2.0, 1.0], [1.0, 2.0]]])
        >>> MatchedGaussian(np.zeros((1, 2)), both, np.array([[3.0, np.nan]]), np.ones((1, 2))).conditioned_mean
        array([[2., 1.]])
    """

    mean: Float[np.ndarray, "rows n_y"]
    cov: Float[np.ndarray, "rows n_y n_y"]
    y: Float[np.ndarray, "rows n_y"]
    sensor_var: Float[np.ndarray, "rows n_y"]

    @property
    def seen(self) -> Bool[np.ndarray, "rows n_y"]:
        """Where there is a reading."""
        return ~np.isnan(self.y) & np.isfinite(self.sensor_var)

    @cached_property
    def innovation(self) -> Float[np.ndarray, "rows n_y"]:
        """`y − m`, 0 where there is no reading."""
        return np.where(self.seen, self.y - self.mean, 0.0)

    @cached_property
    def whitener(self) -> Float[np.ndarray, "rows n_y n_y"]:
        """`T` with `Tᵀ T = S⁻¹` (R13); its columns are 0 where there is no reading.

        By eigenvectors of the correlations, which are there however good the instruments are; eigenvalues below their
        rounding count as rounding.
        """
        n_y = self.mean.shape[1]
        both = self.seen[:, :, None] & self.seen[:, None, :]
        noise = np.where(self.seen, self.sensor_var, 0.0)[:, :, None] * np.eye(n_y)
        S = np.where(both, self.cov + noise, np.eye(n_y))
        own = np.sqrt(np.diagonal(S, axis1=1, axis2=2))
        values, vectors = np.linalg.eigh(S / own[:, :, None] / own[:, None, :])
        values = np.maximum(values, n_y * np.finfo(float).eps)
        T = vectors.mT / np.sqrt(values)[:, :, None] / own[:, None, :]
        return T * self.seen[:, None, :]

    @cached_property
    def whitened(self) -> Float[np.ndarray, "rows n_y"]:
        """`T i`: as many independent standard normal numbers as there are readings, if nothing is wrong (R13)."""
        return _times(self.whitener, self.innovation)  # R13

    @cached_property
    def conditioned_mean(self) -> Float[np.ndarray, "rows n_y"]:
        """`ẑ` (R13)."""
        return self.mean + _times(self.cov, _times(self.whitener.mT, self.whitened))  # R13

    @cached_property
    def conditioned_cov(self) -> Float[np.ndarray, "rows n_y n_y"]:
        """`Σ̂` (R13)."""
        half = self.whitener @ self.cov
        return self.cov - half.mT @ half  # R13

    def moves(self) -> Float[np.ndarray, "rows sensors n_y"]:
        """What each reading adds to each output, `(Σ S⁻¹)_ij i_j`; the sum over sensors is `ẑ − m`."""
        gain = self.cov @ (self.whitener.mT @ self.whitener)
        return (gain * self.innovation[:, None, :]).mT

    def sample(self, noise: Float[np.ndarray, "n rows n_y"]) -> Float[np.ndarray, "n rows n_y"]:
        """Draws of the true values, given the readings, from standard normal noise."""
        values, vectors = np.linalg.eigh(self.conditioned_cov)
        rounding = len(values.T) * np.finfo(float).eps * np.trace(self.cov, axis1=1, axis2=2)
        root = vectors * np.sqrt(np.where(values > rounding[:, None], values, 0.0))[:, None, :]
        return self.conditioned_mean + np.einsum("rij,nrj->nri", root, noise)


def _times(matrices: Array, rows: Array) -> Array:
    return (matrices @ rows[:, :, None])[:, :, 0]
