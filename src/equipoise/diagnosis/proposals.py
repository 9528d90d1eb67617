"""A balance that data seem to obey, as people write it: its equation, what it leaves, and how many rows break it."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.balances import column_unit, format_equation
from equipoise.diagnosis.multivariate_outliers import LITTLE
from equipoise.diagnosis.robust_statistics import centred, gross, robust_std, typical
from equipoise.diagnosis.simple_factors import shortest
from equipoise.diagnosis.sparse_combinations import Combination, negligible_mean

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Proposal:
    """A balance that the data seem to obey.

    Attributes:
        equation: As text, which `LinearConstraint.from_equations` reads.
        coefficients, constant: Of `Σ_j c_j z_j + c_0 = 0`.
        std: Standard deviation of its residual, in its own unit, without rows that break it.
        relative: `std` beside what it would be if the columns were unrelated.
        n_rows: Rows in which all its columns were measured.
        n_broken: Rows of them that break it: their residual is more than 6 robust standard deviations off.
    """

    equation: str
    coefficients: dict[str, float] = field(hash=False)
    constant: float
    std: float
    relative: float
    n_rows: int
    n_broken: int = 0

    @property
    def unit(self) -> str | None:
        """Of its residual: the unit of the columns that have no factor, if that is one."""
        found = {column_unit(name) for name, c in self.coefficients.items() if abs(c) == 1} - {None}
        return found.pop() if len(found) == 1 else None

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values for JSON."""
        return asdict(self)


def proposal(each: Combination, values: Array, names: list[str]) -> Proposal | None:
    """The combination in all rows; None if it varies little beside a few rows far off all others only.

    Args:
        each: The combination.
        values: All columns that it chooses from, shape `(n, p)`; NaN is missing.
        names: Of these p columns.
    """
    each = _turned(each)
    columns = values[:, list(each.support)]
    terms = columns[np.isfinite(columns).all(axis=1)] * each.coefficients
    holding = terms[~_breaking(terms)]
    if _relative(holding, lambda part: typical(centred(part))) > LITTLE:
        return None
    constant = _constant(holding)
    coefficients = {names[j]: c for j, c in zip(each.support, each.coefficients, strict=True)}
    return Proposal(
        format_equation(coefficients, constant),
        coefficients,
        constant,
        std=float(holding.sum(axis=1).std(ddof=1)),
        relative=_relative(holding, lambda part: float(part.std(ddof=1))),
        n_rows=len(terms),
        n_broken=len(terms) - len(holding),
    )


def _relative(terms: Array, spread: Callable[[Array], float]) -> float:
    """Spread of the sum of terms, shape `(n, k)`, beside what it would be if they were unrelated."""
    unrelated = math.hypot(*map(spread, terms.T))
    return spread(terms.sum(axis=1)) / unrelated if unrelated > 0 else math.inf


def _breaking(terms: Array) -> NDArray[np.bool_]:
    """Rows whose terms, shape `(n, k)`, do not add up to what those of the others add up to."""
    rounding = 64 * np.finfo(float).eps * np.abs(terms).sum(axis=1)
    return gross(terms.sum(axis=1), float(np.linalg.norm(robust_std(terms))), rounding)


def _turned(each: Combination) -> Combination:
    """The combination with the sign that leaves the fewer and plainer terms on the left side."""

    def left(coefficients: tuple[float, ...]) -> tuple:
        positive = [c for c in coefficients if c > 0]
        return not positive, len(positive), sum(c != 1 for c in positive), [c <= 0 for c in coefficients]

    other = tuple(-c for c in each.coefficients)
    return Combination(each.support, min(each.coefficients, other, key=left), each.relative)


def _constant(terms: Array) -> float:
    """What must be added so that terms, shape `(n, k)`, add up to zero on average; 0 where their mean is chance."""
    total = terms.sum(axis=1)
    mean, std = float(total.mean()), float(total.std(ddof=1))
    rounding = 64 * np.finfo(float).eps * float(np.abs(terms).sum(axis=1).max())
    if abs(mean) <= max(negligible_mean(std, len(total)), rounding):
        return 0.0
    unknown = min(max(0.1, 3 / math.sqrt(len(total))), 0.25) * std  # 3 standard errors, but never a bias
    return -shortest(mean, lambda rounded: abs(rounded - mean) <= max(unknown, rounding))
