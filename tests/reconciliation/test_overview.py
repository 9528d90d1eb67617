import numpy as np
import pytest
from plants import NAN

from equipoise.balances.linear import LinearConstraint
from equipoise.reconciliation import reconcile

NAMES = ["feed [t/h]", "top [t/h]", "bottom [t/h]"]
COLUMN = LinearConstraint.from_equations("feed = top + bottom", outputs=NAMES)


def test_one_row_is_shown_as_it_is():
    result = reconcile([101.0, 60.0, 38.0], [2.0, 1.0, 1.0], COLUMN)
    table = result.to_frame()
    assert list(table.index) == NAMES
    assert list(table["unit"]) == ["t/h"] * 3
    np.testing.assert_allclose(table["measured"], [101, 60, 38])
    np.testing.assert_allclose(table["reconciled"], result.values)
    np.testing.assert_allclose(table["adjustment"], result.adjustments)
    np.testing.assert_allclose(table["± before"], result.half_widths.before)
    np.testing.assert_allclose(table["± after"], result.half_widths.after)
    assert list(table["class"]) == ["measured redundant"] * 3


def test_a_table_is_shown_by_means_over_what_is_known():
    result = reconcile([[101.0, 60.0, 38.0], [99.0, 60.0, NAN], [99.0, 60.0, NAN]], [2.0, 1.0, 1.0], COLUMN)
    table = result.to_frame()
    assert table.loc["bottom [t/h]", "measured"] == 38
    assert table.loc["bottom [t/h]", "reconciled"] == pytest.approx(result.values[:, 2].mean())
    assert table.loc["bottom [t/h]", "class"] == "unmeasured observable"
    expected = np.sqrt(np.square(result.half_widths.after[:, 2]).mean())
    assert table.loc["bottom [t/h]", "± after"] == pytest.approx(expected)


def test_only_reconciled_inputs_are_shown():
    mixed = LinearConstraint.from_equations("feed = top + bottom", inputs=NAMES[:1], outputs=NAMES[1:])
    assert list(reconcile([60.0, 38.0], 1.0, mixed, [101.0]).to_frame().index) == NAMES[1:]
    assert list(reconcile([60.0, 38.0], 1.0, mixed, [101.0], [2.0]).to_frame().index) == [*NAMES[1:], NAMES[0]]


def test_many_variables_are_not_all_printed():
    many = LinearConstraint(np.ones((1, 40)))
    assert "... and 10 more" in repr(reconcile(np.ones(40), 1.0, many))
    assert repr(reconcile(np.ones(40), 1.0, many)).count("measured redundant") == 30


def test_what_nothing_determines_is_shown_as_such():
    text = repr(reconcile([101.0, NAN, NAN], 1.0, COLUMN))
    assert "'top [t/h]': nan ± nan → nan ± nan t/h, unmeasured unobservable" in text
