"""Files that hold tables: their kinds, their packing, and what is said when they are not there or damaged."""

import bz2
import gzip
import io
import itertools
import lzma
import os
import sys
import time
import types
import zipfile
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from equipoise.app.tables.files import (
    COMPRESSIONS,
    TableError,
    check_source,
    import_pyarrow,
    open_compressed,
    open_decompressed,
    suffixes_of,
)

CONTENT = b"a,b\n1,2\n" * 1000
UNPACK = {  # by the standard library, not by ours
    "": lambda data: data,
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
    ".zip": lambda data: zipfile.ZipFile(io.BytesIO(data)).read("t.csv"),
}


@pytest.fixture
def zstandard(monkeypatch):
    """A stand-in for the optional package of that name, with the one function that is used of it."""

    def opened_with_arrow(path, mode):
        stream = pa.input_stream if mode == "rb" else pa.output_stream
        return stream(str(path), compression="zstd")

    module = types.ModuleType("zstandard")
    vars(module)["open"] = opened_with_arrow
    monkeypatch.setitem(sys.modules, "zstandard", module)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.csv", (".csv", "")),
        ("a.b.TSV", (".tsv", "")),
        ("a.txt.bz2", (".txt", ".bz2")),
        ("a.zip", (".txt", ".zip")),
        ("a.parquet", (".parquet", "")),
    ],
)
def test_the_kind_of_a_table_is_read_from_its_name(name, kind):
    assert suffixes_of(Path(name)) == kind


@pytest.mark.parametrize("name", ["a.xlsx", "a", "a.parquet.gz", "a.csv.rar"])
def test_another_kind_of_file_is_refused_with_its_name(name):
    with pytest.raises(TableError, match=rf"must end in \.csv, .*\.parquet, but got '{name}'"):
        suffixes_of(Path(name))


@pytest.mark.parametrize("compression", UNPACK)
def test_what_is_packed_is_what_the_standard_library_unpacks_and_what_is_opened(tmp_path, compression):
    path = tmp_path / f"t.csv{compression}"
    with ExitStack() as stack:
        open_compressed(stack, path, path).write(CONTENT)
    assert UNPACK[compression](path.read_bytes()) == CONTENT
    with open_decompressed(path) as file:
        assert file.read() == CONTENT


def test_what_is_packed_with_zstandard_is_opened(tmp_path, zstandard):
    path = tmp_path / "t.csv.zst"
    with ExitStack() as stack:
        open_compressed(stack, path, path).write(CONTENT)
    assert path.read_bytes()[:4] == bytes.fromhex("28b52ffd")  # RFC 8878: the magic number of a frame
    with open_decompressed(path) as file:
        assert file.read() == CONTENT


@pytest.mark.parametrize("compression", sorted(set(COMPRESSIONS) - {".zst"}))
def test_the_same_content_is_packed_into_the_same_bytes_at_any_time(tmp_path, compression, monkeypatch):
    monkeypatch.setattr(time, "time", itertools.count(1e9, 1e6).__next__)
    path = tmp_path / f"t.csv{compression}"
    parts = [tmp_path / f"{k}.part" for k in range(2)]
    for part in parts:
        with ExitStack() as stack:
            open_compressed(stack, part, path).write(CONTENT)
    assert parts[0].read_bytes() == parts[1].read_bytes()


def test_without_zstandard_it_is_said_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(TableError, match="pip install zstandard"):
        open_decompressed(tmp_path / "t.csv.zst")


def test_without_pyarrow_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(TableError, match=r"pip install equipoise\[parquet\]"):
        import_pyarrow()


def test_for_a_missing_file_the_closest_table_beside_it_is_suggested(tmp_path):
    (tmp_path / "cell.csv").write_text("a\n1\n")
    (tmp_path / "cels.cs").touch()  # closer, but no table
    with pytest.raises(TableError, match=r"cels\.csv', which does not\. Did you mean 'cell\.csv'\?"):
        check_source(tmp_path / "cels.csv")


def test_for_a_missing_file_in_a_folder_without_tables_or_a_missing_folder_that_is_said(tmp_path):
    with pytest.raises(TableError, match="There is no table in"):
        check_source(tmp_path / "cell.csv")
    with pytest.raises(TableError, match=r"There is no folder '.*no' either"):
        check_source(tmp_path / "no" / "cell.csv")


def test_a_folder_is_no_table(tmp_path):
    with pytest.raises(TableError, match="must be a file, but got the folder"):
        check_source(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / "cell.csv")
    with pytest.raises(TableError, match=r"must be a file, but got the device or pipe '.*cell\.csv'"):
        check_source(tmp_path / "cell.csv")


def test_an_archive_of_several_files_is_refused_with_their_names(tmp_path):
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("folder/", "")
        archive.writestr("a.csv", "a\n1\n")
        archive.writestr("b.csv", "b\n1\n")
    with pytest.raises(TableError, match=r"must hold one table, but got 'a\.csv' and 'b\.csv'"):
        open_decompressed(tmp_path / "t.zip")
