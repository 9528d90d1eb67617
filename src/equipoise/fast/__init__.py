"""Loops compiled by numba, each of which replaces dozens of torch operators on the processor.

In and out: numpy arrays in the processor's memory. Every loop is the twin of a definition in `network`, `gaussian` or
`training`, or in the tests, and is tested against it; none holds state or uses torch. Loops are compiled at their first
call and cached on disk. Import this room inside the functions that call it, since importing numba takes long.

Calls: no other room.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
