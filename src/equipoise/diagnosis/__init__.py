"""Diagnosis: whether data obey balances, which single change repairs a balance, and which balances hide in the data.

In: a table and, for `diagnose`, balances. Out: a `Diagnosis` of every balance and column, or a list of `Proposal`.

- `diagnosis` examines a table before training (`diagnose`): each balance in `balance_diagnosis`, columns and rows in
  `column_diagnosis`;
- `repairs` finds the single change of a balance that would make it hold;
- `discovery` finds the balances that a table seems to obey (`propose`), by `sparse_combinations` of its columns, and
  `proposals` writes them as equations;
- `units` reads and compares the units of columns;
- `rounding`, `residual_outliers`, `multivariate_outliers`, `robust_statistics` and `simple_factors` hold the statistics
  and numbers behind these.

Calls: `balances`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
