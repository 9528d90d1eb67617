"""Discovery: balances that hide in a table, as sums of few columns that hardly vary.

The result is a list of proposals for people to keep or to delete: columns may add up for any reason. The steps are:

1. Columns are grouped by the dimensions of their units; columns without a unit may join any group. Where units of one
   group differ in size, such as kW and MW, the search is done twice: with all numbers in one unit, then as they are, in
   case the unit in a column's name is wrong.
2. The few rows that break what all others obey are left out (see `multivariate_outliers`).
3. Columns that the others together do not explain are in no balance and are left out.
4. Sums with coefficients ±1 are tried for all choices of up to `max_terms` columns, fewest first. Such a sum is found
   if its noise is up to 10 % of the spread of its terms.
5. Where some combination of columns that hardly varies remains, small rationals, powers of ten and conversions of time
   are tried as coefficients (noise up to 1 %), then numbers of few digits (0.1 %).
6. Balances that follow from earlier ones are not listed again.

The work is limited: up to 30 columns of one group are searched for 6 terms, 40 for 5, 100 for 3. A `SearchWarning` says
when fewer terms than requested were searched for, and which columns were left out because they are mostly empty.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.balances import column_unit, did_you_mean, quoted_list
from equipoise.diagnosis import units
from equipoise.diagnosis.multivariate_outliers import consistent_rows
from equipoise.diagnosis.proposals import Proposal, make_proposal
from equipoise.diagnosis.robust_statistics import evenly_spaced
from equipoise.diagnosis.sparse_combinations import (
    LARGEST_SIGNED,
    LARGEST_SIMPLE,
    MAX_FITS,
    MAX_SIGNED_TRIALS,
    Combination,
    NewSupports,
    SampleMoments,
    affordable_terms,
    fitted_sums,
    is_implied,
    is_incomplete,
    is_known,
    signed_sums,
    smallest_remaining,
)
from equipoise.errors import EquipoiseError

Array = NDArray[np.float64]
MIN_ROWS = 12
UNEXPLAINED = 0.5  # share of a column's variance that the others may leave before it counts as unrelated to them
LARGEST_REMAINING = 5 * LARGEST_SIGNED  # relative size of the smallest remaining component that ends the search
SMALLEST_RANGE = 1e-100  # of a column's values; their squares must not underflow
OUTLYING_RANGES = 5.0  # a sentinel or spike lies so many ranges from the 1st to the 99th percentile outside them


class SearchWarning(UserWarning):
    """A search for balances that was cut short or left columns out."""


class DiscoveryError(EquipoiseError, ValueError):
    """A table, names or options from which no balances can be discovered."""


def propose(
    values: Any, columns: Sequence[str], outputs: Sequence[str] = (), *, max_terms: int = 6, most: int = 10
) -> list[Proposal]:
    """Find balances in a table, those with the fewest terms first; exact ones before noisy ones.

    Args:
        values: The table, shape `(n, p)`, in the columns' units; NaN is missing. Columns that are constant or half
            empty are left out, then rows with missing values and rows with sentinels (such as −9999). At least 12 rows,
            and more rows than columns, must remain.
        columns: Names of the p columns, with their units as in `"feed [kg/h]"`.
        outputs: Names of outputs; if there are any, each balance has one of them.
        max_terms: Largest number of columns in a balance.
        most: Largest number of balances.
    Returns: The proposals; none where too few rows remain or nothing hardly varies.
    Raises: DiscoveryError, if names or numbers are not usable.
    Example:
        >>> rng = np.random.default_rng(0)
        >>> top, bottom, heat = rng.uniform(1, 3, (3, 100))
        >>> feed = top + bottom + 0.01 * rng.standard_normal(100)
        >>> table = np.column_stack([top, heat, feed, bottom])
        >>> [proposal.equation for proposal in propose(table, ["top", "heat", "feed", "bottom"])]
        ['feed = top + bottom']
    """
    values, names = _checked(values, columns, outputs, max_terms, most)
    kept = _usable(values)
    rows = _complete(values[:, kept])
    _warn_if_empty(values, names)
    if len(rows) < MIN_ROWS or len(rows) <= len(kept):
        _warn_if_few(len(rows), len(kept))
        return []
    sample, kept = _varying(values[np.ix_(rows[evenly_spaced(len(rows))], kept)], kept)
    sample, kept = _without_outliers(sample, kept, names)
    required = np.array([not outputs or names[j] in outputs for j in kept])
    candidates: list[Combination] = []
    for group in _groups([names[j] for j in kept]):
        if required[group].any():
            for factors in _unit_factors([names[kept[j]] for j in group]):
                sums = _search(sample[:, group] * factors, required[group], max_terms)
                candidates += [_in_larger_table(_in_own_units(each, factors), group) for each in sums]
    chosen = _independent(candidates, sample)
    proposals = (make_proposal(each, values[:, kept], [names[j] for j in kept]) for each in chosen)
    return [proposal for proposal in proposals if proposal is not None][:most]


def _checked(
    values: Any, columns: Sequence[str], outputs: Sequence[str], max_terms: int, most: int
) -> tuple[Array, list[str]]:
    """Check the arguments of `propose`; return the table, infinite values replaced by NaN, and the names."""
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
    """Return the positions of the columns that vary, are at least half full and have squares that do not overflow."""
    full = np.isfinite(values).sum(axis=0) * 2 >= max(len(values), 1)
    low = np.min(values, axis=0, initial=np.inf, where=np.isfinite(values))
    high = np.max(values, axis=0, initial=-np.inf, where=np.isfinite(values))
    return np.flatnonzero(
        full & (high > low) & (high - low > SMALLEST_RANGE) & (np.maximum(high, -low) < 1 / SMALLEST_RANGE)
    )


def _complete(values: Array) -> NDArray[np.intp]:
    """Return the positions of rows without missing values and without values far outside the range of their column."""
    rows = np.flatnonzero(np.isfinite(values).all(axis=1))
    if not len(rows) or not values.shape[1]:
        return rows[:0]
    low, high = np.quantile(values[rows[evenly_spaced(len(rows))]], [0.01, 0.99], axis=0)
    reach = OUTLYING_RANGES * (high - low)
    usual = (values[rows] >= low - reach) & (values[rows] <= high + reach) | (reach == 0)
    return rows[usual.all(axis=1)]


def _varying(sample: Array, kept: NDArray[np.intp]) -> tuple[Array, NDArray[np.intp]]:
    """Select the columns that vary in these rows, and their positions; some may have varied in other rows only."""
    varies = sample.max(axis=0) > sample.min(axis=0)
    return sample[:, varies], kept[varies]


def _without_outliers(sample: Array, kept: NDArray[np.intp], names: list[str]) -> tuple[Array, NDArray[np.intp]]:
    """Select the rows that obey what nearly all rows obey in every group of columns, then the columns that vary."""
    rows = np.logical_and.reduce([consistent_rows(sample[:, group]) for group in _groups([names[j] for j in kept])])
    return (sample, kept) if rows.all() else _varying(sample[rows], kept)


def _groups(names: list[str]) -> Iterator[NDArray[np.intp]]:
    """Iterate over dimensions: positions of the columns with units of this dimension, and of those without a unit."""
    dimensions = [_dimension(name) for name in names]
    for dimension in dict.fromkeys(filter(None, dimensions)) or [None]:
        yield np.array([j for j, own in enumerate(dimensions) if own in (None, dimension)], dtype=np.intp)


def _dimension(name: str) -> Any:
    """Return the dimension of a column's unit; the unit's text where that cannot be read; None without a unit."""
    text, unit = column_unit(name), _unit(name)
    return text if unit is None else ("dimension", unit.dimension)


def _unit(name: str) -> units.Unit | None:
    text = column_unit(name)
    return units.read_unit(text) if text else None


def _unit_factors(names: list[str]) -> Iterator[Array]:
    """Iterate over factors for the columns of one group: first those that convert to the most frequent unit, then 1."""
    factors = [None if unit is None else unit.factor for unit in map(_unit, names)]
    counts = Counter(factor for factor in factors if factor is not None)
    if len(counts) > 1:
        usual = counts.most_common(1)[0][0]
        yield np.array([1.0 if factor is None else float(f"{factor / usual:.12g}") for factor in factors])
    yield np.ones(len(names))


def _in_own_units(combination: Combination, factors: Array) -> Combination:
    """Rewrite a combination of converted columns for the columns in their own units; the smallest coefficient stays.

    Args:
        combination: A combination of columns that had been multiplied by `factors`.
        factors: Factors of all columns of the group, shape `(p,)`.
    """
    before = np.array(combination.coefficients)
    after = before * factors[list(combination.support)]
    after *= np.abs(before).min() / np.abs(after).min()
    return Combination(combination.support, tuple(float(f"{c:.12g}") for c in after), combination.relative)


def _search(sample: Array, required: NDArray[np.bool_], max_terms: int) -> list[Combination]:
    """Find combinations of the columns of one group that hardly vary.

    Args:
        sample: The columns, shape `(n, p)`.
        required: Which columns are required, shape `(p,)`: a combination has one of them.
        max_terms: Largest number of columns in a combination.
    """
    moments = SampleMoments.from_sample(sample)
    active = np.flatnonzero(_unexplained(moments.cov) <= UNEXPLAINED)
    if len(active) < 2:
        return []
    moments, required = moments.select(active), required[active]
    sums = _signed(moments, required, max_terms)
    sums += _fitted(moments.cov, required, max_terms, sums)
    return [_in_larger_table(each, active) for each in sums]


def _unexplained(cov: Array) -> Array:
    """Return the share of each column's variance that all other columns do not explain, shape `(p,)`."""
    std = np.sqrt(np.diagonal(cov))
    return 1 / np.diagonal(np.linalg.inv(cov / np.outer(std, std) + 1e-12 * np.eye(len(cov))))


