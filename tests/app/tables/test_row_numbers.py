"""Rows are called by the line at which an editor shows them."""

from pathlib import Path

import pandas as pd
import pytest

from equipoise.app.tables.row_numbers import count_blank_rows, describe_rows, locate_rows, row_noun

GAPS = 'a,b\n\n0,x\n1,"two\nlines"\n\n\n2,y\n3,"z"\n'


@pytest.mark.parametrize("text", [GAPS, GAPS.replace("\n", "\r\n"), GAPS.replace(",", ";")])
def test_blank_lines_and_line_breaks_in_cells_count(table, text):
    path = table(text)
    shown = text.splitlines()
    assert locate_rows([3, 0, 2, 1], path) == [1 + next(i for i, s in enumerate(shown) if s[:1] == c) for c in "3021"]


def test_titles_and_lines_of_delimiters_count(table):
    path = table("Plant A\n\na;b\n0;x\n;\n1;y\n;\n")
    assert locate_rows([1, 0], path) == [6, 4]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("a,b\n1,2\n,\n\n , \n3,4\n,\n5,6\n", 3),
        ("a,b\n1,2\n\n3,4\n", 0),  # a blank line
        ("Plant A,\n,\na,b\n,\n1,2\n3,4\n,\n,\n", 0),  # above and below
        ('a,b\n1,"x\n,\n"\n3,4\n', 0),  # in a cell
        ("a\n1\n\n2\n", 0),
    ],
)
def test_rows_without_any_value_are_counted_between_the_others(table, text, count):
    assert count_blank_rows(table(text)) == count


def test_a_file_without_lines_has_rows_from_one(tmp_path):
    path = tmp_path / "t.parquet"
    pd.DataFrame({"a": [1, 2, 3]}).to_parquet(path)
    assert (row_noun(path), locate_rows([2, 0], path)) == ("row", [3, 1])
    assert count_blank_rows(path) == 0
    assert (row_noun(Path("nowhere.csv")), locate_rows([4], Path("nowhere.csv"))) == ("row", [5])


def test_several_are_told_in_their_order(table):
    path = table(GAPS)
    assert describe_rows([2], path) == "line 8"
    assert describe_rows([3, 0, 2], path) == "lines 9, 3 and 8"
