"""Fast: loops compiled by numba on first use and kept on disk, for what torch would need dozens of operators.

In and out: numpy arrays in the processor's memory. Every loop has a slow counterpart in `network`, `gaussian` or
`training`, or in the tests, against which it is tested; none holds state or knows of torch. Import this room where it
is called: numba takes a while to import.

Calls: no other room.
"""

import os

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def enabled() -> bool:
    """Return whether loops are compiled at all: numba's own variable `NUMBA_DISABLE_JIT` switches that off."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
