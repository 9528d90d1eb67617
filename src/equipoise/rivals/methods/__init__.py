"""Methods: other ways to infer the weights and other ways to impose the balances.

`catalogue` lists both; `regressor` offers each combination as an estimator.
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
