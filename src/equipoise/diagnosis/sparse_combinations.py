"""Few columns that add up to almost nothing, found from their covariances.

A combination `Σ_j c_j z_j` of a few columns, its *support*, is judged by its standard deviation beside what it would be
if the columns were unrelated, `sqrt(Σ_j c_j² s_j²)`: its *relative* size, the same in all units. All supports are
tried, smallest first; how many there may be is limited by `MOST_WORK`.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, combinations, islice, product

import numpy as np
from numpy.typing import NDArray

from equipoise.diagnosis.simple_factors import SIMPLE, complexity, endless, nearest

Array = NDArray[np.float64]
Supports = NDArray[np.intp]
Choice = Callable[[NDArray[np.intp]], NDArray[np.bool_]]
LARGEST_SIGNED = 0.1  # relative size up to which a sum with coefficients ±1 is noise
LARGEST_SIMPLE = 0.01  # the same for small rationals and powers of ten: one of them is near to any number
LARGEST_FITTED = 1e-3  # and for any other numbers, which can fit columns that are merely similar
MATERIAL = 1.2  # by how much a sum must grow when a term is left out, and must not shrink when one is added
EXPLAINS = 5.0  # by how much another column, with a factor, must bring a sum down to be what is left of it
IMPLIED = 0.02  # distance from what is known, in standardized coefficients of length 1, that is no new balance
FLOOR = 1e-7  # relative size below which a covariance knows nothing
EXACT = 10 * FLOOR  # relative size up to which nothing but rounding is left
MOST_WORK = 30_000_000  # supports times patterns of signs; about two seconds
MOST_FITS = 200_000  # supports whose coefficients are fitted; about two seconds
_CHUNK = 20_000
_MOST_TRIED = 300  # fitted combinations of one size whose coefficients are rounded


@dataclass(frozen=True)
class Combination:
    """A combination of a few columns that is almost constant.

    Attributes:
        support: Positions of its columns.
        coefficients: One for each of them.
        relative: Its standard deviation beside what it would be if the columns were unrelated.
    """

    support: tuple[int, ...]
    coefficients: tuple[float, ...]
    relative: float

    @property
    def exact(self) -> bool:
        """Whether nothing but rounding seems to be left."""
        return self.relative <= EXACT

    def rank(self) -> tuple[float, tuple[int, ...]]:
        """Smallest first; what differs by rounding only stays in the order of its columns."""
        return float(f"{self.relative:.6g}"), self.support

    def spread_out(self, n_columns: int) -> Array:
        """Coefficients of all columns, shape `(n_columns,)`."""
        full = np.zeros(n_columns)
        full[list(self.support)] = self.coefficients
        return full


@dataclass(frozen=True)
class Moments:
    """Means, shape `(p,)`, and covariances, shape `(p, p)`, of n rows."""

    mean: Array
    cov: Array
    n_rows: int

    @classmethod
    def of(cls, sample: Array) -> "Moments":
        deviation = sample - sample.mean(axis=0)
        deviation -= deviation.mean(axis=0)  # once more: the first mean of large numbers is rounded
        return cls(sample.mean(axis=0), deviation.T @ deviation / len(sample), len(sample))

    def take(self, columns: NDArray[np.intp]) -> "Moments":
        return Moments(self.mean[columns], self.cov[np.ix_(columns, columns)], self.n_rows)

    def length(self, each: Combination) -> int:
        """Number of terms, a constant included, if the combination's mean is no chance."""
        columns, coefficients = list(each.support), np.array(each.coefficients)
        std = each.relative * float(np.sqrt(np.square(coefficients) @ self.cov[columns, columns]))
        return len(columns) + int(abs(float(coefficients @ self.mean[columns])) > negligible_mean(std, self.n_rows))


def negligible_mean(std: float, n_rows: int) -> float:
    """Mean that is no bias of a balance: a quarter of the scatter, or what 4 standard errors are."""
    return max(0.25, 4 / math.sqrt(n_rows)) * std


@dataclass(frozen=True)
class Unknown:
    """Supports that hold a column that is needed, and no support that is known."""

    needed: NDArray[np.bool_]
    known: list[Combination]

    def __call__(self, supports: Supports) -> NDArray[np.bool_]:
        good = np.asarray(self.needed[supports].any(axis=1))
        for each in self.known:
            good &= np.isin(supports, each.support).sum(axis=1) < len(each.support)
        return good


def is_known(each: Combination, found: list[Combination], std: Array) -> bool:
    """Whether a combination follows from those that are as exact as it is, or contains the support of one of them."""
    better = _as_exact(each, found)
    return any(set(one.support) <= set(each.support) for one in better) or follows(each, found, std)


