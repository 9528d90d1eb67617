"""Report: one self-contained HTML page of text, tables and figures on a fitted model or on a reconciled plant.

In: a fitted model and a table of rows (`findings`), or the logbook of a reconciliation. Out: a `Page` (`report`,
`plant_report`), and its text as HTML or Markdown (`render`, `markdown`). Elements of figures and text for numbers are
for other pages, such as that of the study.

Calls: `estimator`, `reconciliation`, `prediction`, `training`, `network`, `data`, `gaussian`, `balances`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
