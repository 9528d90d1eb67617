"""Assimilation of readings: a prediction, which is a mixture over draws of a network, conditioned on measured outputs.

Each draw is a Gaussian of independent outputs that the balances condition (C1–C4). Readings with independent errors
multiply into the independent outputs first, one scalar each, and the balances condition the product: the order does not
matter, and no n_y × n_y matrix is needed. Draws are weighted by their evidence and averaged. Where too few draws have
notable weight, the Gaussian with the mixture's mean and covariance (`MatchedGaussian`) is conditioned instead; readings
are tested against it too.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from equipoise.gaussian import DiagonalGaussian, Gaussian


@dataclass(frozen=True, eq=False)
class Assimilated:
    """A block of draws before and after conditioning on readings.

    Args:
        before: The Gaussians of network and balances, draws on axis 0, then rows.
        after: The same, conditioned on the readings.
        log_evidence: Log evidence `log p(y | draw)` of the readings of each row.
        log_weight: Log weights of the draws before the readings.
        step: `g ⊙ (y − μ)`: the change of each output by its own reading, before the balances.
        sensor_var: `w`, variances of the readings; ∞ where there is none.
    """

    before: Gaussian
    after: Gaussian
    log_evidence: Float[Tensor, "n_draws n"]
    log_weight: Float[Tensor, "n_draws n"]
    step: Float[Tensor, "n_draws n n_y"]
    sensor_var: Float[Tensor, "n_draws n n_y"]

    @property
    def updated_log_weight(self) -> Float[Tensor, "n_draws n"]:
        """Log weights of the draws given the readings (R11)."""
        return self.log_weight + self.log_evidence  # R11


def assimilate(
    gaussian: Gaussian,
    y: Float[Tensor, "n n_y"],
    sensor_var: Float[Tensor, "*draws n n_y"],
    log_weight: Float[Tensor, "n_draws n"] | float = 0.0,
) -> Assimilated:
    """Condition draws on readings `y = z + e`, `e ~ N(0, diag(w))`, of the true values z.

    With the draw's independent outputs `N(μ, diag(v))`, before its balances::

        g = v / (v + w),   μ̃ = μ + g ⊙ (y − μ),   ṽ = g ⊙ w,   then C1–C4 with (μ̃, ṽ)        (R10)

    and `g = 0`, `ṽ = v` where there is no reading. The evidence `log p(y | θ, ρ)` is the joint likelihood (L2).

    Args:
        gaussian: Gaussians of a block of draws, `(n_draws, n, n_y)`.
        y: Readings, NaN where there are none.
        sensor_var: `w ≥ 0`, for all draws or for each; 0 is an exact reading, ∞ none.
        log_weight: Log weights of the draws; equal ones by default.
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
    evidence = gaussian.log_prob(y, w)
    weight = torch.as_tensor(log_weight, dtype=evidence.dtype, device=evidence.device).expand_as(evidence)
    return Assimilated(gaussian, after, evidence, weight, step, torch.where(measured, w, torch.inf))


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
