"""The single change of a balance that would make the data obey it: a sign, a column, a factor or a constant.

With the residual `z` of the balance as it is written, every such change makes it `z + a d`: `d` is one of its terms, a
column that is missing, or 1, and the step `a` is known (a sign: −2, a column: ±1) or fitted by least squares. What is
left of a residual is its `typical` size, so that a few gross errors decide nothing, and the mean counts. Before and
after a change it is that of the rows that have a say in the changed balance (see `outliers`): which rows are gross
shows only beside a balance that holds.

- A repair must bring the residual down by a factor of 5. By chance that happens to one of 40 candidates with a
  probability below 3 % at 5 rows, and never at 20.
- Of repairs that do nearly as well as the best one (within a factor of 2) the simplest is proposed, as `KINDS` has it:
  what has no fitted number first. A fitted factor comes last, because it can take up almost anything.
- A column that is added must also explain how the residual varies, beyond doubt, and not only its mean: in a steady
  plant some column has about the right mean.
- Terms in other units than the rest are brought to one unit all together, as the names of columns have it. What is left
  then counts beside the size of the terms, which the new unit changes too.
- A column of another dimension is added with a fitted factor only, as `0.05 * Current` to a voltage.
- A term or column with a factor must stay larger than the residual that is left, or its factor would mean nothing.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from equipoise.balances import column_symbol, format_equation
from equipoise.diagnosis.residual_outliers import settled
from equipoise.diagnosis.robust_statistics import (
    OUTLYING,
    Mask,
    centred,
    certainly_related,
    fitted_step,
    quantity,
    thinned,
    typical,
)
from equipoise.diagnosis.simple_factors import CONVERSIONS, nearest, shortest
from equipoise.diagnosis.units import conversions, same_dimension

Array = NDArray[np.float64]
REDUCTION = 5.0  # by how much a repair must bring the residual down
NEARLY = 2.0  # repairs within this factor of the best one are as good as it
ROUNDED = 0.1  # standard deviations of the residual by which a constant may be rounded
SLACK = 1.05  # least squares and typical sizes do not agree to the last percent
FEWEST_ROWS = 5
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
# A balance that seems to hold within noise is overruled by these only: they have no fitted number, and noise cannot
# look like them. Leaving out a column does help where that column is mostly noise.
OVERRULING = ("sign", "missing column", "factor", "units")
FITTED = ("constant", "fitted factor", "missing column with a fitted factor")


@dataclass(frozen=True)
class Terms:
    """One balance `Σ_j c_j z_j + c_0 = 0` and the n rows in which all its columns were measured.

    Args:
        coefficients: `c_j` by column.
        constant: `c_0`.
        columns: `z_j` by column, shape `(n,)` each.
        residual: Left side, shape `(n,)`.
        rounding: Residual below which there is nothing but rounding.
        unit: Of the residual.
    """

    coefficients: Mapping[str, float]
    constant: float
    columns: Mapping[str, Array]
    residual: Array
    rounding: float = 0.0
    unit: str | None = None

    @property
    def gross(self) -> float:
        """Residual up to which no row stands out."""
        return OUTLYING * self.rounding


def without(terms: Terms, rows: Mask) -> Terms:
    """The balance in all other rows."""
    if not rows.any():
        return terms
    columns = {name: values[~rows] for name, values in terms.columns.items()}
    return replace(terms, columns=columns, residual=terms.residual[~rows])


@dataclass(frozen=True)
class Repair:
    """One change that makes a balance hold.

    Attributes:
        kind: One of `KINDS`.
        column: The column that is changed, added or left out; None for a constant and for units.
        factor: What the column's term is multiplied by (−1 for a sign, 0 when it is left out), the coefficient of a
            column that is added, or what is added to the constant part of left minus right side.
        equation: The repaired balance, which `LinearConstraint.from_equations` reads.
        before, after: Typical size of the residual, in its unit, where the repaired balance has no gross rows.
        message: All of it, in words.
        factors: What the terms of several columns are multiplied by, to bring them to one unit.
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
    """Gives a column another factor, 1 before if it has a term of its own in the balance and 0 if it has not.

    Units change several: `direction` is then what all of them together add, and `unit` the one they are brought to.
    """

    kind: str
    column: str | None
    factor: float
    direction: Array
    own: bool = False
    unit: str = ""
    shrinkage: float = 1.0  # of the terms themselves
    factors: Mapping[str, float] = field(default_factory=dict, hash=False)

    @property
    def step(self) -> float:
        return self.factor - self.own

    def split(self, z: Array, rounding: float) -> tuple[Array, Array, Array]:
        """The residual before and after, and the direction, in the rows where it is known and that have a say then."""
        measured = np.isfinite(self.direction)
        before, direction = z[measured], self.direction[measured]
        after = before + self.step * direction
        having = settled(after, OUTLYING * rounding)
        return before[having], after[having], direction[having]

    def left(self, z: Array, rounding: float) -> float:
        """Share of the residual that the change leaves."""
        before, after, _ = self.split(z, rounding)
        whole = typical(before)
        return max(typical(after), rounding) / whole / self.shrinkage if whole > 0 else 1.0

    def means_something(self, z: Array, looks: int, rounding: float) -> bool:
        before, after, direction = self.split(z, rounding)
        if self.kind in ("sign", "superfluous column", "constant", "units"):
            return True
        if not self.own and not (_smaller(after, before) and certainly_related(before, direction, looks)):
            return False
        return abs(self.factor) * typical(direction) > typical(after)


