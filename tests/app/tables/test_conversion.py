"""Columns carried into another file: nothing is lost, and numbers arrive as numbers, whatever the pieces."""

import functools

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from equipoise.app.tables import ColumnConverter, TableWriter, chunks, conversion, read
from equipoise.app.tables.conversion import ColumnContent

TEXTS = ["t.csv", "t.tsv", "t.csv.gz"]


def carried(source, target, rows=2):
    converter = ColumnConverter(source, target)
    with TableWriter(target) as written:
        for piece in chunks(source, rows, text=True):
            written.write(converter.convert(piece).assign(told=0.25))
    return target


@pytest.mark.parametrize("name", [*TEXTS, "t.parquet"])
def test_numbers_with_a_decimal_comma_are_carried_over_with_a_point(tmp_path, table, name):
    source = table("id;a;note\n007;1,5;a, b\n008;-2,5e-3;1,2,3\n009;;\n", "source.csv")
    again = read(carried(source, tmp_path / name))
    np.testing.assert_array_equal(again["a"], [1.5, -0.0025, np.nan])
    np.testing.assert_array_equal(again["told"], 0.25)
    assert again["note"].tolist()[:2] == ["a, b", "1,2,3"]


@pytest.mark.parametrize("name", [*TEXTS, "t.parquet"])
def test_a_text_is_carried_over_as_it_stands_also_where_its_column_holds_numbers(tmp_path, table, name):
    source = table('a;note\n1,5;3,4\n2,5;7,5\n3,5;1.926\n4,5;"1,5;x"\n', "source.csv")
    (piece,) = chunks(carried(source, tmp_path / name), text=True)
    assert piece["note"].tolist() == ["3,4", "7,5", "1.926", "1,5;x"]


@pytest.mark.parametrize("name", [*TEXTS, "t.parquet"])
def test_separators_of_thousands_do_not_become_decimals(tmp_path, table, name):
    source = table("n;a;day\n1.926;1.000,5;12.03\n947;-2,5;24.12\n12.004;3;\n", "source.csv")
    again = read(carried(source, tmp_path / name))
    np.testing.assert_array_equal(again["n"], [1926, 947, 12004])
    np.testing.assert_array_equal(again["a"], [1000.5, -2.5, 3])


def test_points_that_may_be_either_are_known(tmp_path, table):
    source = table("n;m;a;day\n1.926;947;1,5;12.03\n2.004;1.926;-2,5;24.12\n", "source.csv")
    converter = ColumnConverter(source, tmp_path / "t.csv")
    for piece in chunks(source, 1, text=True):
        converter.convert(piece)
    assert converter.doubtful == {"n"}


@pytest.mark.parametrize(("sign", "doubtful"), [(".", {"n"}), (",", set())])
@pytest.mark.parametrize("name", [*TEXTS, "t.parquet"])
def test_numbers_of_which_no_cell_tells_what_they_are_stay_as_they_stand(tmp_path, table, sign, doubtful, name):
    source = table("n;m\n1.926;947\n2.004;12\n".replace(".", sign), "source.csv")
    converter = ColumnConverter(source, tmp_path / name)
    (piece,) = chunks(source, text=True)
    assert converter.convert(piece)["n"].tolist() == [f"1{sign}926", f"2{sign}004"]
    assert converter.doubtful == (doubtful if name != "t.parquet" else set())


@pytest.mark.parametrize("name", TEXTS)
def test_texts_with_decimal_points_go_into_a_text_as_they_stand(tmp_path, table, name):
    source = table('id,a,b\n007," 1.50","1,000.5"\n008,NA,"-12,000"\n', "source.csv")
    (piece,) = chunks(carried(source, tmp_path / name), text=True)
    assert piece[["id", "a", "b"]].to_numpy().tolist() == [["007", " 1.50", "1,000.5"], ["008", "NA", "-12,000"]]


