"""Tables in files: csv, tsv, text and parquet, compressed too, read and written piece by piece.

In: paths of files, names of columns. Out: data frames, arrays of numbers, files, and `TableError` with column, line and
value. Cells of a text table stay text until `numbers` converts them, so that columns without a role in the computation
can be copied unchanged (`ColumnConverter`). Memory does not grow with the file, and a file is written whole or not at
all.

Calls: `data`, `balances`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
