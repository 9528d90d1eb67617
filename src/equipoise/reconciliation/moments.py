"""Means and spreads of columns, added up piece by piece."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean and sum of squared deviations of n columns; those of two pieces are added to those of both.

    Means of pieces are joined, not sums: the deviations of values that are far from zero keep their digits.

    Args:
        count: Values of each column.
        center: Their means, 0 without any.
        scatter: Sums of their squared deviations.

    Example:
        >>> both = Moments.of(np.array([[1.0], [2.0]])) + Moments.of(np.array([[6.0], [np.nan]]))
        >>> both.mean, both.std
        (array([3.]), array([2.64575131]))
    """

    count: Int[np.ndarray, " n"]
    center: Float[np.ndarray, " n"]
    scatter: Float[np.ndarray, " n"]

    @classmethod
    def of(cls, values: Float[np.ndarray, "rows n"]) -> "Moments":
        """Of the columns of a table, without NaN."""
        known = ~np.isnan(values)
        count = known.sum(axis=0)
        center = np.where(known, values, 0.0).sum(axis=0) / np.maximum(count, 1)
        deviations = np.where(known, values - center, 0.0)
        return cls(count, center, np.square(deviations).sum(axis=0))

    def __add__(self, other: "Moments") -> "Moments":
        count = self.count + other.count
        apart, share = other.center - self.center, other.count / np.maximum(count, 1)
        scatter = self.scatter + other.scatter + np.square(apart) * share * self.count
        return Moments(count, self.center + apart * share, scatter)

    @property
    def mean(self) -> Array:
        """NaN without values."""
        return np.where(self.count > 0, self.center, np.nan)

    @property
    def std(self) -> Array:
        """Standard deviation of the values; NaN for fewer than two."""
        return np.where(self.count > 1, np.sqrt(self.scatter / np.maximum(self.count - 1, 1)), np.nan)

    @property
    def standard_error(self) -> Array:
        """Of the mean, for values that are independent; NaN for fewer than two."""
        return self.std / np.sqrt(np.maximum(self.count, 1))
