"""Do the data obey a balance? Its residual in its own unit and beside its terms, and the verdict.

Rows that stand out decide nothing as long as they are 10 % at most, and sizes are `typical` sizes, which mind no 2 % of
gross errors. For a balance `Σ_j c_j z_j + c_0 = 0` the
residual is compared with

- the size of its terms, `sqrt(Σ_j typical(c_j z_j)² + c_0²)`: what it would be if the terms did not cancel at all;
- the spread of its terms, the same about their medians: what its variation would be if they were unrelated;
- what the sensors explain, `sqrt(Σ_j c_j² w_j)`, when all its outputs have a known sensor.

The verdict is the first that applies:

| verdict | when |
|---|---|
| too few rows | fewer than 3 rows have all its columns |
| holds to rounding | every residual is within 64 roundings of its terms, as for `ConstrainedBNNRegressor` |
| | or within what the digits of the table can do, looks like that, and has no bias (see `digits`) |
| does not hold | a flipped sign, a missing column or a simple factor removes 80 % of it (see `repairs`) |
| | with sensors: it is twice what they explain, and certainly so (χ²); data sheets are trusted to a factor of 2 |
| | else: it is more than 20 % of its terms' size; a balance closed no better than that is no balance |
| | or more than 5 % of it, and its variation is more than 75 % of its terms' spread, as if they were unrelated |
| | or its bias is more than a quarter of its terms' spread |
| biased | its mean, or its slope against an input, is certain and material (see `verdict.Residual`) |
| holds within noise | otherwise |

A repair is proposed only if the repaired balance would not be refused in its turn and, where a number was fitted, would
not be biased; a fitted factor must explain nearly all, and leave no more than 10 % of the terms' spread. A plant in a
steady state, whose meters scatter as much as the flows vary, is not refused as long as the balance closes to 5 %; that
its variation is not explained is said.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtr

from equipoise.balances import Residual
from equipoise.diagnosis.repairs import FITTED, OVERRULING, Repair, Terms, find_repair, repaired, without
from equipoise.diagnosis.residual_outliers import OutlyingRow, largest, outlying, settled
from equipoise.diagnosis.robust_statistics import centred, quantity, thinned, typical
from equipoise.diagnosis.rounding import written_rounding

Array = NDArray[np.float64]
TO_ROUNDING, WITHIN_NOISE, BIASED, FAILS = "holds to rounding", "holds within noise", "biased", "does not hold"
TOO_FEW = "too few rows"
LARGEST_SIZE, LARGEST_SPREAD, CLOSED, LARGEST_BIAS, LARGEST_NOISE = 0.2, 0.75, 0.05, 0.25, 2.0
EXPLAINED_SPREAD = 0.1  # share of its terms' spread that a fitted factor may leave
LISTED = 10
HALF_WIDTH = 1.96  # of a 95 % interval, in standard errors


@dataclass(frozen=True)
class BalanceFinding:
    """What the data say of one balance; sizes in the balance's own unit.

    Attributes:
        name, equation, unit: As in the constraint.
        verdict: See the table above.
        reason: The verdict's ground, in words.
        n_rows: Rows in which all its columns were measured.
        mean, std, rms: Of the residual over these rows; None where there are none.
        typical: Root mean square without the largest 2 %, and without rows that stand out if these are few.
        relative: `typical` beside the size of the terms.
        relative_std: Typical variation beside the spread of the terms; None where they do not vary.
        worst_rows: Rows with the largest residuals, largest first.
        n_outliers: Rows more than 6 robust standard deviations (see `robust_std`) off the median; not looked for in
            a balance that does not hold.
        outliers: The first of them, largest first.
        repair: The single change that makes it hold, if there is one.
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
        return self.verdict != FAILS


@dataclass(frozen=True)
class Measured:
    """One balance over the n rows in which all its columns were measured.

    Args:
        name, equation: As in the constraint.
        terms: Its terms and residual in these rows.
        rows: Positions of these rows in the table, shape `(n,)`.
        magnitude: Sum of the sizes of the terms in each row, shape `(n,)`.
        precision: Relative rounding of the data.
        explained: Standard deviation that the sensors explain; None if some are not known.
    """

    name: str
    equation: str
    terms: Terms
    rows: NDArray[np.intp]
    magnitude: Array
    precision: float
    explained: float | None = None


