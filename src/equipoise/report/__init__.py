"""Reports: from a fitted model and a table to one self-contained HTML page of text, tables and figures."""

from typing import TYPE_CHECKING, Any

from equipoise.report.page import Figure, Listing, Page, Section, Table, markdown, number, plus_minus, render, with_unit

if TYPE_CHECKING:
    from equipoise.report.evidence import Findings as Findings
    from equipoise.report.evidence import findings as findings
    from equipoise.report.story import report as report

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


def __getattr__(name: str) -> Any:
    """What needs torch is imported when it is first used: the page of a plant is drawn without."""
    if name in ("Findings", "findings"):
        from equipoise.report import evidence

        return getattr(evidence, name)
    if name == "report":
        from equipoise.report.story import report

        return report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
