"""Balances that hide in a table: few columns whose sum, with simple coefficients, hardly varies.

What is proposed is for people to keep or to delete: that columns add up says nothing of the reason. How it is found:

1. Columns are grouped by the dimensions of their units; columns without a unit may join any group. Where units of one
   group differ in size, such as kW and MW, all that follows is done twice: with numbers of one unit, then as they are,
   in case a header is wrong.
2. The few rows that break what all others obey are left out (see `bulk`).
3. Columns that the others together do not explain are in no balance.
4. Sums with coefficients ±1 are tried for all choices of up to `max_terms` columns, fewest first; where noise is up to
   10 % of what its terms vary by, such a sum is found.
5. Where something is left over, small rationals, powers of ten and conversions of time are tried (noise up to 1 %),
   then numbers of few digits (0.1 %).
6. What follows from balances before it is not listed again.

The work is limited: up to 30 columns of one group are searched for 6 terms, 40 for 5, 100 for 3. A `SearchWarning` says
when fewer terms than wanted were looked for, and which columns were left out because they are mostly empty.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.balances import column_unit, did_you_mean, quoted_list
from equipoise.diagnosis import units
from equipoise.diagnosis.multivariate_outliers import bulk
from equipoise.diagnosis.proposals import Proposal, proposal
from equipoise.diagnosis.robust_statistics import thinned
from equipoise.diagnosis.sparse_combinations import (
    LARGEST_SIGNED,
    LARGEST_SIMPLE,
    MOST_FITS,
    MOST_WORK,
    Combination,
    Moments,
    Unknown,
    affordable_terms,
    fitted_sums,
    follows,
    incomplete,
    is_known,
    left_over,
    signed_sums,
)
from equipoise.errors import EquipoiseError

Array = NDArray[np.float64]
FEWEST_ROWS = 12
UNEXPLAINED = 0.5  # share of a column's variance that the others may leave before it counts as unrelated to them
LEFT_OVER = 5 * LARGEST_SIGNED  # relative size of the smallest component beyond which there is nothing more to find
SMALLEST = 1e-100
FAR_OUT = 5.0  # ranges from the 1st to the 99th percentile by which a sentinel or spike lies outside


class SearchWarning(UserWarning):
    """The search for balances was cut short, or left something out."""


class DiscoveryError(EquipoiseError, ValueError):
    """The table or what is asked of it is not usable."""


def propose(
    values: Any, columns: Sequence[str], outputs: Sequence[str] = (), *, max_terms: int = 6, most: int = 10
) -> list[Proposal]:
    """Find balances in a table, those with the fewest terms first; exact ones before noisy ones.

    Args:
        values: The table, shape `(n, p)`; NaN is missing. Columns that are constant or half empty are left out, then
            rows with missing values and rows with sentinels (such as −9999). At least 12 rows, and more rows than
            columns, must remain.
        columns: Names of the p columns.
        outputs: Names of outputs; if there are any, each balance has one of them.
        max_terms: Largest number of columns in a balance.
        most: Largest number of balances.
    Raises: DiscoveryError, if names or numbers are not usable.
    Example:
        >>> rng = np.random.default_rng(0)
        >>> top, bottom, heat = rng.uniform(1, 3, (3, 100))
        >>> feed = top + bottom + 0.01 * rng.standard_normal(100)
        >>> [found.equation for found in propose(np.column_stack([top, heat, feed, bottom]),
        ...                                      ["top", "heat", "feed", "bottom"])]
        ['feed = top + bottom']
    """
    values, names = _checked(values, columns, outputs, max_terms, most)
    kept = _usable(values)
    rows = _complete(values[:, kept])
    _say_if_empty(values, names)
    if len(rows) < FEWEST_ROWS or len(rows) <= len(kept):
        _say_if_few(len(rows), len(kept))
        return []
    sample, kept = _varying(values[np.ix_(rows[thinned(len(rows))], kept)], kept)
    sample, kept = _without_gross_rows(sample, kept, names)
    needed = np.array([not outputs or names[j] in outputs for j in kept])
    found: list[Combination] = []
    for group in _groups([names[j] for j in kept]):
        if needed[group].any():
            for sizes in _sizes([names[kept[j]] for j in group]):
                sums = _search(sample[:, group] * sizes, needed[group], max_terms)
                found += [_moved(_resized(each, sizes), group) for each in sums]
    chosen = _independent(found, sample)
    proposed = (proposal(each, values[:, kept], [names[j] for j in kept]) for each in chosen)
    return [each for each in proposed if each is not None][:most]


def _checked(
    values: Any, columns: Sequence[str], outputs: Sequence[str], max_terms: int, most: int
) -> tuple[Array, list[str]]:
    values, names = np.asarray(values, dtype=float), list(columns)
    if values.ndim != 2 or values.shape[1] != len(names):
        rule = f"values must have shape (rows, {len(names)}), a column for each name"
        raise DiscoveryError(f"{rule}, but got {values.shape}. Give table and names of the same columns.")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DiscoveryError(f"columns must have one name each, but got {quoted_list(twice)} twice. Rename one.")
    for name in outputs:
        if name not in names:
            raise DiscoveryError(f"outputs must be columns, but got {name!r}. {did_you_mean(str(name), names)}")
    if max_terms < 2 or most < 1:
        rule = f"max_terms must be at least 2 and most at least 1, but got {max_terms} and {most}"
        raise DiscoveryError(f"{rule}. Use larger numbers.")
    return np.where(np.isfinite(values), values, np.nan), names


def _usable(values: Array) -> NDArray[np.intp]:
    """Columns that vary, within what squares can hold, and are at least half full."""
    full = np.isfinite(values).sum(axis=0) * 2 >= max(len(values), 1)
    low = np.min(values, axis=0, initial=np.inf, where=np.isfinite(values))
    high = np.max(values, axis=0, initial=-np.inf, where=np.isfinite(values))
    return np.flatnonzero(full & (high > low) & (high - low > SMALLEST) & (np.maximum(high, -low) < 1 / SMALLEST))


def _complete(values: Array) -> NDArray[np.intp]:
    """Rows without missing values, and without values far outside the usual range of their column."""
    rows = np.flatnonzero(np.isfinite(values).all(axis=1))
    if not len(rows) or not values.shape[1]:
        return rows[:0]
    low, high = np.quantile(values[rows[thinned(len(rows))]], [0.01, 0.99], axis=0)
    reach = FAR_OUT * (high - low)
    usual = (values[rows] >= low - reach) & (values[rows] <= high + reach) | (reach == 0)
    return rows[usual.all(axis=1)]


def _varying(sample: Array, kept: NDArray[np.intp]) -> tuple[Array, NDArray[np.intp]]:
    """The columns that vary in these rows, with their positions: a rare event may not be among them."""
    varies = sample.max(axis=0) > sample.min(axis=0)
    return sample[:, varies], kept[varies]


def _without_gross_rows(sample: Array, kept: NDArray[np.intp], names: list[str]) -> tuple[Array, NDArray[np.intp]]:
    """Rows that break nothing that nearly all rows obey, in any group of columns."""
    rows = np.logical_and.reduce([bulk(sample[:, group]) for group in _groups([names[j] for j in kept])])
    return (sample, kept) if rows.all() else _varying(sample[rows], kept)


def _groups(names: list[str]) -> Iterator[NDArray[np.intp]]:
    """Positions of columns whose units have one dimension, together with those that have none."""
    dimensions = [_dimension(name) for name in names]
    for dimension in dict.fromkeys(filter(None, dimensions)) or [None]:
        yield np.array([j for j, own in enumerate(dimensions) if own in (None, dimension)], dtype=np.intp)


def _dimension(name: str) -> Any:
    """The dimension of a column's unit; the unit's text where that cannot be read; None without a unit."""
    text, unit = column_unit(name), _unit(name)
    return text if unit is None else ("dimension", unit.dimension)


def _unit(name: str) -> units.Unit | None:
    text = column_unit(name)
    return units.read_unit(text) if text else None


def _sizes(names: list[str]) -> Iterator[Array]:
    """By what columns of one group are to be multiplied: to get the unit that most of them have; then by 1."""
    factors = [None if unit is None else unit.factor for unit in map(_unit, names)]
    counts = Counter(factor for factor in factors if factor is not None)
    if len(counts) > 1:
        usual = counts.most_common(1)[0][0]
        yield np.array([1.0 if factor is None else float(f"{factor / usual:.12g}") for factor in factors])
    yield np.ones(len(names))


def _resized(each: Combination, sizes: Array) -> Combination:
    """The same combination of columns that had been multiplied by these sizes; its smallest coefficient stays."""
    before = np.array(each.coefficients)
    after = before * sizes[list(each.support)]
    after *= np.abs(before).min() / np.abs(after).min()
    return Combination(each.support, tuple(float(f"{c:.12g}") for c in after), each.relative)


def _search(sample: Array, needed: NDArray[np.bool_], max_terms: int) -> list[Combination]:
    """Combinations of the columns of one group that hardly vary."""
    moments = Moments.of(sample)
    active = np.flatnonzero(_unexplained(moments.cov) <= UNEXPLAINED)
    if len(active) < 2:
        return []
    moments, needed = moments.take(active), needed[active]
    found = _signed(moments, needed, max_terms)
    found += _fitted(moments.cov, needed, max_terms, found)
    return [_moved(each, active) for each in found]


def _unexplained(cov: Array) -> Array:
    """Share of each column's variance that all others leave, shape `(p,)`."""
    std = np.sqrt(np.diagonal(cov))
    return 1 / np.diagonal(np.linalg.inv(cov / np.outer(std, std) + 1e-12 * np.eye(len(cov))))