def follows(each: Combination, found: list[Combination], std: Array) -> bool:
    """Whether a combination is one of those that are as exact as it is, or of their sums."""
    better = _as_exact(each, found)
    if not better:
        return False
    rows = np.array([one.spread_out(len(std)) * std for one in [each, *better]])
    own, *others = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    weights = np.linalg.lstsq(np.array(others).T, own, rcond=1e-6)[0]
    return float(np.linalg.norm(own - np.array(others).T @ weights)) < IMPLIED


def _as_exact(each: Combination, found: list[Combination]) -> list[Combination]:
    return [one for one in found if one.exact or not each.exact]


def incomplete(each: Combination, found: list[Combination], var: Array) -> bool:
    """Whether one of those found is the same but for further terms, and varies less.

    Args:
        each, found: Combinations.
        var: Variances of all columns.
    """
    own = each.spread_out(len(var))
    for one in found:
        if set(each.support) < set(one.support):
            rest = one.spread_out(len(var))
            ratio = rest[each.support[0]] / own[each.support[0]]
            same = np.allclose(rest[list(each.support)], ratio * own[list(each.support)], rtol=1e-9)
            sizes = [math.sqrt(float(np.square(c) @ var)) for c in (rest, ratio * own)]
            if same and one.relative * sizes[0] * MATERIAL < each.relative * sizes[1]:
                return True
    return False


def left_over(cov: Array, found: list[Combination]) -> float:
    """Relative size of the smallest combination that is none of those found, nor follows from them."""
    std = np.sqrt(np.diagonal(cov))
    free = np.eye(len(cov))
    if found:
        rows = np.array([each.spread_out(len(cov)) * std for each in found])
        _, size, vt = np.linalg.svd(rows / np.linalg.norm(rows, axis=1, keepdims=True))
        free = vt[int((size > 1e-6 * size[0]).sum()) :].T
    if not free.shape[1]:
        return np.inf
    return float(np.sqrt(max(np.linalg.eigvalsh(free.T @ (cov / np.outer(std, std)) @ free)[0], 0.0)))


def affordable_terms(n_columns: int, max_terms: int, cost: Callable[[int], int], most: int) -> int:
    """The most terms for which all supports can be tried.

    Args:
        n_columns: Columns to choose from.
        max_terms: Terms that are wanted.
        cost: Work for one support of a number of terms.
        most: Work that is allowed.
    Example:
        >>> affordable_terms(40, 6, lambda n_terms: 2 ** (n_terms - 1), MOST_WORK)
        5
    """
    work, terms = 0, 1
    while terms < min(max_terms, n_columns):
        work += math.comb(n_columns, terms + 1) * cost(terms + 1)
        if work > most:
            break
        terms += 1
    return terms


