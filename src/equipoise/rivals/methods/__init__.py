"""Methods: other ways to infer the weights and other ways to impose the balances.

In: names of an inference and an imposition, and a table. Out: a fitted `MethodRegressor`, which predicts as the
estimator does. `catalogue` lists the names; `regressor` offers each combination.

Calls: `estimator`, `prediction`, `training`, `network`, `data`, `gaussian`, `balances`.
"""

from equipoise.rivals.methods.catalogue import (
    DEFAULT,
    IMPOSITIONS,
    INFERENCES,
    OURS,
    Method,
    MethodError,
    sensible_pairs,
)

__all__ = ["DEFAULT", "IMPOSITIONS", "INFERENCES", "OURS", "Method", "MethodError", "sensible_pairs"]
