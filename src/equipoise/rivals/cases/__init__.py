"""Tables to compare methods on, made by seeded code, each with its job file."""

from equipoise.rivals.cases.case import Case, CaseError, Split, Table
from equipoise.rivals.cases.collection import named_case, names, write_case

__all__ = ["Case", "CaseError", "Split", "Table", "named_case", "names", "write_case"]
