"""The report's page: self-contained, escaped, accessible, the same bytes every time."""

import re

import pytest
from elements import Elements
from other_process import digest, digest_elsewhere

from equipoise.app.report import Figure, Listing, Page, Section, Table, markdown, render

EVIL = "<script>alert('x')</script> & \"quotes\""
SVG = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">
<svg xmlns:xlink="http://www.w3.org/1999/xlink" xmlns="http://www.w3.org/2000/svg" width="90pt" height="60pt"
     viewBox="0 0 90 60" version="1.1" style="background: #fff">
 <metadata><date>2026-01-01</date></metadata>
 <defs><style>*{stroke-linejoin: round}</style><path id="m1" d="M 0 0"/><clipPath id="p1"><rect/></clipPath></defs>
 <g id="axes_1" clip-path="url(#p1)" style="fill: currentColor"><use xlink:href="#m1" x="3"/><text>5 &lt; 6</text></g>
</svg>"""
FIGURE = Figure(SVG, "A drawing", "Two lines that cross")
TABLE = Table("Flows", ["name", "m³/h", "remark"], [["a", "5.0", "x"], ["b", "3.9", "y|z"]], numeric=[1], bold=[(1, 1)])


def a_page(**changes) -> Page:
    section = {"title": "Balances", "text": "One.\n\nTwo, of 95 %.", "tables": [TABLE], "figures": [FIGURE, FIGURE]}
    section = Section(**(section | {"notes": ["A remark."]} | changes))
    return Page("Flows", "All is well.", [section, Section("The rest", figures=[FIGURE])])


def test_a_page_loads_nothing_and_runs_nothing():
    html = render(a_page())
    elements = Elements(html)
    assert "http:" not in html
    assert "https:" not in html
    assert "@import" not in html
    assert elements.values("src") == []
    assert all(target.startswith("#") for target in elements.values("href"))
    assert not {"script", "link", "iframe", "img"} & {tag for tag, _ in elements.found}


def test_ids_are_unique_and_every_reference_has_its_target():
    html = render(a_page())
    ids = Elements(html).values("id")
    assert len(ids) == len(set(ids))
    named = [value for name in ("href", "aria-labelledby") for value in Elements(html).values(name)]
    referred = [value.removeprefix("#") for value in named] + re.findall(r"url\(#([^)]+)\)", html)
    assert set(referred) <= set(ids)
    assert len(re.findall(r"url\(#", html)) == 3


def test_the_contents_lead_to_every_section():
    elements = Elements(render(a_page()))
    sections = [attributes["id"] for tag, attributes in elements.found if tag == "section"]
    assert [href for href in elements.values("href") if href.startswith("#section")] == [f"#{id}" for id in sections]


def test_the_same_page_gives_the_same_bytes_in_every_process():
    assert digest(render(a_page())) == digest_elsewhere(__file__, "render(a_page())")


def test_what_looks_like_a_tag_is_shown_and_not_obeyed():
    table = Table(EVIL, [EVIL], [[EVIL]], bold=[(0, 0)])
    figure = Figure(SVG, EVIL, EVIL)
    html = render(Page(EVIL, EVIL, [Section(EVIL, EVIL, [table], [figure], [EVIL])]))
    elements = Elements(html)
    assert "<script" not in html
    parts = "title, heading, lead, contents; section, text, caption, column, cell; figure, note"
    assert elements.text.count(EVIL) == len(re.split("[,;]", parts))
    assert [attributes["aria-label"] for tag, attributes in elements.found if tag == "svg"] == [EVIL]


def test_a_drawing_is_inlined_without_what_belongs_to_a_file():
    html = render(a_page())
    assert html.count("<svg") == 3
    for part in ("<?xml", "<!DOCTYPE svg", "metadata", "2026", "xmlns", 'version="1.1"', "stroke-linejoin: round}<"):
        assert part not in html
    svg = [attributes for tag, attributes in Elements(html).found if tag == "svg"]
    assert all(a == {"viewbox": "0 0 90 60", "role": "img", "aria-label": "Two lines that cross"} for a in svg)
    assert "5 &lt; 6" in html


@pytest.mark.parametrize(
    "outside", ['<use href="https://example.org/x.svg#a"/>', '<g style="fill: url(https://example.org/x)"/>']
)
def test_a_drawing_that_refers_to_something_outside_is_refused(outside):
    figure = Figure(f'<svg xmlns="http://www.w3.org/2000/svg">{outside}</svg>', "A drawing", "Nothing")
    with pytest.raises(ValueError, match=r"nothing outside itself, but got (href|style)='.*example\.org"):
        render(a_page(figures=[figure]))


def test_a_figure_needs_words_for_those_who_cannot_see_it():
    with pytest.raises(ValueError, match="must have an alt text, but got ' '"):
        Figure(SVG, "A drawing", " ")


def test_a_row_with_too_few_cells_is_refused():
    with pytest.raises(ValueError, match=r"table 'Flows' must have 2 cells, one for each column, but got 1: \['a'\]"):
        Table("Flows", ["name", "m³/h"], [["a"]])


def test_numbers_are_aligned_and_the_best_stands_out():
    html = render(a_page())
    assert '<td class="number">5.0</td>' in html
    assert '<td class="number"><strong>3.9</strong></td>' in html
    assert '<th scope="row" class="text">a</th>' in html
    assert '<th scope="col" class="number">m³/h</th>' in html


def test_paragraphs_are_separated_by_empty_lines():
    html = render(a_page())
    assert "<p>One.</p>" in html
    assert "<p>Two, of 95\N{NO-BREAK SPACE}%.</p>" in html


def test_a_number_and_its_percent_sign_stay_on_one_line_everywhere():
    table, figure = Table("Of 95 %", ["a"], [["b"]]), Figure(SVG, "Of 90 %", "Nothing")
    html = render(Page("Title", "Of 99 %.", [Section("Title", "Of 50 %.", [table], [figure], ["Of 80 %."])]))
    assert html.count("\N{NO-BREAK SPACE}%") == 5
    assert not re.search(r"Of \d\d %", html)


def test_a_listing_is_shown_line_by_line_and_not_obeyed():
    listing = Listing("The <file>", "[model]\n  seed = 1  # <script>")
    html = render(a_page(listings=[listing]))
    assert "<pre>[model]\n  seed = 1  # &lt;script&gt;</pre>" in html
    assert "The &lt;file&gt;" in html
    assert "The \\<file>\n\n    [model]\n      seed = 1  # <script>\n" in markdown(a_page(listings=[listing]))


def test_a_page_has_colours_for_dark_screens_and_paper_stays_white():
    style = re.search(r"<style>(.*?)</style>", render(a_page()), re.DOTALL)[1]  # type: ignore[index]
    dark = re.search(r"@media screen and \(prefers-color-scheme: dark\) \{\s*:root \{([^}]*)\}", style)
    assert dark is not None
    assert set(re.findall(r"(--\w+):", dark[1])) == set(re.findall(r"(--\w+):", style.split("@media")[0]))
    assert "@media print" in style


def test_a_page_without_figures_and_tables_is_a_page():
    elements = Elements(render(Page("Title", "Lead.", [])))
    assert "table" not in {tag for tag, _ in elements.found}


# --- Markdown ---------------------------------------------------------------------------------------------------------


def test_markdown_has_text_and_tables_in_their_order():
    assert markdown(a_page()) == (
        "# Flows\n\nAll is well.\n\n## Balances\n\nOne.\n\nTwo, of 95 %.\n\nFlows\n\n"
        "| name | m³/h | remark |\n|---|---:|---|\n| a | 5.0 | x |\n| b | **3.9** | y\\|z |\n\n"
        "A remark.\n\n## The rest\n"
    )


def test_markdown_shows_tags_too():
    assert "\\<script>" in markdown(Page(EVIL, EVIL, []))
