"""Repairs: the single change of a balance, in a sign, column, factor or constant, that would make the data obey it.

Let `z` be the residual of the balance as it is written. Every such change turns it into `z + a d`: the direction `d` is
one of its terms, a column that is missing, or 1; the step `a` is known (a sign: −2, a column: ±1) or fitted by least
squares. The size of a residual is its trimmed root mean square, so that a few gross errors decide nothing, while a mean
counts. Before and after a change it is computed from the rows that are no outliers of the changed balance (see
`residual_outliers`): outliers can be recognised only with a balance that holds.

- A repair must reduce the residual by a factor of 5. By chance that happens to one of 40 candidates with a probability
  below 3 % at 5 rows, and never at 20.
- Of repairs that do nearly as well as the best one (within a factor of 2) the simplest is proposed, in the order of
  `KINDS`: first those without a fitted number. A fitted factor comes last, as it can compensate for almost anything.
- A column that is added must also correlate significantly with the residual, and not only have about the right mean: in
  a steady plant some column has that.
- Terms whose units differ in size are converted to one unit all together, as the names of columns state it. The
  remaining residual is then compared with the size of the terms, which the conversion changes too.
- A column of another dimension is added with a fitted factor only, as `0.05 * Current` to a voltage.
- A term or column with a factor must remain larger than the remaining residual, or its factor would mean nothing.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from equipoise.balances import column_symbol, format_equation
from equipoise.diagnosis.residual_outliers import inlier_mask
from equipoise.diagnosis.robust_statistics import (
    OUTLIER_STDS,
    Mask,
    centred,
    evenly_spaced,
    fitted_step,
    significantly_correlated,
    trimmed_rms,
)
from equipoise.diagnosis.simple_factors import CONVERSIONS, nearest_factor, shortest_rounding
from equipoise.diagnosis.units import conversions, format_quantity, same_dimension

Array = NDArray[np.float64]
REDUCTION = 5.0  # factor by which a repair must reduce the residual
NEARLY = 2.0  # repairs within this factor of the best one count as equally good
MAX_ROUNDING = 0.1  # standard deviations of the residual by which a constant may be rounded
SLACK = 1.05  # least squares do not minimise trimmed sizes exactly
MIN_ROWS = 5
KINDS = (
    "sign",
    "missing column",
    "superfluous column",
    "factor",
    "units",
    "missing column with a factor",
    "constant",
    "fitted factor",
    "missing column with a fitted factor",
)
# The kinds that refuse a balance which otherwise seems to hold within noise: they have no fitted number, and noise does
# not look like them. To leave out a column does help where that column is mostly noise.
OVERRULING = ("sign", "missing column", "factor", "units")
FITTED = ("constant", "fitted factor", "missing column with a fitted factor")


@dataclass(frozen=True)
class Terms:
    """The terms of one balance `Σ_j c_j z_j + c_0 = 0`, evaluated in n rows in which all its columns were measured.

    Args:
        coefficients: `c_j` by column.
        constant: `c_0`.
        columns: `z_j` by column, shape `(n,)` each.
        residual: Left side of the balance, shape `(n,)`.
        rounding: Largest residual that rounding in floating point explains.
        unit: Unit of the residual.
    """

    coefficients: Mapping[str, float]
    constant: float
    columns: Mapping[str, Array]
    residual: Array
    rounding: float = 0.0
    unit: str | None = None

    @property
    def outlier_limit(self) -> float:
        """Deviation of a residual up to which it is no outlier."""
        return OUTLIER_STDS * self.rounding


def in_rows(terms: Terms, rows: Mask) -> Terms:
    """Restrict the terms of a balance to some of their rows, shape `(n,)`.

    Args:
        terms: The terms of a balance.
        rows: Mask of the rows to keep.
    """
    if rows.all():
        return terms
    columns = {name: values[rows] for name, values in terms.columns.items()}
    return replace(terms, columns=columns, residual=terms.residual[rows])


@dataclass(frozen=True)
class Repair:
    """One change that makes a balance hold.

    Attributes:
        kind: One of `KINDS`.
        column: The column that is changed, added or left out; None for a constant and for units.
        factor: Factor of the column's term (−1 for a sign, 0 when it is left out), coefficient of an added column, or
            constant that is added to left minus right side.
        equation: The repaired balance as text that `LinearConstraint.from_equations` reads.
        before, after: Trimmed root mean square of the residual, in its unit, before and after the repair, over the rows
            that are no outliers of the repaired balance.
        message: The change and its effect in words.
        factors: Factors by column that convert terms to one unit; empty for other kinds.
    """

    kind: str
    column: str | None
    factor: float
    equation: str
    before: float
    after: float
    message: str
    factors: Mapping[str, float] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class _Change:
    """A candidate for a repair.

    Attributes:
        kind: One of `KINDS`.
        column: The column that is changed, added or left out; None for a constant and for units.
        factor: New factor of the column; the old one is 1 if it has a term in the balance and 0 if it has none.
        direction: Term or column, shape `(n,)`; for units the sum of what all conversions add.
        has_term: Whether the column has a term in the balance.
        unit: The unit that terms are converted to.
        growth: Size of the terms after the change, divided by that before.
        factors: Factors by column that convert terms to one unit.
    """

    kind: str
    column: str | None
    factor: float
    direction: Array
    has_term: bool = False
    unit: str = ""
    growth: float = 1.0
    factors: Mapping[str, float] = field(default_factory=dict, hash=False)

    @property
    def step(self) -> float:
        """The multiple of the direction that the change adds to the residual."""
        return self.factor - self.has_term

    def inlying(self, z: Array, rounding: float) -> tuple[Array, Array, Array]:
        """Compute residuals before and after the change, and the direction, in the rows that are no outliers after it.

        Args:
            z: Residual before the change, shape `(n,)`.
            rounding: Largest residual that rounding in floating point explains.
        """
        measured = np.isfinite(self.direction)
        before, direction = z[measured], self.direction[measured]
        after = before + self.step * direction
        inliers = inlier_mask(after, OUTLIER_STDS * rounding)
        return before[inliers], after[inliers], direction[inliers]

    def remaining_share(self, z: Array, rounding: float) -> float:
        """Return the size of the residual after the change, divided by its size before and by the terms' growth.

        Args:
            z: Residual before the change, shape `(n,)`.
            rounding: Largest residual that rounding in floating point explains.
        """
        before, after, _ = self.inlying(z, rounding)
        size = trimmed_rms(before)
        return max(trimmed_rms(after), rounding) / size / self.growth if size > 0 else 1.0

    def is_plausible(self, z: Array, n_candidates: int, rounding: float) -> bool:
        """Return whether an added column correlates with the residual, and a term with a factor is larger than it.

        Args:
            z: Residual before the change, shape `(n,)`.
            n_candidates: Number of columns that could be added, for the correction for several tests.
            rounding: Largest residual that rounding in floating point explains.
        """
        if self.kind in ("sign", "superfluous column", "constant", "units"):
            return True
        before, after, direction = self.inlying(z, rounding)
        if not self.has_term:
            varies_less = trimmed_rms(centred(after)) < trimmed_rms(centred(before))
            if not (varies_less and significantly_correlated(before, direction, n_candidates)):
                return False
        return abs(self.factor) * trimmed_rms(direction) > trimmed_rms(after)


def find_repair(terms: Terms, others: Mapping[str, Array], outputs: tuple[str, ...]) -> Repair | None:
    """Find the simplest single change of a balance that makes it hold; return None if there is none.

    Args:
        terms: The terms of the balance in n rows.
        others: Columns that have no term in it, in the same rows, shape `(n,)` each; NaN where missing.
        outputs: Names of the outputs, of which a balance must keep one.
    Example:
        >>> a, b = np.array([1.0, 4.0, 2.0, 5.0, 3.0]), np.array([2.0, 1.0, 0.0, 3.0, 7.0])
        >>> terms = Terms({"total": 1.0, "a": -1.0, "b": 1.0}, 0.0, {"total": a + b, "a": a, "b": b}, 2 * b)
        >>> find_repair(terms, {}, outputs=("total",)).message
        'flip the sign of `b`: residual 7.1 → 0'
    """
    rows = evenly_spaced(len(terms.residual))
    if len(rows) < MIN_ROWS:
        return None
    z = terms.residual[rows]
    changes = _changes(terms, z, {name: values[rows] for name, values in others.items()}, rows, outputs)
    shares = ((change.remaining_share(z, terms.rounding), change) for change in changes)
    good = [
        (share, change)
        for share, change in shares
        if share <= 1 / REDUCTION and change.is_plausible(z, len(others), terms.rounding)
    ]
    if not good:
        return None
    limit = NEARLY * min(share for share, _ in good)
    nearly_best = [(KINDS.index(change.kind), share, i) for i, (share, change) in enumerate(good) if share <= limit]
    return _as_repair(good[min(nearly_best)[2]][1], terms, others)


def _changes(
    terms: Terms, z: Array, others: Mapping[str, Array], rows: NDArray[np.intp], outputs: tuple[str, ...]
) -> Iterator[_Change]:
    """Iterate over all candidates for a repair.

    Args:
        terms: The terms of the balance.
        z: Its residual in a sample of the rows.
        others: Columns that have no term in it, in this sample.
        rows: Positions of the sample.
        outputs: Names of the outputs.
    """
    for column, coefficient in terms.coefficients.items():
        term = coefficient * terms.columns[column][rows]
        yield from _changes_of_term(column, term, z)
        if any(name in outputs for name in terms.coefficients if name != column):
            yield _Change("superfluous column", column, 0.0, term, has_term=True)
    yield from _unit_conversions(terms, rows)
    for column, values in others.items():
        addable = all(same_dimension(column, name) for name in terms.coefficients)
        yield from _additions(column, values, z, addable)
    ones = np.ones(len(z))
    constant = _Change("constant", None, fitted_step(z, ones), ones)
    yield replace(constant, factor=_rounded_factor(constant, z))


def _changes_of_term(column: str, term: Array, z: Array) -> Iterator[_Change]:
    """Iterate over another sign, a simple factor and a fitted factor of a term that the balance has."""
    yield _Change("sign", column, -1.0, term, has_term=True)
    fitted = _Change("fitted factor", column, 1.0 + fitted_step(z, term), term, has_term=True)
    if fitted.remaining_share(z, 0.0) > SLACK / REDUCTION:
        return
    if fitted.factor > 0:
        yield _Change("factor", column, float(nearest_factor(fitted.factor, CONVERSIONS)), term, has_term=True)
    yield replace(fitted, factor=_rounded_factor(fitted, z))


def _unit_conversions(terms: Terms, rows: NDArray[np.intp]) -> Iterator[_Change]:
    """Iterate over the units of the columns: all terms converted to this unit, where several have another one."""
    parts = {name: c * terms.columns[name][rows] for name, c in terms.coefficients.items()}
    for unit, factors in conversions(terms.coefficients).items():
        if len(factors) > 1:  # a single one is covered by the kind "factor"
            direction = np.sum([(factor - 1) * parts[name] for name, factor in factors.items()], axis=0)
            sizes = {name: trimmed_rms(part) for name, part in parts.items()}
            before = math.hypot(terms.constant, *sizes.values())
            after = math.hypot(terms.constant, *(factors.get(name, 1.0) * size for name, size in sizes.items()))
            if before > 0 and after > 0:
                yield _Change("units", None, 1.0, direction, unit=unit, growth=after / before, factors=factors)


def _additions(column: str, values: Array, z: Array, addable: bool) -> Iterator[_Change]:
    """Iterate over ways to add a column that has no term yet.

    Args:
        column: Its name.
        values: Its values, shape `(n,)`; NaN is missing.
        z: Residual of the balance, shape `(n,)`.
        addable: Whether its unit has the dimension of the other terms; if not, only a fitted factor is possible.
    """
    measured = np.isfinite(values)
    if measured.sum() < max(MIN_ROWS, len(z) // 2):
        return
    step = fitted_step(z[measured], values[measured])
    fitted = _Change("missing column with a fitted factor", column, step, values)
    if step == 0 or fitted.remaining_share(z, 0.0) > SLACK / REDUCTION:
        return
    if addable:
        yield _Change("missing column", column, float(np.sign(step)), values)
        yield _Change("missing column with a factor", column, float(nearest_factor(step, CONVERSIONS)), values)
    yield replace(fitted, factor=_rounded_factor(fitted, z))


def _rounded_factor(fitted: _Change, z: Array) -> float:
    """Round a fitted factor or constant to the fewest digits that hardly enlarge or shift the residual."""
    if fitted.column is None:
        limit = MAX_ROUNDING * float(np.std(z))
        return shortest_rounding(fitted.factor, lambda factor: abs(factor - fitted.factor) <= limit)
    limit = SLACK * fitted.remaining_share(z, 0.0)
    return shortest_rounding(
        fitted.factor, lambda factor: replace(fitted, factor=factor).remaining_share(z, 0.0) <= limit
    )


def repaired(terms: Terms, others: Mapping[str, Array], repair: Repair) -> tuple[Terms, Mask]:
    """Apply a repair to a balance.

    Args:
        terms: The terms of the balance in n rows.
        others: Columns that have no term in it, in the same rows, shape `(n,)` each; NaN where missing.
        repair: The repair.
    Returns: The terms of the repaired balance in the rows where an added column was measured and that are no outliers
        of the repaired balance, and a mask of these rows, shape `(n,)`.
    """
    coefficients, columns, constant = dict(terms.coefficients), dict(terms.columns), terms.constant
    if repair.factors:
        coefficients = {name: c * repair.factors.get(name, 1.0) for name, c in coefficients.items()}
    elif repair.column is None:
        constant += repair.factor
    elif repair.column in coefficients:
        coefficients[repair.column] *= repair.factor
    else:
        coefficients[repair.column] = repair.factor
        columns[repair.column] = others[repair.column]
    coefficients = {name: c for name, c in coefficients.items() if c}
    z = sum((c * columns[name] for name, c in coefficients.items()), np.full(len(terms.residual), constant))
    kept = np.isfinite(z)
    kept[kept] = inlier_mask(z[kept], terms.outlier_limit)
    columns = {name: columns[name][kept] for name in coefficients}
    return Terms(coefficients, constant, columns, z[kept], terms.rounding, terms.unit), kept


def _as_repair(change: _Change, terms: Terms, others: Mapping[str, Array]) -> Repair:
    """Apply a change to all rows and describe it."""
    plan = Repair(change.kind, change.column, change.factor, "", 0.0, 0.0, "", change.factors)
    balance, kept = repaired(terms, others, plan)
    equation = format_equation(balance.coefficients, balance.constant)
    before, after = trimmed_rms(terms.residual[kept]), trimmed_rms(balance.residual)
    sizes = f"residual {format_quantity(before, terms.unit)} → {format_quantity(after, change.unit or terms.unit)}"
    message = f"{_advice(change, terms.unit)}: {sizes}"
    return replace(plan, equation=equation, before=before, after=after, message=message)


def _advice(change: _Change, unit: str | None) -> str:
    if change.kind == "units":
        return f"bring {_joined([f'`{column_symbol(name)}`' for name in change.factors])} to {change.unit}"
    if change.column is None:
        return f"add the constant {change.factor:.12g}{f' {unit}' if unit else ''} to its left side"
    name, factor = f"`{column_symbol(change.column)}`", f"{change.factor:.12g}"
    if change.kind == "sign":
        return f"flip the sign of {name}"
    if change.kind == "superfluous column":
        return f"leave out {name}"
    if change.has_term:
        return f"multiply {name} by {factor}"
    side = "left" if change.factor > 0 else "right"
    times = "" if abs(change.factor) == 1 else f"{abs(change.factor):.12g} times "
    return f"add {times}the missing column {name} to its {side} side"


def _joined(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
