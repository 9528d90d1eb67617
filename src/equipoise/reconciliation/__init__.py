"""Reconciliation: measured values adjusted to obey their balances, and gross errors in sensors and balances found.

In: balances, measured values and the accuracy of the instruments (`reconcile`); or a model's prediction and measured
values of its outputs (`reconcile_with_model`). Out: reconciled values with intervals, the class of each variable
(redundant or not, observable or not), tests for gross errors, serial elimination, and a logbook of alarms over a table
of any length.

- What comes in: `measurements` (for balances alone), `readings` (for a model).
- Adjustment by balances: `observability` eliminates unmeasured variables, `adjustment` solves for the rows with one
  measurement pattern, `solution` for a table, `classical_reconciliation` has the result.
- Adjustment by a model: `assimilation` conditions draws on readings, `updated_prediction` is the prediction after that,
  `contributions` shares the change among readings and balances, `model_reconciliation` has the result.
- Gross errors: `significance` (critical values), `gross_errors` (nodal, measurement and likelihood ratio test),
  `gross_error_results` (what they return, and the threshold of the global test, whose statistic `solution` has),
  `serial_elimination`.
- Over a table: `totals`, `error_sizes` (sizes of biases and leaks), `trends` (over time), `logbook`.

Calls: `prediction`, `network`, `data`, `gaussian`, `balances`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
