"""A self-contained page of text, tables and figures, as HTML or Markdown: nothing is loaded and no script is run.

The same page always gives the same bytes. All text is plain: markup in it is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from equipoise.app.report.formatting import SPACE
from equipoise.errors import InputError

OMITTED_ELEMENTS = {"metadata", "script", "style"}  # of an SVG; a style would apply to the whole page
OMITTED_ROOT_ATTRIBUTES = {"height", "style", "version", "width"}  # of an SVG; the page decides on size and colours
REFERENCE = re.compile(r"url\(#([^)]+)\)")


@dataclass(frozen=True)
class Table:
    """A table of texts with a header.

    Args:
        caption: What is shown, and in which units.
        header: Names of the columns.
        rows: Cells, as many in each row as there are columns.
        numeric: Positions of the columns, from 0, that hold numbers and are aligned to the right.
        bold: Cells in bold type, as pairs of row and column, from 0.

    Raises: InputError if a row has more or fewer cells than the header.
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
        """Return the table in GitHub's Markdown, the caption above it.

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
    """A drawing with its caption.

    Args:
        svg: An SVG document that refers to nothing outside itself. It is shown in the colour of the page's text where
            it uses `currentColor`, and on the page's background.
        caption: What is shown, and what to see in it.
        alt: Text alternative with the same content, for readers who cannot see the drawing.

    Raises: InputError if `alt` is empty.
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
        caption: What the text is.
        text: The text, with line breaks.
    """

    caption: str
    text: str

    def to_markdown(self) -> str:
        """Return the caption, and the text indented below it, as Markdown.

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
        title: The heading.
        text: Paragraphs, with an empty line between them.
        tables: Tables, shown after the text.
        figures: Figures, shown after the tables, beside each other where there is room.
        notes: Remarks in small print, shown after the figures.
        listings: Listings, shown last.
    """

    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()
    listings: Sequence[Listing] = ()


@dataclass(frozen=True)
class Page:
    """A report as text, tables and figures, to be written by `render` or `markdown`.

    Args:
        title: The heading.
        lead: The summary in a paragraph or two, at the top.
        sections: The parts; their titles make the table of contents.
    """

    title: str
    lead: str
    sections: Sequence[Section]


def render(page: Page) -> str:
    """Return a page as the text of one HTML file.

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
    """Return a page's text, tables and listings as Markdown, without its figures.

    Example:
        >>> print(markdown(Page("Flows", "All is well.", [Section("Balances", "They hold.")])))
        # Flows
        <BLANKLINE>
        All is well.
        <BLANKLINE>
        ## Balances
        <BLANKLINE>
        They hold.
        <BLANKLINE>
    """
    parts = [f"# {_escaped(page.title)}", _escaped(page.lead)]
    for section in page.sections:
        parts += [f"## {_escaped(section.title)}", _escaped(section.text)]
        parts += [table.to_markdown() for table in section.tables]
        parts += [_escaped(note) for note in section.notes]
        parts += [listing.to_markdown() for listing in section.listings]
    return "\n\n".join(part for part in parts if part) + "\n"


# --- Text -------------------------------------------------------------------------------------------------------------


def _paragraphs(text: str) -> list[str]:
    """Split text at empty lines."""
    return [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]


def _unbroken(text: str) -> str:
    """Keep each number and its % on one line."""
    return text.replace(" %", f"{SPACE}%")


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escaped(text: str) -> str:
    """Escape text so that Markdown shows it as it is, also inside a table."""
    return re.sub(r"([\\|*<`])", r"\\\1", text)


# --- Drawings ---------------------------------------------------------------------------------------------------------


def _inline(figure: Figure, prefix: str) -> Markup:
    """Return a figure as an `svg` element of the page, with a prefix for its ids, which other figures may have too."""
    root = ElementTree.fromstring(figure.svg)
    for parent in list(root.iter()):
        for child in [child for child in parent if _local_name(child.tag) in OMITTED_ELEMENTS]:
            parent.remove(child)
    for element in root.iter():
        attributes = {
            _local_name(name): _prefixed(_local_name(name), value, prefix) for name, value in element.attrib.items()
        }
        element.tag = _local_name(element.tag)
        element.attrib.clear()
        element.attrib.update(attributes)
    for name in OMITTED_ROOT_ATTRIBUTES:
        root.attrib.pop(name, None)
    root.attrib.update({"role": "img", "aria-label": figure.alt})
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _local_name(name: str) -> str:
    """Strip the namespace from the name of an element or attribute; HTML needs none."""
    return name.rpartition("}")[2]


def _prefixed(name: str, value: str, prefix: str) -> str:
    """Return an attribute's value with a prefix before ids and references to ids."""
    if name == "id":
        return f"{prefix}-{value}"
    if name == "href" and value.startswith("#"):
        return f"#{prefix}-{value[1:]}"
    if name == "href" or "url(" in REFERENCE.sub("", value):
        raise InputError(f"A figure must refer to nothing outside itself, but got {name}={value!r}. Draw it inside.")
    return REFERENCE.sub(rf"url(#{prefix}-\1)", value)
