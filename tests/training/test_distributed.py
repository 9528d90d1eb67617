"""Training in several processes, for real: against one process, after a kill, and with one voice."""

import dataclasses
import os
import signal

import pytest
import torch
from process_group import in_group, new_store, one_server, together
from small_runs import constrained_model, data

from equipoise.data.rows import Rows
from equipoise.network.model import ConstrainedBNN
from equipoise.training.checkpoint import TrainingError
from equipoise.training.distributed import ALONE, Group, LostProcessError
from equipoise.training.loop import mean_rmse, train
from equipoise.training.plan import TrainingPlan

pytestmark = [pytest.mark.usefixtures("long_training"), one_server]
PLAN = TrainingPlan(max_epochs=20, mean_epochs=8, noise_epochs=2, batch_size=33)  # 64 rows: batches of 33 and 31


# --- The same model ---------------------------------------------------------------------------------------------------


def in_double(rows: Rows) -> Rows:
    return dataclasses.replace(rows, x=rows.x.double())


def fitted(group, checkpoint=None, kill=None, seed=5, plan=PLAN):
    """Weights, history and the files that a process wrote; one that is to be killed is, in the middle of an epoch."""
    model, epochs = constrained_model().double(), []

    def watch(record):
        epochs.append(record)
        if kill == (group.rank, len(epochs)):
            os.kill(os.getpid(), signal.SIGKILL)

    file = None if checkpoint is None else checkpoint / f"{group.rank}.ckpt"
    rows, held_out = in_double(data()), in_double(data(32, 1))
    history = train(model, rows, held_out, plan, seed=seed, checkpoint=file, checkpoint_seconds=0.0, callback=watch)
    return {name: value.double().numpy() for name, value in model.state_dict().items()}, history


@pytest.fixture(scope="module")
def single():
    return fitted(ALONE)


def assert_same(one, other, rtol):
    """Relative to the largest of each kind of parameters: some pass through zero."""
    (weights, history), (others, again) = one, other
    assert weights.keys() == others.keys()
    for name, values in weights.items():
        assert abs(values - others[name]).max(initial=0.0) <= rtol * abs(values).max(initial=1e-300), name
    for name in ("rmse", "nll", "validation", "kl_weights"):
        assert again.column(name) == pytest.approx(history.column(name), rel=rtol)
    assert (again.best_epoch, again.stopped) == (history.best_epoch, history.stopped)


@pytest.mark.parametrize("size", [2, 3])
def test_several_processes_follow_the_training_of_one_to_rounding(single, size):
    results = together(in_group, fitted, size=size)
    for result in results:
        assert_same(single, result, rtol=1e-9)
    for result in results[1:]:  # and each other to the bit
        assert_same(results[0], result, rtol=0.0)


def test_processes_without_rows_in_a_small_batch_do_not_count():
    plan = dataclasses.replace(PLAN, max_epochs=2, mean_epochs=1, batch_size=2)
    expected = fitted(ALONE, plan=plan)
    for result in together(in_group, fitted, None, None, 5, plan, size=3):
        assert_same(expected, result, rtol=1e-9)


# --- Files and kills --------------------------------------------------------------------------------------------------


def test_only_the_first_process_writes(tmp_path):
    together(in_group, fitted, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["0.ckpt"]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_others_and_the_rest_is_trained_to_the_same_model(single, tmp_path, victim):
    results = together(in_group, fitted, tmp_path, (victim, 11))
    assert results[victim] == "killed"
    assert isinstance(results[1 - victim], LostProcessError)
    assert "must stay to its end, but one of them ended" in str(results[1 - victim])
    state = torch.load(tmp_path / "0.ckpt", weights_only=True)["state"]
    assert 9 <= len(state["progress"]["history"]["epochs"]) <= 11  # no other process has what came after
    for result in together(in_group, fitted, tmp_path):
        assert_same(single, result, rtol=1e-9)


def test_a_checkpoint_of_several_processes_is_gone_on_with_by_one(single, tmp_path):
    together(in_group, fitted, tmp_path, (1, 6))
    assert_same(single, fitted(ALONE, tmp_path), rtol=1e-9)


# --- What processes tell each other -----------------------------------------------------------------------------------


def differing(group):
    return fitted(group, seed=group.rank)


def summed_up(group, kill):
    tells = group.tells_first()
    if group.rank == kill:
        os.kill(os.getpid(), signal.SIGKILL)
    return float(group.sum(torch.ones(1))), tells


def test_processes_that_are_started_again_meet_at_once_and_have_a_voice_again():
    """What torchrun keeps for them still has the addresses, and the problems told, of those that were killed."""
    store = new_store()
    rest, lost = together(in_group, summed_up, 1, store=store)
    assert isinstance(rest, LostProcessError)
    assert lost == "killed"
    again = together(in_group, summed_up, None, store=store, start=1)
    assert sorted(again) == [(2.0, False), (2.0, True)]


def test_processes_that_start_from_different_seeds_are_refused():
    for error in together(in_group, differing):
        assert isinstance(error, TrainingError)
        assert "same rows, settings and seed, but got different ones" in str(error)


def sums(group):
    weights = [torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))]
    weights[0].grad = torch.tensor([1.0, 2.0]) + group.rank
    if group.rank == 0:
        weights[1].grad = torch.tensor([4.0], dtype=torch.float64)
    loss = group.sum_gradients(weights, torch.tensor(8.0), weight=[0.25, 0.75][group.rank])
    received = group.from_first({"state": torch.arange(3) + group.rank, "none": None})
    return [w.grad.tolist() for w in weights], float(loss), received["state"].tolist(), group.tells_first()


def test_gradients_are_weighted_state_is_that_of_the_first_and_one_process_speaks():
    one, other = together(in_group, sums)
    assert one[:3] == other[:3] == ([[1.75, 2.75], [1.0]], 8.0, [0, 1, 2])
    assert sorted([one[3], other[3]]) == [False, True]


def rmse_of_share(group):
    mean, y = torch.tensor([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]], dtype=torch.float64), torch.zeros(3, 2).double()
    y[1, 0] = torch.nan
    share = group.share_of(3)
    part = mean[share].clone().requires_grad_()
    loss = mean_rmse(part, y[share], group)
    loss.backward()
    return loss.item(), part.grad.tolist()


def test_the_error_of_a_shared_batch_and_its_gradient_are_those_of_the_whole():
    value, gradient = rmse_of_share(ALONE)
    assert value == pytest.approx((5.0**0.5 + (5 / 3) ** 0.5) / 2)  # by hand
    results = together(in_group, rmse_of_share)
    assert [result[0] for result in results] == pytest.approx([value, value])
    torch.testing.assert_close([row for result in results for row in result[1]], gradient)


def test_shares_of_a_batch_are_all_of_it_in_its_order():
    for n_rows, size in [(8, 3), (2, 5), (0, 2), (7, 1)]:
        shares = [Group(rank, size).share_of(n_rows) for rank in range(size)]
        assert [i for share in shares for i in range(n_rows)[share]] == list(range(n_rows))


def test_a_process_alone_sums_nothing_and_changes_no_bit():
    model: ConstrainedBNN = constrained_model()
    before, values = model.state_dict(), torch.ones(3)
    assert ALONE.sum(values) is values
    assert ALONE.from_first(before) is before
    assert ALONE.own_device("cuda") == "cuda"


def test_processes_of_one_machine_take_a_gpu_each(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert Group(7, 8).own_device("cuda") == "cuda:3"
    assert Group(7, 8).own_device("cpu") == "cpu"
