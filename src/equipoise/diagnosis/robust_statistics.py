"""Sizes of residuals and terms that a few gross errors do not spoil, and how numbers are written for people."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtr

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
ONE_IN = 50  # rows, that may be a gross error; sentinels and spikes are rarely more than 2 %
MOST = (
    0.8  # of the values decide on a robust spread; the median would call rounded data exact where most residuals are 0
)
MOST_GROSS = 0.2  # of the rows may stand out, those without a say in the robust spread; more than that are the data
OUTLYING = 6.0  # robust standard deviations; a normal residual gets there once in 5e8 rows
NEGLIGIBLE = 1e-3  # share of what its terms vary by that is no gross error of a balance, however exact it is elsewhere
MOST_ROWS = 20_000  # rows that a search over many candidates looks at; a spread is known to 1 % from these
_ROWS_FOR_SPREADS = 2000


def typical(values: Array) -> float:
    """Root mean square of all but the largest 2 % of the values; of all of them when there are fewer than 50.

    Example:
        >>> z = np.ones(100)
        >>> z[7] = -9999.0
        >>> typical(z)
        1.0
    """
    size = np.abs(values)
    size = np.partition(size, _last_kept(size))[: _last_kept(size) + 1] if len(size) else size
    largest = float(size.max(initial=0.0))
    return largest * math.sqrt(np.square(size / largest).mean()) if largest > 0 else 0.0  # without overflow


def centred(values: Array) -> Array:
    """Values minus their median."""
    return values - np.median(values)


def robust_std(values: Array) -> Array:
    """Standard deviation along the first axis by the four fifths nearest to the median: the others may be anything.

    Example:
        >>> z = np.random.default_rng(0).standard_normal(1000)
        >>> z[:50] *= 1000.0
        >>> f"{robust_std(z):.2f}"
        '1.06'
    """
    off = np.abs(values - np.median(values, axis=0))
    last = int(MOST * (len(off) - 1))
    return np.partition(off, last, axis=0)[last] / ndtri((1 + MOST) / 2)


def middle(values: Array) -> tuple[Array, Array]:
    """Median and robust standard deviation along the first axis, from rows that know them to a few per cent."""
    some = values[thinned(len(values), _ROWS_FOR_SPREADS)]
    return np.median(some, axis=0), robust_std(some)


def gross(residual: Array, size: float, rounding: Array | float = 0.0) -> Mask:
    """Which residuals stand out from the others.

    Args:
        residual: Of one balance, shape `(n,)`, or of several, shape `(n, k)`.
        size: What it would vary by if its terms were unrelated; 0 where nothing is negligible beside that.
        rounding: Residuals up to this are rounding.
    """
    centre, spread = middle(residual)
    return np.abs(residual - centre) > np.maximum(np.maximum(OUTLYING * spread, NEGLIGIBLE * size), rounding)


def fitted_step(residual: Array, direction: Array) -> float:
    """The step a that makes the typical size of `residual + a * direction` small, by trimmed least squares.

    The first fit does without the largest 2 % of residuals and of directions, later ones without what they leave over,
    and without what stands out from it.

    Example:
        >>> direction = np.arange(1.0, 101.0)
        >>> round(fitted_step(-3.0 * direction, direction), 12)
        3.0
    """
    step, kept = 0.0, _kept(residual) & _kept(direction)
    for _ in range(3):
        along = direction[kept]
        square = float(along @ along)
        if not 0 < square < math.inf:
            return 0.0
        step = -float(residual[kept] @ along) / square
        after = residual + step * direction
        kept = _kept(after) & ~gross(after, size=0.0)
    return step


def certainly_related(one: Array, other: Array, looks: int = 1) -> bool:
    """Whether two columns are correlated beyond doubt, without the largest 2 % of both.

    Beyond doubt is what 4 standard deviations are to a normal, by Student's t, with Bonferroni's correction for the
    number of `looks`; the same as for the bias of a balance.

    Example:
        >>> z = np.arange(20.0)
        >>> certainly_related(z, z + np.tile([1.0, -1.0], 10)), certainly_related(z, np.tile([1.0, -1.0], 10))
        (True, False)
    """
    one, other = centred(one), centred(other)
    kept = _kept(one) & _kept(other)
    n = int(kept.sum())
    one, other = one[kept] - one[kept].mean(), other[kept] - other[kept].mean()
    spread = math.sqrt(float(one @ one) * float(other @ other))
    if n < 3 or spread == 0:
        return False
    r = min(abs(float(one @ other)) / spread, 1 - 1e-12)
    return looks * float(stdtr(n - 2, -r * math.sqrt((n - 2) / (1 - r * r)))) < float(ndtr(-4.0))


def _kept(values: Array) -> Mask:
    size = np.abs(values)
    return size <= np.partition(size, _last_kept(size))[_last_kept(size)]


def _last_kept(size: Array) -> int:
    """Position, in ascending order, of the largest value that is not trimmed."""
    return len(size) - 1 - len(size) // ONE_IN


def thinned(n_rows: int, most: int = MOST_ROWS) -> NDArray[np.intp]:
    """Numbers of at most `most` rows, evenly spaced.

    Example:
        >>> thinned(9, most=3)
        array([0, 4, 8])
    """
    return np.linspace(0, n_rows - 1, min(n_rows, most)).round().astype(np.intp)


def quantity(value: float, unit: str | None = None) -> str:
    """A number with two significant digits, and its unit.

    Example:
        >>> quantity(0.23, "V"), quantity(123456.0), quantity(1.5e-7, "A")
        ('0.23 V', '120000', '1.5e-07 A')
    """
    plain = value == 0 or 1e-4 <= abs(value) < 1e6
    text = np.format_float_positional(float(f"{value:.2g}"), trim="-") if plain else f"{value:.2g}"
    return f"{text} {unit}" if unit else text
