"""How a text table is written: encoding, delimiter, decimal sign, titles; and its records, read accordingly."""

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

from equipoise.app.tables.files import DELIMITERS, TableError, damage_named, format_of, opened
from equipoise.app.tables.signs import OTHER, Signs, decimal_sign, gathered, is_undecided
from equipoise.balances import quoted_list

MISSING: frozenset[str] = frozenset(("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None"))
NUMBER = r"[+-]?(?:[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)(?:[eE][+-]?[0-9]+)?"

_CANDIDATES = (",", ";", "\t", "|")
_BLANK = ' \t\r\n,;|"'
_SNIFFED_LINES = 200
_MOST_TITLES = 20
_NUMBER = re.compile(NUMBER)


@dataclass(frozen=True)
class Dialect:
    """How a text table is written."""

    encoding: str
    delimiter: str
    decimal: str
    titles: int = 0  # records above the header
    undecided: bool = False  # whether the decimal sign may separate thousands as well


def dialect_of(path: Path) -> Dialect:
    """Recognise how a text table is written.

    UTF-8 (a line that is none is taken for Windows-1252, which has the printed part of Latin-1) or UTF-16; comma,
    semicolon, tab or |; and, where the delimiter is no comma, decimals with a comma if most columns have them.
    Lines of one text above one of several are titles.
    """
    state = path.stat()
    return _sniffed(path, state.st_mtime_ns, state.st_size)


@contextmanager
def reader_of(path: Path) -> Iterator[Any]:
    """A `csv.reader` over the records of a text table, header first; see `filled` for blank lines."""
    dialect = dialect_of(path)
    with lines_of(path, dialect.encoding) as lines:
        reader = csv.reader(lines, delimiter=dialect.delimiter, strict=True)
        try:
            deque(islice(filled(reader), dialect.titles), maxlen=0)
            yield reader
        except csv.Error as error:
            raise _broken(error, f"line {reader.line_num} of '{path.name}'") from None


def filled(records: Iterable[list[str]]) -> Iterator[list[str]]:
    """Records but for blank lines and those of delimiters alone, as spreadsheets write them below a table.

    Example:
        >>> list(filled([["a", "b"], [], ["", " "], ["", "1"]]))
        [['a', 'b'], ['', '1']]
    """
    return filter(_is_filled, records)


def _is_filled(record: list[str]) -> bool:
    return any(map(str.strip, record)) or record == [""]  # a missing cell in quotes, in a table of one column


def n_hollow(path: Path) -> int:
    """How many lines of delimiters alone stand between the rows of a text table: those below it do not count."""
    dialect = dialect_of(path)
    with lines_of(path, dialect.encoding) as lines:
        if not any(dialect.delimiter in line and not line.strip(_BLANK) for line in lines):
            return 0
    count = since = 0
    with reader_of(path) as reader:
        deque(islice(filled(reader), 2), maxlen=0)  # the header and the first row
        for record in reader:
            if _is_filled(record):
                count, since = count + since, 0
            elif len(record) > 1:
                since += 1
    return count


def column_names(cells: Sequence[str], path: Path) -> tuple[str, ...]:
    """Names without surrounding blanks; one without name is called after its position. Raises if one occurs twice."""
    names = tuple(cell.strip() or f"unnamed {j}" for j, cell in enumerate(cells, start=1))
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        rule = f"Columns of '{path.name}' must have different names"
        raise TableError(f"{rule}, but got {quoted_list(twice)} more than once. Rename or drop them.")
    return names


def _broken(error: csv.Error, where: str) -> TableError:
    if "field limit" in str(error):
        rule = f"Cells must have {csv.field_size_limit():,} characters at most"
        return TableError(f"{rule}, but got more up to {where}. Shorten the cell, or close its quotes.")
    return TableError(f"Quotes must enclose whole cells, but got {where} ({error}). Correct them.")


