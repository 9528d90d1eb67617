from . import drawing as drawing
from .alarms import Candidate as Candidate, GlobalTest as GlobalTest, GrossErrorTest as GrossErrorTest
from .classical import BeforeAfter as BeforeAfter, Reconciliation as Reconciliation, reconcile as reconcile
from .elimination import Elimination as Elimination, Suspect as Suspect
from .judgement import more_than_chance as more_than_chance, standing_out as standing_out, verdicts as verdicts
from .logbook import Logbook as Logbook
from .measurements import ReconciliationError as ReconciliationError
from .significance import checked_level as checked_level, half_width as half_width
from .tally import Incident as Incident, equally_suspect as equally_suspect
from .with_model import ModelReconciliation as ModelReconciliation, reconcile_with_model as reconcile_with_model
