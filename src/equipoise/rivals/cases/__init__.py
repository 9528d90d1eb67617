"""Cases: synthetic tables to compare methods on, each made by seeded code and described by a job file."""

from equipoise.rivals.cases.case import Case, CaseError, Split, Table
from equipoise.rivals.cases.collection import named_case, names, write_case

__all__ = ["Case", "CaseError", "Split", "Table", "named_case", "names", "write_case"]
