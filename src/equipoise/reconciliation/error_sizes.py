"""How large errors are that were seen because they were large: estimates without the winner's curse."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from equipoise.reconciliation.alarms import GrossErrorTest

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


WIDTH, BINS = 0.1, 80  # of what z had to exceed, from 0 on; the last bin is open
HALVINGS = 40  # of an interval: to a part in 10¹² of it
MOST_FALSE = 0.5  # of the rows may be taken for false alarms
MIXED = 0.1  # of the rows with errors of the other sign that are no false alarms, and the error has no sign


@dataclass(frozen=True, eq=False)
class Selected:
    """Errors of c candidates in the rows in which they are the suspect; those of two pieces are added to those of both.

    A row in which a candidate is the suspect was chosen for its large |z|, so that the mean of such rows is too large.
    But how large |z| had to be is known, t, and z is a normal number with mean δ that was kept if |z| > t::

        E[z] = δ + λ(t, δ),    λ = (φ(t − δ) − φ(t + δ)) / (Φ(δ − t) + Φ(−δ − t))        (R16)

    δ is where the sum of that over the rows is what was seen, which is the maximum of the likelihood.

    Args:
        sizes: Errors as they were estimated row by row, in their units.
        z: The same in their standard deviations.
        std: Those standard deviations.
        negative: z where it is negative.
        least, total: In how many rows |z| had to exceed how much, in bins, and the sum of that in each bin.
    """

    sizes: Moments
    z: Moments
    std: Moments
    negative: Moments
    least: Int[np.ndarray, "c bins"]
    total: Float[np.ndarray, "c bins"]

    @classmethod
    def of(cls, test: GrossErrorTest) -> Selected:
        """Of the suspects of a test."""
        rows = np.flatnonzero(test.worst >= 0)
        at, count = (np.arange(len(rows)), test.worst[rows]), len(test.candidates)
        z, std = np.full((2, len(rows), count), np.nan)
        z[at], std[at] = test.z[rows, at[1]], test.std[rows, at[1]]
        negative, needed = Moments.of(np.where(z < 0, z, np.nan)), test.least[rows]
        bins = at[1] * BINS + np.minimum(needed / WIDTH, BINS - 1).astype(np.intp)
        least, total = (np.bincount(bins, weights, count * BINS).reshape(count, BINS) for weights in (None, needed))
        return cls(Moments.of(z * std), Moments.of(z), Moments.of(std), negative, least, total.astype(float))

    def __add__(self, other: Selected) -> Selected:
        return Selected(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))

    @property
    def count(self) -> NDArray[np.intp]:
        """Rows in which each candidate is the suspect, shape `(c,)`."""
        return self.sizes.count

    @property
    def typical(self) -> Array:
        """Root mean square of the errors as they were seen, whatever their signs; NaN without any."""
        squares = self.sizes.scatter + self.count * np.square(self.sizes.center)
        return np.where(self.count > 0, np.sqrt(squares / np.maximum(self.count, 1)), np.nan)

    @property
    def size(self) -> Array:
        """The error that explains the rows best if it is the same in all of them, shape `(c,)`; NaN without any.

        Where errors come and go, false alarms are among the rows: of either sign equally often, so that there are twice
        as many of them as there are rows with a sign that δ does not explain. They add nothing to sums, and are left
        out of the count. But false alarms are hardly larger than they had to be; rows of the other sign that are larger
        are errors too, and all rows count.
        """
        share, shift = self._fit
        return self.sizes.mean / share - self.std.mean * (self.z.mean / share - shift)

    @property
    def standard_error(self) -> Array:
        """Of `size`, for rows that are independent: by their scatter, and not less than that of equal errors."""
        share, shift = self._fit
        slope = self._slope(shift)
        scatter = np.fmax(self.sizes.std, self.std.mean * np.sqrt(slope))
        return scatter / slope / np.sqrt(np.maximum(self.count, 1) * share)

    @property
    def both_signs(self) -> NDArray[np.bool_]:
        """Whether the rows do not tell the sign of the error: it is within two standard errors of 0, or many rows have
        the other sign and are no false alarms.
        """
        rows, _ = self._other_sign
        mixed = self._other_sign_is_real & (rows > MIXED * self.count)
        return mixed | (np.abs(self.size) < 2.0 * self.standard_error)

    @cached_property
    def _fit(self) -> tuple[Array, Array]:
        """Share of the rows that are no false alarms, and δ, of each candidate."""
        seen, count = np.abs(self.z.center), np.maximum(self.count, 1)
        unexplained = self._other_sign[0] / count - self._wrong(self._solved(seen))
        share = 1.0 - 2.0 * np.clip(unexplained, 0.0, MOST_FALSE / 2)
        share = np.where(self._other_sign_is_real, 1.0, share)
        return share, np.copysign(self._solved(seen / share), self.z.center)

    @property
    def _other_sign(self) -> tuple[NDArray[np.intp], Array]:
        """Rows in which z has another sign than its mean, and the mean of |z| over them, 0 without any."""
        n, total = self.negative.count, self.negative.count * self.negative.center
        up = self.z.center > 0
        rows = np.where(up, n, self.count - n)
        return rows, np.abs(np.where(up, total, self.count * self.z.center - total)) / np.maximum(rows, 1)

    @property
    def _other_sign_is_real(self) -> NDArray[np.bool_]:
        """Whether |z| of those rows is larger than that of false alarms, of which `E|z| = φ(t) / Φ(−t)`, by more than
        three standard errors; the standard deviation of |z| above a limit is less than 1.
        """
        (t, share), (rows, mean) = self._needed, self._other_sign
        of_false = (share * np.exp(-np.square(t) / 2 - log_ndtr(-t))).sum(axis=1) / np.sqrt(2 * np.pi)
        return mean > of_false + 3.0 / np.sqrt(np.maximum(rows, 1))

    def _solved(self, seen: Float[np.ndarray, " c"]) -> Float[np.ndarray, " c"]:
        """δ with which a mean of z ≥ 0 is expected, between 0 and that mean: by halving."""
        low, high = np.zeros_like(seen), seen
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            above = middle + self._excess(middle) > seen
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return (low + high) / 2

    @cached_property
    def _needed(self) -> tuple[Array, Array]:
        """What |z| had to exceed, the mean of each bin that has rows, and the share of a candidate's rows in it."""
        used = self.least.any(axis=0)
        least = self.least[:, used]
        return self.total[:, used] / np.maximum(least, 1), least / np.maximum(self.count, 1)[:, None]

    def _wrong(self, shift: Float[np.ndarray, " c"]) -> Float[np.ndarray, " c"]:
        """Expected share of rows in which z has not the sign of δ."""
        (t, share), d = self._needed, shift[:, None]
        below = ndtr(-d - t)
        return (share * below / (ndtr(d - t) + below)).sum(axis=1)

    def _excess(self, shift: Float[np.ndarray, " c"]) -> Float[np.ndarray, " c"]:
        """By how much the mean of z is expected to exceed δ ≥ 0."""
        (t, share), d = self._needed, shift[:, None]
        kept = ndtr(d - t) + ndtr(-d - t)
        density = np.exp(-np.square(t - d) / 2) - np.exp(-np.square(t + d) / 2)
        return (share * density / kept).sum(axis=1) / np.sqrt(2 * np.pi)

    def _slope(self, shift: Float[np.ndarray, " c"]) -> Float[np.ndarray, " c"]:
        """How fast E[z] grows with δ: the variance of z in rows that were chosen so."""
        step, d = 1e-4, np.abs(shift)
        return 1.0 + (self._excess(d + step) - self._excess(d - step)) / (2 * step)
