"""Tables into files: exact, and whole or not at all."""

import csv
import resource
import signal

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from equipoise.app.tables import TableError, TableWriter, chunks, read

NAMES = ["t.csv", "t.tsv", "t.txt", "t.csv.gz", "t.tsv.bz2", "t.csv.xz", "t.csv.zip", "t.parquet"]
FRAME = pd.DataFrame({"Voltage [V]": [0.1, np.nan, 1e-300], "id": ["007", "a,b\t", '"']})


def write(path, frames):
    with TableWriter(path) as table:
        for frame in frames:
            table.write(frame)


def test_the_text_is_what_the_standard_library_reads(tmp_path):
    write(tmp_path / "t.csv", [FRAME, FRAME.iloc[:1]])
    with open(tmp_path / "t.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows == [["Voltage [V]", "id"], ["0.1", "007"], ["", "a,b\t"], ["1e-300", '"'], ["0.1", "007"]]


@pytest.mark.parametrize("name", NAMES)
def test_floats_are_read_back_exactly_from_every_kind_of_file(tmp_path, name):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(500, 2)) * 10.0 ** rng.integers(-300, 300, size=(500, 2))
    values[3, 1] = np.nan
    frame = pd.DataFrame(values, columns=["a", "b"])
    write(tmp_path / name, (frame.iloc[i : i + 200] for i in range(0, 500, 200)))
    pd.testing.assert_frame_equal(read(tmp_path / name), frame, check_exact=True)


cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.parquet"])
@given(rows=st.lists(st.tuples(cells, cells), min_size=1, max_size=5))
def test_any_text_is_read_back_as_it_was(tmp_path, name, rows):
    # A first column of plain words, as an unknown delimiter is found by the columns that it makes.
    frame = pd.DataFrame([("x", *row) for row in rows], columns=["kind", "a", "b"], dtype=object)
    write(tmp_path / name, [frame])
    (piece,) = chunks(tmp_path / name, text=True)
    assert piece.to_numpy().tolist() == frame.to_numpy().tolist()


def test_what_was_stored_in_parquet_goes_through_text_and_parquet_unchanged(tmp_path):
    when = pd.to_datetime(["2024-01-01 12:00", None])
    pd.DataFrame({"n": pd.array([2**60 + 1, None], dtype="Int64"), "when": when}).to_parquet(tmp_path / "in.parquet")
    write(tmp_path / "out.csv", chunks(tmp_path / "in.parquet", text=True))
    assert (tmp_path / "out.csv").read_text() == f"n,when\n{2**60 + 1},2024-01-01 12:00:00\n,\n"
    write(tmp_path / "out.parquet", chunks(tmp_path / "in.parquet", rows=1, text=True))
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "out.parquet", dtype_backend="pyarrow"),
        pd.read_parquet(tmp_path / "in.parquet", dtype_backend="pyarrow"),
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_same_table_gives_the_same_bytes(tmp_path, name):
    (tmp_path / "again").mkdir()
    for folder in (tmp_path, tmp_path / "again"):
        write(folder / name, [FRAME])
    assert (tmp_path / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.csv.zip", "t.parquet"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_an_error_leaves_what_was_there_before_and_nothing_else(tmp_path, name, error):
    (tmp_path / name).write_text("old")

    def frames():
        yield FRAME
        raise error

    with pytest.raises(error):
        write(tmp_path / name, frames())
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "old"


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_the_file_is_not_there_before_it_is_whole(tmp_path, name):
    with TableWriter(tmp_path / name) as table:
        table.write(FRAME)
        assert not (tmp_path / name).exists()
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.fixture
def small_disk():
    """No file of this process may grow beyond 10 kB, as if the disk were full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.csv.zip", "t.parquet"])
@pytest.mark.parametrize("rows", [2_000, 100_000])  # the smaller one may fail as late as when it is closed
def test_a_full_disk_is_reported_and_nothing_half_written_stays(tmp_path, small_disk, name, rows):
    frame = pd.DataFrame({"a": np.random.default_rng(0).normal(size=rows)})
    with pytest.raises(TableError, match=rf"{name}' must be writable, but got: File too large"):
        write(tmp_path / name, [frame])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_or_is_the_target_is_named(tmp_path):
    with pytest.raises(TableError, match=r"The folder of 't\.csv' must exist, but got '.*no'\. Make it first"):
        write(tmp_path / "no" / "t.csv", [FRAME])
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(TableError, match=r"must be written to a file, but got the folder '.*t\.csv'"):
        write(tmp_path / "t.csv", [FRAME])
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_an_unknown_suffix_is_refused_before_anything_is_computed(tmp_path):
    with pytest.raises(TableError, match=r"must end in .*, but got '.*t\.xlsx'"):
        TableWriter(tmp_path / "t.xlsx")


def test_pieces_must_have_the_same_columns(tmp_path):
    with pytest.raises(TableError, match=r"must have the columns 'a' and 'b', but got 'b' and 'a'"):
        write(tmp_path / "t.csv", [pd.DataFrame({"a": [1], "b": [2]}), pd.DataFrame({"b": [1], "a": [2]})])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("second", [{"a": ["x"]}, {"a": [object()]}])
def test_pieces_of_parquet_must_hold_the_same_kinds(tmp_path, second):
    with pytest.raises(TableError, match=r"'.*t\.parquet' must hold one kind of values, but got: .*'a'|column a"):
        write(tmp_path / "t.parquet", [pd.DataFrame({"a": [1.5]}), pd.DataFrame(second)])
    assert list(tmp_path.iterdir()) == []


def test_a_table_without_columns_is_refused_but_one_without_rows_is_not(tmp_path):
    with pytest.raises(TableError, match="must have columns, but got nothing to write"):
        write(tmp_path / "t.csv", [])
    write(tmp_path / "t.csv", [FRAME.iloc[:0]])
    assert (tmp_path / "t.csv").read_text() == "Voltage [V],id\n"
