"""Comparison: every method on the same rows. Trials are kept in files, summarised, tabulated on a page and plotted.

In: a case, names of methods and seeds, or files of earlier comparisons. Out: a `Comparison`, and its page with figures.

Calls: `rivals/cases`, `rivals/methods`, `app/bug_report`, `app/job`, `app/report`, `app/tables`, `prediction`,
`training`, `data`.
"""

from equipoise.rivals.comparison.comparison import Comparison, compare, write_results
from equipoise.rivals.comparison.document import page

__all__ = ["Comparison", "compare", "page", "write_results"]
