"""Text for people: numbers with units, errors and percent signs, lists of names, numbers of rows."""

import math
from collections.abc import Callable, Sequence

FIXED_POINT = range(-3, 6)  # exponents of numbers that are written without a power of ten,
FIXED_POINT_WITH_ERROR = range(-2, 6)  #   and of those with an error, which need more digits
MOST_DIGITS = 6  # of a number with an error
SPACE = "\N{NO-BREAK SPACE}"
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

LineNumbers = Callable[[Sequence[int]], Sequence[int]]  # from rows, counted from 0, to their lines in a file


def number(value: float, digits: int = 3) -> str:
    """Write a number with a number of significant digits: without exponent from 10⁻³ to 10⁶, "–" for NaN.

    Args:
        value: The number.
        digits: Number of significant digits.
    Returns: The text, with a typographic minus sign and with commas between thousands.

    Example:
        >>> [number(x) for x in (0.014912, -1.13e-4, 71412.0, 8.0, 0.0, float("inf"), float("nan"))]
        ['0.0149', '−1.13×10⁻⁴', '71,400', '8.00', '0', '∞', '–']
    """
    if not math.isfinite(value):
        return "–" if math.isnan(value) else _signed("∞" if value > 0 else "-∞")
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    power = int(exponent)
    if power not in FIXED_POINT:
        return _signed(mantissa) + _power_of_ten(power)
    return _signed(f"{float(f'{mantissa}e{power}'):,.{max(digits - 1 - power, 0)}f}")


def with_unit(value: float, unit: str | None, digits: int = 3) -> str:
    """Write a number and its unit, if it has one, with a no-break space between them.

    Args:
        value: The number.
        unit: Its unit; None if it has none.
        digits: Number of significant digits.
    Returns: The number as `number` writes it, and the unit unless the number is NaN.

    Example:
        >>> print(with_unit(0.01234, "V"), with_unit(2.0, None), with_unit(float("nan"), "V"))
        0.0123 V 2.00 –
    """
    return f"{number(value, digits)}{SPACE}{unit}" if unit and not math.isnan(value) else number(value, digits)


def plus_minus(mean: float, error: float) -> str:
    """Write a number and its error, the error with two significant digits and the number with as many decimals.

    The number stands alone, with three significant digits, if the error is not finite or negligible.

    Args:
        mean: The number.
        error: Its error, such as the half-width of an interval, in the same unit.
    Returns: The text, with one power of ten for both.

    Example:
        >>> plus_minus(1.9234e-4, 2.11e-6), plus_minus(0.9512, 0.00213), plus_minus(0.9512, float("nan"))
        ('(1.923 ± 0.021)×10⁻⁴', '0.9512 ± 0.0021', '0.951')
    """
    if not (math.isfinite(mean) and math.isfinite(error)) or error <= 10.0**-MOST_DIGITS * abs(mean):
        return number(mean)
    power = math.floor(math.log10(max(abs(mean), error)))
    shift = 0 if power in FIXED_POINT_WITH_ERROR else power
    finest = min(1 - math.floor(math.log10(error)), MOST_DIGITS - power)
    text = " ± ".join(_signed(f"{value / 10.0**shift:,.{max(finest + shift, 0)}f}") for value in (mean, error))
    return f"({text}){_power_of_ten(shift)}" if shift else text


def percent(share: float) -> str:
    """Write a share, from 0 to 1, in percent; "–" for NaN.

    Example:
        >>> percent(0.9512), percent(float("nan"))
        ('95.1 %', '–')
    """
    return f"{number(100 * share)} %" if share == share else "–"


def counted(n: int, noun: str) -> str:
    """Write a count and its noun, which is plural unless the count is 1.

    Args:
        n: The count.
        noun: The noun in the singular.
    Example:
        >>> counted(1, "row"), counted(12_000, "row")
        ('1 row', '12,000 rows')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def listed(names: Sequence[str], most: int = 6) -> str:
    """Write names in quotation marks, at most `most` of them, and how many more there are.

    Args:
        names: The names.
        most: Largest number of names that are written out.
    Example:
        >>> listed(["a", "b", "c"]), listed(["a", "b", "c"], most=1)
        ('“a”, “b” and “c”', '“a” and 2 more')
    """
    quoted = [f"“{name}”" for name in names[:most]]
    quoted += [f"{len(names) - most} more"] if len(names) > most else []
    return " and ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))


def row_labels(rows: Sequence[int], lines: LineNumbers | None) -> tuple[str, str, list[str]]:
    """Return how a report refers to rows of a table: by lines of a text file if it is known, else by rows.

    Args:
        rows: Positions of the rows, from 0.
        lines: Line numbers of rows in a text file, if the table is one.
    Returns: The noun ("row" or "line"), how rows are counted, and the number of each row as text.

    Example:
        >>> row_labels([4, 0], None)
        ('row', 'counted from 1 without the header', ['5', '1'])
        >>> row_labels([4], lambda rows: [row + 2 for row in rows])
        ('line', 'by their line in the table, the header being line 1', ['6'])
    """
    if lines is None:
        return "row", "counted from 1 without the header", [f"{row + 1:,}" for row in rows]
    return "line", "by their line in the table, the header being line 1", [f"{line:,}" for line in lines(rows)]


def _power_of_ten(power: int) -> str:
    return "×10" + str(power).translate(SUPERSCRIPTS)


def _signed(text: str) -> str:
    return text.replace("-", "−")
