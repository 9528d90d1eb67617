"""Loops that torch would need dozens of operators for, compiled by numba on first use and kept on disk.

They work on numpy arrays of the processor's memory, know nothing of torch and hold no state. Each has its slow and
obvious counterpart elsewhere in the library or in the tests. Import them where they are called: numba takes a while.
"""

import os


def enabled() -> bool:
    """Whether loops are compiled at all: numba's own variable switches that off, to debug it or others' code."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
