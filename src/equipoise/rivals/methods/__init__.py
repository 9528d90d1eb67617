"""Other ways to constrain a network: two short lists, how weights are inferred and how balances are imposed.

`catalogue` has the lists; `regressor` puts each pair behind the estimator's face.
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
