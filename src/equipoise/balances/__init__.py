"""Balances: what the user knows, from text or matrices to checked linear constraints.

In: equations as text over named columns, or coefficient matrices with names. Out: a `LinearConstraint` with names,
units, scale, target and residual, or an error that names what is wrong. Also here: `Equality`, the contract of which
it is one kind; the names and units of columns, dependent balances, and the verdict on a balance after a fit, from its
residuals and the evidence for its tolerance.

Calls: no other room.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
