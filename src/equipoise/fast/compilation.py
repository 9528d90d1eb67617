"""Compilation of this room's loops by numba, and the cache of compiled code for later processes."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache

# "contract" allows a product and a sum to become one instruction, rounded once. No other option may change the order of
# operations, which the elementary functions rely on.
_OPTIONS: dict[str, Any] = {"fastmath": {"contract"}, "error_model": "numpy", "nogil": True}

_FILES = sorted(Path(__file__).parent.glob("*.py"))
_SOURCES = hashlib.sha256(b"".join(path.read_bytes() for path in _FILES)).hexdigest()
_listeners: list[Callable[[], object]] = []


class _RoomCache(FunctionCache):
    """A cache of compiled code on disk that is valid for the present text of all files of this room.

    Numba's own cache checks the file of the loop only, not the files of functions that it calls, and fails if a file of
    the cache is damaged.
    """

    def _index_key(self, sig, codegen) -> Any:
        return (*super()._index_key(sig, codegen), _SOURCES)

    def load_overload(self, sig, target_context):
        """Load the code compiled for these argument types, or call the listeners and return None if there is none.

        Args:
            sig: Numba's types of the arguments.
            target_context: Numba's context of the processor.
        """
        try:
            code = super().load_overload(sig, target_context)
        except Exception:  # a damaged file may raise anything
            code = None
            with contextlib.suppress(OSError):
                self.flush()
        if code is None:
            for listener in _listeners:
                listener()
        return code

    def save_overload(self, sig, data):
        """Save compiled code, or do without the cache if the disk is full or the folder does not exist.

        Args:
            sig: Numba's types of the arguments.
            data: The compiled code.
        """
        try:
            super().save_overload(sig, data)
        except OSError:
            self.disable()


@contextlib.contextmanager
def notify_on_compilation(listener: Callable[[], object]) -> Iterator[None]:
    """Call `listener`, within the context, whenever a loop has to be compiled because the cache does not hold it."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def compiled(function: Callable) -> Callable:
    """Compile a loop that is called from Python, at its first call and for its argument types, and cache it on disk."""
    dispatcher: Any = njit(**_OPTIONS)(function)
    with contextlib.suppress(RuntimeError):  # no folder for the cache can be written to
        dispatcher._cache = _RoomCache(function)
    return dispatcher


def inlined(function: Callable) -> Callable:
    """Compile a function whose machine code is inlined into the compiled loops that call it."""
    return njit(forceinline=True, **_OPTIONS)(function)


def spliced(function: Callable) -> Callable:
    """Compile a longer function as a part of the one loop that calls it, by inlining before type inference."""
    return njit(inline="always", **_OPTIONS)(function)
