"""Reconciliation: measured values adjusted to obey their balances, and the faulty instrument found.

In: balances, readings and the accuracy of the instruments, or a model's `Predictive` and readings. Out: adjusted values
with intervals, tests for gross errors, and a logbook of incidents over a whole table.

Calls: `prediction`, `network`, `data`, `gaussian`, `balances`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
