"""Testing: checks of implementations that are written outside the package, in the manner of scikit-learn's.

In: an implementation of one of the library's contracts. Out: nothing, or an `AssertionError` that names the check and
what was expected. The checks are the contract: an implementation that passes them works wherever the library uses its
own.

Calls: `artifact`, `estimator`, `network`, `data`, `gaussian`, `balances`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
