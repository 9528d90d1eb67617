"""The format of a text table (encoding, delimiter, decimal sign, titles), and its records, read accordingly."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

from equipoise.app.tables.files import DELIMITERS, TableError, open_decompressed, report_damage, suffixes_of
from equipoise.app.tables.separators import OTHER_SIGN, ColumnSeparators, decimal_sign, has_ambiguous_sign, scan_columns
from equipoise.balances import quoted_list

MISSING: frozenset[str] = frozenset(("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None"))
NUMBER = r"[+-]?(?:[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)(?:[eE][+-]?[0-9]+)?"

_CANDIDATES = (",", ";", "\t", "|")
_BLANK = ' \t\r\n,;|"'
_SNIFFED_LINES = 200
_MOST_TITLES = 20
_NUMBER = re.compile(NUMBER)


@dataclass(frozen=True)
class TextFormat:
    """How a text table is written.

    Attributes:
        encoding: Name of its encoding.
        delimiter: Sign between cells.
        decimal: Decimal sign, "." or ",".
        titles: Number of records above the header.
        ambiguous: Whether the decimal sign may separate thousands as well.
    """

    encoding: str
    delimiter: str
    decimal: str
    titles: int = 0
    ambiguous: bool = False


def text_format_of(path: Path) -> TextFormat:
    """Recognise how a text table is written.

    The encoding is UTF-8 (lines that are not valid UTF-8 are read as Windows-1252, which includes the printable part of
    Latin-1) or UTF-16. The delimiter is a comma, semicolon, tab or |. Where it is not a comma, numbers have decimal
    commas if most columns have them. Lines with a single text above a line with several texts are titles.

    Raises: TableError if the file is empty, is not text, or has no line of column names.
    """
    state = path.stat()
    return _recognise(path, state.st_mtime_ns, state.st_size)


@contextmanager
def open_records(path: Path) -> Iterator[Any]:
    """Open a text table as a `csv.reader` over its records, header first, blank ones included (see `skip_blank`)."""
    text_format = text_format_of(path)
    with open_lines(path, text_format.encoding) as lines:
        reader = csv.reader(lines, delimiter=text_format.delimiter, strict=True)
        try:
            deque(islice(skip_blank(reader), text_format.titles), maxlen=0)
            yield reader
        except csv.Error as error:
            raise _quoting_error(error, f"line {reader.line_num} of '{path.name}'") from None


def skip_blank(records: Iterable[list[str]]) -> Iterator[list[str]]:
    """Filter out records without any text: blank lines, and delimiters alone as spreadsheets write below a table.

    Example:
        >>> list(skip_blank([["a", "b"], [], ["", " "], ["", "1"]]))
        [['a', 'b'], ['', '1']]
    """
    return filter(_has_text, records)


def _has_text(record: list[str]) -> bool:
    return any(map(str.strip, record)) or record == [""]  # a quoted missing cell in a table of one column


def count_blank_records(path: Path) -> int:
    """Count the lines of delimiters alone between the rows of a text table, excluding those below the last row."""
    text_format = text_format_of(path)
    with open_lines(path, text_format.encoding) as lines:
        if not any(text_format.delimiter in line and not line.strip(_BLANK) for line in lines):
            return 0
    count = pending = 0
    with open_records(path) as reader:
        deque(islice(skip_blank(reader), 2), maxlen=0)  # the header and the first row
        for record in reader:
            if _has_text(record):
                count, pending = count + pending, 0
            elif len(record) > 1:
                pending += 1
    return count


def column_names(cells: Sequence[str], path: Path) -> tuple[str, ...]:
    """Return the names of columns, from the cells of a header.

    Args:
        cells: Cells of the header.
        path: The table's file, which messages name.
    Returns: Names without surrounding blanks; column j without a name, counted from 1, is called "unnamed j".
    Raises: TableError if a name occurs twice.
    """
    names = tuple(cell.strip() or f"unnamed {j}" for j, cell in enumerate(cells, start=1))
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        rule = f"Columns of '{path.name}' must have different names"
        raise TableError(f"{rule}, but got {quoted_list(repeated)} more than once. Rename or drop them.")
    return names


def _quoting_error(error: csv.Error, where: str) -> TableError:
    if "field limit" in str(error):
        rule = f"Cells must have {csv.field_size_limit():,} characters at most"
        return TableError(f"{rule}, but got more up to {where}. Shorten the cell, or close its quotes.")
    return TableError(f"Quotes must enclose whole cells, but got {where} ({error}). Correct them.")


@lru_cache(maxsize=16)
def _recognise(path: Path, modified: int, size: int) -> TextFormat:
    """Recognise the format of a file; its time and size tell versions apart in the cache."""
    with report_damage(path), open_decompressed(path) as file:
        encoding = "utf-16" if file.read(2) in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    with open_lines(path, encoding) as lines:
        first = list(islice(lines, _SNIFFED_LINES))
        _check_text(first, path)
        usual = DELIMITERS[suffixes_of(path)[0]]  # wins a tie
        delimiter = max((usual, *_CANDIDATES), key=lambda candidate: _delimiter_score(first, candidate))
        titles = _checked_titles(first, delimiter, path)
        columns = [] if delimiter == "," else _scan_separators(chain(first, lines), delimiter)
        decimal = decimal_sign(columns, delimiter)
        return TextFormat(encoding, delimiter, decimal, titles, has_ambiguous_sign(columns, decimal, delimiter))


def _check_text(lines: list[str], path: Path) -> None:
    if any("\0" in line for line in lines):
        raise TableError(f"'{path.name}' must be a text table, but got binary data. Save it as csv.")
    if not any(line.strip(_BLANK) for line in lines):
        raise TableError(f"'{path.name}' must begin with a line of column names, but got an empty file.")


def _records(lines: list[str], delimiter: str) -> list[list[str]]:
    return list(skip_blank(csv.reader(lines, delimiter=delimiter)))


def _checked_titles(lines: list[str], delimiter: str, path: Path) -> int:
    try:
        records = _records(lines, delimiter)
    except csv.Error:  # raised again when the table is read
        return 0
    titles = _count_titles(records)
    _check_names(records[titles:], path)
    return titles


def _count_titles(records: list[list[str]]) -> int:
    """Count the titles: records with a single text above the header, a record with several texts and no number.

    A header may begin with an empty cell, for an index as pandas writes it.
    """
    for n_above, (record, below) in enumerate(pairwise(records[: _MOST_TITLES + 2])):
        if _holds_data(record):
            break
        if _n_texts(record) > 1 or _begins_with_index(record):
            return n_above if len(below) == len(record) else 0
    return 0


def _n_texts(record: list[str]) -> int:
    return sum(map(bool, map(str.strip, record)))


def _holds_data(record: list[str]) -> bool:
    cells = [cell.strip() for cell in record]
    return any(_NUMBER.fullmatch(cell) or (cell and cell in MISSING) for cell in cells)


def _begins_with_index(head: list[str]) -> bool:
    return not head[0].strip() and len(head) > 1 and all(map(str.strip, head[1:]))


def _check_names(records: list[list[str]], path: Path) -> None:
    """Raise TableError if most columns have no name and a record below it, but above all numbers, names more."""
    head = records[0]
    for record in records[1:_MOST_TITLES]:
        if _holds_data(record) or _begins_with_index(head):
            return
        if 2 * _n_texts(head) <= len(head) == len(record) and _n_texts(record) > _n_texts(head):
            got = f"{_n_texts(head)} names, {quoted_list(list(filter(None, head)))}, for {len(head)} columns"
            rule = f"The first line of '{path.name}' must name the columns"
            raise TableError(f"{rule}, but got {got}. Delete what stands above the header.")


def _delimiter_score(lines: list[str], delimiter: str) -> tuple:
    """Score a delimiter: whether it gives several columns, shares of even rows and of numbers, number of columns."""
    try:
        records = _records(lines, delimiter)
        head, *body = records[_count_titles(records) :]
    except csv.Error:
        return (False,)
    if len(head) == 1:
        return (False,)
    pattern = re.compile(NUMBER if delimiter != "," else NUMBER.replace(",", ""))
    cells = [cell.strip() for row in body for cell in row]
    numeric = sum(cell in MISSING or pattern.fullmatch(cell) is not None for cell in cells)
    even = sum(len(row) == len(head) for row in body)
    return True, even / max(len(body), 1), numeric / max(len(cells), 1), len(head)


def _scan_separators(lines: Iterable[str], delimiter: str) -> list[ColumnSeparators]:
    """Summarise the points and commas of all columns, reading lines until a number proves a decimal sign."""
    columns, records = [], skip_blank(csv.reader(lines, delimiter=delimiter))
    with suppress(csv.Error):  # a quote that is never closed raises when the table is read
        for columns in scan_columns(islice(records, 1, None), _SNIFFED_LINES):
            if any(column.proves_decimal(sign) for column in columns for sign in OTHER_SIGN):
                break
    return columns


@contextmanager
def open_lines(path: Path, encoding: str) -> Iterator[Iterator[str]]:
    """Open a text table as an iterator over its lines; those that are not valid UTF-8 are decoded as Windows-1252.

    Args:
        path: The table's file, which may be compressed.
        encoding: Name of its encoding.
    """
    with (
        report_damage(path),
        open_decompressed(path) as file,
        io.TextIOWrapper(file, encoding, "surrogateescape", newline="") as text,
    ):
        yield map(_decode_windows, text)


def _decode_windows(line: str) -> str:
    if line.isascii():
        return line
    try:
        line.encode()
    except UnicodeEncodeError:  # bytes that are not UTF-8 were decoded as surrogates
        return line.encode("utf-8", "surrogateescape").decode("cp1252", "replace")
    return line
