"""One Gaussian with the mean and covariance of a mixture, conditioned on readings: what is used when the draws of the
mixture are too few for what the readings say, and what readings are tested against."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

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