def _signed(moments: Moments, needed: NDArray[np.bool_], max_terms: int) -> list[Combination]:
    """Sums with coefficients ±1; of equally many terms those without a constant first."""
    cov, found = moments.cov, list[Combination]()
    terms = affordable_terms(len(cov), max_terms, lambda n_terms: 2 ** (n_terms - 1), MOST_WORK)
    for n_terms in range(2, terms + 1):
        if left_over(cov, found) > LEFT_OVER:
            return found
        exact = [one for one in found if one.exact]
        sums = signed_sums(cov, n_terms, Unknown(needed, exact), Unknown(needed, found))
        for each in sorted(sums, key=moments.length):
            if not is_known(each, found, np.sqrt(np.diagonal(cov))):
                found.append(each)
    if left_over(cov, found) <= LEFT_OVER:
        _say_if_short(terms, max_terms, len(cov), "coefficients ±1")
    return found


def _fitted(cov: Array, needed: NDArray[np.bool_], max_terms: int, known: list[Combination]) -> list[Combination]:
    """Sums with other coefficients."""
    found: list[Combination] = []
    terms = affordable_terms(len(cov), max_terms, lambda n_terms: 1, MOST_FITS)
    for n_terms in range(2, terms + 1):
        if left_over(cov, known + found) > LARGEST_SIMPLE:
            return found
        for each in fitted_sums(cov, n_terms, Unknown(needed, known + found)):
            if not is_known(each, known + found, np.sqrt(np.diagonal(cov))):
                found.append(each)
    if left_over(cov, known + found) <= LARGEST_SIMPLE:
        _say_if_short(terms, max_terms, len(cov), "other coefficients")
    return found


