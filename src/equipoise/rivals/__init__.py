"""Rivals: other methods as estimators, cases to compare them on, and the comparison itself.

In: names of methods and cases, or a job file. Out: a fitted `MethodRegressor`, or a `Comparison` with its page.

Calls: see the rooms inside.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
