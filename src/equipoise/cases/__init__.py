"""Tables to compare methods on, made by seeded code, each with its job file."""

from equipoise.cases.case import Case, CaseError, Split, Table
from equipoise.cases.collection import named_case, names, write_case

__all__ = ["Case", "CaseError", "Split", "Table", "named_case", "names", "write_case"]
