"""Best states, followed by hand."""

import torch
from torch import nn

from equipoise.training.best_states import BestStates


class Two(nn.Module):
    """Two members of three weights each, and a shared number."""

    def __init__(self, value):
        super().__init__()
        self.weights = nn.Parameter(torch.full((2, 3), value))
        self.shared = nn.Parameter(torch.full((1,), value))


def test_each_member_keeps_its_own_best_state_until_its_patience_ends_and_all_share_one_tolerance():
    best = BestStates(2)
    for epoch, values in enumerate([(5.0, 1.0), (4.0, 2.0), (3.0, 3.0), (2.0, 0.5), (9.0, 0.1)]):
        best.keep(torch.tensor(values).double(), Two(float(epoch)), ["weights"], patience=2)
    model = Two(-1.0)
    best.restore(model)
    assert model.weights.tolist() == [[3.0] * 3, [0.0] * 3]  # the second was worse in two epochs, and was left out
    assert model.shared.tolist() == [3.0]  # of the epoch with the least mean over members, 1.25


def test_without_patience_and_members_the_state_with_the_least_value_is_kept():
    best = BestStates()
    improved = [best.keep(torch.tensor([value]).double(), Two(value)) for value in (3.0, 4.0, 2.0, 2.5, 9.0)]
    assert improved == [True, False, True, False, False]
    assert (best.is_exhausted(2), best.is_exhausted(3)) == (True, False)
    best.restore(model := Two(-1.0))
    assert model.weights.tolist() == [[2.0] * 3] * 2


def test_an_epoch_that_does_not_count_costs_no_patience():
    best = BestStates()
    for value in (1.0, 2.0, 3.0):
        best.keep(torch.tensor([value]).double(), Two(value), counts=value < 2.5)
    assert best.since.tolist() == [1]


def test_states_continue_from_a_checkpoint_also_from_one_of_an_earlier_version():
    best = BestStates()
    best.keep(torch.tensor([3.0]).double(), Two(3.0))
    for progress in (best.progress(), {"best_value": 3.0, "since_best": 4, "best_state": best.state}):
        again = BestStates()
        again.restore_progress(progress)
        assert not again.keep(torch.tensor([3.5]).double(), Two(3.5))
        again.restore(model := Two(-1.0))
        assert model.shared.tolist() == [3.0]
    assert again.since.tolist() == [5]