def look(
    measured: Measured, inputs: Mapping[str, Array], others: Mapping[str, Array], outputs: tuple[str, ...]
) -> BalanceFinding:
    """Examine one balance.

    Args:
        measured: The balance and its rows.
        inputs: Columns that its residual might depend on, in these rows.
        others: Columns that might be missing in it, in these rows.
        outputs: Names of the outputs.
    """
    z, terms, unit = measured.terms.residual, measured.terms, measured.terms.unit
    if len(z) < 3:
        rows = "1 row has" if len(z) == 1 else f"{len(z)} rows have"
        reason = f"{rows} all its columns; at least 3 are needed"
        return BalanceFinding(measured.name, measured.equation, unit, TOO_FEW, reason, len(z))
    written = written_rounding([(c, terms.columns[name]) for name, c in terms.coefficients.items()], z)
    limit = max(written, terms.gross)
    having = settled(z, limit)
    usual = without(terms, ~having)
    sizes, bias = Sizes.of(usual), systematic(usual, {name: values[having] for name, values in inputs.items()})
    repair, verdict, reason = None, TO_ROUNDING, _only_rounding(measured, written, bias)
    if not reason:
        repair = _sound(find_repair(terms, others, outputs), terms, inputs, others)
        verdict, reason = judged(usual, sizes, bias, measured.explained)
        if repair is not None and repair.kind in OVERRULING and verdict != FAILS:
            verdict, reason = FAILS, f"{_scatter(terms, sizes)}, and one change removes it"
    outside = outlying(z, limit)[: 0 if verdict == FAILS else None]
    return BalanceFinding(
        measured.name,
        measured.equation,
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
        worst_rows=largest(z, measured.magnitude, measured.rows, np.arange(len(z)), 5),
        n_outliers=len(outside),
        outliers=largest(z, measured.magnitude, measured.rows, outside, LISTED),
        repair=repair if verdict in (FAILS, BIASED) else None,
    )


def _only_rounding(measured: Measured, written: float, bias: Residual) -> str:
    """Why the residual is nothing but rounding; empty if it is more."""
    size = np.abs(measured.terms.residual)
    if (size <= 64 * measured.precision * measured.magnitude).all():
        return "every row is within the rounding of its terms"
    if written and (size <= written).all() and not bias.biased:
        most = quantity(written, measured.terms.unit)
        return f"no row is off by more than {most}, as much as the rounding of its numbers can add up to"
    return ""


@dataclass(frozen=True)
class Sizes:
    """Typical sizes of a balance: of its residual and the residual's variation, of its terms and their variation."""

    residual: float
    residual_spread: float
    terms: float
    terms_spread: float

    @classmethod
    def of(cls, terms: Terms) -> "Sizes":
        rows = thinned(len(terms.residual))
        parts = [c * terms.columns[name][rows] for name, c in terms.coefficients.items()]
        size = math.hypot(terms.constant, *map(typical, parts))
        spread = math.hypot(*(typical(centred(part)) for part in parts))
        return cls(typical(terms.residual), typical(centred(terms.residual)), size, spread)

    @property
    def relative(self) -> float | None:
        """The residual beside its terms; None where they are all zero."""
        return self.residual / self.terms if self.terms > 0 else None

    @property
    def relative_std(self) -> float | None:
        """The residual's variation beside that of its terms; None where they do not vary."""
        return self.residual_spread / self.terms_spread if self.terms_spread > 0 else None


def systematic(terms: Terms, inputs: Mapping[str, Array]) -> Residual:
    """The systematic part of the residual, by the rules that judge it after a fit.

    An input that is missing in a row counts as average there: its slope is then, if anything, too small. Slopes are
    looked at in 20,000 rows at most: a material one is certain there.
    """
    z, rounding = terms.residual, terms.rounding
    mean, std, n = float(z.mean()), float(z.std(ddof=1)), len(z)
    if std <= rounding or not inputs:
        return Residual(mean, std / math.sqrt(n), std, n, rounding=rounding)
    rows = thinned(n)
    part = z[rows] - z[rows].mean()
    slopes = {name: _slope(x[rows], part, terms.coefficients.get(name, 0.0)) for name, x in inputs.items()}
    steepest = max(slopes, key=lambda name: abs(slopes[name]))
    r = float(np.clip(slopes[steepest] / max(float(part.std()), np.finfo(float).tiny), -1 + 1e-12, 1 - 1e-12))
    t = r * math.sqrt((len(rows) - 2) / (1 - r * r))
    return Residual(mean, std / math.sqrt(n), std, n, steepest, slopes[steepest], t, rounding, len(inputs))


