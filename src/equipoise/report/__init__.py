"""Reports: from a fitted model and a table to one self-contained HTML page of text, tables and figures."""

from equipoise.report.evidence import Findings, findings
from equipoise.report.page import Figure, Listing, Page, Section, Table, markdown, number, plus_minus, render, with_unit
from equipoise.report.story import report

__all__ = [
    "Figure",
    "Findings",
    "Listing",
    "Page",
    "Section",
    "Table",
    "findings",
    "markdown",
    "number",
    "plus_minus",
    "render",
    "report",
    "with_unit",
]