def signed_sums(cov: Array, n_terms: int, admitted: Choice, fresh: Choice) -> list[Combination]:
    """All combinations of `n_terms` columns with coefficients ±1 that are almost constant, best first.

    One is left out if it can do without a term, if another column would improve it, or if another column with a factor
    would leave nearly nothing of it.

    Args:
        cov: Covariances of the columns, shape `(p, p)`.
        n_terms: Size of the supports.
        admitted: Which of some supports, shape `(N, n_terms)`, may be tried.
        fresh: Which of them may be taken even if they are not exact.
    """
    signs = np.array([(1.0, *rest) for rest in product((1.0, -1.0), repeat=n_terms - 1)])
    outer = (signs[:, :, None] * signs[:, None, :]).reshape(len(signs), -1)
    found: list[Combination] = []
    for supports in _chunks(len(cov), n_terms, admitted):
        blocks = cov[supports[:, :, None], supports[:, None, :]]
        size = np.trace(blocks, axis1=1, axis2=2)
        var = np.maximum(blocks.reshape(len(blocks), -1) @ outer.T, FLOOR**2 * size[:, None])
        bar = np.where(fresh(supports), LARGEST_SIGNED, EXACT) ** 2 * size
        which, pattern = np.nonzero(var <= bar[:, None])
        for some in np.array_split(np.arange(len(which)), len(which) // _CHUNK + 1):
            i, j = which[some], pattern[some]
            good = _minimal(cov, supports[i], signs[j], var[i, j])
            found += [
                Combination(tuple(supports[i].tolist()), tuple(signs[j].tolist()), math.sqrt(var[i, j] / size[i]))
                for i, j in zip(i[good], j[good], strict=True)
            ]
    return sorted(found, key=Combination.rank)


def _minimal(cov: Array, supports: Supports, signs: Array, var: Array) -> NDArray[np.bool_]:
    """Which sums need all their terms and no other column, shape `(H,)`."""
    with_all = np.einsum("hk,hkp->hp", signs, cov[supports])  # covariance of the sum with every column
    alone, rows = np.diagonal(cov), np.arange(len(supports))[:, None]
    adding = var[:, None] + alone - 2 * np.abs(with_all)
    adding[rows, supports] = np.inf
    removing = var[:, None] + alone[supports] - 2 * signs * with_all[rows, supports]
    minimal = (adding >= var[:, None] / MATERIAL**2).all(1) & (removing >= var[:, None] * MATERIAL**2).all(1)
    return minimal & ~_explained(with_all, alone, supports, var)


def _explained(with_all: Array, alone: Array, supports: Supports, var: Array) -> NDArray[np.bool_]:
    """Which sums another column explains with some factor, but for what a fitted balance may leave, shape `(H,)`."""
    by_factor = np.square(with_all) / alone
    by_factor[np.arange(len(supports))[:, None], supports] = 0.0
    left, size = var - by_factor.max(axis=1), alone[supports].sum(axis=1)
    return (left < np.minimum(LARGEST_FITTED**2 * size, var / EXPLAINS**2)) & (var > (EXPLAINS * EXACT) ** 2 * size)


def fitted_sums(cov: Array, n_terms: int, admitted: Choice) -> Iterator[Combination]:
    """Combinations of `n_terms` columns with small rational or few-digit coefficients that are almost constant.

    Coefficients are those of the smallest principal component of the standardized columns, rounded as far as the
    standard deviation of the combination allows.

    Args:
        cov, n_terms, admitted: As for `signed_sums`.
    """
    std = np.sqrt(np.diagonal(cov))
    correlation = cov / np.outer(std, std) + FLOOR**2 * np.eye(len(cov))
    promising: list[tuple[float, tuple[int, ...], Array]] = []
    for supports in _chunks(len(cov), n_terms, admitted):
        blocks = correlation[supports[:, :, None], supports[:, None, :]]
        trace = np.trace(np.linalg.inv(blocks), axis1=1, axis2=2)
        supports, blocks = supports[trace >= 1 / LARGEST_SIMPLE**2], blocks[trace >= 1 / LARGEST_SIMPLE**2]
        variances, components = np.linalg.eigh(blocks)
        for i in np.flatnonzero(variances[:, 0] <= LARGEST_SIMPLE**2):
            promising.append((math.sqrt(max(variances[i, 0], 0.0)), tuple(supports[i].tolist()), components[i, :, 0]))
    promising.sort(key=lambda fit: fit[0])
    for relative, support, component in promising[:_MOST_TRIED]:
        if np.abs(component).min() >= MATERIAL * relative:
            yield from _rounded(cov[np.ix_(support, support)], support, component / std[list(support)])


def _rounded(block: Array, support: tuple[int, ...], raw: Array) -> Iterator[Combination]:
    """The combination with coefficients that people write, if there are such."""
    bar = MATERIAL * max(_relative(block, raw), FLOOR)
    ratios = [raw / reference for reference in raw]
    exact = [[nearest(float(value), SIMPLE) for value in ratio] for ratio in ratios]
    exact = [row for row in exact if _relative(block, np.array(row, dtype=float)) <= bar]
    if exact:
        coefficients = _whole(min(exact, key=lambda row: sum(map(complexity, row))))
        largest = LARGEST_SIMPLE
    else:
        coefficients, largest = min((_few_digits(block, ratio, bar) for ratio in ratios), key=_length), LARGEST_FITTED
    relative = _relative(block, coefficients)
    if relative <= largest:
        yield Combination(support, tuple(coefficients.tolist()), max(relative, FLOOR))


def _relative(block: Array, coefficients: Array) -> float:
    size = float(np.square(coefficients) @ np.diagonal(block))
    return math.sqrt(max(float(coefficients @ block @ coefficients), 0.0) / size)


def _whole(row: list[Fraction]) -> Array:
    """Rationals times a small number that leaves finite decimals."""
    common = math.lcm(*(endless(factor) for factor in row))
    return np.array([float(factor * common if common <= 12 else factor) for factor in row])


def _few_digits(block: Array, ratio: Array, bar: float) -> Array:
    """Coefficients with as few significant digits, the same for all, as keep the combination as small."""
    for digits in range(1, 13):
        rounded = np.array([float(f"{value:.{digits}g}") for value in ratio])
        if _relative(block, rounded) <= bar:
            return rounded
    return ratio


def _length(coefficients: Array) -> int:
    return sum(len(f"{abs(value):.12g}") for value in coefficients)


def _chunks(n_columns: int, n_terms: int, admitted: Choice) -> Iterator[Supports]:
    """All supports of one size that may be tried, in chunks of shape `(N, n_terms)`."""
    every = combinations(range(n_columns), n_terms)
    while batch := list(islice(every, _CHUNK)):
        flat = np.fromiter(chain.from_iterable(batch), dtype=np.intp, count=len(batch) * n_terms)
        supports = flat.reshape(-1, n_terms)
        supports = supports[admitted(supports)]
        if len(supports):
            yield supports
