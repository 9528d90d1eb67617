"""One self-contained page of text, tables and figures, as HTML or Markdown: nothing is loaded and no script is run.

The same page always gives the same bytes. All text is plain: what looks like a tag is shown, not obeyed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from equipoise.errors import InputError

NOT_INLINED = {"metadata", "script", "style"}  # of an SVG: a style would apply to the whole page
ROOT_ATTRIBUTES = {"height", "style", "version", "width"}  # the page decides on size and colours
REFERENCE = re.compile(r"url\(#([^)]+)\)")
FIXED_POINT = range(-3, 6)  # exponents of numbers that are written without a power of ten,
FIXED_POINT_WITH_ERROR = range(-2, 6)  #   and of those with an error, which need more digits
MOST_DIGITS = 6  # of a number with an error
SPACE = "\N{NO-BREAK SPACE}"
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Table:
    """Rows of text below a header.

    Args:
        caption: What is shown, and in which units.
        header: Names of the columns.
        rows: Cells, as many in each row as there are columns.
        numeric: Numbers of the columns, from 0, that hold numbers and are aligned to the right.
        bold: Cells that stand out, as pairs of row and column, from 0.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Collection[int] = ()
    bold: Collection[tuple[int, int]] = ()

    def __post_init__(self):
        for row in self.rows:
            if len(row) != len(self.header):
                rule = f"Every row of table {self.caption!r} must have {len(self.header)} cells, one for each column"
                raise InputError(f"{rule}, but got {len(row)}: {list(row)}.")

    def to_markdown(self) -> str:
        """The table in the Markdown of GitHub, the caption above it.

        Example:
            >>> table = Table("Flows", ["", "m³/h"], [["a", "5.0"], ["b", "3.9"]], numeric=[1], bold=[(0, 1)])
            >>> print(table.to_markdown())
            Flows
            <BLANKLINE>
            |  | m³/h |
            |---|---:|
            | a | **5.0** |
            | b | 3.9 |
        """
        rule = "".join("---:|" if column in self.numeric else "---|" for column in range(len(self.header)))
        rows = [[self._markdown_cell(i, j) for j in range(len(row))] for i, row in enumerate(self.rows)]
        lines = [_markdown_row([_escaped(name) for name in self.header]), f"|{rule}", *map(_markdown_row, rows)]
        return "\n".join([_escaped(self.caption), "", *lines])

    def _markdown_cell(self, row: int, column: int) -> str:
        text = _escaped(self.rows[row][column])
        return f"**{text}**" if (row, column) in self.bold else text


@dataclass(frozen=True)
class Figure:
    """A drawing.

    Args:
        svg: An SVG document that refers to nothing outside itself. It is shown in the colour of the page's text where
            it uses `currentColor`, and on the page's background.
        caption: What is shown, and what to see in it.
        alt: The same for those who cannot see it.
    """

    svg: str
    caption: str
    alt: str

    def __post_init__(self):
        if not self.alt.strip():
            raise InputError(f"A figure must have an alt text, but got {self.alt!r}. Say what there is to see.")


@dataclass(frozen=True)
class Listing:
    """Text that is shown line by line as it is, such as a file.

    Args:
        caption: What it is.
        text: Its lines.
    """

    caption: str
    text: str

    def to_markdown(self) -> str:
        """The caption, and the text indented below it.

        Example:
            >>> print(Listing("Job", "seed = 1\\n[model]").to_markdown())
            Job
            <BLANKLINE>
                seed = 1
                [model]
        """
        return "\n".join([_escaped(self.caption), "", *(f"    {line}" for line in self.text.splitlines())])


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Args:
        title: Its heading.
        text: Paragraphs, with an empty line between them.
        tables: Shown after the text.
        figures: Shown after the tables, beside each other where there is room.
        notes: Remarks at the end, in small print.
        listings: Shown last.
    """

    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()
    listings: Sequence[Listing] = ()


@dataclass(frozen=True)
class Page:
    """A report.

    Args:
        title: The heading.
        lead: The answer in a paragraph or two, before all else.
        sections: Its parts; a table of contents is made of their titles.
    """

    title: str
    lead: str
    sections: Sequence[Section]


def render(page: Page) -> str:
    """The page as one HTML file.

    Example:
        >>> html = render(Page("Flows & balances", "All is well.", [Section("Balances", "They hold.")]))
        >>> "<h1>Flows &amp; balances</h1>" in html
        True
    """
    environment = Environment(
        loader=PackageLoader("equipoise.app.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"paragraphs": _paragraphs, "inline": _inline, "unbroken": _unbroken}
    return environment.get_template("page.html.jinja").render(page=page) + "\n"


def markdown(page: Page) -> str:
    """The page's text and tables as Markdown, without its figures."""
    parts = [f"# {_escaped(page.title)}", _escaped(page.lead)]
    for section in page.sections:
        parts += [f"## {_escaped(section.title)}", _escaped(section.text)]
        parts += [table.to_markdown() for table in section.tables]
        parts += [_escaped(note) for note in section.notes]
        parts += [listing.to_markdown() for listing in section.listings]
    return "\n\n".join(part for part in parts if part) + "\n"


