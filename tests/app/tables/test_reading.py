"""Tables out of files: whole and in pieces, against pandas and pyarrow."""

import csv
import functools
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from equipoise.app.tables import TableError, chunks, header, read, reading

TEXT = "id,Voltage [V],time,empty\n007,1.5,2024-01-01T00:00,\n008,NA,2024-01-01T00:01,\n 9,-2e-3,,\n"


def test_numbers_are_read_as_numbers_and_text_as_text(table):
    frame = read(table(TEXT))
    assert [dtype.kind for dtype in frame.dtypes] == ["f", "f", "O", "f"]
    np.testing.assert_array_equal(frame["id"], [7.0, 8.0, 9.0])
    np.testing.assert_array_equal(frame["Voltage [V]"], [1.5, np.nan, -0.002])
    assert frame["time"].tolist() == ["2024-01-01T00:00", "2024-01-01T00:01", ""]
    assert frame["empty"].isna().all()


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_cells_are_carried_through_as_they_stand_in_the_file(table, rows):
    pieces = list(chunks(table(TEXT), rows, text=True))
    assert max(map(len, pieces)) == min(rows, 3)
    frame = pd.concat(pieces)
    assert frame.index.tolist() == [0, 1, 2]
    assert [frame.columns.tolist(), *frame.to_numpy().tolist()] == list(csv.reader(TEXT.splitlines()))


def test_pieces_hold_the_same_numbers_as_pandas_reads(tmp_path):
    values = np.random.default_rng(0).normal(size=(1000, 3)) * 10.0 ** np.arange(-150, 151, 150)
    pd.DataFrame(values, columns=["a", "b", "c"]).to_csv(tmp_path / "t.csv", index=False)
    frame = pd.concat(chunks(tmp_path / "t.csv", rows=300))
    pd.testing.assert_frame_equal(frame, pd.DataFrame(values, columns=["a", "b", "c"]), check_exact=True)


@pytest.mark.parametrize("name", ["t.csv.gz", "t.csv.bz2", "t.csv.xz", "t.csv.zip"])
def test_packed_tables_are_read_as_pandas_packs_them(tmp_path, name):
    values = pd.DataFrame({"a": [1.5, 2.5], "b": ["x", "y"]})
    values.to_csv(tmp_path / name, index=False)
    assert read(tmp_path / name).to_numpy().tolist() == [[1.5, "x"], [2.5, "y"]]


def test_columns_are_chosen_by_name_in_the_order_asked_for(table):
    path = table(TEXT)
    assert read(path, ["time", "id"]).columns.tolist() == ["time", "id"]
    piece = next(chunks(path, columns=["time", "id"], text=True))
    assert piece.iloc[0].tolist() == ["2024-01-01T00:00", "007"]


def test_a_column_that_holds_text_further_down_is_text_throughout(table, monkeypatch):
    monkeypatch.setattr(reading, "chunks", functools.partial(chunks, rows=2))
    frame = read(table("id,a\n" + "007,1\n" * 4 + "x,2\n"))
    assert frame["id"].tolist() == ["007"] * 4 + ["x"]
    assert frame["a"].dtype == np.float64
    assert frame["a"].tolist() == [1, 1, 1, 1, 2]


def test_names_keep_their_units_and_lose_surrounding_blanks(table):
    assert header(table(' Voltage [V] ,"a,b",\tT [°C]\n1,2,3\n')) == ("Voltage [V]", "a,b", "T [°C]")


def test_a_column_without_name_is_called_after_its_position(table):
    path = table(",a,\n0,1.5,\n1,2.5,\n")
    assert header(path) == ("unnamed 1", "a", "unnamed 3")
    np.testing.assert_array_equal(read(path, ["unnamed 1", "a"]), [[0, 1.5], [1, 2.5]])


def test_names_that_occur_twice_are_refused_by_name(table):
    with pytest.raises(TableError, match=r"Columns of 'cell\.csv' must have different names, but got 'a' and 'b' more"):
        header(table("a,b, a,c,b\n1,2,3,4,5\n"))


@pytest.mark.parametrize(("line", "cells"), [("1,2", 2), ("1,2,3,4", 4)])
@pytest.mark.parametrize("before", [0, 300])
def test_a_line_of_another_length_is_refused_with_its_number(table, line, cells, before):
    path = table("a,b,c\n\n" + "1,2,3\n" * before + line + "\n1,2,3\n")
    with pytest.raises(TableError, match=rf"'cell\.csv' must have 3 cells.*but got {cells} in line {before + 3}\."):
        read(path)


@pytest.mark.parametrize("rows", [1, 2, 100])
@pytest.mark.parametrize(
    "text", ["a;b;c\n1;2;3\n;;\n;5;\n;;;;;\n ; ;\n7;8;9\n;;\n;;\n", "T\n;;\na;b;c\n1;2;3\n;5;\n7;8;9\n"]
)
def test_lines_of_delimiters_alone_are_no_rows(table, text, rows):
    frame = pd.concat(chunks(table(text), rows))
    assert frame.index.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(frame, [[1, 2, 3], [np.nan, 5, np.nan], [7, 8, 9]])


