"""Proposals: balances that data seem to obey, with equation, residual and the number of rows that break them."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.balances import column_unit, format_equation
from equipoise.diagnosis.multivariate_outliers import MAX_COMPONENT_STD
from equipoise.diagnosis.robust_statistics import centred, outlier_mask, robust_std, trimmed_rms
from equipoise.diagnosis.simple_factors import shortest_rounding
from equipoise.diagnosis.sparse_combinations import Combination, negligible_mean

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Proposal:
    """A balance that the data seem to obey.

    Attributes:
        equation: The balance as text that `LinearConstraint.from_equations` reads.
        coefficients, constant: `c_j` by column, and `c_0`, of `Σ_j c_j z_j + c_0 = 0`.
        std: Standard deviation of the residual, in the balance's own unit, without the rows that break it.
        relative: `std` divided by what it would be if the columns were unrelated.
        n_rows: Number of rows in which all its columns were measured.
        n_broken: Number of these rows that break it: their residual lies more than 6 robust standard deviations from
            the median.
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
        """The unit of the residual: that of the columns with coefficients ±1; None where they have several or none."""
        units = {column_unit(name) for name, c in self.coefficients.items() if abs(c) == 1} - {None}
        return units.pop() if len(units) == 1 else None

    def to_dict(self) -> dict[str, Any]:
        """Convert the proposal to a dictionary of plain values for JSON."""
        return asdict(self)


def make_proposal(combination: Combination, values: Array, names: list[str]) -> Proposal | None:
    """Evaluate a combination in all rows and write it as a balance.

    Args:
        combination: The combination.
        values: The columns that its support refers to, shape `(n, p)`; NaN is missing.
        names: Names of these p columns.
    Returns: The proposal; None if the combination varies little only in comparison with a few rows far off the others.
    """
    combination = _with_simple_left_side(combination)
    columns = values[:, list(combination.support)]
    terms = columns[np.isfinite(columns).all(axis=1)] * combination.coefficients
    holding = terms[~_broken_rows(terms)]
    if _relative_spread(holding, lambda part: trimmed_rms(centred(part))) > MAX_COMPONENT_STD:
        return None
    constant = _constant(holding)
    coefficients = {names[j]: c for j, c in zip(combination.support, combination.coefficients, strict=True)}
    return Proposal(
        format_equation(coefficients, constant),
        coefficients,
        constant,
        std=float(holding.sum(axis=1).std(ddof=1)),
        relative=_relative_spread(holding, lambda part: float(part.std(ddof=1))),
        n_rows=len(terms),
        n_broken=len(terms) - len(holding),
    )


def _relative_spread(terms: Array, spread: Callable[[Array], float]) -> float:
    """Divide the spread of the sum of terms, shape `(n, k)`, by what it would be if the terms were unrelated."""
    unrelated = math.hypot(*map(spread, terms.T))
    return spread(terms.sum(axis=1)) / unrelated if unrelated > 0 else math.inf


def _broken_rows(terms: Array) -> NDArray[np.bool_]:
    """Return the rows whose terms, shape `(n, k)`, have an outlying sum."""
    rounding = 64 * np.finfo(float).eps * np.abs(terms).sum(axis=1)
    return outlier_mask(terms.sum(axis=1), float(np.linalg.norm(robust_std(terms))), rounding)


def _with_simple_left_side(combination: Combination) -> Combination:
    """Choose the sign of a combination that leaves fewer and simpler terms on the left side of its equation."""

    def left_side(coefficients: tuple[float, ...]) -> tuple:
        positive = [c for c in coefficients if c > 0]
        return not positive, len(positive), sum(c != 1 for c in positive), [c <= 0 for c in coefficients]

    opposite = tuple(-c for c in combination.coefficients)
    coefficients = min(combination.coefficients, opposite, key=left_side)
    return Combination(combination.support, coefficients, combination.relative)


def _constant(terms: Array) -> float:
    """Return the constant that balances the mean of the sum of terms, shape `(n, k)`; 0 where that mean is chance."""
    total = terms.sum(axis=1)
    mean, std = float(total.mean()), float(total.std(ddof=1))
    rounding = 64 * np.finfo(float).eps * float(np.abs(terms).sum(axis=1).max())
    if abs(mean) <= max(negligible_mean(std, len(total)), rounding):
        return 0.0
    uncertainty = min(max(0.1, 3 / math.sqrt(len(total))), 0.25) * std  # 3 standard errors, but never a bias
    return -shortest_rounding(mean, lambda rounded: abs(rounded - mean) <= max(uncertainty, rounding))
