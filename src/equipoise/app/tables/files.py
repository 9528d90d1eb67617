"""Files that hold tables: formats and compressions by suffix, opening them, and errors about them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from equipoise.balances import did_you_mean, quoted_list
from equipoise.errors import EquipoiseError

PathLike = str | os.PathLike[str]

DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": "\t"}  # suffixes of text tables, and their usual delimiters
COMPRESSIONS = (".gz", ".bz2", ".xz", ".zip", ".zst")

_DAMAGES = (OSError, EOFError, UnicodeError, RuntimeError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


class TableError(EquipoiseError, ValueError):
    """A table cannot be read or written."""


class AmbiguousNumberError(TableError):
    """A cell may stand for two numbers, as 1,926 may stand for 1.926 or 1926."""


class MissingError(TableError):
    """A cell is missing in a column that must be complete."""


class MissingTableError(TableError, FileNotFoundError):
    """A table that is to be read does not exist."""


def check_source(path: PathLike) -> Path:
    """Check that a path names an existing file of a known table format, and return it; otherwise raise TableError."""
    path = Path(path)
    if path.is_dir():
        raise TableError(f"A table must be a file, but got the folder '{path}'. Name a file in it.")
    if not path.exists():
        raise MissingTableError(f"A table must exist, but got '{path}', which does not. {_suggestion(path)}")
    if not path.is_file():
        raise TableError(f"A table must be a file, but got the device or pipe '{path}'. It is read more than once.")
    suffixes_of(path)
    return path


def suffixes_of(path: Path) -> tuple[str, str]:
    """Return the suffix of a table's format and that of its compression ("" if none), in lower case.

    Raises: TableError if the name of the file does not end in a known format.

    Example:
        >>> suffixes_of(Path("cell.CSV.gz")), suffixes_of(Path("cell.parquet"))
        (('.csv', '.gz'), ('.parquet', ''))
    """
    if (suffixes := _known_suffixes(path)) is None:
        known = f"{', '.join(DELIMITERS)}, packed with {', '.join(COMPRESSIONS)} or not, or in .parquet"
        raise TableError(f"The name of a table must end in {known}, but got '{path}'. Save it as one of these.")
    return suffixes


def stem_of(path: Path) -> str:
    """Return the name of a table's file without the suffixes of its format and its compression.

    Example:
        >>> stem_of(Path("plant.2024.csv.gz")), stem_of(Path("cell.CSV"))
        ('plant.2024', 'cell')
    """
    kind, compression = suffixes_of(path)
    name = path.name[: len(path.name) - len(compression)]
    return name[: -len(kind)] if name.lower().endswith(kind) else name


def is_parquet(path: Path) -> bool:
    """Return whether the name of a table's file ends in .parquet."""
    return suffixes_of(path)[0] == ".parquet"


def open_decompressed(path: Path) -> Any:
    """Open a text table and return a binary stream of its decompressed bytes."""
    compression = suffixes_of(path)[1]
    if compression == ".zip":
        return _zip_member(path)
    if compression == ".zst":
        return io.BufferedReader(_zstandard().open(path, "rb"))
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    return openers.get(compression, open)(path, "rb")


def open_compressed(stack: ExitStack, part: Path, path: Path) -> Any:
    """Open a stream that compresses into a file.

    The same content gives the same bytes: neither the name of the part file nor the time is stored.

    Args:
        stack: Closes the stream at its end.
        part: The file that is written.
        path: The file that `part` will be renamed to; its suffix decides on the compression.
    Returns: A binary stream for uncompressed bytes.
    """
    compression = suffixes_of(path)[1]
    if compression == ".zst":
        return stack.enter_context(_zstandard().open(part, "wb"))
    raw: Any = stack.enter_context(part.open("wb"))
    if compression == ".gz":
        return stack.enter_context(gzip.GzipFile("", "wb", 6, raw, mtime=0))
    if compression == ".zip":
        member = zipfile.ZipInfo(path.stem)
        member.compress_type = zipfile.ZIP_DEFLATED
        return stack.enter_context(stack.enter_context(zipfile.ZipFile(raw, "w")).open(member, "w", force_zip64=True))
    packers: dict[str, Any] = {".bz2": bz2.BZ2File, ".xz": lzma.LZMAFile}
    return stack.enter_context(packers[compression](raw, "wb")) if compression else raw


@contextmanager
def report_damage(path: Path) -> Iterator[None]:
    """Raise a TableError that names the file for errors of reading and decompressing in the `with` block."""
    try:
        yield
    except _DAMAGES as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise TableError(f"'{path.name}' must be readable to its end, but got: {reason}. Is it damaged?") from error


def import_pyarrow() -> Any:
    """Load pyarrow, an optional dependency that reads and writes parquet; raise TableError if it is not installed."""
    try:
        import_module("pyarrow.parquet")
    except ImportError:
        raise TableError("Parquet tables need the package pyarrow: pip install equipoise[parquet]") from None
    return import_module("pyarrow")


def _zstandard() -> Any:
    try:
        return import_module("zstandard")
    except ImportError:
        raise TableError("Tables packed as .zst need the package zstandard: pip install zstandard") from None


def _zip_member(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:  # the member keeps the archive's file open
        names = [name for name in archive.namelist() if not name.endswith("/")]
        if len(names) != 1:
            raise TableError(f"'{path.name}' must hold one table, but got {quoted_list(names)}. Unpack it.")
        return archive.open(names[0])


def _known_suffixes(path: Path) -> tuple[str, str] | None:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSIONS else ""
    kind = suffixes[-1] if suffixes else ".txt" if compression else ""
    plain_parquet = kind == ".parquet" and not compression
    return (kind, compression) if kind in DELIMITERS or plain_parquet else None


def _suggestion(path: Path) -> str:
    """Suggest a table to read instead of a file that does not exist."""
    if not path.parent.is_dir():
        return f"There is no folder '{path.parent}' either."
    tables = sorted(file.name for file in path.parent.iterdir() if file.is_file() and _known_suffixes(file))
    return did_you_mean(path.name, tables) if tables else f"There is no table in '{path.parent.resolve()}'."
