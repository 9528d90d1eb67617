from . import trends as trends
from .classical_reconciliation import (
    BeforeAfter as BeforeAfter,
    Reconciliation as Reconciliation,
    reconcile as reconcile,
)
from .gross_error_results import Candidate as Candidate, GlobalTest as GlobalTest, GrossErrorTest as GrossErrorTest
from .logbook import (
    Logbook as Logbook,
    alarms_exceed_chance as alarms_exceed_chance,
    significant_suspects as significant_suspects,
    summary_sentences as summary_sentences,
)
from .measurements import ReconciliationError as ReconciliationError
from .model_reconciliation import (
    ModelReconciliation as ModelReconciliation,
    reconcile_with_model as reconcile_with_model,
)
from .serial_elimination import Elimination as Elimination, Suspect as Suspect
from .significance import checked_level as checked_level, half_width as half_width
from .totals import Incident as Incident, equally_suspect as equally_suspect
