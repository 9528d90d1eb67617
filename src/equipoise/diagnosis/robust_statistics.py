"""Robust statistics: sizes, fits and correlations that a few gross errors do not change much."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtr

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
TRIMMED_ONE_IN = 50  # one in so many values is trimmed as a possible gross error; sentinels and spikes are rarely more
# Share of the values that a robust standard deviation uses. With the usual half, rounded data would have the standard
# deviation 0 wherever most residuals are 0.
CENTRAL_SHARE = 0.8
MAX_OUTLIER_SHARE = 0.2  # of the rows; if more of them stand out, they are data and no outliers
OUTLIER_STDS = 6.0  # robust standard deviations from the median; a normal residual gets there once in 5e8 rows
NEGLIGIBLE_SHARE = 1e-3  # of the spread of a balance's terms: smaller residuals are no gross errors
MAX_ROWS = 20_000  # used by a search over many candidates; they determine a standard deviation to 1 %
_ROWS_FOR_SPREADS = 2000


def trimmed_rms(values: Array) -> float:
    """Return the root mean square without the largest 2 % of the values; of fewer than 50 values none is left out.

    Example:
        >>> z = np.ones(100)
        >>> z[7] = -9999.0
        >>> trimmed_rms(z)
        1.0
    """
    size = np.abs(values)
    size = np.partition(size, _last_kept(size))[: _last_kept(size) + 1] if len(size) else size
    largest = float(size.max(initial=0.0))
    return largest * math.sqrt(np.square(size / largest).mean()) if largest > 0 else 0.0  # without overflow


def centred(values: Array) -> Array:
    """Subtract the median from the values."""
    return values - np.median(values)


def robust_std(values: Array) -> Array:
    """Return the standard deviation along the first axis, estimated from the 80 % of the values nearest to the median.

    It is the distance from the median within which 80 % of the values lie, divided by the same distance of a standard
    normal variable.

    Example:
        >>> z = np.random.default_rng(0).standard_normal(1000)
        >>> z[:50] *= 1000.0
        >>> f"{robust_std(z):.2f}"
        '1.06'
    """
    distance = np.abs(values - np.median(values, axis=0))
    last = int(CENTRAL_SHARE * (len(distance) - 1))
    return np.partition(distance, last, axis=0)[last] / ndtri((1 + CENTRAL_SHARE) / 2)


def median_and_std(values: Array) -> tuple[Array, Array]:
    """Return median and robust standard deviation along the first axis, from at most 2000 evenly spaced rows."""
    sample = values[evenly_spaced(len(values), _ROWS_FOR_SPREADS)]
    return np.median(sample, axis=0), robust_std(sample)


def outlier_mask(residual: Array, size: float, rounding: Array | float = 0.0) -> Mask:
    """Return which residuals lie more than 6 robust standard deviations from the median.

    Args:
        residual: Residuals of one balance, shape `(n,)`, or of several, shape `(n, k)`.
        size: What the standard deviation would be if the terms were unrelated; a deviation below 0.1 % of it is no
            outlier.
        rounding: Deviations up to this are rounding, and no outliers.
    Returns: A mask of the shape of `residual`.
    """
    centre, spread = median_and_std(residual)
    return np.abs(residual - centre) > np.maximum(np.maximum(OUTLIER_STDS * spread, NEGLIGIBLE_SHARE * size), rounding)


def fitted_step(residual: Array, direction: Array) -> float:
    """Fit the step a that makes `residual + a * direction` small, by trimmed least squares.

    The first of three fits leaves out the largest 2 % of the residuals and of the directions. Each later fit leaves out
    the largest 2 % of what remained after the fit before it, and its outliers.

    Args:
        residual: The residual, shape `(n,)`.
        direction: Its change for a step of 1, shape `(n,)`.
    Example:
        >>> direction = np.arange(1.0, 101.0)
        >>> round(fitted_step(-3.0 * direction, direction), 12)
        3.0
    """
    step, kept = 0.0, _untrimmed(residual) & _untrimmed(direction)
    for _ in range(3):
        along = direction[kept]
        square = float(along @ along)
        if not 0 < square < math.inf:
            return 0.0
        step = -float(residual[kept] @ along) / square
        after = residual + step * direction
        kept = _untrimmed(after) & ~outlier_mask(after, size=0.0)
    return step


def significantly_correlated(one: Array, other: Array, n_tests: int = 1) -> bool:
    """Test whether two columns are correlated, without the largest 2 % of the deviations of both.

    The level of significance is the probability of a normal variable beyond 4 standard deviations, as for the bias of a
    balance. The probability comes from Student's t, with Bonferroni's correction for the number of tests.

    Args:
        one, other: The columns, shape `(n,)`.
        n_tests: Number of tests of which this is one.
    Example:
        >>> z = np.arange(20.0)
        >>> zigzag = np.tile([1.0, -1.0], 10)
        >>> significantly_correlated(z, z + zigzag), significantly_correlated(z, zigzag)
        (True, False)
    """
    one, other = centred(one), centred(other)
    kept = _untrimmed(one) & _untrimmed(other)
    n = int(kept.sum())
    one, other = one[kept] - one[kept].mean(), other[kept] - other[kept].mean()
    spread = math.sqrt(float(one @ one) * float(other @ other))
    if n < 3 or spread == 0:
        return False
    r = min(abs(float(one @ other)) / spread, 1 - 1e-12)
    return n_tests * float(stdtr(n - 2, -r * math.sqrt((n - 2) / (1 - r * r)))) < float(ndtr(-4.0))


def _untrimmed(values: Array) -> Mask:
    """Return which values are not among the largest 2 %."""
    size = np.abs(values)
    return size <= np.partition(size, _last_kept(size))[_last_kept(size)]


def _last_kept(size: Array) -> int:
    """Return the position, in ascending order, of the largest value that is not trimmed."""
    return len(size) - 1 - len(size) // TRIMMED_ONE_IN


def evenly_spaced(n_rows: int, max_rows: int = MAX_ROWS) -> NDArray[np.intp]:
    """Return the positions of at most `max_rows` of `n_rows` rows, evenly spaced.

    Args:
        n_rows: Number of rows.
        max_rows: Largest number of positions.
    Example:
        >>> evenly_spaced(9, max_rows=3)
        array([0, 4, 8])
    """
    return np.linspace(0, n_rows - 1, min(n_rows, max_rows)).round().astype(np.intp)
