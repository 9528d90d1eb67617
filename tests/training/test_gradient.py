"""The training step's gradient in closed form, against autograd over the definition, `negative_elbo`."""

import pytest
import torch
from compiled_loops import loops_called
from steps import APART, CASES, NEARLY_TWICE, SHARED, assert_same, bnn, rows

from equipoise.network import propagation
from equipoise.training import closed_form, gradient
from equipoise.training.gradient import backward


@pytest.mark.parametrize("widest", [propagation.WIDEST, 0], ids=["compiled layers", "operators of torch"])
@pytest.mark.parametrize("case", CASES)
def test_the_gradient_is_that_of_autograd(case, widest, monkeypatch):
    monkeypatch.setattr(propagation, "WIDEST", widest)
    with loops_called() as called:
        assert_same(backward, bnn(**CASES[case]), rows(balances=CASES[case].get("B", APART) is not None))
    assert called == (["forward", "backward"] if widest else [])


@pytest.mark.parametrize("activation", ["silu", "tanh", "relu", "gelu"])
def test_it_is_so_for_every_activation(activation):
    assert_same(backward, bnn(activation=activation), rows())


@pytest.mark.parametrize("case", CASES)
def test_it_is_so_where_outputs_are_missing(case):
    assert_same(backward, bnn(**CASES[case]), rows(missing=True, balances="no balances" not in case))


def test_it_is_so_where_every_row_has_sensors_of_its_own():
    assert_same(backward, bnn(sensor="learned", head=False), rows(sensors=True))
    assert_same(backward, bnn(sensor="none"), rows(sensors=True))


def test_it_is_so_in_single_precision_to_its_rounding():
    assert_same(backward, bnn(dtype=torch.float32), rows(torch.float32), rtol=2e-4)


@pytest.mark.parametrize(
    ("options", "short"),
    [
        ({}, True),
        ({"tolerance": 0}, True),
        ({"tolerance": 0, "sensor": "none"}, False),
        ({"B": SHARED}, True),
        ({"B": NEARLY_TWICE, "tolerance": 1e-6}, False),
    ],
    ids=["simple", "exact, sensors", "exact, no sensors", "a shared output", "nearly dependent"],
)
def test_the_short_form_is_taken_only_where_it_holds(options, short, monkeypatch):
    found = []
    formula = closed_form.joint
    monkeypatch.setattr(gradient.closed_form, "joint", lambda *args: found.append(formula(*args)) or found[-1])
    backward(bnn(**options), rows(), 100)
    assert any(each is not None for each in found) == short
