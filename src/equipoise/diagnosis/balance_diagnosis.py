"""Diagnosis of one balance before training: its residual, the verdict, and the repair where it does not hold.

For a balance `Σ_j c_j z_j + c_0 = 0` the residual is its left side. Sizes are trimmed root mean squares, which 2 % of
gross errors hardly change, and outliers are left out as long as they are at most 10 % of the rows. The residual is
compared with

- the size of the terms, `sqrt(Σ_j size(c_j z_j)² + c_0²)`: the size of the residual if the terms did not cancel at all;
- the spread of the terms, the same of their deviations from their medians: the variation of the residual if the terms
  were unrelated;
- what the sensors explain, `sqrt(Σ_j c_j² w_j)`, if all its outputs have a known sensor.

The verdict is the first that applies:

| verdict | when |
|---|---|
| too few rows | fewer than 3 rows have all its columns |
| holds to rounding | every residual is within 64 roundings of its terms, as for `ConstrainedBNNRegressor` |
| | or the rounding of the numbers in the table explains it, and it has no bias (see `rounding`) |
| does not hold | a flipped sign, a missing column or a simple factor removes 80 % of it (see `repairs`) |
| | with sensors: it is twice what they explain, significantly (χ²); data sheets are trusted to a factor of 2 |
| | else: it is more than 20 % of the terms' size; a balance closed no better than that is no balance |
| | or more than 5 % of it, and its variation is more than 75 % of the terms' spread, as if they were unrelated |
| | or its bias is more than a quarter of the terms' spread |
| biased | its mean, or its slope against an input, is significant and material (see `equipoise.balances.Residual`) |
| holds within noise | otherwise |

"Holds to rounding" (`HOLDS_TO_ROUNDING`) is wider than what training makes exact (`obeyed_to_rounding` in
`data/preparation.py`), which is the first of its two criteria alone: where only the rounding of the numbers in the
table explains the residuals, training learns the tolerance of the balance.

A repair is proposed only if the repaired balance would not be refused in its turn and, where a number was fitted, would
not be biased; a fitted factor must leave no more than 10 % of the terms' spread. In a steady plant the meters may
scatter as much as the flows vary: its balance is not refused as long as it closes to 5 %, but the reason says that the
terms vary as if they were unrelated.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtr

from equipoise.balances import Residual
from equipoise.diagnosis.repairs import FITTED, OVERRULING, Repair, Terms, find_repair, in_rows, repaired
from equipoise.diagnosis.residual_outliers import OutlyingRow, inlier_mask, largest_residuals, outlier_positions
from equipoise.diagnosis.robust_statistics import centred, evenly_spaced, trimmed_rms
from equipoise.diagnosis.rounding import rounding_limit
from equipoise.diagnosis.units import format_quantity

Array = NDArray[np.float64]
HOLDS_TO_ROUNDING, HOLDS_WITHIN_NOISE, BIASED = "holds to rounding", "holds within noise", "biased"
DOES_NOT_HOLD, TOO_FEW_ROWS = "does not hold", "too few rows"
MAX_SIZE, MAX_SPREAD, CLOSED, MAX_BIAS, MAX_NOISE = 0.2, 0.75, 0.05, 0.25, 2.0  # as in the table above
MAX_UNEXPLAINED_SPREAD = 0.1  # share of the terms' spread that a fitted factor may leave
MAX_LISTED_ROWS = 10
HALF_WIDTH = 1.96  # of a 95 % interval, in standard errors


@dataclass(frozen=True)
class BalanceFinding:
    """Verdict, residual and repair of one balance; sizes are in the balance's own unit.

    Attributes:
        name, equation, unit: As in the constraint.
        verdict: `"holds to rounding"`, `"holds within noise"`, `"biased"`, `"does not hold"` or `"too few rows"`.
        reason: The reason for the verdict, in words.
        n_rows: Number of rows in which all its columns were measured.
        mean, std, rms: Mean, standard deviation and root mean square of the residual over these rows; None where there
            are too few.
        typical: Root mean square of the residual without its largest 2 %, and without outliers if these are few.
        relative: `typical` divided by the size of the terms.
        relative_std: Size of the residual's variation divided by the spread of the terms; None where they do not vary.
        worst_rows: The five rows with the largest residuals, largest first.
        n_outliers: Number of rows whose residual lies more than 6 robust standard deviations (see `robust_std`) from
            the median; 0 for a balance that does not hold, where they are not determined.
        outliers: The ten largest of them, largest first.
        repair: The single change that makes the balance hold; None if there is none or none is needed.
    """

    name: str
    equation: str
    unit: str | None
    verdict: str
    reason: str
    n_rows: int
    mean: float | None = None
    std: float | None = None
    rms: float | None = None
    typical: float | None = None
    relative: float | None = None
    relative_std: float | None = None
    worst_rows: tuple[OutlyingRow, ...] = ()
    n_outliers: int = 0
    outliers: tuple[OutlyingRow, ...] = ()
    repair: Repair | None = None

    @property
    def holds(self) -> bool:
        """Whether the verdict is any other than `does not hold`."""
        return self.verdict != DOES_NOT_HOLD


@dataclass(frozen=True)
class MeasuredBalance:
    """One balance, evaluated in the n rows in which all its columns were measured.

    Args:
        name, equation: As in the constraint.
        terms: Its terms and residual in these rows.
        rows: Positions of these rows in the table, shape `(n,)`.
        magnitude: Sum of the absolute values of the terms in each row, shape `(n,)`.
        precision: Relative rounding of the data.
        sensor_std: Standard deviation of the residual that the outputs' sensors explain; None if some are not known.
    """

    name: str
    equation: str
    terms: Terms
    rows: NDArray[np.intp]
    magnitude: Array
    precision: float
    sensor_std: float | None = None


def diagnose_balance(
    balance: MeasuredBalance, inputs: Mapping[str, Array], others: Mapping[str, Array], outputs: tuple[str, ...]
) -> BalanceFinding:
    """Judge one balance by its residual and find its repair.

    Args:
        balance: The balance in its rows.
        inputs: Columns on which the residual may depend, in these rows, shape `(n,)` each.
        others: Columns that may be missing in the balance, in these rows, shape `(n,)` each.
        outputs: Names of the outputs.
    """
    z, terms, unit = balance.terms.residual, balance.terms, balance.terms.unit
    if len(z) < 3:
        rows = "1 row has" if len(z) == 1 else f"{len(z)} rows have"
        reason = f"{rows} all its columns; at least 3 are needed"
        return BalanceFinding(balance.name, balance.equation, unit, TOO_FEW_ROWS, reason, len(z))
    decimal_limit = rounding_limit([(c, terms.columns[name]) for name, c in terms.coefficients.items()], z)
    limit = max(decimal_limit, terms.outlier_limit)
    inliers = inlier_mask(z, limit)
    kept = in_rows(terms, inliers)
    sizes = Sizes.from_terms(kept)
    bias = systematic_residual(kept, {name: values[inliers] for name, values in inputs.items()})
    repair, verdict, reason = None, HOLDS_TO_ROUNDING, _rounding_in_words(balance, decimal_limit, bias)
    if not reason:
        repair = _acceptable(find_repair(terms, others, outputs), terms, inputs, others)
        verdict, reason = judge(kept, sizes, bias, balance.sensor_std)
        if repair is not None and repair.kind in OVERRULING and verdict != DOES_NOT_HOLD:
            verdict, reason = DOES_NOT_HOLD, f"{_size_in_words(terms, sizes)}, and one change removes it"
    outliers = outlier_positions(z, limit)[: 0 if verdict == DOES_NOT_HOLD else None]
    return BalanceFinding(
        balance.name,
        balance.equation,
        unit,
        verdict,
        reason,
        n_rows=len(z),
        mean=float(z.mean()),
        std=float(z.std(ddof=1)),
        rms=math.sqrt(float(np.square(z).mean())),
        typical=sizes.residual,
        relative=sizes.relative,
        relative_std=sizes.relative_std,
        worst_rows=largest_residuals(z, balance.magnitude, balance.rows, np.arange(len(z)), 5),
        n_outliers=len(outliers),
        outliers=largest_residuals(z, balance.magnitude, balance.rows, outliers, MAX_LISTED_ROWS),
        repair=repair if verdict in (DOES_NOT_HOLD, BIASED) else None,
    )


def _rounding_in_words(balance: MeasuredBalance, decimal_limit: float, bias: Residual) -> str:
    """Explain why the residual is rounding, in words; return an empty text if it is more than that.

    Args:
        balance: The balance.
        decimal_limit: The largest residual that the rounding of written numbers explains; 0 if it does not.
        bias: The systematic part of the residual.
    """
    size = np.abs(balance.terms.residual)
    if (size <= 64 * balance.precision * balance.magnitude).all():
        return "every row is within the rounding of its terms"
    if decimal_limit and (size <= decimal_limit).all() and not bias.biased:
        limit = format_quantity(decimal_limit, balance.terms.unit)
        return f"no row is off by more than {limit}, as much as the rounding of its numbers can add up to"
    return ""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the residual of a balance and of its terms, as trimmed root mean squares.

    Attributes:
        residual: Size of the residual.
        residual_spread: Size of the residual's deviations from its median.
        terms: Root sum of squares of the sizes of the terms.
        terms_spread: Root sum of squares of the sizes of the terms' deviations from their medians.
    """

    residual: float
    residual_spread: float
    terms: float
    terms_spread: float

    @classmethod
    def from_terms(cls, terms: Terms) -> "Sizes":
        """Compute the sizes; those of the terms come from at most 20,000 rows."""
        rows = evenly_spaced(len(terms.residual))
        parts = [c * terms.columns[name][rows] for name, c in terms.coefficients.items()]
        size = math.hypot(terms.constant, *map(trimmed_rms, parts))
        spread = math.hypot(*(trimmed_rms(centred(part)) for part in parts))
        return cls(trimmed_rms(terms.residual), trimmed_rms(centred(terms.residual)), size, spread)

    @property
    def relative(self) -> float | None:
        """Size of the residual divided by that of the terms; None where the terms are zero."""
        return self.residual / self.terms if self.terms > 0 else None

    @property
    def relative_std(self) -> float | None:
        """Spread of the residual divided by that of the terms; None where the terms do not vary."""
        return self.residual_spread / self.terms_spread if self.terms_spread > 0 else None


