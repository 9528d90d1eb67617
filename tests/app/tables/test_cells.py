"""Cells as numbers: exact, and named where they are none."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from equipoise.app.tables import TableError, cells, chunks, numbers, read
from equipoise.app.tables.cells import floats, resemble_numbers


def numbers_of(path, columns, missing_ok=False, rows=2):
    return np.vstack([numbers(piece, columns, path, missing_ok=missing_ok) for piece in chunks(path, rows, text=True)])


@given(st.lists(st.floats(-1e100, 1e100), min_size=1))
def test_the_shortest_text_of_a_number_becomes_that_number_to_the_last_bit(values):
    frame = pd.DataFrame({"a": [repr(value) for value in values]}, dtype=object)
    found = numbers(frame, ["a"], "nowhere.csv", missing_ok=False)[:, 0]
    assert [value.hex() for value in found.tolist()] == [value.hex() for value in values]


@pytest.mark.parametrize("text", ["", " ", "NA", " n/a ", "NaN", "nan", "-nan", "null", "None", "#N/A"])
def test_missing_cells_are_nan(table, text):
    values = numbers_of(table(f"a,b\n1,x\n{text},x\n 3 ,x\n"), ["a"], missing_ok=True)
    np.testing.assert_array_equal(values, [[1], [math.nan], [3]])


def test_columns_come_in_the_order_asked_for(table):
    path = table("a,b,c\n1,2,3\n4,5,6\n7,8,9\n")
    np.testing.assert_array_equal(numbers_of(path, ["c", "a"]), [[3, 1], [6, 4], [9, 7]])


def test_decimal_commas_are_understood(table):
    path = table("a;b\n1,5;-2\n0,25;1,5e3\n;7\n")
    np.testing.assert_array_equal(numbers_of(path, ["a", "b"], missing_ok=True), [[1.5, -2], [0.25, 1500], [np.nan, 7]])


@pytest.mark.parametrize("days", [("01.03", "12.03"), ("12.03", "24.12")])
def test_one_column_with_points_does_not_take_the_decimal_comma_from_the_others(table, days):
    path = table(f"day;a;b\n{days[0]};1,5;-2\n{days[1]};0,25;1,5e3\n")
    np.testing.assert_array_equal(numbers_of(path, ["a", "b"]), [[1.5, -2], [0.25, 1500]])
    assert read(path)["day"].tolist() == list(days)
    with pytest.raises(TableError, match=rf"'day' must hold numbers, but got '{days[0]}' in line 2"):
        numbers_of(path, ["day"])


@pytest.mark.parametrize("rows", [1, 2, 100])
@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("a,Voltage [V]\n1,1\n2,n/a?\n", "'n/a?' in line 3"),
        ("a,Voltage [V]\n1,1\n2,inf\n", "'inf' in line 3"),
        ("a,Voltage [V]\n1,1\n2,1e999\n", "'1e999' in line 3"),
        ("a,Voltage [V]\n1,1\n\n\n2,x\n", "'x' in line 5"),
        ('a,Voltage [V]\n"1\n1",1\n"2\n2",x\n2,y\n', "'x' in line 4"),
        ('"a\nb",Voltage [V]\n1,x\n2,3\n', "'x' in line 3"),
        ("a,Voltage [V]\r\n1,1\r\n2,x\r\n", "'x' in line 3"),
        ("Plant A\na,Voltage [V]\n1,1\n,\n2,x\n", "'x' in line 5"),
    ],
)
def test_what_is_no_number_is_named_with_column_and_line(table, text, got, rows):
    with pytest.raises(TableError) as caught:
        numbers_of(table(text), ["Voltage [V]"], rows=rows)
    assert str(caught.value).startswith(f"Column 'Voltage [V]' must hold numbers, but got {got} of 'cell.csv'.")


@pytest.mark.parametrize("rows", [2, 100])
def test_a_line_of_units_below_the_header_is_told(table, rows):
    path = table("u,total,note\n-,kW,\n0.5,12,x\n1.5,13,y\n")
    for column, got in (("u", "-"), ("total", "kW")):
        advice = "Put units into the names of columns, and delete the line"
        with pytest.raises(TableError, match=rf"'{column}' .* got '{got}' in line 2 of 'cell\.csv'\. {advice}"):
            numbers_of(path, [column], rows=rows)
    for text in ("u,total\n1,kW\n2,3\n", "u,total\n-,kW\nx,3\n"):
        with pytest.raises(TableError, match=r"got 'kW' in line 2 of .* Correct it"):
            numbers_of(table(text), ["total"], rows=rows)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("a;b\n1'273.00;1.5\n", "without separators of thousands, and decimals with a point"),
        ("a;b\n1\u202f273,00;1,5\n", "without separators of thousands, and decimals with a comma"),
        ("a;b\n1\u00a0273\u00a0000;1,5\n", "without separators of thousands, and decimals with a comma"),
        ("a,b\n\u22121273.00,1\n", r"Write the minus sign as a hyphen: -1273\.00"),
        ('a,b\n"1273,00","0,086"\n', "decimals with a point, or save the table with semicolons"),
    ],
)
def test_the_advice_fits_what_was_written(table, text, advice):
    with pytest.raises(TableError, match=f"'a' must hold numbers, but got .* in line 2 .*{advice}"):
        numbers_of(table(text), ["a"])


@pytest.mark.parametrize("bad", [0, 1, 2047, 4097, 9998, 9999])
def test_the_first_cell_that_is_no_number_is_found_without_looking_at_each_alone(monkeypatch, bad):
    looks = []
    monkeypatch.setattr(cells, "floats", lambda *some: looks.append(some) or floats(*some))
    frame = pd.DataFrame({"a": ["1.5"] * bad + ["x"] + ["y", "2"] * 5000}, dtype=object)
    with pytest.raises(TableError, match=f"'a' must hold numbers, but got 'x' in row {bad + 1} of"):
        numbers(frame, ["a"], "nowhere.csv", missing_ok=True)
    assert len(looks) < 20


@pytest.mark.parametrize(
    ("text", "got", "advice"),
    [
        ("a;b\n1,5;1\n1.500;2\n", "'1.500' in line 3", "decimals with a comma"),
        ("a;b\n" + "1,5;1\n" * 500 + "1.500;2\n", "'1.500' in line 502", "decimals with a comma"),  # 1500 or 1.5?
        ("a;b\n1.5;1\n1,500;2\n", "'1,500' in line 3", "decimals with a point"),
        ("a;b\n1,5;1,5\n1,000.5;2\n", "'1,000.5' in line 3", "without separators .* decimals with a comma"),
        ('a,b\n1,1\n"1,000",2\n', "'1,000' in line 3", "without separators of thousands, and decimals with a point"),
        ('a,b\n1,1\n"1.000,5",2\n', "'1.000,5' in line 3", "without separators of thousands"),
        ("a;b\n1.926;1\n947;2\n", "'1.926' in line 2", "Is it 1926 or 1,926\\? Write it without separators"),
        ("a;b\n1,926;1\n947;2\n", "'1,926' in line 2", "Is it 1926 or 1\\.926\\? Write it without separators"),
        ("a;b\n1.926;1,5\n12.004;2,5\n", "'1.926' in line 2", "Is it 1926 or 1,926"),  # three decimals, all of them
        ("a;b\n1.926;1,5\n947;2,5\n1926;2\n", "'1.926' in line 2", "Is it 1926 or 1,926"),
        ('a,b\n1,1\n"1,5",2\n', "'1,5' in line 3", "Write decimals with a point"),
        ("a\tb\n173,525\t80,527\n10,539\t9,393\n", "'173,525' in line 2", "Is it 173525 or 173,525\\? .* 173,5250"),
        ("a\tb\n1.926\t2,345\n3.114\t5,678\n", "'1.926' in line 2", "Is it 1926 or 1\\.926\\? No cell tells"),
        ("b\ta\n1.926\t2,345\n3.114\t5,678\n", "'2,345' in line 2", "Is it 2345 or 2\\.345\\?"),
        ("a\tb\n80,527\t3\n", "'80,527' in line 2", "Is it 80527 or 80,527\\? No cell tells"),
        ("a;b\n1.000;2.273\n1.933;2.004\n", "'1.000' in line 2", "Is it 1000 or 1.000\\? .* decimal: 1.0000"),
        ("a;b\n1,086;1\n", "'1,086' in line 2", "Is it 1086 or 1,086"),
        ("a;b\n1,086;2.273\n", "'1,086' in line 2", "Is it 1086 or 1,086"),
        ("b;a\n1,086;2.273\n", "'2.273' in line 2", "Is it 2273 or 2,273"),
    ],
)
def test_no_guess_is_made_between_decimal_signs(table, text, got, advice):
    with pytest.raises(TableError, match=f"got {got} .*{advice}"):
        numbers_of(table(text), ["a"])


@pytest.mark.parametrize(("cell", "unit"), [("2 V", "[V]"), ("2%", "[%]"), ("20 °C", "[°C]"), ("(2)", ""), ("2 *", "")])
def test_what_stands_behind_a_number_is_advised_to_be_named_if_it_is_a_unit(table, cell, unit):
    with pytest.raises(TableError) as caught:
        numbers_of(table(f"a,b\n{cell},1\n"), ["a"])
    advice = f"unit into the column's name: {unit}." if unit else "Correct it; where an output was not measured"
    assert advice in str(caught.value)


@pytest.mark.parametrize("rows", [1, 2, 100])
@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a;b\n1.926;1,5\n947;2,5\n12.004;\n", [1926, 947, 12004]),
        ("a;b\n947;1,5\n12;2,5\n-1.926;\n", [947, 12, -1926]),
        ("a|b\n1,926|1.5\n947|2.5\n", [1926, 947]),
        ("a;b\n1.000,5;1\n1.250;2\n950,5;3\n", [1000.5, 1250, 950.5]),
        ("a;b\n1.234.567;1\n1.250;2\n", [1234567, 1250]),
        ('a,b\n1,1\n"-12,345,678.5",2\n', [1, -12345678.5]),
        ('a,b\n"1,000.50",1\n"999.00",2\n', [1000.5, 999]),
        ('a,b\n"1,926",0.5\n947,2\n', [1926, 947]),
    ],
)
def test_separators_of_thousands_are_understood_where_a_column_leaves_no_doubt(table, text, values, rows):
    path = table(text)
    np.testing.assert_array_equal(numbers_of(path, ["a"], rows=rows)[:, 0], values)
    np.testing.assert_array_equal(read(path)["a"], values)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a;b\n1,086;0,5\n2,273;1\n", [1.086, 2.273]),
        ("a;b\n1,086;7\n" + "2,273;1\n" * 2 + "1,0860;7\n", [1.086, 2.273, 2.273, 1.086]),
        ("a;b\n1.086;1.5\n2.273;1\n", [1.086, 2.273]),
        ("a\tb\n1.086\t1\n2.273\t1\n", [1.086, 2.273]),  # nothing decides, but that is how tables are written
        ("a|b\n1.086|1\n2.273|1\n", [1.086, 2.273]),
        ("a,b\n1.086,1\n2.273,1\n", [1.086, 2.273]),
    ],
)
def test_three_decimals_in_every_row_are_decimals_where_another_cell_says_so(table, text, values):
    path = table(text)
    np.testing.assert_array_equal(numbers_of(path, ["a"])[:, 0], values)
    np.testing.assert_array_equal(read(path)["a"], values)


@pytest.mark.parametrize("neighbour", ["2", "NA"])
@pytest.mark.parametrize("delimiter", [",", ";"])
@pytest.mark.parametrize("cell", ["1_000", "١٢", "1２"])
def test_what_only_python_takes_for_a_number_is_text(table, cell, delimiter, neighbour):
    decimal = {",": "0.5", ";": "0,5"}[delimiter]
    path = table(f"a,b\n{neighbour},x\n{cell},x\n".replace(",", delimiter) + f"{decimal}{delimiter}x\n")
    with pytest.raises(TableError, match=f"'a' must hold numbers, but got '{cell}' in line 3"):
        numbers_of(path, ["a"], missing_ok=True)
    assert read(path)["a"].dtype.kind == "O"


@pytest.mark.parametrize(
    ("cells", "meant"),
    [
        (["12 kW", "13 kW", "off"], True),
        (["12 kW", "off"], False),
        (["12 kW", "", "NA", " "], True),
        (["01.03", "12.03", "24.12"], False),  # days
        (["1,5", "2,5", "bad"], True),
        (["1'000", "€ 5", "1e3 W"], True),
        (["08:30", "08:31"], False),
        (["", "NA"], False),
    ],
)
def test_columns_that_were_meant_to_hold_numbers_are_told_from_texts(cells, meant):
    assert resemble_numbers(cells) == meant


def test_a_missing_cell_is_named_where_none_may_be(table):
    with pytest.raises(TableError, match=r"'a' must hold a number in every row, but got none in line 4 of 'cell\.csv'"):
        numbers_of(table("a,b\n1,2\n1,2\n,2\n"), ["b", "a"])


def test_a_column_without_any_number_is_named(table):
    path = table("a,b\n,1\nNA,2\n")
    with pytest.raises(TableError, match="'a' must hold a number in every row, but got none in any row") as caught:
        numbers_of(path, ["a"])
    assert type(caught.value) is TableError  # and no MissingError: no row is left if such rows are left out
    assert np.isnan(numbers_of(path, ["a"], missing_ok=True)).all()


def test_the_closest_name_is_suggested_for_a_column_that_is_not_there(table):
    path = table("Voltage [V],b\n1,2\n")
    with pytest.raises(TableError, match=r"'cell\.csv' .* none called 'voltage'\. Did you mean 'Voltage \[V\]'"):
        numbers_of(path, ["voltage"])


def test_a_table_of_one_column_is_asked_for_its_delimiter(table):
    with pytest.raises(TableError, match=r"none called 'a'.*one column only: is its delimiter .* no title above"):
        numbers_of(table("a:b:c\n1:2:3\n"), ["a"])


def test_a_number_that_cannot_be_a_measurement_is_refused(table):
    with pytest.raises(TableError, match=r"'b' must hold numbers below 1e\+100 in size, but got '-1e300' in line 3"):
        numbers_of(table("a,b\n1,1\n2,-1e300\n"), ["a", "b"])


def test_numbers_of_a_table_that_was_read_whole_are_checked_alike(table):
    path = table("a,b,c\n1,x,\n2,2,\ninf,3,1\n")
    frame = read(path)
    with pytest.raises(TableError, match="'b' must hold numbers, but got 'x' in line 2"):
        numbers(frame, ["b"], path, missing_ok=True)
    with pytest.raises(TableError, match="'a' must hold numbers, but got 'inf' in line 4"):
        numbers(frame, ["a"], path, missing_ok=True)
    with pytest.raises(TableError, match="'c' must hold a number in every row, but got none in line 3"):
        numbers(frame.iloc[1:], ["c"], path, missing_ok=False)
    np.testing.assert_array_equal(numbers(frame, ["c"], path, missing_ok=True), [[np.nan], [np.nan], [1]])


def test_values_of_parquet_are_numbers_or_named_by_row(tmp_path):
    path = tmp_path / "t.parquet"
    whole = pd.array([1, None, 3], dtype="Int64")
    times = pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-03"])
    pd.DataFrame({"n": whole, "when": times, "s": ["1.5", None, "x"], "ok": [True, False, True]}).to_parquet(path)
    np.testing.assert_array_equal(numbers_of(path, ["n", "ok"], missing_ok=True), [[1, 1], [math.nan, 0], [3, 1]])
    with pytest.raises(TableError, match=r"'when' must hold numbers, but got '2024-01-01 00:00:00' in row 1 of"):
        numbers_of(path, ["when"])
    with pytest.raises(TableError, match=r"'s' must hold numbers, but got 'x' in row 3 of"):
        numbers_of(path, ["s"], missing_ok=True)
