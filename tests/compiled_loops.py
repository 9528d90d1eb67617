"""Which of the compiled loops over layers were called: what a test calls compiled must have gone through them."""

from contextlib import ExitStack, contextmanager
from unittest import mock

import pytest

LOOPS = ("forward", "backward", "forward_means", "backward_means", "evaluate")


@contextmanager
def loops_called():
    """Give the names of the loops that Python calls, in their order; they do what they always do."""
    layers = pytest.importorskip("equipoise.fast.layers")
    called = []

    def counted(name, loop):
        return lambda *arguments: called.append(name) or loop(*arguments)

    with ExitStack() as patches:
        for name in LOOPS:
            patches.enter_context(mock.patch.object(layers, name, counted(name, getattr(layers, name))))
        yield called