def _smaller(after: Array, before: Array) -> bool:
    return typical(centred(after)) < typical(centred(before))


def find_repair(terms: Terms, others: Mapping[str, Array], outputs: tuple[str, ...]) -> Repair | None:
    """The simplest single repair of a balance, if there is one.

    Args:
        terms: The balance and its rows.
        others: Columns that are not in it, in the same rows, shape `(n,)` each; NaN where missing.
        outputs: A balance must keep one of these.
    Example:
        >>> a, b = np.array([1.0, 4.0, 2.0, 5.0, 3.0]), np.array([2.0, 1.0, 0.0, 3.0, 7.0])
        >>> terms = Terms({"total": 1.0, "a": -1.0, "b": 1.0}, 0.0, {"total": a + b, "a": a, "b": b}, 2 * b)
        >>> find_repair(terms, {}, outputs=("total",)).message
        'flip the sign of `b`: residual 7.1 → 0'
    """
    rows = thinned(len(terms.residual))
    if len(rows) < FEWEST_ROWS:
        return None
    z = terms.residual[rows]
    ways = _changes(terms, z, {name: values[rows] for name, values in others.items()}, rows, outputs)
    scored = [(left, change) for change in ways if (left := change.left(z, terms.rounding)) <= 1 / REDUCTION]
    scored = [(left, change) for left, change in scored if change.means_something(z, len(others), terms.rounding)]
    if not scored:
        return None
    bar = NEARLY * min(left for left, _ in scored)
    nearly_best = [(KINDS.index(change.kind), left, i) for i, (left, change) in enumerate(scored) if left <= bar]
    return _repair(scored[min(nearly_best)[2]][1], terms, others)


def _changes(
    terms: Terms, z: Array, others: Mapping[str, Array], rows: NDArray[np.intp], outputs: tuple[str, ...]
) -> Iterator[_Change]:
    for column, coefficient in terms.coefficients.items():
        term = coefficient * terms.columns[column][rows]
        yield from _changes_of_term(column, term, z)
        if any(name in outputs for name in terms.coefficients if name != column):
            yield _Change("superfluous column", column, 0.0, term, own=True)
    yield from _unit_changes(terms, rows)
    for column, values in others.items():
        addable = all(same_dimension(column, name) for name in terms.coefficients)
        yield from _additions(column, values, z, addable)
    ones = np.ones(len(z))
    yield _Change("constant", None, _rounded_factor(_Change("constant", None, fitted_step(z, ones), ones), z), ones)


