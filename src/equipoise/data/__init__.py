"""Data: tables in and out, and the way from the user's units to standardized rows.

In: arrays and data frames, in memory or in files. Out: `Rows` in standardized units for training, the `Standardizer`
that translates data and balances both ways, and standard deviations of sensors. Also here: tables read piece by piece,
held-out rows, and files that are written whole or not at all.

Calls: `balances`, `gaussian`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
