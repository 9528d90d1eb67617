"""Tables that read well in a terminal and in a page."""

from collections.abc import Collection, Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """A markdown table with aligned columns; those numbered in `right` are aligned to the right.

    Example:
        >>> print(table(["name", "ms"], [["ours", "1.0"]], right=[1]))
        | name |  ms |
        |------|----:|
        | ours | 1.0 |
    """
    cells = [header, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    marks = [":" if i in right else "-" for i in range(len(header))]
    rule = "|" + "|".join("-" * (width + 1) + mark for width, mark in zip(widths, marks, strict=True)) + "|"
    first, *rest = (_line(row, widths, right) for row in cells)
    return "\n".join([first, rule, *rest])


def number(value: float | None) -> str:
    """Three significant digits, without an exponent.

    Example:
        >>> number(1234.5), number(1.234), number(0.012345), number(None)
        ('1,234', '1.23', '0.0123', '–')
    """
    if value is None:
        return "–"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3 if value >= 0.1 else 4
    return f"{value:,.{digits}f}"


def _line(row: Sequence[str], widths: Sequence[int], right: Collection[int]) -> str:
    padded = (c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
    return f"| {' | '.join(padded)} |"