def test_a_missing_cell_in_a_table_of_one_column_is_a_row(table):
    np.testing.assert_array_equal(read(table('a\n1\n""\n3\n'))["a"], [1, np.nan, 3])


@pytest.mark.parametrize("above", ["Plant A, 1 March", "Device:,XY\nOperator:,Ann"])
def test_a_first_line_that_is_no_header_is_refused_with_advice(table, above):
    got = r"'cell\.csv' must name every column, but got 2 names, and 4 cells in most lines\. Delete what stands above"
    with pytest.raises(TableError, match=got):
        read(table(f"{above}\nt,a,b,c\n1,2,3,4\n1,2,3,4\n"))


@pytest.mark.parametrize("text", ["a,b\n", "a,b", "a;b\r\n\r\n", "a;b\n;\n"])
def test_a_header_without_rows_is_refused_but_can_be_asked_for(table, text):
    path = table(text)
    assert header(path) == ("a", "b")
    with pytest.raises(TableError, match=r"'cell\.csv' must hold rows, but got a header only"):
        read(path)
    with pytest.raises(TableError, match="a header only"):
        next(chunks(path, text=True))


def test_unknown_columns_and_missing_files_are_refused_before_anything_is_read(table):
    with pytest.raises(TableError, match=r"none called 'Voltag'\. Did you mean 'Voltage"):
        chunks(table(TEXT), columns=["Voltag"])
    with pytest.raises(TableError, match=r"Did you mean 'cell\.csv'"):
        chunks(table(TEXT).with_name("cel.csv"))
    with pytest.raises(TableError, match="rows must be 1 at least, but got 0"):
        chunks(table(TEXT), rows=0)


@pytest.mark.parametrize("name", ["t.csv.gz", "t.csv.xz", "t.csv.bz2"])
def test_a_file_that_was_cut_off_is_refused_by_name(tmp_path, name):
    frame = pd.DataFrame({"a": np.random.default_rng(1).random(4_000)})
    frame.to_csv(tmp_path / name, index=False)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(TableError, match=rf"'{name}' must be readable to its end"):
        read(tmp_path / name)


def peak_of_reading(path, **options):
    for _ in chunks(path, **options):  # what is imported and kept once does not count
        break
    tracemalloc.start()
    try:
        assert sum(len(piece) for piece in chunks(path, **options)) > 0
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("long_training")  # as if nobody looked: executed annotations take memory and time
@pytest.mark.parametrize(("name", "text"), [("t.csv", True), ("t.csv.gz", False)])
def test_memory_does_not_grow_with_the_file(tmp_path, name, text):
    peaks = []
    for n in (1_000, 10_000):
        pd.DataFrame({"a": np.arange(n) / 7, "b": "text"}).to_csv(tmp_path / name, index=False)
        peaks.append(peak_of_reading(tmp_path / name, rows=250, text=text))
    assert peaks[1] < 1.1 * peaks[0]
    assert peaks[1] < 1_000_000  # all cells would take more than 1 MB: 20,000 texts of 50 bytes at least


def stored(tmp_path, **options):
    when = pd.to_datetime(["2024-01-01 12:00", None, "2024-01-03 00:00"]).tz_localize("UTC")
    frame = pd.DataFrame({" n ": pd.array([2**53 + 1, None, 3], dtype="Int64"), "v": [0.1, np.nan, 3], "when": when})
    frame["s"] = ["007", None, "x"]
    frame.to_parquet(tmp_path / "t.parquet", **options)
    return frame


def test_parquet_is_read_in_pieces_with_names_stripped(tmp_path):
    stored(tmp_path, row_group_size=2, index=False)
    path = tmp_path / "t.parquet"
    assert header(path) == ("n", "v", "when", "s")
    pieces = list(chunks(path, rows=2, columns=["s", "v", "n"]))
    assert [piece.index.tolist() for piece in pieces] == [[0, 1], [2]]
    frame = read(path, ["s", "v", "n"])
    assert frame.columns.tolist() == ["s", "v", "n"]
    assert frame["v"].dtype == frame["n"].dtype == np.float64
    np.testing.assert_array_equal(frame["n"], [2.0**53, np.nan, 3.0])


def test_values_of_parquet_are_carried_through_as_they_were_stored(tmp_path):
    original = stored(tmp_path, index=False)
    (piece,) = chunks(tmp_path / "t.parquet", text=True)
    again = pa.Table.from_pandas(piece, preserve_index=False).replace_schema_metadata(None)
    expected = pq.read_table(tmp_path / "t.parquet").replace_schema_metadata(None)
    assert again.rename_columns(expected.column_names).equals(expected)
    assert piece["n"][0] == original[" n "][0] == 2**53 + 1


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"a,b\n1,2\n", lambda data: b""])
def test_a_damaged_parquet_file_is_refused_by_name(tmp_path, damage):
    stored(tmp_path)
    path = tmp_path / "t.parquet"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(TableError, match=r"'t\.parquet' must be a whole parquet file"):
        header(path)


def test_a_parquet_file_without_rows_is_refused(tmp_path):
    pd.DataFrame({"a": pd.Series([], dtype=float)}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(TableError, match="a header only"):
        read(tmp_path / "t.parquet")
