"""The training step, compiled and by autograd, against autograd over the definition in operators of torch."""

import copy
from dataclasses import replace

import pytest
import torch
from steps import APART, CASES, NAN, NEARLY_TWICE, SHARED, assert_same, bnn, both_ways, rows

from equipoise import compiled
from equipoise.data.rows import Rows
from equipoise.gaussian.randomness import BatchGenerator
from equipoise.network import layers
from equipoise.network.likelihood import joint, marginal
from equipoise.network.mlp import BayesianMLP
from equipoise.training import objective
from equipoise.training.objective import Objective

COMPILED = [case for case in CASES if "offsets" not in case]


NEEDS_LOOPS = pytest.mark.skipif(not compiled.is_available(), reason="of compiled code")


class Counted(Objective):
    """An objective that counts the steps that it leaves to autograd."""

    def __init__(self, model):
        super().__init__(model)
        self.by_autograd = 0

    def _differentiate(self, *arguments):
        self.by_autograd += 1
        return super()._differentiate(*arguments)


def step(model, *args):
    """One step of a fresh objective, which must be compiled."""
    made = Counted(model)
    nll = made.backward(*args)
    assert made.by_autograd == 0
    return nll


@NEEDS_LOOPS
@pytest.mark.parametrize("case", COMPILED)
@pytest.mark.parametrize("missing", [False, True], ids=["complete", "outputs missing"])
def test_the_gradient_is_that_of_autograd(case, missing):
    batch = rows(missing=missing, balances=CASES[case].get("B", APART) is not None)
    assert_same(step, bnn(**CASES[case]), batch)


@NEEDS_LOOPS
@pytest.mark.parametrize("activation", ["silu", "tanh", "relu"])
def test_it_is_so_for_every_activation(activation):
    assert_same(step, bnn(activation=activation), rows())


@NEEDS_LOOPS
@pytest.mark.parametrize("sensor", ["none", "learned"])
@pytest.mark.parametrize("head", [False, True])
def test_it_is_so_where_every_row_has_sensors_of_its_own(sensor, head):
    assert_same(step, bnn(sensor=sensor, head=head), rows(sensors=True))


@NEEDS_LOOPS
@pytest.mark.parametrize("likelihood", [joint, marginal])
def test_it_is_so_in_single_precision_to_its_rounding(likelihood):
    assert_same(step, bnn(likelihood, dtype=torch.float32), rows(torch.float32), rtol=2e-4)


@NEEDS_LOOPS
@pytest.mark.parametrize("hidden", [(), (1,), (65, 33, 17)])
def test_it_is_so_for_layers_of_any_width(hidden):
    model = bnn()
    rng = torch.Generator().manual_seed(1)
    model.network = BayesianMLP(2, 6, hidden, sensor_head=True, init_std=0.2, generator=rng).double()
    assert_same(step, model, rows())


@pytest.mark.parametrize(
    "options",
    [
        {"offset": True},
        {"B": NEARLY_TWICE, "tolerance": 1e-6},
        {"activation": "gelu"},
        {"tolerance": 0, "sensor": "none"},
    ],
    ids=["offsets", "nearly dependent", "an activation without a loop", "exact, no sensors"],
)
@pytest.mark.parametrize("widest", [layers.WIDEST, 0], ids=["compiled layers", "operators of torch"])
def test_what_has_no_compiled_form_is_left_to_autograd(options, widest, monkeypatch):
    """With the same random numbers, also where that is found out only after they were drawn."""
    monkeypatch.setattr(layers, "WIDEST", widest)
    model, batch = bnn(**options), rows()
    if options.get("tolerance") == 0:  # rows on the subspace, or their density is 0
        batch = Rows(batch.x, batch.y, batch.y @ APART.T)
    made = Counted(model)
    # The condition of nearly dependent balances is 1e11 here, and other random numbers would change all by as much.
    rtol = 0.05 if "B" in options else 1e-10
    assert_same(lambda _, *args: made.backward(*args), model, batch, rtol=rtol)
    assert made.by_autograd == 1


@NEEDS_LOOPS
@pytest.mark.parametrize("case", ["joint, sensors with a head", "marginal", "coupled"])
def test_it_is_so_where_a_batch_is_taken_in_parts(case, monkeypatch):
    monkeypatch.setattr(objective, "BATCH_PART", 4)  # nine rows: parts of 4, 4 and 1
    assert_same(step, bnn(**CASES[case]), rows(missing=True))


@NEEDS_LOOPS
def test_targets_are_passed_over_where_there_are_no_balances():
    assert_same(step, bnn(B=None), rows(balances=True))


