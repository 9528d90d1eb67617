from .balance_diagnosis import (
    HOLDS_TO_ROUNDING as HOLDS_TO_ROUNDING,
    MAX_LISTED_ROWS as MAX_LISTED_ROWS,
    BalanceFinding as BalanceFinding,
)
from .column_diagnosis import (
    ColumnFinding as ColumnFinding,
    column_warnings as column_warnings,
    copy_warnings as copy_warnings,
    diagnose_column as diagnose_column,
    duplicated_rows as duplicated_rows,
)
from .diagnosis import Diagnosis as Diagnosis, diagnose as diagnose
from .discovery import DiscoveryError as DiscoveryError, SearchWarning as SearchWarning, propose as propose
from .proposals import Proposal as Proposal
from .repairs import Repair as Repair
from .residual_outliers import OutlyingRow as OutlyingRow
