from .balance_diagnosis import TO_ROUNDING as TO_ROUNDING, BalanceFinding as BalanceFinding, OutlyingRow as OutlyingRow
from .column_diagnosis import (
    ColumnFinding as ColumnFinding,
    copies_in_words as copies_in_words,
    duplicated_rows as duplicated_rows,
    in_words as in_words,
    look_at_column as look_at_column,
)
from .diagnosis import LISTED as LISTED, Diagnosis as Diagnosis, diagnose as diagnose
from .discovery import DiscoveryError as DiscoveryError, SearchWarning as SearchWarning, propose as propose
from .proposals import Proposal as Proposal
from .repairs import Repair as Repair