def _signed(moments: SampleMoments, required: NDArray[np.bool_], max_terms: int) -> list[Combination]:
    """Find sums with coefficients ±1; among those with equally many columns the ones without a constant come first."""
    cov, sums = moments.cov, list[Combination]()
    terms = affordable_terms(len(cov), max_terms, lambda n_terms: 2 ** (n_terms - 1), MAX_SIGNED_TRIALS)
    for n_terms in range(2, terms + 1):
        if smallest_remaining(cov, sums) > LARGEST_REMAINING:
            return sums
        exact = [each for each in sums if each.exact]
        new = signed_sums(cov, n_terms, NewSupports(required, exact), NewSupports(required, sums))
        for each in sorted(new, key=moments.n_terms):
            if not is_known(each, sums, np.sqrt(np.diagonal(cov))):
                sums.append(each)
    if smallest_remaining(cov, sums) <= LARGEST_REMAINING:
        _warn_if_short(terms, max_terms, len(cov), "coefficients ±1")
    return sums


def _fitted(cov: Array, required: NDArray[np.bool_], max_terms: int, known: list[Combination]) -> list[Combination]:
    """Find sums with other coefficients that are not implied by the known ones."""
    sums: list[Combination] = []
    terms = affordable_terms(len(cov), max_terms, lambda n_terms: 1, MAX_FITS)
    for n_terms in range(2, terms + 1):
        if smallest_remaining(cov, known + sums) > LARGEST_SIMPLE:
            return sums
        for each in fitted_sums(cov, n_terms, NewSupports(required, known + sums)):
            if not is_known(each, known + sums, np.sqrt(np.diagonal(cov))):
                sums.append(each)
    if smallest_remaining(cov, known + sums) <= LARGEST_SIMPLE:
        _warn_if_short(terms, max_terms, len(cov), "other coefficients")
    return sums