@pytest.mark.parametrize("rows", [1, 2, 100])
@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (["1", "2", "3"], pa.int64(), [1, 2, 3]),
        (["1", "", "NA"], pa.int64(), [1, None, None]),
        (["", "", "-3"], pa.int64(), [None, None, -3]),
        (["1", "2", "0.5"], pa.float64(), [1, 2, 0.5]),
        ([" 1.50 ", "", "1e3"], pa.float64(), [1.5, None, 1000]),
        (["", "", ""], pa.float64(), [None, None, None]),
        (["None", "", "None"], pa.string(), ["None", "", "None"]),
        (["1", "2", "x"], pa.string(), ["1", "2", "x"]),
        (["7", "8", "009"], pa.string(), ["7", "8", "009"]),
        (["0", "-0.5", ".5"], pa.float64(), [0, -0.5, 0.5]),
        ([f"{2**53 + 1}", "", "1"], pa.int64(), [2**53 + 1, None, 1]),
        ([f"{2**53 + 1}", "0.5", "1"], pa.string(), [f"{2**53 + 1}", "0.5", "1"]),
        ([f"{10**19}", "1", "2"], pa.string(), [f"{10**19}", "1", "2"]),
        (["1e999", "1", "2"], pa.string(), ["1e999", "1", "2"]),
        (["inf", "1", "2"], pa.string(), ["inf", "1", "2"]),
        (["2024-01-01", "2024-01-02", ""], pa.string(), ["2024-01-01", "2024-01-02", ""]),
        (['"1\n2"', "3", "4"], pa.string(), ["1\n2", "3", "4"]),
        (["True", "1", "0"], pa.string(), ["True", "1", "0"]),
        (["1_000", "1", "0"], pa.string(), ["1_000", "1", "0"]),
        (['"1,000"', '"2,000.5"', "3"], pa.float64(), [1000, 2000.5, 3]),
        (['"1,000"', '"2,000,000"', "3"], pa.int64(), [1000, 2000000, 3]),
    ],
)
def test_columns_of_a_text_arrive_in_parquet_as_what_they_are(tmp_path, table, cells, kind, values, rows):
    source = table("x,a\n" + "".join(f"x,{cell}\n" for cell in cells))
    stored = pq.read_table(carried(source, tmp_path / "t.parquet", rows))
    assert stored.schema.field("a").type == kind
    assert stored["a"].to_pylist() == values


@pytest.mark.parametrize("cells", [["1", "0.5", "2"], ["x", "1", "2"], ["1", "2", "x"]])
def test_all_of_a_table_decides_on_the_type_of_a_column(table, monkeypatch, cells):
    source = table("x,a\n" + "".join(f"x,{cell}\n" for cell in cells))
    whole = ColumnConverter(source, "t.parquet").kinds
    monkeypatch.setattr(conversion, "chunks", functools.partial(chunks, rows=1))
    assert ColumnConverter(source, "t.parquet").kinds == whole


@settings(max_examples=50)
@given(st.lists(st.one_of(st.floats(-1e99, 1e99).map(repr), st.integers(-(10**20), 10**20).map(str)), max_size=3))
def test_what_is_taken_for_numbers_loses_no_digit(cells):
    kind = ColumnContent.of(cells).kind
    for cell in (cell for cell in cells if cell.lstrip("-").isdigit()):
        assert kind != "Int64" or -(2**63) <= int(cell) < 2**63
        assert kind != "float64" or int(float(cell)) == int(cell)


def test_what_was_stored_in_parquet_stays_as_it_was(tmp_path):
    frame = pd.DataFrame({"n": pd.array([2**60 + 1, None], dtype="Int64"), "s": ["007", "1,5"]})
    frame.to_parquet(tmp_path / "in.parquet")
    stored = pq.read_table(carried(tmp_path / "in.parquet", tmp_path / "t.parquet", 1))
    assert stored["n"].to_pylist() == [2**60 + 1, None]
    assert stored["s"].to_pylist() == ["007", "1,5"]
