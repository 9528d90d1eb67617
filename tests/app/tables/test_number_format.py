"""How numbers are written: columns with separators of thousands, against what was written in a known way."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from equipoise.app.tables import number_format as module
from equipoise.app.tables.number_format import NumberFormat

COUNT, SWAPPED = itertools.count(), str.maketrans(",.", ".,")


def test_cells_become_what_python_takes_for_numbers():
    cells = ["1.5", "1,000.5", "1,234,567", "x"]
    assert NumberFormat(".").normalise(cells, "a") == ["1.5", "1000.5", "1234567", "x"]
    assert NumberFormat(",").normalise([cell.translate(SWAPPED) for cell in cells], "a") == [
        "1.5",
        "1000.5",
        "1234567",
        "x",
    ]


def test_a_sign_that_may_be_either_is_never_taken_for_a_decimal_point():
    assert NumberFormat(",").normalise(["1.926", "3.5", "01.03"], "a") == ["1?926", "3?5", "01?03"]
    assert NumberFormat(".").normalise(["1,926"], "a") == ["1,926"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(st.integers(-(10**7), 10**7), min_size=1, max_size=20))
def test_whole_numbers_come_back_from_a_german_export(tmp_path, numbers):
    numbers = [*numbers, 947, 1926]
    rows = [f"{n:,};{n / 4 + 0.1:.2f}".translate(SWAPPED) for n in numbers]
    path = tmp_path / f"{next(COUNT)}.csv"  # what is known of a file is kept for as long as its time and size last
    path.write_text("\n".join(["n;x", *rows]))
    number_format = NumberFormat.of(path)
    assert number_format.grouped_columns == {"n"}
    cells = [row.split(";")[0] for row in rows]
    assert [int(text) for text in number_format.normalise(cells, "n")] == numbers


@pytest.mark.parametrize(
    ("text", "grouped"),
    [
        ("n;x\n1.926;0,5\n947;2\n", {"n"}),
        ("n;x\n1.926;0,5\n0;2\n", set()),  # 0 may stand for what was not measured
        ("n;x\n1.926;0,5\n2.004;2\n", set()),
        ("n;x\n1.926;0,5\n947;2\n3.5;2\n", set()),
        ("n;x\n1.926;0,5\n947;2\n01.03;2\n", set()),
        ("n;x\n1.926;0,5\n947;2\n1926;2\n", set()),
        ("n;x\n1.926;1\n947;2\n", set()),
        (" n ;\n1.926;0,5\n947;2\n", {"n"}),
        ("n;x\n1.926;1.926\n947;2,5\n2;3\n", {"n"}),  # in x it stands beside decimals
        ("n\tx\n1,926\t0.5\n947\t2\n", {"n"}),
        ('n,x\n"1,926",0.5\n947,2\n', {"n"}),
        ('n,x\n"1,926",1\n947,2\n', set()),
        ("n,x\n1.926,0.5\n947,2\n", set()),
        ("n;x\n", set()),
    ],
)
def test_columns_with_separators_of_thousands_are_found(table, text, grouped):
    assert NumberFormat.of(table(text)).grouped_columns == grouped


def test_a_file_is_asked_once_for_all_cells_of_a_column(table, monkeypatch):
    number_format, asked = NumberFormat.of(table("n;x\n1.926;0,5\n947;1\n")), []
    monkeypatch.setattr(module, "_find_grouped_columns", lambda *file: asked.append(file) or {"n"})
    assert number_format.normalise(["1.926", "2.004", "947"] * 100, "n") == ["1926", "2004", "947"] * 100
    assert len(asked) == 1


def test_the_last_row_has_its_say_as_the_first_has(table):
    path = table("n;x\n" + "1.926;0,5\n" * 5000 + "947;1\n")
    assert NumberFormat.of(path).grouped_columns == {"n"}
    assert (
        NumberFormat.of(table("n;x\n" + "1.926;0,5\n947;1\n" * 3000 + "1926;1\n", "other.csv")).grouped_columns == set()
    )
