"""What is drawn over time is what is in the logbook."""

import numpy as np
import pytest

from equipoise.balances.linear import LinearConstraint
from equipoise.reconciliation import reconcile
from equipoise.reconciliation.drawing import draw_statistic, figure, most_suspect

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
