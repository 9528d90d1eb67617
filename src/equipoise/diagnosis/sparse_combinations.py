"""Sparse combinations: sums of few columns, with simple coefficients, that hardly vary.

They are determined from the covariances of the columns. A combination is `Σ_j c_j z_j` over a few columns, its
*support*. Its *relative* size is its standard deviation divided by what that would be if the columns were unrelated,
`sqrt(Σ_j c_j² s_j²)`; it is the same in all units. All supports are tried, smallest first; `MAX_SIGNED_TRIALS` and
`MAX_FITS` limit their number.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, combinations, islice, product

import numpy as np
from numpy.typing import NDArray

from equipoise.diagnosis.simple_factors import SIMPLE, complexity, nearest_factor, recurring_divisor

Array = NDArray[np.float64]
Supports = NDArray[np.intp]
SupportFilter = Callable[[Supports], NDArray[np.bool_]]
LARGEST_SIGNED = 0.1  # relative size up to which a sum with coefficients ±1 is noise
LARGEST_SIMPLE = 0.01  # the same for small rationals and powers of ten, one of which is near to any number
LARGEST_FITTED = 1e-3  # the same for any other coefficients, which can fit columns that are merely similar
MATERIAL = 1.2  # factor by which a sum must grow without any of its terms, and must not shrink by a further one
EXPLAINS = 5.0  # factor by which another column, times some coefficient, must reduce a sum in order to explain it
IMPLIED = 0.02  # distance from known combinations, in standardized coefficients of length 1, up to which none is new
FLOOR = 1e-7  # relative size below which covariances in float64 are only rounding
EXACT = 10 * FLOOR  # relative size up to which a combination is constant but for rounding
MAX_SIGNED_TRIALS = 30_000_000  # supports times patterns of signs; about two seconds
MAX_FITS = 200_000  # supports whose coefficients are fitted; about two seconds
_CHUNK = 20_000
_MAX_ROUNDED = 300  # fitted combinations of one size whose coefficients are rounded


@dataclass(frozen=True)
class Combination:
    """A combination of a few columns that is almost constant.

    Attributes:
        support: Positions of its columns.
        coefficients: Coefficients of these columns.
        relative: Its standard deviation divided by what that would be if the columns were unrelated.
    """

    support: tuple[int, ...]
    coefficients: tuple[float, ...]
    relative: float

    @property
    def exact(self) -> bool:
        """Whether it is constant but for rounding."""
        return self.relative <= EXACT

    def sort_key(self) -> tuple[float, tuple[int, ...]]:
        """Return the relative size to 6 digits, then the support: sizes that differ by rounding only are ties."""
        return float(f"{self.relative:.6g}"), self.support

    def dense_coefficients(self, n_columns: int) -> Array:
        """Return the coefficients of all columns, zeros included, shape `(n_columns,)`."""
        full = np.zeros(n_columns)
        full[list(self.support)] = self.coefficients
        return full


@dataclass(frozen=True)
class SampleMoments:
    """Means, shape `(p,)`, and covariances, shape `(p, p)`, of n rows."""

    mean: Array
    cov: Array
    n_rows: int

    @classmethod
    def from_sample(cls, sample: Array) -> "SampleMoments":
        """Compute the moments of a table, shape `(n, p)`."""
        deviation = sample - sample.mean(axis=0)
        deviation -= deviation.mean(axis=0)  # once more: the first mean of large numbers is rounded
        return cls(sample.mean(axis=0), deviation.T @ deviation / len(sample), len(sample))

    def select(self, columns: NDArray[np.intp]) -> "SampleMoments":
        """Return the moments of the columns at these positions."""
        return SampleMoments(self.mean[columns], self.cov[np.ix_(columns, columns)], self.n_rows)

    def n_terms(self, combination: Combination) -> int:
        """Count the terms of a combination; a mean that is certainly not zero counts as one more, the constant."""
        columns, coefficients = list(combination.support), np.array(combination.coefficients)
        std = combination.relative * float(np.sqrt(np.square(coefficients) @ self.cov[columns, columns]))
        return len(columns) + int(abs(float(coefficients @ self.mean[columns])) > negligible_mean(std, self.n_rows))


def negligible_mean(std: float, n_rows: int) -> float:
    """Return the mean up to which a balance is unbiased: a quarter of its residual's standard deviation, or 4 errors.

    Args:
        std: Standard deviation of the residual.
        n_rows: Number of rows; the standard error of the mean is `std / sqrt(n_rows)`.
    """
    return max(0.25, 4 / math.sqrt(n_rows)) * std


@dataclass(frozen=True)
class NewSupports:
    """A filter of supports: those with a column that is required, and not all the columns of a known combination.

    Args:
        required: Which columns are required, shape `(p,)`; one of them is enough.
        known: The known combinations.
    """

    required: NDArray[np.bool_]
    known: list[Combination]

    def __call__(self, supports: Supports) -> NDArray[np.bool_]:
        admitted = np.asarray(self.required[supports].any(axis=1))
        for combination in self.known:
            admitted &= np.isin(supports, combination.support).sum(axis=1) < len(combination.support)
        return admitted


def is_known(combination: Combination, known: list[Combination], std: Array) -> bool:
    """Return whether a combination is nothing new beside known ones.

    That is so if it follows from them (`is_implied`), or if it has all the columns of one of them and further ones. A
    combination that holds to rounding is compared only with known ones that do, too.

    Args:
        combination: The combination.
        known: Known combinations.
        std: Standard deviations of all columns, shape `(p,)`.
    """
    supports = [set(other.support) for other in _as_exact(combination, known)]
    return any(support <= set(combination.support) for support in supports) or is_implied(combination, known, std)


def is_implied(combination: Combination, known: list[Combination], std: Array) -> bool:
    """Return whether a combination follows from known ones: whether it is, nearly, a weighted sum of them.

    A combination that holds to rounding is compared only with known ones that do, too, since sums of noisy ones are
    noisy. "Nearly" is a distance of less than `IMPLIED` between coefficients in units of the columns' standard
    deviations, scaled to length 1.

    Args:
        combination: The combination.
        known: Known combinations.
        std: Standard deviations of all columns, shape `(p,)`.
    """
    exact_enough = _as_exact(combination, known)
    if not exact_enough:
        return False
    rows = np.array([other.dense_coefficients(len(std)) * std for other in [combination, *exact_enough]])
    own, *others = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    weights = np.linalg.lstsq(np.array(others).T, own, rcond=1e-6)[0]
    return float(np.linalg.norm(own - np.array(others).T @ weights)) < IMPLIED


def _as_exact(combination: Combination, known: list[Combination]) -> list[Combination]:
    return [other for other in known if other.exact or not combination.exact]


def is_incomplete(combination: Combination, others: list[Combination], var: Array) -> bool:
    """Return whether another combination has the same terms and further ones, and varies less.

    Args:
        combination: The combination.
        others: The combinations to compare it with.
        var: Variances of all columns, shape `(p,)`.
    """
    own = combination.dense_coefficients(len(var))
    for other in others:
        if set(combination.support) < set(other.support):
            longer = other.dense_coefficients(len(var))
            ratio = longer[combination.support[0]] / own[combination.support[0]]
            shared = list(combination.support)
            same = np.allclose(longer[shared], ratio * own[shared], rtol=1e-9)
            sizes = [math.sqrt(float(np.square(c) @ var)) for c in (longer, ratio * own)]
            if same and other.relative * sizes[0] * MATERIAL < combination.relative * sizes[1]:
                return True
    return False


def smallest_remaining(cov: Array, known: list[Combination]) -> float:
    """Return the relative size of the smallest combination orthogonal to the known ones; infinity where there is none.

    Args:
        cov: Covariances of the columns, shape `(p, p)`.
        known: Known combinations.
    """
    std = np.sqrt(np.diagonal(cov))
    free = np.eye(len(cov))
    if known:
        rows = np.array([combination.dense_coefficients(len(cov)) * std for combination in known])
        _, size, vt = np.linalg.svd(rows / np.linalg.norm(rows, axis=1, keepdims=True))
        free = vt[int((size > 1e-6 * size[0]).sum()) :].T
    if not free.shape[1]:
        return np.inf
    return float(np.sqrt(max(np.linalg.eigvalsh(free.T @ (cov / np.outer(std, std)) @ free)[0], 0.0)))


def affordable_terms(n_columns: int, max_terms: int, cost: Callable[[int], int], max_trials: int) -> int:
    """Return the largest number of terms for which all supports can be tried.

    Args:
        n_columns: Number of columns to choose from.
        max_terms: Largest number of terms.
        cost: Number of trials for one support of a number of terms.
        max_trials: Largest number of trials altogether.
    Example:
        >>> affordable_terms(40, 6, lambda n_terms: 2 ** (n_terms - 1), MAX_SIGNED_TRIALS)
        5
    """
    trials, terms = 0, 1
    while terms < min(max_terms, n_columns):
        trials += math.comb(n_columns, terms + 1) * cost(terms + 1)
        if trials > max_trials:
            break
        terms += 1
    return terms


def signed_sums(cov: Array, n_terms: int, admitted: SupportFilter, noisy: SupportFilter) -> list[Combination]:
    """Find all combinations of `n_terms` columns with coefficients ±1 that are almost constant, smallest first.

    A combination is left out if it varies hardly more without one of its terms, if another column as a further term
    would make it vary less, or if another column times some coefficient would explain nearly all of it.

    Args:
        cov: Covariances of the columns, shape `(p, p)`.
        n_terms: Size of the supports.
        admitted: A filter of supports, shape `(N, n_terms)`: those that are tried.
        noisy: A filter of supports: those whose combinations may be noisy; others must be exact.
    """
    signs = np.array([(1.0, *rest) for rest in product((1.0, -1.0), repeat=n_terms - 1)])
    outer = (signs[:, :, None] * signs[:, None, :]).reshape(len(signs), -1)
    sums: list[Combination] = []
    for supports in _support_chunks(len(cov), n_terms, admitted):
        blocks = cov[supports[:, :, None], supports[:, None, :]]
        size = np.trace(blocks, axis1=1, axis2=2)
        var = np.maximum(blocks.reshape(len(blocks), -1) @ outer.T, FLOOR**2 * size[:, None])
        limit = np.where(noisy(supports), LARGEST_SIGNED, EXACT) ** 2 * size
        support_index, sign_index = np.nonzero(var <= limit[:, None])
        for part in np.array_split(np.arange(len(support_index)), len(support_index) // _CHUNK + 1):
            i, j = support_index[part], sign_index[part]
            minimal = _minimal(cov, supports[i], signs[j], var[i, j])
            sums += [
                Combination(tuple(supports[i].tolist()), tuple(signs[j].tolist()), math.sqrt(var[i, j] / size[i]))
                for i, j in zip(i[minimal], j[minimal], strict=True)
            ]
    return sorted(sums, key=Combination.sort_key)


def _minimal(cov: Array, supports: Supports, signs: Array, var: Array) -> NDArray[np.bool_]:
    """Return which sums need all their terms and no other column, shape `(N,)`.

    Args:
        cov: Covariances of the columns, shape `(p, p)`.
        supports, signs: Supports and coefficients of N sums, shape `(N, n_terms)`.
        var: Variances of the sums, shape `(N,)`.
    """
    cross_cov = np.einsum("hk,hkp->hp", signs, cov[supports])  # of the sums with every column
    column_var, rows = np.diagonal(cov), np.arange(len(supports))[:, None]
    adding = var[:, None] + column_var - 2 * np.abs(cross_cov)
    adding[rows, supports] = np.inf
    removing = var[:, None] + column_var[supports] - 2 * signs * cross_cov[rows, supports]
    minimal = (adding >= var[:, None] / MATERIAL**2).all(1) & (removing >= var[:, None] * MATERIAL**2).all(1)
    return minimal & ~_explained(cross_cov, column_var, supports, var)


def _explained(cross_cov: Array, column_var: Array, supports: Supports, var: Array) -> NDArray[np.bool_]:
    """Return which sums another column, times some coefficient, explains but for a negligible rest, shape `(N,)`."""
    explained_var = np.square(cross_cov) / column_var
    explained_var[np.arange(len(supports))[:, None], supports] = 0.0
    rest, size = var - explained_var.max(axis=1), column_var[supports].sum(axis=1)
    return (rest < np.minimum(LARGEST_FITTED**2 * size, var / EXPLAINS**2)) & (var > (EXPLAINS * EXACT) ** 2 * size)


def fitted_sums(cov: Array, n_terms: int, admitted: SupportFilter) -> Iterator[Combination]:
    """Find combinations of `n_terms` columns with small rational or few-digit coefficients that are almost constant.

    Coefficients are those of the smallest principal component of the standardized columns, rounded as far as the
    standard deviation of the combination allows.

    Args:
        cov, n_terms, admitted: As for `signed_sums`.
    """
    std = np.sqrt(np.diagonal(cov))
    correlation = cov / np.outer(std, std) + FLOOR**2 * np.eye(len(cov))
    promising: list[tuple[float, tuple[int, ...], Array]] = []
    for supports in _support_chunks(len(cov), n_terms, admitted):
        blocks = correlation[supports[:, :, None], supports[:, None, :]]
        trace = np.trace(np.linalg.inv(blocks), axis1=1, axis2=2)
        supports, blocks = supports[trace >= 1 / LARGEST_SIMPLE**2], blocks[trace >= 1 / LARGEST_SIMPLE**2]
        variances, components = np.linalg.eigh(blocks)
        for i in np.flatnonzero(variances[:, 0] <= LARGEST_SIMPLE**2):
            promising.append((math.sqrt(max(variances[i, 0], 0.0)), tuple(supports[i].tolist()), components[i, :, 0]))
    promising.sort(key=lambda fit: fit[0])
    for relative, support, component in promising[:_MAX_ROUNDED]:
        if np.abs(component).min() >= MATERIAL * relative:
            yield from _rounded(cov[np.ix_(support, support)], support, component / std[list(support)])


def _rounded(block: Array, support: tuple[int, ...], raw: Array) -> Iterator[Combination]:
    """Round the coefficients of a combination to simple ones; yield nothing where rounding makes it vary too much.

    Args:
        block: Covariances of the columns of the support, shape `(k, k)`.
        support: Positions of the columns.
        raw: Fitted coefficients, shape `(k,)`.
    """
    limit = MATERIAL * max(_relative_size(block, raw), FLOOR)
    ratios = [raw / reference for reference in raw]
    simple = [[nearest_factor(float(value), SIMPLE) for value in ratio] for ratio in ratios]
    simple = [row for row in simple if _relative_size(block, np.array(row, dtype=float)) <= limit]
    if simple:
        coefficients = _finite_decimals(min(simple, key=lambda row: sum(map(complexity, row))))
        largest = LARGEST_SIMPLE
    else:
        rounded = (_few_digits(block, ratio, limit) for ratio in ratios)
        coefficients, largest = min(rounded, key=_written_length), LARGEST_FITTED
    relative = _relative_size(block, coefficients)
    if relative <= largest:
        yield Combination(support, tuple(coefficients.tolist()), max(relative, FLOOR))


def _relative_size(block: Array, coefficients: Array) -> float:
    """Return the standard deviation of a combination divided by what it would be if the columns were unrelated."""
    size = float(np.square(coefficients) @ np.diagonal(block))
    return math.sqrt(max(float(coefficients @ block @ coefficients), 0.0) / size)


def _finite_decimals(row: list[Fraction]) -> Array:
    """Multiply rationals by a number up to 12 that makes their decimals finite, if there is one."""
    common = math.lcm(*(recurring_divisor(factor) for factor in row))
    return np.array([float(factor * common if common <= 12 else factor) for factor in row])


def _few_digits(block: Array, ratio: Array, limit: float) -> Array:
    """Round all coefficients to the same, smallest number of significant digits that keeps the relative size small."""
    for digits in range(1, 13):
        rounded = np.array([float(f"{value:.{digits}g}") for value in ratio])
        if _relative_size(block, rounded) <= limit:
            return rounded
    return ratio


def _written_length(coefficients: Array) -> int:
    return sum(len(f"{abs(value):.12g}") for value in coefficients)


def _support_chunks(n_columns: int, n_terms: int, admitted: SupportFilter) -> Iterator[Supports]:
    """Iterate over the admitted supports of one size, in chunks of shape `(N, n_terms)`."""
    supports_of_size = combinations(range(n_columns), n_terms)
    while batch := list(islice(supports_of_size, _CHUNK)):
        flat = np.fromiter(chain.from_iterable(batch), dtype=np.intp, count=len(batch) * n_terms)
        supports = flat.reshape(-1, n_terms)
        supports = supports[admitted(supports)]
        if len(supports):
            yield supports
