"""The numbers of a training, and how rates rise and fall."""

import itertools
import math

import numpy as np
import pytest
import torch

from equipoise.training.plan import TrainingPlan, cosine, one_cycle


def test_schedules_start_low_peak_at_one_and_end_where_they_say():
    assert one_cycle(0.0) == pytest.approx(0.04)
    assert one_cycle(0.3) == pytest.approx(1.0)
    assert one_cycle(1.0) == pytest.approx(0.0, abs=1e-12)
    assert cosine(0.05) == pytest.approx(1.0)
    assert cosine(1.0) == pytest.approx(0.01)
    values = [cosine(f) for f in np.linspace(0.05, 1, 50)]
    assert all(a >= b for a, b in itertools.pairwise(values))


def annealed(end: float, n: int) -> list[float]:
    """The rates of torch's own cosine from 1 down to `end` in n steps."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule, rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n, end), [1.0]
    for _ in range(n):
        optimizer.step()
        schedule.step()
        rates += schedule.get_last_lr()
    return rates


def test_rates_rise_and_fall_along_the_cosine_of_torch():
    rise, fall = [one_cycle(k / 100) for k in range(31)], [one_cycle(k / 100) for k in range(30, 101)]
    assert rise == pytest.approx(annealed(0.04, 30)[::-1], rel=1e-12)
    assert fall == pytest.approx(annealed(0.0, 70), rel=1e-9, abs=1e-15)
    assert [cosine(k / 100) for k in range(5, 101)] == pytest.approx(annealed(0.01, 95), rel=1e-9)
    assert np.diff([cosine(k / 100) for k in range(6)]) == pytest.approx(np.full(5, 0.01 / 0.051))  # a straight line
    assert 0.0 < cosine(0.0) < 0.02


@pytest.mark.parametrize(
    ("n_rows", "batch", "passes"),
    [
        (1, 1, 1),
        (10, 10, 1),
        (40, 40, 2),
        (64, 64, 2),
        (127, 127, 4),
        (200, 128, 4),
        (640, 128, 4),
        (1500, 128, 2),
        (2000, 128, 1),
        (10**6, 512, 1),
    ],
)
def test_a_small_table_is_passed_over_several_times_in_large_batches(n_rows, batch, passes):
    plan = TrainingPlan()
    assert (plan.rows_per_step(n_rows), plan.passes(n_rows)) == (batch, passes)


@pytest.mark.parametrize("n_rows", [3, 33, 100, 127, 128, 129, 640, 799, 801, 3000, 12600])
def test_an_epoch_takes_as_many_steps_as_batches_of_32_would_up_to_25_or_so(n_rows):
    plan = TrainingPlan()
    steps = math.ceil(n_rows * plan.passes(n_rows) / plan.rows_per_step(n_rows))
    assert min(math.ceil(n_rows / 32), 25 / 2) <= steps <= min(math.ceil(n_rows / 32), 25)


def test_a_given_batch_size_is_taken_and_the_rows_passed_over_once():
    plan = TrainingPlan(batch_size=50)
    assert [(plan.rows_per_step(n), plan.passes(n)) for n in (20, 640)] == [(20, 1), (50, 1)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 0}, "batch_size.*but got 0"),
        ({"batch_size": 10.5}, r"batch_size.*but got 10\.5"),
        ({"batch_size": True}, "batch_size.*but got True"),
        ({"validation_draws": 2.5}, r"validation_draws.*but got 2\.5"),
        ({"max_epochs": 2.5}, r"max_epochs.*but got 2\.5"),
        ({"learning_rate": -1.0}, "learning_rate.*but got -1"),
        ({"kl_warmup": 1.5}, r"kl_warmup.*but got 1\.5"),
        ({"init_std": 0.0}, r"init_std.*but got 0\.0"),
        ({"mean_epochs": -1}, "mean_epochs.*but got -1"),
        ({"noise_epochs": 1.5}, r"noise_epochs.*but got 1\.5"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        TrainingPlan(**change)