# --- Rows -------------------------------------------------------------------------------------------------------------

Lines = Callable[[Sequence[int]], Sequence[int]]


def rows_in_words(rows: Sequence[int], lines: Lines | None) -> tuple[str, str, list[str]]:
    """What rows of a table are called, how they are counted, and their numbers.

    Args:
        rows: Counted from 0.
        lines: Where they stand in a text file, if they do.

    Example:
        >>> rows_in_words([4, 0], None)
        ('row', 'counted from 1 without the header', ['5', '1'])
        >>> rows_in_words([4], lambda rows: [row + 2 for row in rows])
        ('line', 'by their line in the table, the header being line 1', ['6'])
    """
    if lines is None:
        return "row", "counted from 1 without the header", [f"{row + 1:,}" for row in rows]
    return "line", "by their line in the table, the header being line 1", [f"{line:,}" for line in lines(rows)]


# --- Numbers ----------------------------------------------------------------------------------------------------------


def number(value: float, digits: int = 3) -> str:
    """A number with so many significant digits.

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
    """A number and its unit, if it has one, on one line.

    Example:
        >>> print(with_unit(0.01234, "V"), with_unit(2.0, None), with_unit(float("nan"), "V"))
        0.0123 V 2.00 –
    """
    return f"{number(value, digits)}{SPACE}{unit}" if unit and not math.isnan(value) else number(value, digits)


def plus_minus(mean: float, error: float) -> str:
    """A number with its error, which decides on the digits; three significant ones if it has none worth showing.

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


def _power_of_ten(power: int) -> str:
    return "×10" + str(power).translate(SUPERSCRIPTS)


def _signed(text: str) -> str:
    return text.replace("-", "−")


# --- Text -------------------------------------------------------------------------------------------------------------


def _paragraphs(text: str) -> list[str]:
    """Parts between empty lines."""
    return [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]


def _unbroken(text: str) -> str:
    """A number and its % are kept on one line."""
    return text.replace(" %", f"{SPACE}%")


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is, also inside a table."""
    return re.sub(r"([\\|*<`])", r"\\\1", text)


# --- Drawings ---------------------------------------------------------------------------------------------------------


def _inline(figure: Figure, prefix: str) -> Markup:
    """The figure as an `svg` element of the page; ids get a prefix, since those of several figures may be the same."""
    root = ElementTree.fromstring(figure.svg)
    for parent in list(root.iter()):
        for child in [child for child in parent if _local(child.tag) in NOT_INLINED]:
            parent.remove(child)
    for element in root.iter():
        attributes = {_local(name): _own(_local(name), value, prefix) for name, value in element.attrib.items()}
        element.tag = _local(element.tag)
        element.attrib.clear()
        element.attrib.update(attributes)
    for name in ROOT_ATTRIBUTES:
        root.attrib.pop(name, None)
    root.attrib.update({"role": "img", "aria-label": figure.alt})
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _local(name: str) -> str:
    """Without the namespace, which HTML knows."""
    return name.rpartition("}")[2]


def _own(name: str, value: str, prefix: str) -> str:
    """An attribute's value with ids, and references to them, made the figure's own."""
    if name == "id":
        return f"{prefix}-{value}"
    if name == "href" and value.startswith("#"):
        return f"#{prefix}-{value[1:]}"
    if name == "href" or "url(" in REFERENCE.sub("", value):
        raise InputError(f"A figure must refer to nothing outside itself, but got {name}={value!r}. Draw it inside.")
    return REFERENCE.sub(rf"url(#{prefix}-\1)", value)
