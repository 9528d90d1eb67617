"""Gaussian distributions, their conditioning on balances, and the linear algebra behind it.

In: a `DiagonalGaussian`, coefficients `B`, targets `t = b − A x` and tolerances. Out: a `ConditionedGaussian` (C1–C4)
with mean, variance, joint draws (M1) and joint density (L2, L3). The room also holds priors and posteriors of
tolerances, sensor variances and offsets, and random numbers.

Calls: `balances`, `fast`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
