"""Diagnosis: do the data obey the balances, what would repair them, and which balances hide in the data.

In: a table and, for `diagnose`, balances. Out: a `Diagnosis` of every balance and column, or a list of `Proposal`.

Calls: `balances`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