def systematic_residual(terms: Terms, inputs: Mapping[str, Array]) -> Residual:
    """Compute the systematic part of a residual: its mean, and its steepest slope against an input.

    It is judged by the same rules as after a fit. An input that is missing in a row counts as average there: its slope
    is then, if anything, too small. Slopes are computed in at most 20,000 rows: a material one is significant there.

    Args:
        terms: The terms of the balance in n rows.
        inputs: Columns on which the residual may depend, in these rows, shape `(n,)` each.
    """
    z, rounding = terms.residual, terms.rounding
    mean, std, n = float(z.mean()), float(z.std(ddof=1)), len(z)
    if std <= rounding or not inputs:
        return Residual(mean, std / math.sqrt(n), std, n, rounding=rounding)
    rows = evenly_spaced(n)
    deviation = z[rows] - z[rows].mean()
    slopes = {name: _slope(x[rows], deviation, terms.coefficients.get(name, 0.0)) for name, x in inputs.items()}
    steepest = max(slopes, key=lambda name: abs(slopes[name]))
    r = float(np.clip(slopes[steepest] / max(float(deviation.std()), np.finfo(float).tiny), -1 + 1e-12, 1 - 1e-12))
    t = r * math.sqrt((len(rows) - 2) / (1 - r * r))
    return Residual(mean, std / math.sqrt(n), std, n, steepest, slopes[steepest], t, rounding, len(inputs))


