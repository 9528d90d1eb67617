"""Tables gone through piece by piece: the same rows and the same statistics as all at once."""

import warnings

import numpy as np
import pytest
from hypothesis import given, strategies as st

from equipoise.data import table_passes
from equipoise.data.table_passes import ColumnMoments, Comoments, Moments, gather, is_mapped, is_whole, pieces


@pytest.fixture
def mapped(tmp_path):
    """Gives an array as one that stays in its file."""

    def make(values, name="x.npy"):
        np.save(tmp_path / name, values)
        return np.load(tmp_path / name, mmap_mode="r")

    return make


def parts_of(values: np.ndarray, cuts: list[int]) -> list[np.ndarray]:
    return np.split(values, sorted(cut % len(values) for cut in cuts))


def random_columns(seed: int, n: int = 60) -> np.ndarray:
    """Columns whose means are up to a million times as large as their spreads, in units that differ by decades."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, 4)) + 10.0 ** np.arange(0, 8, 2)) * 10.0 ** rng.uniform(-6, 6, 4)


def test_an_array_is_mapped_as_long_as_it_shares_the_memory_of_its_file(mapped):
    table = mapped(np.arange(12.0).reshape(4, 3))
    for view in (table, table[:, 1], table[1:3], np.asarray(table), table.reshape(6, 2), table[:, :2][::2]):
        assert is_mapped(view)
    for other in (table[[0, 2]], table.copy(), table + 1, np.ones(3), [[1.0]], None):
        assert not is_mapped(other)
    assert is_mapped(mapped(np.arange(4)))
    assert is_mapped(mapped(np.ones(3, dtype=np.float32)))
    assert not is_mapped(mapped(np.array(["a", "b"])))


def test_a_file_that_was_cut_since_it_was_mapped_is_noticed_before_it_is_read(mapped, tmp_path):
    table = mapped(np.ones((1000, 3)))
    assert is_whole(table)
    assert is_whole(table[:, 1])
    assert is_whole(np.ones(3))
    with open(tmp_path / "x.npy", "r+b") as file:
        file.truncate(10_000)
    assert not is_whole(table)
    assert not is_whole(table[:10, 1])


def test_pieces_are_all_rows_in_their_order_and_in_double_precision(monkeypatch):
    monkeypatch.setattr(table_passes, "PIECE", 3)
    x, y = np.arange(14.0).reshape(7, 2), np.arange(7, dtype=np.int32)
    found = list(pieces(x, y))
    assert [len(part) for part, _ in found] == [3, 3, 1]
    np.testing.assert_array_equal(np.concatenate([part for part, _ in found]), x)
    np.testing.assert_array_equal(np.concatenate([part for _, part in found]), y)
    assert {part.dtype for both in found for part in both} == {np.dtype(float)}
    (some,) = zip(*pieces(x, rows=np.array([0, 2, 3, 6])), strict=True)
    np.testing.assert_array_equal(np.concatenate(some), x[[0, 2, 3, 6]])


def test_rows_are_read_in_the_order_of_the_table_and_given_in_the_order_asked_for():
    table, rows = np.arange(40.0).reshape(20, 2), np.random.default_rng(0).permutation(20)[:13]
    read = []

    class Watched(np.ndarray):
        def __getitem__(self, index):
            read.append(index)
            return np.asarray(self)[index]

    np.testing.assert_array_equal(gather(table.view(Watched), rows), table[rows])
    np.testing.assert_array_equal(read, [np.sort(rows)])


@given(st.integers(0, 10_000), st.lists(st.integers(0, 59), max_size=6))
def test_moments_of_pieces_are_those_of_the_whole(seed, cuts):
    values = random_columns(seed)
    values[np.random.default_rng(seed).random(values.shape) < 0.3] = np.nan
    values[0] = 1.0
    found = Moments.over(parts_of(values, cuts))
    np.testing.assert_array_equal(found.count, (~np.isnan(values)).sum(0))
    np.testing.assert_allclose(found.mean, np.nanmean(values, 0), rtol=1e-12)
    np.testing.assert_allclose(np.sqrt(found.var), np.nanstd(values, 0), rtol=1e-10)
    np.testing.assert_array_equal(found.largest, np.nanmax(np.abs(values), 0))
    np.testing.assert_array_equal(found.lowest, np.nanmin(values, 0))
    np.testing.assert_array_equal(found.highest, np.nanmax(values, 0))


def test_means_and_spreads_of_a_long_table_agree_with_numpys_to_twelve_digits():
    values = np.random.default_rng(0).normal([3.0, -1.0, 0.1], [1.0, 5.0, 0.2], (100_000, 3))
    found = Moments.over(part for (part,) in pieces(values))
    np.testing.assert_allclose(found.mean, values.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.spread, values.std(0), rtol=1e-12)


def test_a_column_without_any_value_in_a_piece_or_at_all_has_a_count_of_none():
    values = np.array([[np.nan, np.nan], [np.nan, np.nan], [2.0, np.nan], [4.0, np.nan]])
    found = Moments.over([values[:2], values[2:]])
    assert found.count.tolist() == [2, 0]
    assert (found.center.tolist(), found.spread.tolist(), found.largest.tolist()) == (
        [3.0, 0.0],
        [1.0, 0.0],
        [4.0, 0.0],
    )


def test_a_column_that_is_constant_but_for_rounding_has_no_spread():
    values = np.full((5000, 1), 0.1)
    assert Moments.over(np.split(values, [7, 100])).spread.tolist() == [0.0]
    values[3] += 1e-9
    assert Moments.over(np.split(values, [7, 100])).spread[0] == pytest.approx(values.std())


@given(st.integers(0, 10_000), st.lists(st.integers(0, 59), max_size=6))
def test_columns_vary_together_in_pieces_as_in_the_whole(seed, cuts):
    values = random_columns(seed)
    values[:, 2] += values[:, 0]
    found = Comoments.over(parts_of(values, cuts))
    assert found.count.tolist() == [60] * values.shape[1]
    np.testing.assert_allclose(found.mean, values.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.var, values.var(0), rtol=1e-8)
    np.testing.assert_allclose(found.correlation, np.corrcoef(values.T)[0], rtol=1e-8, atol=1e-8)


def test_nothing_goes_with_a_constant_column_nor_with_a_constant_first_one():
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.normal(size=30), np.full(30, 0.1), rng.normal(size=30)])
    assert Comoments.over([values[:4], values[4:]]).correlation[1] == 0.0
    assert Comoments.over([values[:, 1:]]).correlation.tolist() == [0.0, 0.0]


RNG = np.random.default_rng(0)
VALUES = 1e6 + RNG.normal(size=(100, 3))
VALUES[RNG.random((100, 3)) < 0.2] = np.nan
VALUES[:, 2] = np.nan


@pytest.mark.parametrize("cuts", [[], [40], [1, 2, 50, 50, 99]])
def test_sample_moments_of_pieces_are_those_of_the_whole_far_from_zero(cuts):
    first, *others = map(ColumnMoments.of, np.split(VALUES, cuts))
    moments = sum(others, first)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's, of the column without values
        mean, std = np.nanmean(VALUES, axis=0), np.nanstd(VALUES, axis=0, ddof=1)
    count = (~np.isnan(VALUES)).sum(axis=0)
    np.testing.assert_array_equal(moments.count, count)
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-13)
    np.testing.assert_allclose(moments.std, std, rtol=1e-9)  # sums of squares would keep 4 digits of it
    np.testing.assert_allclose(moments.standard_error[:2], (std / np.sqrt(count))[:2], rtol=1e-9)


def test_one_value_has_a_mean_but_no_spread():
    one = ColumnMoments.of(np.array([[3.0, np.nan]]))
    np.testing.assert_array_equal(one.mean, [3.0, np.nan])
    np.testing.assert_array_equal(one.std, [np.nan, np.nan])