def _warn_if_empty(values: Array, names: list[str]) -> None:
    filled = np.isfinite(values).sum(axis=0)
    for j in np.flatnonzero((filled > 0) & (filled * 2 < len(values))):
        missing = f"{len(values) - filled[j]} of its {len(values)} values are missing"
        warnings.warn(f"{names[j]!r} was left out of the search for balances: {missing}.", SearchWarning, stacklevel=3)


def _warn_if_few(n_rows: int, n_columns: int) -> None:
    if n_columns > 1:
        message = (
            f"No balances were looked for: {n_rows} rows have values in all of {n_columns} columns, but at least "
            f"{max(MIN_ROWS, n_columns + 1)} are needed. Give more rows, or fewer columns."
        )
        warnings.warn(message, SearchWarning, stacklevel=3)


def _warn_if_short(terms: int, max_terms: int, n_columns: int, kind: str) -> None:
    if terms < min(max_terms, n_columns):
        message = (
            f"Balances with {kind} were looked for up to {terms} terms only, not {max_terms}: {n_columns} related "
            "columns have too many combinations. Give units in the names of columns, or fewer columns."
        )
        warnings.warn(message, SearchWarning, stacklevel=5)


def _independent(combinations: list[Combination], sample: Array) -> list[Combination]:
    """Choose combinations that do not follow from others: exact ones first, then those with the fewest terms."""
    chosen: list[Combination] = []
    moments = SampleMoments.from_sample(sample)
    variances = np.diagonal(moments.cov)
    complete = [each for each in combinations if not is_incomplete(each, combinations, variances)]
    for each in sorted(complete, key=lambda each: (not each.exact, moments.n_terms(each), each.sort_key())):
        if not is_implied(each, chosen, sample.std(axis=0)):
            chosen.append(each)
    return chosen


def _in_larger_table(combination: Combination, positions: NDArray[np.intp]) -> Combination:
    """Replace the positions of the columns in a group by their positions in a larger table."""
    support = tuple(positions[list(combination.support)].tolist())
    return Combination(support, combination.coefficients, combination.relative)
