from . import battery as battery
from .case import Case as Case, CaseError as CaseError, CaseTable as CaseTable, Split as Split
from .collection import named_case as named_case, names as names, write_case as write_case
