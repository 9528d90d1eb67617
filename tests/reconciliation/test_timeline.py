"""Long tables are thinned without losing what stands out, however they come in pieces."""

import numpy as np
import pytest

from equipoise.reconciliation.timeline import COLUMNS, Timeline


def table(rows, seed=0):
    rng = np.random.default_rng(seed)
    return rng.chisquare(3, rows), np.full(rows, 7.8147), rng.normal(size=(rows, 2))


def test_a_short_table_is_kept_as_it_is():
    statistic, threshold, moved = table(COLUMNS)
    line = Timeline.of(statistic, threshold, moved)
    np.testing.assert_allclose(line.excess * 7.8147, statistic)
    np.testing.assert_array_equal(line.lowest, moved)
    np.testing.assert_array_equal(line.time, np.arange(1, COLUMNS + 1))
    assert (line.rows, line.longest, line.has_one_threshold) == (COLUMNS, 1, True)


@pytest.mark.parametrize("cuts", [[], [8192, 16384], [3, 5000, 5001, 29_000], list(range(100, 30_000, 100))])
def test_runs_of_a_long_table_have_the_extremes_of_their_rows(cuts):
    statistic, threshold, moved = table(30_011)
    moved[::3, 1] = np.nan
    first, *others = (
        Timeline.of(*piece)
        for piece in zip(*(np.split(part, cuts) for part in (statistic, threshold, moved)), strict=True)
    )
    line = sum(others, first)
    assert line.rows == 30_011
    assert COLUMNS / 2 <= len(line.start) <= 2 * COLUMNS
    assert line.longest <= 4 * 30_011 / COLUMNS
    runs = np.split(np.arange(30_011), line.start[1:])
    np.testing.assert_array_equal(line.time, [run[0] + 1 for run in runs])
    np.testing.assert_allclose(line.excess, [statistic[run].max() / 7.8147 for run in runs])
    np.testing.assert_array_equal(line.lowest, [np.fmin.reduce(moved[run], axis=0) for run in runs])
    np.testing.assert_array_equal(line.highest, [np.fmax.reduce(moved[run], axis=0) for run in runs])


def test_times_are_those_of_the_first_row_of_a_run():
    when = np.datetime64("2026-03-01") + np.arange(10_000) * np.timedelta64(1, "m")
    statistic, threshold, moved = table(10_000)
    line = Timeline.of(statistic, threshold, moved, when)
    np.testing.assert_array_equal(line.time, when[line.start])
    both = line + Timeline.of(statistic, threshold, moved, when + np.timedelta64(10_000, "m"))
    assert both.time[-1] > when[-1]
    assert np.all(np.diff(both.time) > np.timedelta64(0))


def test_rows_that_cannot_be_tested_miss_nothing_and_thresholds_may_differ():
    line = Timeline.of(np.array([0.0, 3.0, 9.0]), np.array([np.nan, 2.0, 3.0]), np.zeros((3, 1)))
    np.testing.assert_array_equal(line.excess, [0.0, 1.5, 3.0])
    assert line.threshold == (2.0, 3.0)
    assert not line.has_one_threshold
    untested = Timeline.of(np.zeros(2), np.full(2, np.nan), np.zeros((2, 1)))
    assert not untested.has_one_threshold
    assert (untested + line).threshold == (2.0, 3.0)
