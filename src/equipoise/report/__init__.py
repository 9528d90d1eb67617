"""Reports: one self-contained HTML page of text, tables and figures."""

from equipoise.report.page import Figure, Page, Section, Table, markdown, number, plus_minus, render

__all__ = ["Figure", "Page", "Section", "Table", "markdown", "number", "plus_minus", "render"]
