"""Whether compiled code is used: the room `fast`, if it is installed and numba is switched on.

Every loop in `fast` is the twin of a definition elsewhere, so that the library computes the same without that room, to
rounding and more slowly.

In: nothing. Out: True or False.

Calls: no other room.
"""

import os
from functools import cache
from importlib.util import find_spec


def is_available() -> bool:
    """Return whether there are compiled loops; numba's environment variable `NUMBA_DISABLE_JIT` switches them off."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0") and _is_installed()


@cache
def _is_installed() -> bool:
    return find_spec("equipoise.fast") is not None