def _slope(values: Array, deviation: Array, coefficient: float) -> float:
    """Compute the change of a residual per standard deviation of a column.

    Noise of a column that has a term in the balance is part of the residual and correlates them:
    `0 ≤ Cov(z, c x) ≤ Var(z)`. The part of the covariance that this explains is subtracted.

    Args:
        values: The column, shape `(n,)`; NaN is missing.
        deviation: Deviations of the residual from its mean, shape `(n,)`.
        coefficient: Coefficient of the column in the balance; 0 if it has no term.
    """
    measured = np.isfinite(values)
    average = values.mean(where=measured) if measured.any() else 0.0
    x = np.where(measured, values - average, 0.0)
    product, spread = float(x @ deviation), math.sqrt(float(x @ x) * len(x))
    if coefficient:
        product -= min(max(coefficient * product, 0.0), float(deviation @ deviation)) / coefficient
    return product / spread if spread > 0 else 0.0


def judge(terms: Terms, sizes: Sizes, bias: Residual, sensor_std: float | None = None) -> tuple[str, str]:
    """Return the verdict on a balance that does not hold to rounding, and its reason in words.

    Args:
        terms: The terms of the balance, without outliers.
        sizes: Their sizes.
        bias: The systematic part of the residual, from `systematic_residual`.
        sensor_std: Standard deviation of the residual that sensors explain; None if some are not known.
    """
    size, unit = _size_in_words(terms, sizes), terms.unit
    unrelated = (sizes.relative_std or 0.0) > MAX_SPREAD
    if sensor_std:
        explained = f"its sensors explain {format_quantity(sensor_std, unit)}"
        if _exceeds(sizes.residual, sensor_std, len(terms.residual)):
            reason = f"; {_bias_in_words(bias, unit)}" if bias.biased else ""
            return DOES_NOT_HOLD, f"{size}, but {explained} only{reason}"
        return (BIASED, _bias_in_words(bias, unit)) if bias.biased else (HOLDS_WITHIN_NOISE, f"{size}; {explained}")
    if sizes.residual > MAX_SIZE * sizes.terms:
        return DOES_NOT_HOLD, size
    if unrelated and sizes.residual > CLOSED * sizes.terms:
        return DOES_NOT_HOLD, f"{size}, and its terms vary as if they were unrelated; give the sensors if this is noise"
    if bias.biased:
        largest = max(abs(bias.mean) * bias.mean_is_biased, abs(bias.input_slope) * bias.slope_is_biased)
        return DOES_NOT_HOLD if largest > MAX_BIAS * sizes.terms_spread else BIASED, _bias_in_words(bias, unit)
    return HOLDS_WITHIN_NOISE, f"{size}, but its terms vary as if they were unrelated" if unrelated else size


