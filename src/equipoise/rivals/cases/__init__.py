"""Cases: synthetic tables to compare methods on, each made by seeded code and described by a job file."""

from equipoise.rivals.cases.case import Case, CaseError, CaseTable, Split
from equipoise.rivals.cases.collection import named_case, names, write_case

__all__ = ["Case", "CaseError", "CaseTable", "Split", "named_case", "names", "write_case"]
