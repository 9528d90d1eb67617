"""The page on a plant says what its logbook holds: verdicts, sensors, balances, the worst rows, drawings over time."""

import re

import numpy as np
import pytest

from equipoise.app.report import charts
from equipoise.app.report.page import render
from equipoise.app.report.reconciliation_report import plant_report
from equipoise.balances.linear import LinearConstraint
from equipoise.reconciliation import reconcile

pytestmark = pytest.mark.xdist_group("plant page")  # one worker draws it, once
NAMES = ["a [kg/s]", "b [kg/s]", "c <x> [kg/s]", "lost [kg/s]"]
CHAIN = LinearConstraint.from_equations(
    {"first": "a = b", "second": "b = `c <x>`", "third": "`c <x>` = lost"}, outputs=NAMES
)
WHEN = np.datetime64("2026-03-01") + np.arange(2000) * np.timedelta64(1, "m")


def reconciled(lie=2.0, rows=2000):
    rng = np.random.default_rng(0)
    values = rng.uniform(5, 9, (rows, 1)) + 0.1 * rng.normal(size=(rows, 4))
    values[: rows // 2, 1] += lie
    values[:, 3] = np.nan
    return reconcile(values, 0.1, CHAIN, tolerance={"third": 0.5})


@pytest.fixture
def undrawn(monkeypatch):
    """Drawings take nearly all of the time of a page, and are looked at elsewhere."""
    monkeypatch.setattr(charts, "svg", lambda *_: "<svg/>")


@pytest.fixture(scope="module")
def page():
    return plant_report(reconciled().logbook(WHEN), title="A plant", job="[balances]", notes={"table": "plant.csv"})


def test_the_lead_says_who_lies_and_what_cannot_be_known(page):
    first, second, third = page.lead.split("\n\n")
    assert first.startswith("1,0")
    assert "fail the global test at 95 %: chance would give 100." in first
    assert second.startswith("Sensor 'b [kg/s]' is the suspect in 1,0")
    assert third == "Calculated from the others where not measured: 'lost [kg/s]'."


def test_without_errors_the_lead_is_calm(undrawn):
    lead = plant_report(reconciled(lie=0.0).logbook(), title="A plant").lead
    assert "Nothing speaks against the sensors or the balances." in lead


def test_errors_that_nobody_can_be_blamed_for_are_said(undrawn):
    pairs = LinearConstraint.from_equations({"x": "a = b", "y": "c = d", "z": "e = f"}, outputs=list("abcdef"))
    lead = plant_report(reconcile([[0.0, 2.6] * 3] * 20, 1.0, pairs).logbook(), title="A plant").lead
    assert lead.startswith("20 of 20 rows (100 %) fail")
    assert "No single sensor or balance stands out: errors may be larger than was said" in lead


def test_the_table_of_sensors_has_their_numbers_and_the_liar_in_bold(page):
    (table,) = next(section for section in page.sections if section.title == "Sensors").tables
    assert [row[0] for row in table.rows] == NAMES
    log = reconciled().logbook()
    liar = table.rows[1]
    assert liar[1] == "measured redundant"
    assert liar[2] == "2,000"
    assert liar[6] == f"{log.totals.candidate_alarms[1]:,}"
    assert liar[7] == f"{log.totals.errors.count[1]:,}"
    size = re.fullmatch(r"(\d\.\d+) ± (0\.0\d+) kg/s", liar[8])
    assert size is not None
    assert abs(float(size[1]) - 2.0) < 0.05
    assert float(size[2]) == pytest.approx(1.96 * log.totals.errors.standard_error[1], abs=6e-4)
    assert "half of the 95 % interval" in table.caption
    assert table.bold == [(1, 0)]
    assert table.rows[3][1:3] == ["unmeasured observable", "0"]


def test_the_table_of_balances_has_units_and_tolerances(page):
    (table,) = next(section for section in page.sections if section.title == "Balances").tables
    assert [row[:3] for row in table.rows] == [
        ["first", "exact", "2,000"],
        ["second", "exact", "2,000"],
        ["third", "0.500\N{NO-BREAK SPACE}kg/s", "0"],
    ]
    assert table.rows[0][3].startswith("−1.0")
    assert [cell[-4:] for cell in table.rows[0][3:5]] == ["kg/s", "kg/s"]
    assert table.rows[2][3] == "–"
    assert not any("±" in cell for row in table.rows for cell in row[:6])


def test_the_worst_rows_come_with_time_and_suspect(page):
    (table,) = next(section for section in page.sections if section.title == "Worst rows").tables
    result = reconciled()
    worst = int(np.argmax(result.statistic))
    assert table.rows[0][:2] == [f"{worst + 1:,}", str(WHEN[worst]).replace("T", " ")]
    assert table.rows[0][4] == "sensor b [kg/s]"
    assert len(table.rows) == 10


def test_drawings_say_what_they_show_and_that_they_are_thinned(page, undrawn):
    section = page.sections[0]
    assert section.title == "Over time"
    alts = [figure.alt for figure in section.figures]
    assert re.match(r"Line of the global test over 2,000 rows; 1,0\d\d are above the threshold", alts[0])
    assert [alt.split(" over time")[0] for alt in alts[1:]] == [
        "Adjustments of b [kg/s]", "Adjustments of a [kg/s]", "Adjustments of c <x> [kg/s]"
    ]  # fmt: skip
    (note,) = section.notes
    assert re.search(r"the extremes of every \d rows", note)
    short = plant_report(reconciled(rows=100).logbook(), title="A plant").sections[0]
    assert not short.notes


def test_names_are_text_and_the_page_loads_nothing(page):
    html = render(page)
    assert "<x>" not in html
    assert not re.search(r"<script|<link|src=|@import", html)
    assert "[balances]" in html
    assert "plant.csv" in html
    assert html.count("<svg ") == 4


def test_a_million_rows_make_a_page_of_ordinary_size():
    log = reconciled().logbook()
    for _ in range(9):
        log = log + log
    assert log.totals.rows == 2000 * 2**9
    assert len(render(plant_report(log, title="A plant")).encode()) < 500_000