@lru_cache(maxsize=16)
def _sniffed(path: Path, modified: int, size: int) -> Dialect:
    """The dialect of a file as it was at a time."""
    with damage_named(path), opened(path) as file:
        encoding = "utf-16" if file.read(2) in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    with lines_of(path, encoding) as lines:
        first = list(islice(lines, _SNIFFED_LINES))
        _check_text(first, path)
        own = DELIMITERS[format_of(path)[0]]  # taken where none fits better
        delimiter = max((own, *_CANDIDATES), key=lambda candidate: _fit(first, candidate))
        titles = _checked_titles(first, delimiter, path)
        columns = [] if delimiter == "," else _signs(chain(first, lines), delimiter)
        decimal = decimal_sign(columns, delimiter)
        return Dialect(encoding, delimiter, decimal, titles, is_undecided(columns, decimal, delimiter))


def _check_text(lines: list[str], path: Path) -> None:
    if any("\0" in line for line in lines):
        raise TableError(f"'{path.name}' must be a text table, but got binary data. Save it as csv.")
    if not any(line.strip(_BLANK) for line in lines):
        raise TableError(f"'{path.name}' must begin with a line of column names, but got an empty file.")


def _records(lines: list[str], delimiter: str) -> list[list[str]]:
    return list(filled(csv.reader(lines, delimiter=delimiter)))


def _checked_titles(lines: list[str], delimiter: str, path: Path) -> int:
    try:
        records = _records(lines, delimiter)
    except csv.Error:  # told when the table is read
        return 0
    titles = _titles(records)
    _check_names(records[titles:], path)
    return titles


def _titles(records: list[list[str]]) -> int:
    """How many lines of a single text stand above a line of several that has no number either: the header.

    A first cell without a name is that of an index, as pandas writes it, and a name beside it no title.
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
    """Raise if most columns have no name, and a line below, still above all numbers, has more of them."""
    head = records[0]
    for record in records[1:_MOST_TITLES]:
        if _holds_data(record) or _begins_with_index(head):
            return
        if 2 * _n_texts(head) <= len(head) == len(record) and _n_texts(record) > _n_texts(head):
            got = f"{_n_texts(head)} names, {quoted_list(list(filter(None, head)))}, for {len(head)} columns"
            rule = f"The first line of '{path.name}' must name the columns"
            raise TableError(f"{rule}, but got {got}. Delete what stands above the header.")


def _fit(lines: list[str], delimiter: str) -> tuple:
    """How well a delimiter explains lines: several columns, equally many in every line, numbers in them."""
    try:
        records = _records(lines, delimiter)
        head, *body = records[_titles(records) :]
    except csv.Error:
        return (False,)
    if len(head) == 1:
        return (False,)
    number = re.compile(NUMBER if delimiter != "," else NUMBER.replace(",", ""))
    cells = [cell.strip() for row in body for cell in row]
    numeric = sum(cell in MISSING or number.fullmatch(cell) is not None for cell in cells)
    even = sum(len(row) == len(head) for row in body)
    return True, even / max(len(body), 1), numeric / max(len(cells), 1), len(head)


def _signs(lines: Iterable[str], delimiter: str) -> list[Signs]:
    """What columns show. Whole numbers do not tell the decimal sign: lines are looked at until a number does."""
    columns, records = [], filled(csv.reader(lines, delimiter=delimiter))
    with suppress(csv.Error):  # a quote that is never closed: told when the table is read
        for columns in gathered(islice(records, 1, None), _SNIFFED_LINES):
            if any(column.shows(sign) for column in columns for sign in OTHER):
                break
    return columns


@contextmanager
def lines_of(path: Path, encoding: str) -> Iterator[Iterator[str]]:
    """The lines of a text table, each in its own encoding if need be."""
    with (
        damage_named(path),
        opened(path) as file,
        io.TextIOWrapper(file, encoding, "surrogateescape", newline="") as text,
    ):
        yield map(_repaired, text)


def _repaired(line: str) -> str:
    if line.isascii():
        return line
    try:
        line.encode()
    except UnicodeEncodeError:  # bytes that are no UTF-8 came through as surrogates
        return line.encode("utf-8", "surrogateescape").decode("cp1252", "replace")
    return line
