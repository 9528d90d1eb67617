"""Long tables are thinned without losing what stands out, however they come in pieces."""

import numpy as np
import pytest

from equipoise.balances.linear import LinearConstraint
from equipoise.reconciliation import reconcile
from equipoise.reconciliation.trends import COLUMNS, Timeline, draw_statistic, figure, most_suspect


def table(rows, seed=0):
    rng = np.random.default_rng(seed)
    return rng.chisquare(3, rows), np.full(rows, 7.8147), rng.normal(size=(rows, 2))


def test_a_short_table_is_kept_as_it_is():
    statistic, threshold, moved = table(COLUMNS)
    line = Timeline.of(statistic, threshold, moved)
    np.testing.assert_allclose(line.relative_statistic * 7.8147, statistic)
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
    np.testing.assert_allclose(line.relative_statistic, [statistic[run].max() / 7.8147 for run in runs])
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


def test_whole_seconds_are_times_and_only_row_numbers_continue():
    piece = np.ones(100), np.ones(100), np.zeros((100, 1))
    seconds = 60 * np.arange(200)
    both = Timeline.of(*piece, seconds[:100]) + Timeline.of(*piece, seconds[100:])
    np.testing.assert_array_equal(both.time, seconds)
    numbered = Timeline.of(*piece) + Timeline.of(*piece)
    np.testing.assert_array_equal(numbered.time, np.arange(1, 201))


def test_rows_that_cannot_be_tested_miss_nothing_and_thresholds_may_differ():
    line = Timeline.of(np.array([0.0, 3.0, 9.0]), np.array([np.nan, 2.0, 3.0]), np.zeros((3, 1)))
    np.testing.assert_array_equal(line.relative_statistic, [0.0, 1.5, 3.0])
    assert line.threshold == (2.0, 3.0)
    assert not line.has_one_threshold
    untested = Timeline.of(np.zeros(2), np.full(2, np.nan), np.zeros((2, 1)))
    assert not untested.has_one_threshold
    assert (untested + line).threshold == (2.0, 3.0)


NAMES = ["a [kg/s]", "b [kg/s]", "c [kg/s]", "d"]
CHAIN = LinearConstraint.from_equations({"first": "a = b", "second": "b = c"}, outputs=NAMES)


@pytest.fixture
def result():
    rng = np.random.default_rng(0)
    values = rng.uniform(5, 9, (300, 1)) + 0.1 * rng.normal(size=(300, 4))
    values[100:200, 1] += 2.0
    values[:, 3] = np.nan
    return reconcile(values, 0.1, CHAIN)


def test_the_statistic_is_drawn_beside_its_threshold(result):
    canvas = result.plot(sensors=1)
    first, second = canvas.axes
    line, limit = first.lines
    np.testing.assert_array_equal(line.get_xdata(), np.arange(1, 301))
    np.testing.assert_allclose(line.get_ydata(), result.statistic)
    np.testing.assert_allclose(limit.get_ydata(), result.threshold[0])
    assert (first.get_ylabel(), second.get_xlabel()) == ("statistic", "row")
    assert limit.get_label() == "threshold at 95 %"


def test_the_most_suspect_sensor_is_drawn_with_its_unit(result):
    (ax,) = result.plot(sensors=1).axes[1:]
    assert (ax.get_title(), ax.get_ylabel()) == ("b [kg/s]", "adjustment [kg/s]")
    np.testing.assert_allclose(ax.lines[1].get_ydata(), result.adjustments[:, 1])


def test_only_what_is_measured_is_drawn_and_suspects_come_first(result):
    names = most_suspect(result.logbook(), 9)
    assert names[0] == "b [kg/s]"
    assert sorted(names) == NAMES[:3]


def test_without_suspects_those_come_first_that_are_moved_by_most_of_their_standard_deviations():
    """Residuals of 0.1, 4 and 12 are shared by meters with equal errors of 0.1, 10 and 20: moved by 0.5, 0.2, 0.3."""
    apart = LinearConstraint.from_equations(["a = b", "c = d", "e = f"], outputs=list("abcdef"))
    std = [0.1, 0.1, 10.0, 10.0, 20.0, 20.0]
    log = reconcile([[1.1, 1.0, 5.0, 1.0, 13.0, 1.0]] * 3, std, apart).logbook()
    assert log.totals.errors.count.sum() == 0
    assert [set(pair) for pair in np.split(np.array(most_suspect(log, 6)), 3)] == [{"a", "b"}, {"e", "f"}, {"c", "d"}]


def test_dates_are_on_the_axis_and_differing_thresholds_become_one(result):
    values = result.solution.measurements.values.copy()
    values[:50, 2] = np.nan
    other = reconcile(values, 0.1, CHAIN)
    when = np.datetime64("2026-03-01") + np.arange(300) * np.timedelta64(1, "h")
    canvas = figure(other.logbook(when), sensors=2)
    first = canvas.axes[0]
    assert first.get_ylabel() == "statistic / threshold"
    np.testing.assert_allclose(first.lines[0].get_ydata(), other.statistic / other.threshold)
    np.testing.assert_array_equal(first.lines[1].get_ydata(), [1.0, 1.0])
    assert canvas.axes[-1].get_xlabel() == "time"
    canvas.canvas.draw()
    assert any("Mar" in label.get_text() for label in canvas.axes[-1].get_xticklabels())


def test_the_drawing_of_a_long_table_keeps_its_peak():
    rng = np.random.default_rng(1)
    values = 5 + 0.1 * rng.normal(size=(20_000, 4))
    values[12_345, 0] = 9.0
    long = reconcile(values, 0.1, CHAIN)
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    draw_statistic(ax, long.logbook())
    y = np.asarray(ax.lines[0].get_ydata())
    assert len(y) < 1000
    assert y.max() == pytest.approx(long.statistic.max())