def test_shares_of_a_batch_have_the_numbers_of_the_whole():
    model, batch = bnn(), rows()

    def gradient(share):
        generator = BatchGenerator()
        generator.manual_seed(3)
        generator.rows, generator.total = share, len(batch)
        nll = Objective(model).backward(batch.take(share), 100, generator)
        return torch.cat([nll.reshape(1), *(p.grad.flatten() for p in model.parameters())])

    parts = [(share.stop - share.start) / 9 * gradient(share) for share in (slice(0, 4), slice(4, 9))]
    torch.testing.assert_close(sum(parts), gradient(slice(0, 9)), rtol=1e-12, atol=1e-13)


@NEEDS_LOOPS
def test_parameters_that_are_not_finite_show_in_the_loss():
    """Training ends with a message then: nothing on the way may turn NaN into a number."""
    for name in ("network.posterior.loc", "network.posterior.log_std", "conditioning.tolerance.loc", "sensor.loc"):
        model = bnn()
        model.get_parameter(name).data[0] = NAN
        assert not step(model, rows(), 100, torch.Generator().manual_seed(0)).isfinite(), name


@NEEDS_LOOPS
def test_parameters_whose_memory_was_replaced_are_seen():
    """As by `load_state_dict(assign=True)`, or where an objective is copied together with its model."""
    model, batch = bnn(), rows()
    one = Counted(model)
    one.backward(batch, 100, torch.Generator().manual_seed(3))
    other = copy.deepcopy(one)
    other.model.network.posterior.loc.data += 0.5
    model.load_state_dict({name: value.clone() for name, value in other.model.state_dict().items()}, assign=True)
    for each in (one, other):
        assert_same(lambda _, *args, each=each: each.backward(*args), each.model, batch)
        assert each.by_autograd == 0


def other_data(model):
    for parameter in model.parameters():
        parameter.data = parameter.data + 0.25


def doubled(tensors):
    return {name: value * 2 if value.is_floating_point() else value.clone() for name, value in tensors}


def moved_and_back(model):
    state = doubled(model.state_dict().items())
    model.to("meta").to_empty(device="cpu").load_state_dict(state)


REPLACEMENTS = {
    "data of parameters": other_data,
    "all assigned": lambda model: model.load_state_dict(doubled(model.state_dict().items()), assign=True),
    "buffers assigned": lambda m: m.load_state_dict(doubled(m.named_buffers()), strict=False, assign=True),
    "buffers in place": lambda m: m.load_state_dict(doubled(m.named_buffers()), strict=False),
    "another device and back": moved_and_back,
}


@NEEDS_LOOPS
@pytest.mark.parametrize("replace", REPLACEMENTS.values(), ids=REPLACEMENTS)
@pytest.mark.parametrize("options", [{"sensor": "some", "tolerance": {"balance 1": 0.3}}, {"B": SHARED}, {"B": None}])
def test_a_step_sees_parameters_and_buffers_as_they_are_now(replace, options):
    model, batch = bnn(**options), rows(balances=options.get("B", APART) is not None)
    made = Counted(model)
    made.backward(batch, 100, torch.Generator().manual_seed(3))
    replace(model)
    assert_same(lambda _, *args: made.backward(*args), model, batch)
    assert made.by_autograd == 0


def test_a_step_goes_on_in_another_precision():
    model = bnn(dtype=torch.float32)
    made = Objective(model)
    made.backward(rows(torch.float32), 100, torch.Generator().manual_seed(3))
    assert_same(lambda _, *args: made.backward(*args), model.double(), rows())


def test_outputs_in_single_precision_are_left_to_autograd():
    batch = rows()
    batch, made = Rows(batch.x, batch.y.float(), batch.target.float()), Counted(bnn())
    made.backward(batch, 100, torch.Generator().manual_seed(3))
    assert made.by_autograd == 1


@pytest.mark.parametrize("B", [APART, SHARED], ids=["apart", "coupled"])
def test_coefficients_that_come_with_the_rows_have_the_gradients_of_the_same_ones_in_the_layer(B):
    """The oracle is the definition with one B; with the rows' own there is no compiled code."""
    model, batch = bnn(B=B), rows(missing=True)
    _, (expected, gradients) = both_ways(lambda *args: Objective(args[0]).backward(*args[1:]), model, batch)
    by_row = copy.deepcopy(model)
    coefficients, by_row.conditioning.B = by_row.conditioning.B, None
    by_row_batch = replace(batch, B=coefficients.repeat(len(batch), 1, 1))
    objective_by_row = Counted(by_row)
    nll = objective_by_row.backward(by_row_batch, 100, torch.Generator().manual_seed(7), 0.6, 0.3)
    assert objective_by_row.by_autograd == 1
    torch.testing.assert_close(nll, expected, rtol=1e-10, atol=0.0)
    for name, parameter in by_row.named_parameters():
        largest = gradients[name].abs().max().item() if parameter.numel() else 0.0
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=0.0, atol=1e-10 * largest)
