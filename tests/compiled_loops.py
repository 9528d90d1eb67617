"""Which of the compiled loops over layers were called: what a test calls compiled must have gone through them."""

from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

import pytest

LOOPS = ("forward", "backward", "evaluate")


@contextmanager
def loops_called():
    """Give the names of the loops that Python calls, in their order; they do what they always do."""
    layers = pytest.importorskip("equipoise.fast.layers")
    called = []

    def counted(name):
        return lambda *arguments: called.append(name) or getattr(layers, name)(*arguments)

    # Compiled loops that call each other look each other up in the module, which therefore stays as it is.
    watched = SimpleNamespace(**vars(layers) | {name: counted(name) for name in LOOPS})
    with mock.patch("equipoise.fast.layers", watched):
        yield called