def _say_if_empty(values: Array, names: list[str]) -> None:
    filled = np.isfinite(values).sum(axis=0)
    for j in np.flatnonzero((filled > 0) & (filled * 2 < len(values))):
        missing = f"{len(values) - filled[j]} of its {len(values)} values are missing"
        warnings.warn(f"{names[j]!r} was left out of the search for balances: {missing}.", SearchWarning, stacklevel=3)


def _say_if_few(n_rows: int, n_columns: int) -> None:
    if n_columns > 1:
        message = (
            f"No balances were looked for: {n_rows} rows have values in all of {n_columns} columns, but at least "
            f"{max(FEWEST_ROWS, n_columns + 1)} are needed. Give more rows, or fewer columns."
        )
        warnings.warn(message, SearchWarning, stacklevel=3)


def _say_if_short(terms: int, max_terms: int, n_columns: int, kind: str) -> None:
    if terms < min(max_terms, n_columns):
        message = (
            f"Balances with {kind} were looked for up to {terms} terms only, not {max_terms}: {n_columns} related "
            "columns have too many combinations. Give units in the names of columns, or fewer columns."
        )
        warnings.warn(message, SearchWarning, stacklevel=5)


def _independent(found: list[Combination], sample: Array) -> list[Combination]:
    """Those that do not follow from others: exact ones first, then those with the fewest terms."""
    chosen: list[Combination] = []
    moments = Moments.of(sample)
    found = [each for each in found if not incomplete(each, found, np.diagonal(moments.cov))]
    for each in sorted(found, key=lambda one: (not one.exact, moments.length(one), one.rank())):
        if not follows(each, chosen, sample.std(axis=0)):
            chosen.append(each)
    return chosen


def _moved(each: Combination, positions: NDArray[np.intp]) -> Combination:
    """The same combination with the columns' positions in a larger table."""
    return Combination(tuple(positions[list(each.support)].tolist()), each.coefficients, each.relative)
