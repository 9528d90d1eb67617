"""How the loops of this package are compiled, and kept for later processes."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache

# "contract" lets products and sums become one instruction, rounded once. Nothing else may change the order of sums:
# elementary functions rely on it.
_OPTIONS: dict[str, Any] = {"fastmath": {"contract"}, "error_model": "numpy", "nogil": True}

_FILES = sorted(Path(__file__).parent.glob("*.py"))
_SOURCES = hashlib.sha256(b"".join(path.read_bytes() for path in _FILES)).hexdigest()
_listeners: list[Callable[[], object]] = []


class _Kept(FunctionCache):
    """Compiled code on disk that belongs to all files of this package as they are, and that may be lost or damaged.

    Numba by itself looks at the file of a loop only, and not at those of what it calls.
    """

    def _index_key(self, sig, codegen) -> Any:
        return (*super()._index_key(sig, codegen), _SOURCES)

    def load_overload(self, sig, target_context):
        try:
            found = super().load_overload(sig, target_context)
        except Exception:  # whatever a damaged file leads to
            found = None
            with contextlib.suppress(OSError):
                self.flush()
        if found is None:
            for listener in _listeners:
                listener()
        return found

    def save_overload(self, sig, data):
        try:
            super().save_overload(sig, data)
        except OSError:  # a full disk, a folder that is gone: this process has what it needs
            self.disable()


@contextlib.contextmanager
def told(listener: Callable[[], object]) -> Iterator[None]:
    """Call a function, within the block, whenever something has to be compiled."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def compiled(function: Callable) -> Callable:
    """A loop that is called from Python: compiled for the arrays it is first given, and kept for later processes."""
    dispatcher: Any = njit(**_OPTIONS)(function)
    with contextlib.suppress(RuntimeError):  # there may be no folder that compiled code could be kept in
        dispatcher._cache = _Kept(function)
    return dispatcher


def inlined(function: Callable) -> Callable:
    """A part of such loops."""
    return njit(forceinline=True, **_OPTIONS)(function)


def spliced(function: Callable) -> Callable:
    """A longer part, which goes into the source of the one loop that calls it, and is compiled with it only."""
    return njit(inline="always", **_OPTIONS)(function)