def _slope(values: Array, deviation: Array, coefficient: float) -> float:
    """Change of the residual per standard deviation of a column.

    Noise of a column that is a term of the balance is part of the residual, so that the two are correlated:
    `0 ≤ Cov(z, c x) ≤ Var(z)`. What that explains is taken off.
    """
    seen = np.isfinite(values)
    average = values.mean(where=seen) if seen.any() else 0.0
    x = np.where(seen, values - average, 0.0)
    together, spread = float(x @ deviation), math.sqrt(float(x @ x) * len(x))
    if coefficient:
        together -= min(max(coefficient * together, 0.0), float(deviation @ deviation)) / coefficient
    return together / spread if spread > 0 else 0.0


def judged(terms: Terms, sizes: Sizes, bias: Residual, explained: float | None = None) -> tuple[str, str]:
    """The verdict on a balance that does not hold to rounding, and its reason.

    Args:
        terms, sizes: The balance.
        bias: From `systematic`.
        explained: Standard deviation that sensors explain; None if some are not known.
    """
    scatter, left = _scatter(terms, sizes), sizes.residual
    unrelated = (sizes.relative_std or 0.0) > LARGEST_SPREAD
    if explained:
        known = f"its sensors explain {quantity(explained, terms.unit)}"
        if _exceeds(left, explained, len(terms.residual)):
            why = f"; {_bias_in_words(bias, terms.unit)}" if bias.biased else ""
            return FAILS, f"{scatter}, but {known} only{why}"
        return (BIASED, _bias_in_words(bias, terms.unit)) if bias.biased else (WITHIN_NOISE, f"{scatter}; {known}")
    if left > LARGEST_SIZE * sizes.terms:
        return FAILS, scatter
    if unrelated and left > CLOSED * sizes.terms:
        return FAILS, f"{scatter}, and its terms vary as if they were unrelated; give the sensors if this is noise"
    if bias.biased:
        material = max(abs(bias.mean) * bias.mean_is_biased, abs(bias.input_slope) * bias.slope_is_biased)
        return FAILS if material > LARGEST_BIAS * sizes.terms_spread else BIASED, _bias_in_words(bias, terms.unit)
    return WITHIN_NOISE, f"{scatter}, but its terms vary as if they were unrelated" if unrelated else scatter


def _sound(
    repair: Repair | None, terms: Terms, inputs: Mapping[str, Array], others: Mapping[str, Array]
) -> Repair | None:
    """The repair, unless the repaired balance would be refused in its turn."""
    if repair is None:
        return None
    new, kept = repaired(terms, others, repair)
    sizes = Sizes.of(new)
    verdict, _ = judged(new, sizes, systematic(new, {name: values[kept] for name, values in inputs.items()}))
    refused = (FAILS, BIASED) if repair.kind in FITTED else (FAILS,)
    vague = "fitted factor" in repair.kind and (sizes.relative_std or 0.0) > EXPLAINED_SPREAD
    return None if verdict in refused or vague else repair


def _scatter(terms: Terms, sizes: Sizes) -> str:
    share = f", {quantity(100 * sizes.relative)} % of the size of its terms" if sizes.relative is not None else ""
    return f"the residual is typically {quantity(sizes.residual, terms.unit)}{share}"


def _exceeds(left: float, explained: float, n_rows: int) -> bool:
    """Whether a residual is more than twice what sensors explain, with a probability below 3e-5 that it is chance."""
    ratio = left / explained
    return ratio > LARGEST_NOISE and float(chdtrc(n_rows, n_rows * ratio**2)) < float(ndtr(-4.0))


def _bias_in_words(bias: Residual, unit: str | None) -> str:
    if bias.mean_is_biased:
        return f"its mean is off by {quantity(bias.mean, unit)} ± {quantity(HALF_WIDTH * bias.se, unit)}"
    return f"its residual changes by {quantity(bias.input_slope, unit)} per standard deviation of '{bias.input}'"
