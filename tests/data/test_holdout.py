"""Rows held out: which they may be, how many, and what is refused."""

import numpy as np
import pytest

from equipoise.data import table_passes
from equipoise.data.holdout import check_measured, random_split, split_at


def outputs(n: int = 40, n_y: int = 2) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, n_y))


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.55])
def test_a_share_of_the_rows_is_held_out_and_all_others_are_trained_on(fraction):
    trained, held_out = random_split(outputs(), fraction, seed=3)
    assert len(held_out) == int(fraction * 40)
    assert sorted([*trained, *held_out]) == list(range(40))


def test_the_seed_decides_which():
    first, again, other = (random_split(outputs(), 0.5, seed)[1].tolist() for seed in (3, 3, 4))
    assert first == again != other


def test_no_more_rows_are_held_out_than_are_asked_for_at_most():
    most, few = (random_split(outputs(), 0.5, seed=3, most=n) for n in (30, 4))
    assert (len(most[1]), len(few[1])) == (20, 4)
    assert set(few[1]) < set(most[1])
    assert sorted([*few[0], *few[1]]) == list(range(40))


def test_a_long_table_is_split_as_a_short_one(monkeypatch):
    Y = outputs()
    Y[9:, 1] = np.nan
    whole = random_split(Y, 0.5, seed=3)
    monkeypatch.setattr(table_passes, "PIECE", 7)
    for one, other in zip(whole, random_split(Y, 0.5, seed=3), strict=True):
        assert one.tolist() == other.tolist()


def test_rows_without_a_measurement_are_not_held_out():
    Y = outputs()
    Y[:30] = np.nan
    Y[0, 1] = 1.0  # a row with one value can be held out; an empty one cannot
    seen = {int(row) for seed in range(50) for row in random_split(Y, 0.5, seed)[1]}
    assert seen == {0, *range(30, 40)}
    assert len(random_split(Y, 0.5, 0)[1]) == 5


def test_rows_with_a_rarely_measured_output_are_not_held_out():
    Y = outputs()
    Y[9:, 1] = np.nan  # in 9 rows of 40
    seen = {int(row) for seed in range(50) for row in random_split(Y, 0.5, seed)[1]}
    assert seen == set(range(9, 40))


def test_chosen_rows_are_taken_once_and_in_order():
    trained, held_out = split_at([3, 1, 3], 5)
    assert (trained.tolist(), held_out.tolist()) == ([0, 2, 4], [1, 3])
    assert split_at([], 3)[0].tolist() == [0, 1, 2]
    assert split_at(range(37), 40)[0].tolist() == [37, 38, 39]


@pytest.mark.parametrize(
    "held_out", [[-1], [40], [0.5], range(38)], ids=["negative", "beyond", "fraction", "all but two"]
)
def test_rows_that_cannot_be_held_out_are_refused(held_out):
    with pytest.raises(ValueError, match="held_out must hold positions of rows, 0 to 39, and leave 3 rows"):
        split_at(held_out, 40)


def test_an_output_that_is_hardly_measured_is_named():
    Y = outputs()
    Y[3:, 1] = np.nan
    check_measured(Y, ["a", "b"])
    Y[2, 1] = np.nan
    with pytest.raises(ValueError, match=r"measured in 3 rows at least .* but got 2 for 'b'\. Drop it"):
        check_measured(Y, ["a", "b"])
    with pytest.raises(ValueError, match=r"but got 2 for 'a'\. Drop it, or add rows that have it\."):
        check_measured(outputs()[:2], ["a", "b"])
    with pytest.raises(ValueError, match=r"but got 1 for 'a'"):
        check_measured(outputs()[:, :1] * np.where(np.arange(40) < 8, 1, np.nan)[:, None], ["a"], np.arange(7, 40))
