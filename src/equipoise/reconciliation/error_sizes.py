"""Sizes of gross errors over the rows of a table, corrected for selection.

Rows in which a sensor is the suspect were selected for its large |z|, so that the mean error over these rows is too
large (the winner's curse). `SuspectErrors` estimates the size by the likelihood of numbers selected in this way.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from equipoise.data import ColumnMoments
from equipoise.reconciliation.gross_error_results import GrossErrorTest

Array = NDArray[np.float64]


WIDTH, BINS = 0.1, 80  # of the histogram of selection limits of |z|, from 0 on; the last bin is open
HALVINGS = 40  # bisections of an interval, to 1e-12 of its length
MOST_FALSE = 0.5  # largest share of the rows that may count as false alarms
MIXED = 0.1  # share of rows with true errors of the other sign above which the error has no definite sign


AnyTotals = TypeVar("AnyTotals", bound="Additive")


class Additive:
    """A dataclass of totals; those of two pieces of a table add up, field by field, to those of both."""

    def __add__(self: AnyTotals, other: AnyTotals) -> AnyTotals:
        names = [part.name for part in fields(self)]  # type: ignore[arg-type]
        return type(self)(*(getattr(self, name) + getattr(other, name) for name in names))


@dataclass(frozen=True, eq=False)
class SuspectErrors(Additive):
    """Errors of c candidates in the rows in which they are the suspect; those of two pieces of a table can be added.

    A row in which a candidate is the suspect was selected for its large |z|, so that the mean over such rows is too
    large. The limit t that |z| had to exceed is known, and z is a normal number with mean δ, selected by |z| > t::

        E[z] = δ + λ(t, δ),    λ = (φ(t − δ) − φ(t + δ)) / (Φ(δ − t) + Φ(−δ − t))        (R16)

    δ is the maximum likelihood estimate: the sum of E[z] over the rows equals the observed sum of z.

    Args:
        sizes: Moments of the errors estimated row by row, in their units.
        z: Moments of these errors in units of their standard deviations.
        std: Moments of those standard deviations.
        negative: Moments of z in the rows in which it is negative.
        limit_counts, limit_sums: Histogram of the limits t: the number of rows in each bin, and the sum of their
            limits.
    """

    sizes: ColumnMoments
    z: ColumnMoments
    std: ColumnMoments
    negative: ColumnMoments
    limit_counts: Int[np.ndarray, "c bins"]
    limit_sums: Float[np.ndarray, "c bins"]

    @classmethod
    def of(cls, test: GrossErrorTest) -> SuspectErrors:
        """Collect the errors of the suspects of a test."""
        rows = np.flatnonzero(test.worst >= 0)
        positions, count = (np.arange(len(rows)), test.worst[rows]), len(test.candidates)
        z, std = np.full((2, len(rows), count), np.nan)
        z[positions], std[positions] = test.z[rows, positions[1]], test.std[rows, positions[1]]
        negative, limits = ColumnMoments.of(np.where(z < 0, z, np.nan)), test.selection_limit[rows]
        bins = positions[1] * BINS + np.minimum(limits / WIDTH, BINS - 1).astype(np.intp)
        counts, sums = (np.bincount(bins, weights, count * BINS).reshape(count, BINS) for weights in (None, limits))
        moments = ColumnMoments.of(z * std), ColumnMoments.of(z), ColumnMoments.of(std)
        return cls(*moments, negative, counts, sums.astype(float))

    @property
    def count(self) -> NDArray[np.intp]:
        """Number of rows in which each candidate is the suspect, shape `(c,)`."""
        return self.sizes.count

    @property
    def typical(self) -> Array:
        """Root mean square of the estimated errors, whatever their signs, shape `(c,)`; NaN without any."""
        squares = self.sizes.scatter + self.count * np.square(self.sizes.center)
        return np.where(self.count > 0, np.sqrt(squares / np.maximum(self.count, 1)), np.nan)

    @property
    def size(self) -> Array:
        """Maximum likelihood estimate of an error that is the same in all its rows, shape `(c,)`; NaN without rows.

        Where errors come and go, false alarms are among the rows. They have either sign equally often, so that there
        are twice as many of them as rows whose sign δ does not explain; they cancel in sums and are excluded from the
        count. However, false alarms hardly exceed their limits: if the rows of the other sign are larger, they are true
        errors too, and all rows count.
        """
        share, shift = self._fit
        return self.sizes.mean / share - self.std.mean * (self.z.mean / share - shift)

    @property
    def standard_error(self) -> Array:
        """Standard error of `size` for independent rows: from their scatter, at least that of equal errors."""
        share, shift = self._fit
        slope = self._slope(shift)
        scatter = np.fmax(self.sizes.std, self.std.mean * np.sqrt(slope))
        return scatter / slope / np.sqrt(np.maximum(self.count, 1) * share)

    @property
    def both_signs(self) -> NDArray[np.bool_]:
        """Whether the sign of the error is undetermined, shape `(c,)`.

        It is if `size` is within two standard errors of 0, or if many rows with the other sign are true errors.
        """
        rows, _ = self._other_sign
        mixed = self._other_sign_is_real & (rows > MIXED * self.count)
        return mixed | (np.abs(self.size) < 2.0 * self.standard_error)

    @cached_property
    def _fit(self) -> tuple[Array, Array]:
        """Share of the rows that are no false alarms, and δ, of each candidate."""
        mean, count = np.abs(self.z.center), np.maximum(self.count, 1)
        unexplained = self._other_sign[0] / count - self._wrong_sign_share(self._corrected(mean))
        share = 1.0 - 2.0 * np.clip(unexplained, 0.0, MOST_FALSE / 2)
        share = np.where(self._other_sign_is_real, 1.0, share)
        return share, np.copysign(self._corrected(mean / share), self.z.center)

    @property
    def _other_sign(self) -> tuple[NDArray[np.intp], Array]:
        """Number of rows in which z differs in sign from its mean, and the mean of |z| over them, 0 without any."""
        n, total = self.negative.count, self.negative.count * self.negative.center
        up = self.z.center > 0
        rows = np.where(up, n, self.count - n)
        return rows, np.abs(np.where(up, total, self.count * self.z.center - total)) / np.maximum(rows, 1)

    @property
    def _other_sign_is_real(self) -> NDArray[np.bool_]:
        """Whether the rows of the other sign are true errors rather than false alarms.

        They are if their mean |z| exceeds that of false alarms, `E|z| = φ(t) / Φ(−t)`, by more than three standard
        errors; the standard deviation of |z| above a limit is less than 1.
        """
        (t, share), (rows, mean) = self._limits, self._other_sign
        false_alarm_mean = (share * np.exp(-np.square(t) / 2 - log_ndtr(-t))).sum(axis=1) / np.sqrt(2 * np.pi)
        return mean > false_alarm_mean + 3.0 / np.sqrt(np.maximum(rows, 1))

    def _corrected(self, mean: Float[np.ndarray, " c"]) -> Float[np.ndarray, " c"]:
        """Solve `E[z] = mean` for δ by bisection between 0 and the mean.

        Args:
            mean: Observed means of z, all ≥ 0, shape `(c,)`.
        """
        low, high = np.zeros_like(mean), mean
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            too_large = middle + self._excess(middle) > mean
            low, high = np.where(too_large, low, middle), np.where(too_large, middle, high)
        return (low + high) / 2

    @cached_property
    def _limits(self) -> tuple[Array, Array]:
        """Mean limit t of each occupied bin, and the share of each candidate's rows in it."""
        used = self.limit_counts.any(axis=0)
        counts = self.limit_counts[:, used]
        return self.limit_sums[:, used] / np.maximum(counts, 1), counts / np.maximum(self.count, 1)[:, None]

    def _wrong_sign_share(self, shift: Float[np.ndarray, " c"]) -> Float[np.ndarray, " c"]:
        """Return the expected share of rows in which the sign of z is not that of δ."""
        (t, share), d = self._limits, shift[:, None]
        below = ndtr(-d - t)
        return (share * below / (ndtr(d - t) + below)).sum(axis=1)

    def _excess(self, shift: Float[np.ndarray, " c"]) -> Float[np.ndarray, " c"]:
        """Compute the expected excess of z over δ in rows selected by `|z| > t`, `λ = E[z | selected] − δ` (R16).

        It is averaged over the limits t of the rows in which a candidate is the suspect.

        Args:
            shift: True shifts δ ≥ 0 of each candidate, in standard deviations, shape `(c,)`.
        Returns: λ of each candidate, shape `(c,)`.
        """
        (t, share), d = self._limits, shift[:, None]
        selected = ndtr(d - t) + ndtr(-d - t)
        density = np.exp(-np.square(t - d) / 2) - np.exp(-np.square(t + d) / 2)
        return (share * density / selected).sum(axis=1) / np.sqrt(2 * np.pi)

    def _slope(self, shift: Float[np.ndarray, " c"]) -> Float[np.ndarray, " c"]:
        """Return the derivative of E[z] with respect to δ, which is the variance of z in selected rows."""
        step, d = 1e-4, np.abs(shift)
        return 1.0 + (self._excess(d + step) - self._excess(d - step)) / (2 * step)
