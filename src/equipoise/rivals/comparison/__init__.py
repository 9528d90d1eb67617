"""Comparison: every method on the same rows. Trials are kept in files, summarised, tabulated on a page and plotted."""

from equipoise.rivals.comparison.comparison import Comparison, compare, write_results
from equipoise.rivals.comparison.document import page

__all__ = ["Comparison", "compare", "page", "write_results"]