def _changes_of_term(column: str, term: Array, z: Array) -> Iterator[_Change]:
    yield _Change("sign", column, -1.0, term, own=True)
    fitted = _Change("fitted factor", column, 1.0 + fitted_step(z, term), term, own=True)
    if fitted.left(z, 0.0) > SLACK / REDUCTION:
        return
    if fitted.factor > 0:
        yield _Change("factor", column, float(nearest(fitted.factor, CONVERSIONS)), term, own=True)
    yield replace(fitted, factor=_rounded_factor(fitted, z))


def _unit_changes(terms: Terms, rows: NDArray[np.intp]) -> Iterator[_Change]:
    parts = {name: c * terms.columns[name][rows] for name, c in terms.coefficients.items()}
    for unit, factors in conversions(terms.coefficients).items():
        if len(factors) > 1:  # one alone is a factor
            step = np.sum([(factor - 1) * parts[name] for name, factor in factors.items()], axis=0)
            sizes = {name: typical(part) for name, part in parts.items()}
            before = math.hypot(terms.constant, *sizes.values())
            after = math.hypot(terms.constant, *(factors.get(name, 1.0) * size for name, size in sizes.items()))
            if before > 0 and after > 0:
                yield _Change("units", None, 1.0, step, unit=unit, shrinkage=after / before, factors=factors)


def _additions(column: str, values: Array, z: Array, addable: bool) -> Iterator[_Change]:
    measured = np.isfinite(values)
    if measured.sum() < max(FEWEST_ROWS, len(z) // 2):
        return
    step = fitted_step(z[measured], values[measured])
    fitted = _Change("missing column with a fitted factor", column, step, values)
    if step == 0 or fitted.left(z, 0.0) > SLACK / REDUCTION:
        return
    if addable:
        yield _Change("missing column", column, float(np.sign(step)), values)
        yield _Change("missing column with a factor", column, float(nearest(step, CONVERSIONS)), values)
    yield replace(fitted, factor=_rounded_factor(fitted, z))


def _rounded_factor(fitted: _Change, z: Array) -> float:
    """The fitted factor, with as few digits as leave the residual as small; a constant, as leave no bias."""
    if fitted.column is None:
        return shortest(fitted.factor, lambda factor: abs(factor - fitted.factor) <= ROUNDED * float(np.std(z)))
    bar = SLACK * fitted.left(z, 0.0)
    return shortest(fitted.factor, lambda factor: replace(fitted, factor=factor).left(z, 0.0) <= bar)


def repaired(terms: Terms, others: Mapping[str, Array], repair: Repair) -> tuple[Terms, Mask]:
    """The balance after its repair, in the rows where a column that was added is known and that then have a say."""
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
    kept[kept] = settled(z[kept], terms.gross)
    columns = {name: columns[name][kept] for name in coefficients}
    return Terms(coefficients, constant, columns, z[kept], terms.rounding, terms.unit), kept


def _repair(change: _Change, terms: Terms, others: Mapping[str, Array]) -> Repair:
    """The change as it acts on all rows, in words."""
    plan = Repair(change.kind, change.column, change.factor, "", 0.0, 0.0, "", change.factors)
    new, kept = repaired(terms, others, plan)
    equation = format_equation(new.coefficients, new.constant)
    before, after = typical(terms.residual[kept]), typical(new.residual)
    sizes = f"residual {quantity(before, terms.unit)} → {quantity(after, change.unit or terms.unit)}"
    message = f"{_advice(change, terms.unit)}: {sizes}"
    return replace(plan, equation=equation, before=before, after=after, message=message)


def _advice(change: _Change, unit: str | None) -> str:
    if change.kind == "units":
        return f"bring {_and([f'`{column_symbol(name)}`' for name in change.factors])} to {change.unit}"
    if change.column is None:
        return f"add the constant {change.factor:.12g}{f' {unit}' if unit else ''} to its left side"
    name, factor = f"`{column_symbol(change.column)}`", f"{change.factor:.12g}"
    if change.kind == "sign":
        return f"flip the sign of {name}"
    if change.kind == "superfluous column":
        return f"leave out {name}"
    if change.own:
        return f"multiply {name} by {factor}"
    side = "left" if change.factor > 0 else "right"
    times = "" if abs(change.factor) == 1 else f"{abs(change.factor):.12g} times "
    return f"add {times}the missing column {name} to its {side} side"


def _and(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
