"""Rows beyond what a model was trained on: counted over all tables, and told in one sentence."""

import numpy as np
import pandas as pd
import pytest
from handmade_table import cell

from equipoise.app.commands import main
from equipoise.app.commands.row_counts import RowCounts
from equipoise.artifact import model_file as artifact


@pytest.fixture
def current(fitted):
    """The range of the current that the fitted model has seen."""
    s = artifact.load(fitted).standardizer_
    return float(s.x_lowest[0]), float(s.x_highest[0])


def table_with(current, name="new.csv", n=10):
    table = cell(n, seed=1)
    table["SOC"] = 0.5
    table["Current [A]"] = current
    table.to_csv(name, index=False)
    return table


def test_it_is_told_how_many_rows_lie_beyond_and_in_which_inputs(fitted, folder, current, capsys):
    low, high = current
    far = np.full(10, (low + high) / 2)
    far[:3] = high + 0.2 * (high - low)
    table_with(far)
    assert main(["predict", str(fitted), "new.csv", "-o", "out.csv"]) == 0
    text = f"'Current [A]' from {low:.6g} to {high:.6g}"
    message = (
        f"note: 3 of 10 rows have inputs beyond those trained on ({text}): neither predictions nor their intervals"
    )
    assert message in capsys.readouterr().err
    assert main(["evaluate", str(fitted), "new.csv"]) == 0
    assert message in capsys.readouterr().err
    assert len(pd.read_csv("out.csv")) == 10


def test_nothing_is_told_of_rows_that_exceed_the_range_by_a_little(fitted, folder, current, capsys):
    low, high = current
    table_with([low - 0.04 * (high - low), high + 0.04 * (high - low)] * 5)
    assert main(["predict", str(fitted), "new.csv", "-o", "out.csv"]) == 0
    assert "beyond" not in capsys.readouterr().err


def test_rows_of_several_tables_are_counted_together(fitted, folder, current, capsys):
    table_with(current[1] * 10, "a.csv", 4)
    table_with(np.mean(current), "b.csv", 5)
    assert main(["predict", str(fitted), "a.csv", "b.csv", "-o", "parts"]) == 0
    assert "note: 4 of 9 rows" in capsys.readouterr().err


def test_counts_add_up():
    both = RowCounts(3, 1, frozenset({"a"})) + RowCounts(4, 2, frozenset({"b"}))
    assert both == RowCounts(7, 3, frozenset({"a", "b"}))
