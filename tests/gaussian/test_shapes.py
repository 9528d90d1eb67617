"""Shapes that values broadcast to, and what finding them must not cost."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

from equipoise.gaussian.shapes import batch_shape, common_shape


@given(mutually_broadcastable_shapes(num_shapes=3, min_side=0, max_side=4))
def test_shapes_are_those_that_torch_finds(drawn):
    assert common_shape(*drawn.input_shapes) == torch.broadcast_shapes(*drawn.input_shapes)


def test_shapes_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match="mismatch"):
        common_shape((2, 3), (4, 3))


@given(st.sampled_from([(), (1,), (5,), (2, 5)]))
def test_the_event_axis_is_left_out(lead):
    assert batch_shape(torch.zeros(*lead, 3), torch.zeros(7)) == torch.Size(lead)


LIGHT = """
import sys, torch
from equipoise import DiagonalGaussian, condition
condition(DiagonalGaussian(torch.zeros(4, 2), torch.ones(4, 2)), torch.ones(1, 2), torch.ones(1), 0.0).sample(3)
print(*sorted({"torch.fx.experimental.symbolic_shapes", "sympy"} & sys.modules.keys()))
"""


def test_conditioning_does_not_import_what_torch_has_for_symbols():
    run = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