def _acceptable(
    repair: Repair | None, terms: Terms, inputs: Mapping[str, Array], others: Mapping[str, Array]
) -> Repair | None:
    """Return the repair, or None if the repaired balance would be refused in its turn.

    Args:
        repair: The repair, from `find_repair`.
        terms: The terms of the balance in n rows.
        inputs: Columns on which the residual may depend, in these rows, shape `(n,)` each.
        others: Columns that may be missing in the balance, in these rows, shape `(n,)` each.
    """
    if repair is None:
        return None
    balance, kept = repaired(terms, others, repair)
    sizes = Sizes.from_terms(balance)
    bias = systematic_residual(balance, {name: values[kept] for name, values in inputs.items()})
    verdict, _ = judge(balance, sizes, bias)
    refused = (DOES_NOT_HOLD, BIASED) if repair.kind in FITTED else (DOES_NOT_HOLD,)
    vague = "fitted factor" in repair.kind and (sizes.relative_std or 0.0) > MAX_UNEXPLAINED_SPREAD
    return None if verdict in refused or vague else repair


def _size_in_words(terms: Terms, sizes: Sizes) -> str:
    share = (
        f", {format_quantity(100 * sizes.relative)} % of the size of its terms" if sizes.relative is not None else ""
    )
    return f"the residual is typically {format_quantity(sizes.residual, terms.unit)}{share}"


def _exceeds(residual: float, sensor_std: float, n_rows: int) -> bool:
    """Return whether a residual is more than twice what sensors explain, and by chance so with probability below 3e-5.

    Args:
        residual: Size of the residual.
        sensor_std: Standard deviation of the residual that sensors explain.
        n_rows: Number of rows.
    """
    ratio = residual / sensor_std
    return ratio > MAX_NOISE and float(chdtrc(n_rows, n_rows * ratio**2)) < float(ndtr(-4.0))


def _bias_in_words(bias: Residual, unit: str | None) -> str:
    if bias.mean_is_biased:
        return f"its mean is off by {format_quantity(bias.mean, unit)} ± {format_quantity(HALF_WIDTH * bias.se, unit)}"
    slope = format_quantity(bias.input_slope, unit)
    return f"its residual changes by {slope} per standard deviation of '{bias.input}'"
