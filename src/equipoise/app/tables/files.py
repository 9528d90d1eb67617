"""Files that hold tables: which kinds there are, how they are packed, what is wrong with them."""

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

DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": "\t"}  # suffixes of text tables, and what they are written with
COMPRESSIONS = (".gz", ".bz2", ".xz", ".zip", ".zst")

_DAMAGES = (OSError, EOFError, UnicodeError, RuntimeError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


class TableError(EquipoiseError, ValueError):
    """A table that cannot be read or written, and why."""


class DoubtError(TableError):
    """A cell that may be one number or another."""


class MissingError(TableError):
    """A cell that must be there and is not."""


def existing(path: PathLike) -> Path:
    """The path of a table that is there and of a known kind."""
    path = Path(path)
    if path.is_dir():
        raise TableError(f"A table must be a file, but got the folder '{path}'. Name a file in it.")
    if not path.exists():
        raise TableError(f"A table must exist, but got '{path}', which does not. {_instead(path)}")
    if not path.is_file():
        raise TableError(f"A table must be a file, but got the device or pipe '{path}'. It is read more than once.")
    format_of(path)
    return path


def format_of(path: Path) -> tuple[str, str]:
    """The suffixes of a table: that of its kind, and that of its compression, or nothing.

    Example:
        >>> format_of(Path("cell.CSV.gz")), format_of(Path("cell.parquet"))
        (('.csv', '.gz'), ('.parquet', ''))
    """
    if (found := _recognised(path)) is None:
        known = f"{', '.join(DELIMITERS)}, packed with {', '.join(COMPRESSIONS)} or not, or in .parquet"
        raise TableError(f"The name of a table must end in {known}, but got '{path}'. Save it as one of these.")
    return found


def stem_of(path: Path) -> str:
    """The name of a table without the suffixes of its kind and its compression.

    Example:
        >>> stem_of(Path("plant.2024.csv.gz")), stem_of(Path("cell.CSV"))
        ('plant.2024', 'cell')
    """
    kind, compression = format_of(path)
    name = path.name[: len(path.name) - len(compression)]
    return name[: -len(kind)] if name.lower().endswith(kind) else name


def is_parquet(path: Path) -> bool:
    return format_of(path)[0] == ".parquet"


def opened(path: Path) -> Any:
    """A binary stream of the unpacked bytes of a text table."""
    compression = format_of(path)[1]
    if compression == ".zip":
        return _zip_member(path)
    if compression == ".zst":
        return io.BufferedReader(_zstandard().open(path, "rb"))
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    return openers.get(compression, open)(path, "rb")


def packed(stack: ExitStack, part: Path, path: Path) -> Any:
    """A stream into the file `part` that packs as the name of `path` says; `stack` closes it.

    The same bytes go to the same file: no names of part files and no times are stored.
    """
    compression = format_of(path)[1]
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
def damage_named(path: Path) -> Iterator[None]:
    """Says of which file it was that it could not be read."""
    try:
        yield
    except _DAMAGES as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise TableError(f"'{path.name}' must be readable to its end, but got: {reason}. Is it damaged?") from error


def pyarrow() -> Any:
    """The library that reads and writes parquet, an extra of this package."""
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
    with zipfile.ZipFile(path) as archive:  # stays open for as long as its member is
        names = [name for name in archive.namelist() if not name.endswith("/")]
        if len(names) != 1:
            raise TableError(f"'{path.name}' must hold one table, but got {quoted_list(names)}. Unpack it.")
        return archive.open(names[0])


def _recognised(path: Path) -> tuple[str, str] | None:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSIONS else ""
    kind = suffixes[-1] if suffixes else ".txt" if compression else ""
    plain_parquet = kind == ".parquet" and not compression
    return (kind, compression) if kind in DELIMITERS or plain_parquet else None


def _instead(path: Path) -> str:
    """What to read instead of a file that is not there."""
    if not path.parent.is_dir():
        return f"There is no folder '{path.parent}' either."
    tables = sorted(file.name for file in path.parent.iterdir() if file.is_file() and _recognised(file))
    return did_you_mean(path.name, tables) if tables else f"There is no table in '{path.parent.resolve()}'."
