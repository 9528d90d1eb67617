"""How the loops of this package are compiled."""

from collections.abc import Callable
from typing import Any

from numba import njit

# "contract" lets products and sums become one instruction, rounded once. Nothing else may change the order of sums:
# elementary functions rely on it.
_OPTIONS: dict[str, Any] = {"fastmath": {"contract"}, "error_model": "numpy", "nogil": True}


def compiled(function: Callable) -> Callable:
    """A loop that is called from Python: compiled for the arrays it is first given, and kept for later processes."""
    try:
        return njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # no folder that compiled code could be kept in
        return njit(**_OPTIONS)(function)


def inlined(function: Callable) -> Callable:
    """A part of such loops."""
    return njit(forceinline=True, **_OPTIONS)(function)


def spliced(function: Callable) -> Callable:
    """A longer part, which goes into the source of the one loop that calls it, and is compiled with it only."""
    return njit(inline="always", **_OPTIONS)(function)
