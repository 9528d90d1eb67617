from .cells import complete as complete, numbers as numbers, resemble_numbers as resemble_numbers
from .conversion import ColumnConverter as ColumnConverter
from .files import (
    DELIMITERS as DELIMITERS,
    AmbiguousNumberError as AmbiguousNumberError,
    MissingError as MissingError,
    TableError as TableError,
    check_source as check_source,
    stem_of as stem_of,
)
from .memory_map import memory_mapped as memory_mapped
from .number_format import NumberFormat as NumberFormat
from .reading import chunks as chunks, complete_numbers as complete_numbers, header as header, read as read
from .row_numbers import (
    count_blank_rows as count_blank_rows,
    describe_rows as describe_rows,
    locate_rows as locate_rows,
    row_noun as row_noun,
)
from .time_column import TimeColumn as TimeColumn
from .writing import TableWriter as TableWriter
