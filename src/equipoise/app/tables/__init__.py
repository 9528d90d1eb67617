"""Tables in files: csv, tsv, text and parquet, compressed too, read and written piece by piece.

A text table is read as what it says: a cell is text until `numbers` makes a number of it, so that columns nobody
computes with are carried through as they are (`Carrier`). Memory does not grow with the file, and a written file
appears whole or not at all.
"""

from equipoise.app.tables.carrying import Carrier
from equipoise.app.tables.cells import complete, numbers
from equipoise.app.tables.clock import Clock
from equipoise.app.tables.files import MissingError, TableError
from equipoise.app.tables.mapping import memory_mapped
from equipoise.app.tables.reading import chunks, complete_numbers, header, read
from equipoise.app.tables.writing import TableWriter

__all__ = [
    "Carrier",
    "Clock",
    "MissingError",
    "TableError",
    "TableWriter",
    "chunks",
    "complete",
    "complete_numbers",
    "header",
    "memory_mapped",
    "numbers",
    "read",
]
